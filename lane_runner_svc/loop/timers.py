"""Fires the timers of open holds when they are due; the cost is that of what is due, however many holds are open."""

from __future__ import annotations

import logging
from typing import Final

from lane_runner_svc import emitters
from lane_runner_svc.runner import Runner
from lane_runner_svc.store import holds
from lane_runner_svc.work.timers import fire_due
from lanewarden.errors import Refusal
from lanewarden.hub import Topic
from lanewarden.waiting import take_within

log = logging.getLogger(__name__)

LOOK_SECONDS_MAX: Final = 3600.0
RETRY_SECONDS: Final = 1.0


async def run_timers(runner: Runner) -> None:
    """Never returns."""
    with runner.hub.subscribe(Topic("escalation")) as news:
        while True:
            await take_within(news, runner.clock, await _fire(runner))


async def _fire(runner: Runner) -> float:
    """Fire what is due; how many seconds until the next timer."""
    while True:
        next_ms = runner.read(holds.next_timer_ms)
        if next_ms is None:
            return LOOK_SECONDS_MAX
        if next_ms > (now_ms := runner.clock.steady_ms()):
            return min(LOOK_SECONDS_MAX, (next_ms - now_ms) / 1000)
        try:
            await runner.do(fire_due, emitter=emitters.TIMER)
        except Refusal as refusal:  # a full disk: what is due stays due
            log.warning("timers cannot be stored", extra={"reason": refusal.reason.name})
            return RETRY_SECONDS
