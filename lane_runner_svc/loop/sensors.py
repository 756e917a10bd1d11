"""Follows what programs do that cannot report their progress: one job for each attempt whose task names a source.

A look that finds nothing new writes nothing, so a silent program costs no rows. What is slow to look at is looked at less
often.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from lane_runner_svc import emitters
from lane_runner_svc.core.sensing import Source
from lane_runner_svc.runner import Runner
from lane_runner_svc.work.sensing import sense
from lane_runner_svc.work.session import AttemptRef
from lanewarden.errors import Refusal
from lanewarden.v1.task_pb2 import TaskSpec

log = logging.getLogger(__name__)

LOOK_SECONDS: Final = 2.0
REST_SHARE: Final = 20
"""A look that takes long is followed by a rest of so many times as long."""

Look = Callable[[str, str], Awaitable[int]]
"""From a directory and a pattern to a fingerprint of the files that match."""


class Sensors:
    """Used on the event loop's thread only. ``look`` is how files are looked at."""

    def __init__(self, runner: Runner, *, look: Look) -> None:
        self._runner = runner
        self._look = look
        self._lines: dict[AttemptRef, int] = {}
        self._watched: dict[AttemptRef, TaskSpec] = {}
        self._begun: asyncio.Queue[AttemptRef] = asyncio.Queue()

    def heard(self, ref: AttemptRef, lines: int) -> None:
        """A worker has written so many lines since its launch; told of every worker, also before :meth:`begin`."""
        self._lines[ref] = lines

    def begin(self, ref: AttemptRef, spec: TaskSpec) -> None:
        """A worker runs."""
        if spec.HasField("progress_from"):
            self._watched[ref] = spec
            self._begun.put_nowait(ref)

    def end(self, ref: AttemptRef) -> None:
        """It has ended."""
        self._watched.pop(ref, None)
        self._lines.pop(ref, None)

    async def run(self) -> None:
        """Follow whatever has begun; never returns."""
        async with asyncio.TaskGroup() as group:
            while True:
                group.create_task(self._follow(await self._begun.get()))

    async def _follow(self, ref: AttemptRef) -> None:
        told: int | None = None
        while spec := self._watched.get(ref):
            began_ms = self._runner.clock.steady_ms()
            try:
                told = await self._tell(ref, spec, told)
            except Refusal as refusal:  # a full disk: the next look tells of it all
                log.warning("progress cannot be stored", extra={"task": ref.task_id, "reason": refusal.reason.name})
            except Exception:  # a sensor that ended would have its task called stale
                log.exception("a sensor failed", extra={"task": ref.task_id})
            took_seconds = (self._runner.clock.steady_ms() - began_ms) / 1000
            await self._runner.clock.sleep(max(LOOK_SECONDS, REST_SHARE * took_seconds))

    async def _tell(self, ref: AttemptRef, spec: TaskSpec, told: int | None) -> int | None:
        """Look, and store what is another reading than the last; the reading that is stored now."""
        source, reading = Source.OUTPUT_LINES, self._lines.get(ref)
        if spec.progress_from.HasField("files"):
            source, reading = Source.FILES, await self._look(spec.cwd, spec.progress_from.files)
        if reading is None or reading == told:
            return told
        stored = await self._runner.do(
            partial(sense, ref=ref, source=source, reading=reading), emitter=emitters.SENSE, task_id=ref.task_id
        )
        return reading if stored else told
