"""Virtual time: an event loop that jumps to the next timer when nothing is ready to run, and a clock that follows it."""

from __future__ import annotations

import asyncio
import selectors
from typing import Any

WALL_MS_AT_START = 1_800_000_000_000


class DeadlockError(Exception):
    """Nothing is ready and no timer is set: everybody waits for somebody else."""


class _JumpingSelector(selectors.DefaultSelector):  # type: ignore[valid-type,misc]
    """Never waits: a wait for a timer becomes a jump of the clock."""

    def __init__(self) -> None:
        super().__init__()
        self.now_seconds = 0.0

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None:
            raise DeadlockError("nothing is ready and no timer is set")
        self.now_seconds += max(0.0, timeout)
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """Deterministic as long as nobody uses threads or sockets."""

    def __init__(self) -> None:
        self.jumping = _JumpingSelector()
        super().__init__(self.jumping)

    def time(self) -> float:
        return self.jumping.now_seconds


class VirtualClock:
    """The clock of one host; ``skew_ms`` moves its wall clock and nothing else, ``suspended_ms`` is how long the host has
    slept, which the sleeps of its processes do not notice.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, *, skew_ms: int = 0) -> None:
        self._loop = loop
        self.skew_ms = skew_ms
        self.suspended_ms = 0

    def wall_ms(self) -> int:
        return WALL_MS_AT_START + self.skew_ms + self.steady_ms()

    def steady_ms(self) -> int:
        return int(self._loop.time() * 1000) + self.suspended_ms

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
