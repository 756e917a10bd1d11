"""Whether a service that runs also works: what its health says, from what its own loops can be seen to do."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Final

from lanewarden.clock import Clock
from lanewarden.loop_lag import LoopLag
from lanewarden.store import Store

log = logging.getLogger(__name__)

LOOK_SECONDS: Final = 0.25
LOOK_MS_MAX: Final = 1_000
"""What one look may add to the time in which something stood still."""
LAG_MS_MAX: Final = 2_000
"""A loop that stands still longer than this loses renewals, whose calls may take a second."""

Check = Callable[[], str]
"""What is wrong, in one sentence; empty while nothing is."""


def store_works(store: Store) -> Check:
    """A failed store. A full one is not: what it refuses is new work, while holds and renewals live on."""
    return lambda: "the store has failed" if store.failed else ""


def loop_keeps_up(lag: LoopLag) -> Check:
    """An event loop that is too far behind."""
    return lambda: f"the event loop was {ms} ms behind" if (ms := lag.ms()) > LAG_MS_MAX else ""


class Advances:
    """A count that has to rise: a :data:`Check` that finds one that has stood still for ``ms_max``.

    Time in which nobody looked, because the whole process stood still, is nearly left out: the count could not rise in it.
    """

    def __init__(self, what: str, count: Callable[[], int], clock: Clock, *, ms_max: int) -> None:
        self._what = what
        self._count = count
        self._clock = clock
        self._ms_max = ms_max
        self._last = count()
        self._looked_ms = clock.steady_ms()
        self._still_ms = 0

    def __call__(self) -> str:
        now_ms, count = self._clock.steady_ms(), self._count()
        self._still_ms = 0 if count != self._last else self._still_ms + min(now_ms - self._looked_ms, LOOK_MS_MAX)
        self._last, self._looked_ms = count, now_ms
        return f"{self._what} has not advanced for {self._still_ms} ms" if self._still_ms > self._ms_max else ""


async def watch_readiness(checks: Iterable[Check], tell: Callable[[bool], None], clock: Clock) -> None:
    """Tell whenever a service that was ready ceases to pass every check, or passes them again; never returns."""
    found = list(checks)
    ready = True
    while True:
        problems = [problem for check in found if (problem := check())]
        if ready == bool(problems):
            ready = not problems
            if problems:
                log.error("not ready", extra={"problems": "; ".join(problems)})
            else:
                log.warning("ready again")
            tell(ready)
        await clock.sleep(LOOK_SECONDS)
