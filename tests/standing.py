"""A clock that stands."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

PATIENCE_SECONDS = 20.0


class StandingClock:
    """Time moves while :meth:`until` waits for something, from one sleeper's end to the next, and not otherwise."""

    def __init__(self) -> None:
        self.now_ms = 1_000_000
        self.sleepers: list[tuple[int, asyncio.Future[None]]] = []

    def steady_ms(self) -> int:
        return self.now_ms

    def wall_ms(self) -> int:
        return self.now_ms

    async def sleep(self, seconds: float) -> None:
        sleeper = asyncio.get_running_loop().create_future()
        self.sleepers.append((self.now_ms + round(seconds * 1000), sleeper))
        await sleeper

    async def until(self, happened: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not happened():
                await self.step()

    async def step(self) -> None:
        """Let everybody run; if then all sleep, go on to the first who is due."""
        for _ in range(10):
            await asyncio.sleep(0)
        self.sleepers = [(due, each) for due, each in self.sleepers if not each.done()]
        if self.sleepers:
            self.now_ms = max(self.now_ms, min(due for due, _ in self.sleepers))
            for due, each in self.sleepers:
                if due <= self.now_ms:
                    each.set_result(None)
