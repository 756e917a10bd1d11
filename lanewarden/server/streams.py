"""Counts the open streams of a server, and ends them when it drains."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from lanewarden.errors import Reason, Refusal, refuse


class Streams:
    """The open streams of one server, at most ``streams_max``; used on the event loop only."""

    def __init__(self, streams_max: int) -> None:
        self._streams_max = streams_max
        self._open: set[asyncio.Task[Any]] = set()
        self._told: set[asyncio.Task[Any]] = set()
        self._ending = False

    @contextmanager
    def open(self) -> Iterator[None]:
        """Around the serving of a stream by the current task.

        Raises ``LIMIT_REACHED`` when the server has as many as it takes, ``SHUTTING_DOWN`` when it drains. A
        stream that is ended raises ``SHUTTING_DOWN`` too, after its handler has been cancelled: an empty end
        would read as an answer.
        """
        if self._ending:
            raise _shutting_down()
        if len(self._open) >= self._streams_max:
            limit = self._streams_max
            raise refuse(Reason.LIMIT_REACHED, f"{limit} streams are open already; close one", limit=limit)
        task = asyncio.current_task()
        assert task is not None  # a handler always runs in a task
        self._open.add(task)
        try:
            yield
        except asyncio.CancelledError:
            if task not in self._told:
                raise
            task.uncancel()
            raise _shutting_down() from None
        finally:
            self._open.discard(task)
            self._told.discard(task)

    def end(self) -> None:
        """Refuse further streams and cancel the handlers of the open ones."""
        self._ending = True
        for task in self._open - self._told:
            self._told.add(task)
            task.cancel()


def _shutting_down() -> Refusal:
    return refuse(Reason.SHUTTING_DOWN, "the server is shutting down; connect again")
