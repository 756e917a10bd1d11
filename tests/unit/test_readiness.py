"""The gauge of the event loop's lag, and what makes a service ready, on a clock that the test moves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from lanewarden.loop_lag import TICK_MS, WINDOW_MS, LoopLag
from lanewarden.readiness import LAG_MS_MAX, LOOK_MS_MAX, LOOK_SECONDS, Advances, loop_keeps_up, watch_readiness


class HandClock:
    """Moves when it is told to; sleepers wake when their time has come."""

    def __init__(self) -> None:
        self.now_ms = 1_000
        self._sleepers: list[tuple[int, asyncio.Future[None]]] = []

    def wall_ms(self) -> int:
        return self.now_ms

    def steady_ms(self) -> int:
        return self.now_ms

    async def sleep(self, seconds: float) -> None:
        woken = asyncio.get_running_loop().create_future()
        self._sleepers.append((self.now_ms + round(seconds * 1000), woken))
        await woken

    async def move(self, ms: int) -> None:
        """Let time pass at once, and then everybody run who was waiting."""
        self.now_ms += ms
        due = [each for each in self._sleepers if each[0] <= self.now_ms]
        self._sleepers = [each for each in self._sleepers if each[0] > self.now_ms]
        for _, woken in due:
            if not woken.done():
                woken.set_result(None)
        for _ in range(5):
            await asyncio.sleep(0)


@asynccontextmanager
async def beside(job: asyncio.Future[None]) -> AsyncIterator[None]:
    await asyncio.sleep(0)
    try:
        yield
    finally:
        job.cancel()
        await asyncio.gather(job, return_exceptions=True)


async def test_the_lag_is_the_latest_tick_of_the_window() -> None:
    """In time: none. Late: by how much, for as long as the window lasts; the worse of two wins."""
    clock = HandClock()
    lag = LoopLag(clock)
    assert lag.ms() == 0, "nothing is known before it runs"
    async with beside(asyncio.ensure_future(lag.run())):
        await clock.move(TICK_MS)
        assert lag.ms() == 0
        await clock.move(TICK_MS + 700)
        assert lag.ms() == 700
        await clock.move(TICK_MS + 300)
        assert lag.ms() == 700
        for _ in range(WINDOW_MS // TICK_MS - 1):
            await clock.move(TICK_MS)
        assert lag.ms() == 300, "the worse one is out of the window"
        for _ in range(4):
            await clock.move(TICK_MS)
        assert lag.ms() == 0


async def test_a_tick_that_is_overdue_counts_before_it_comes() -> None:
    """Whoever asks first after a standstill sees it."""
    clock = HandClock()
    lag = LoopLag(clock)
    async with beside(asyncio.ensure_future(lag.run())):
        clock.now_ms += TICK_MS + 9_000
        assert lag.ms() == 9_000
        assert "9000 ms behind" in loop_keeps_up(lag)()


async def test_readiness_is_told_when_it_changes_and_only_then() -> None:
    """Not ready once for all that is wrong, ready again when nothing is."""
    clock, told, wrong = HandClock(), list[bool](), {"a": "", "b": ""}
    checks = [lambda: wrong["a"], lambda: wrong["b"]]
    async with beside(asyncio.ensure_future(watch_readiness(checks, told.append, clock))):
        for a, b in (("", ""), ("x", ""), ("x", "y"), ("", "y"), ("", ""), ("", "")):
            wrong |= {"a": a, "b": b}
            await clock.move(round(LOOK_SECONDS * 1000))
    assert told == [False, True]


def test_a_count_that_stands_still_is_found() -> None:
    """Only beyond the bound, and not once it rises again."""
    clock, count = HandClock(), [1]
    check = Advances("the sweep", lambda: count[0], clock, ms_max=2_000)
    for _ in range(8):
        clock.now_ms += 250
        assert check() == ""
    clock.now_ms += 250
    assert check() == "the sweep has not advanced for 2250 ms"
    count[0] += 1
    assert check() == ""


@pytest.mark.parametrize("away_ms", [60_000, 600_000])
def test_p15_a_process_that_stood_still_as_a_whole_is_not_blamed_on_its_sweep(away_ms: int) -> None:
    """SIGSTOP and suspend: no sweep could advance in that time."""
    clock = HandClock()
    check = Advances("the sweep", lambda: 1, clock, ms_max=LOOK_MS_MAX + 1)
    clock.now_ms += away_ms
    assert check() == ""


def test_the_bound_of_the_lag() -> None:
    """At it the loop keeps up; beyond it does not."""
    clock = HandClock()
    lag = LoopLag(clock)
    lag._due_ms = clock.now_ms - LAG_MS_MAX
    assert loop_keeps_up(lag)() == ""
    lag._due_ms -= 1
    assert loop_keeps_up(lag)()
