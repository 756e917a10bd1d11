"""Bugs to be planted, so that the simulations can be seen to find them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from lane_runner_svc.runner import Runner
from lane_runner_svc.work.session import Session
from lanewarden.store import Emitter


class _UndoError(Exception):
    pass


def answer_before_the_commit(patch: pytest.MonkeyPatch, emitter: Emitter, *, seconds: float = 0.02) -> None:
    """What ``emitter`` writes is answered at once and committed 20 ms later, or ``seconds``: a crash in between loses what
    was accepted.
    """
    durable = Runner.do
    jobs: list[asyncio.Task[None]] = []

    async def answer_first(self: Runner, work: Callable[[Session], Any], **options: Any) -> Any:
        if options["emitter"] is not emitter:
            return await durable(self, work, **options)
        answers: list[Any] = []

        def rehearse(session: Session) -> None:
            answers.append(work(session))
            raise _UndoError

        with pytest.raises(_UndoError):
            await durable(self, rehearse, **options)

        async def commit_later() -> None:
            await asyncio.sleep(seconds)
            await durable(self, work, **options)

        jobs.append(asyncio.ensure_future(commit_later()))
        return answers[0]

    patch.setattr(Runner, "do", answer_first)
