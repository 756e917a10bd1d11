"""Clocks: one to decide by, one to show people.

Decisions (leases, backoff, deadlines, budgets) read :meth:`Clock.steady_ms`, which follows ``CLOCK_BOOTTIME``:
it goes on during suspend and does not move when somebody sets the wall clock. Stamps that people read come from
:meth:`Clock.wall_ms` and decide nothing.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol


class Clock(Protocol):
    """What the services ask of time; the simulator gives its own."""

    def wall_ms(self) -> int:
        """Milliseconds since the Unix epoch, for people; never compared."""
        ...

    def steady_ms(self) -> int:
        """Milliseconds that only go forward, suspend included, and survive a restart of the process."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Return after ``seconds`` of steady time."""
        ...


def boot_id() -> str:
    """The kernel's id of this boot, or ``unknown`` where the platform has none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return "unknown"


_BOOTTIME: Final[int] = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def boottime_ms() -> int:
    """``CLOCK_BOOTTIME`` in milliseconds (``CLOCK_MONOTONIC`` on platforms without it)."""
    return time.clock_gettime_ns(_BOOTTIME) // 1_000_000


class SystemClock:
    """The clock of a real process.

    ``anchor_ms`` maps this boot's ``CLOCK_BOOTTIME`` onto the steady scale. The stores keep it (see
    :mod:`lanewarden.store.anchor`), so that a deadline stored before a restart means the same after it.
    """

    def __init__(self, *, anchor_ms: int = 0) -> None:
        self._anchor_ms = anchor_ms

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def steady_ms(self) -> int:
        return self._anchor_ms + boottime_ms()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


def stopwatch(clock: Clock) -> Callable[[], float]:
    """Seconds since some moment, for how long something took: as cheap as this platform has them, or by a made-up clock.

    Unlike the steady clock it does not go on during suspend, in which nothing is done.
    """
    return time.monotonic if isinstance(clock, SystemClock) else lambda: clock.steady_ms() / 1000
