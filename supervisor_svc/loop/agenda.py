"""Which tasks are to be looked at, and when: the earliest time that was asked for, once each. Memory only."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Iterable
from typing import Final

from lanewarden.clock import Clock
from lanewarden.waiting import first_of

SUPERSEDED_MIN: Final = 64
"""Times that were put forward stay in the heap until there are more of them than of others, and than this."""


class Agenda:
    """Used on the event loop's thread only, and taken from by one."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._due: dict[str, int] = {}
        self._heap: list[tuple[int, str]] = []
        self._moved = asyncio.Event()

    def add(self, task_ids: Iterable[str], due_ms: int | None = None) -> None:
        """Look at these at a steady time, now if none is named; what is due earlier stays due then."""
        when_ms = self._clock.steady_ms() if due_ms is None else due_ms
        for task_id in task_ids:
            if self._due.get(task_id, when_ms + 1) > when_ms:
                self._due[task_id] = when_ms
                heapq.heappush(self._heap, (when_ms, task_id))
                self._moved.set()
        if len(self._heap) > 2 * len(self._due) + SUPERSEDED_MIN:
            self._heap = [(due_ms, task_id) for task_id, due_ms in self._due.items()]
            heapq.heapify(self._heap)

    async def take(self) -> list[str]:
        """Wait until something is due; everything that is, the longest overdue first."""
        while not (due := self._pop_due()):
            self._moved.clear()
            if self._heap:
                seconds = (self._heap[0][0] - self._clock.steady_ms()) / 1000
                await first_of(self._moved.wait(), self._clock.sleep(max(0.0, seconds)))
            else:
                await self._moved.wait()
        return due

    def _pop_due(self) -> list[str]:
        now_ms, due = self._clock.steady_ms(), []
        while self._heap and self._heap[0][0] <= now_ms:
            due_ms, task_id = heapq.heappop(self._heap)
            if self._due.get(task_id) == due_ms:  # otherwise it has been put forward meanwhile
                del self._due[task_id]
                due.append(task_id)
        return due
