"""Does what is due at its time: timers of open holds, and the end of limits of use.

The cost is that of what is due, however many holds are open and tasks wait.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from lane_runner_svc import emitters
from lane_runner_svc.runner import Runner
from lane_runner_svc.store import holds, tasks
from lane_runner_svc.work.limits import lift_due
from lane_runner_svc.work.session import LIMITS, Session
from lane_runner_svc.work.timers import fire_due
from lanewarden.errors import Refusal
from lanewarden.hub import Topic
from lanewarden.store import Connection, Emitter
from lanewarden.waiting import take_within

log = logging.getLogger(__name__)

LOOK_SECONDS_MAX: Final = 3600.0
RETRY_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Timer:
    """A kind of stored time: when the next one is due, and the unit of work that does what is due."""

    next_ms: Callable[[Connection], int | None]
    fire: Callable[[Session], int]
    emitter: Emitter


_TIMERS: Final = (
    _Timer(next_ms=holds.next_timer_ms, fire=fire_due, emitter=emitters.TIMER),
    _Timer(next_ms=tasks.next_limit_ms, fire=lift_due, emitter=emitters.LIMIT),
)


async def run_timers(runner: Runner) -> None:
    """Never returns."""
    with runner.hub.subscribe(Topic("escalation"), LIMITS) as news:
        while True:
            waits = [await _fire(runner, timer) for timer in _TIMERS]
            await take_within(news, runner.clock, min(waits))


async def _fire(runner: Runner, timer: _Timer) -> float:
    """Do what is due; how many seconds until the next."""
    while True:
        next_ms = runner.read(timer.next_ms)
        if next_ms is None:
            return LOOK_SECONDS_MAX
        if next_ms > (now_ms := runner.clock.steady_ms()):
            return min(LOOK_SECONDS_MAX, (next_ms - now_ms) / 1000)
        try:
            await runner.do(timer.fire, emitter=timer.emitter)
        except Refusal as refusal:  # a full disk: what is due stays due
            log.warning("timers cannot be stored", extra={"reason": refusal.reason.name})
            return RETRY_SECONDS
