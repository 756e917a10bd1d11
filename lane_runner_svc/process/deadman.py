"""How long a worker may go on without a runner. A runner is whoever is connected to the shim."""

from __future__ import annotations

import time
from collections.abc import Callable

LOOK_SECONDS = 5.0
"""The longest time between two looks: a wait of the kernel's stands still while the machine is suspended."""


def boottime_seconds() -> float:
    """Goes on during suspend, and never jumps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Deadman:
    """Counts from the shim's start, and again from the end of each connection. None: for ever."""

    def __init__(self, stop_after_seconds: float | None, now: Callable[[], float] = boottime_seconds) -> None:
        self._stop_after_seconds = stop_after_seconds
        self._now = now
        self._lost_at: float | None = now()

    def left_seconds(self, *, connected: bool) -> float | None:
        """Until the worker is to be stopped, 0 or less when it is; None while there is a runner."""
        if connected or self._stop_after_seconds is None:
            self._lost_at = None
            return None
        if self._lost_at is None:
            self._lost_at = self._now()
        return self._lost_at + self._stop_after_seconds - self._now()
