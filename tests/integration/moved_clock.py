"""A clock that a test moves forward, in services that are processes of their own.

How far it was moved stands in a small file that all map into their memory. A service looks at it every few milliseconds,
wakes who has slept long enough, and notes how far it has come, so that the test can wait for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import mmap
import struct
from pathlib import Path
from typing import Self

from lanewarden.clock import boottime_ms

LOOK_SECONDS = 0.01
_SLOT = struct.Struct("q")
_SLOTS = ("moved", "supervisor", "runner")


class ClockFile:
    """How far the clock was moved, and how far each service has come, in milliseconds."""

    def __init__(self, path: Path) -> None:
        with path.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), _SLOT.size * len(_SLOTS))

    @classmethod
    def create(cls, path: Path) -> Self:
        """A clock that was not moved yet."""
        path.write_bytes(bytes(_SLOT.size * len(_SLOTS)))
        return cls(path)

    def get(self, slot: str) -> int:
        """How far the clock was ``moved``, or how far a service has come."""
        value: int = _SLOT.unpack_from(self._memory, _SLOTS.index(slot) * _SLOT.size)[0]
        return value

    def set(self, slot: str, value_ms: int) -> None:
        """Note it."""
        _SLOT.pack_into(self._memory, _SLOTS.index(slot) * _SLOT.size, value_ms)

    def move(self, seconds: float) -> None:
        """Let time pass."""
        self.set("moved", self.get("moved") + round(seconds * 1000))

    def steady_ms(self) -> int:
        """What a service's clock shows, if it has come that far; its wall clock as well, since nobody sets that."""
        return boottime_ms() + self.get("moved")


class MovedClock:
    """The clock of a service. Time goes on by a move between two steps of its event loop only, so that nobody who has read
    the clock and then sleeps until a time oversleeps it.
    """

    def __init__(self, file: ClockFile, service: str) -> None:
        self._file = file
        self._service = service
        self._moved_ms = file.get("moved")
        self._moved = asyncio.Event()
        self._follower: asyncio.Task[None] | None = None

    def steady_ms(self) -> int:
        """As far as the boot clock and the moves have come."""
        return boottime_ms() + self._moved_ms

    async def sleep(self, seconds: float) -> None:
        """Return after ``seconds``, moves included."""
        if self._follower is None:
            self._follower = asyncio.ensure_future(self._follow())
        end_ms = self.steady_ms() + seconds * 1000
        while (left_ms := end_ms - self.steady_ms()) > 0:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left_ms / 1000):
                    await self._moved.wait()

    async def _follow(self) -> None:
        while True:
            # Who was woken by the last move has had a moment since.
            self._file.set(self._service, self._moved_ms)
            while self._moved_ms == self._file.get("moved"):
                await asyncio.sleep(LOOK_SECONDS)
            self._moved_ms = self._file.get("moved")
            woken, self._moved = self._moved, asyncio.Event()
            woken.set()
            await asyncio.sleep(LOOK_SECONDS)
