"""Forgets old requests, a bounded number at a time."""

from __future__ import annotations

from typing import Final

from lane_runner_svc import emitters
from lane_runner_svc.runner import Runner
from lanewarden.errors import Refusal
from lanewarden.store.requests import prune

KEEP_MS: Final = 24 * 3600 * 1000
"""How long a repeated request still gets its first answer; callers give up long before."""
EVERY_SECONDS: Final = 600.0
ROWS_MAX: Final = 5_000


async def prune_requests(runner: Runner) -> None:
    """Prune every ten minutes; never returns."""
    while True:
        await runner.clock.sleep(EVERY_SECONDS)
        pruned = ROWS_MAX
        while pruned == ROWS_MAX:
            try:
                pruned = await runner.do(
                    lambda session: prune(session.uow, session.now.steady_ms - KEEP_MS, ROWS_MAX),
                    emitter=emitters.PRUNE,
                )
            except Refusal:
                break  # nothing depends on it: the next round tries again
