"""Forgets old requests, finished commands, notifications and resolved incidents, a bounded number at a time."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from lanewarden.errors import Refusal
from lanewarden.store import UnitOfWork, requests
from supervisor_svc import emitters
from supervisor_svc.store import filings, incidents, notifications, outbox
from supervisor_svc.supervisor import Supervisor

KEEP_MS: Final = 7 * 24 * 3600 * 1000
"""How long a repeated request still gets its first answer, a refused ruling is shown beside its escalation, and a
notification or a resolved incident is listed."""
EVERY_SECONDS: Final = 600.0
ROWS_MAX: Final = 5_000


async def prune(supervisor: Supervisor) -> None:
    """Prune every ten minutes; never returns."""
    forget_notifications = partial(notifications.prune, sinks=supervisor.sinks)
    while True:
        await supervisor.clock.sleep(EVERY_SECONDS)
        await _prune(supervisor, requests.prune)
        await _prune(supervisor, outbox.prune)
        await _prune(supervisor, forget_notifications)
        await _prune(supervisor, incidents.prune)
        await _prune(supervisor, filings.prune)


async def _prune(supervisor: Supervisor, forget: Callable[[UnitOfWork, int, int], int]) -> None:
    pruned = ROWS_MAX
    while pruned == ROWS_MAX:
        try:
            pruned = await supervisor.do(
                lambda session: forget(session.uow, session.steady_ms - KEEP_MS, ROWS_MAX), emitter=emitters.PRUNE
            )
        except Refusal:
            return  # nothing depends on it: the next round tries again
