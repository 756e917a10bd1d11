"""Ends leases in time, and tells whoever watches."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial

from lanewarden.errors import Refusal
from lanewarden.telemetry import Value, span_names
from lanewarden.waiting import take_within
from supervisor_svc import emitters
from supervisor_svc.core.leases import Lease
from supervisor_svc.store import runners
from supervisor_svc.supervisor import Supervisor
from supervisor_svc.work.presence import ended
from supervisor_svc.work.session import GRANTS, Session

log = logging.getLogger(__name__)


async def sweep(supervisor: Supervisor) -> None:
    """Sweep whenever a lease may change its state, at the latest every five seconds; never returns."""
    extended = {row.runner_id for row in supervisor.read(runners.everyone) if row.extended_until_ms is not None}
    with supervisor.hub.subscribe(GRANTS) as grants:
        while True:
            ending = supervisor.presence.sweep()
            try:
                await _store(supervisor, ending, extended)
            except Refusal as refusal:  # a full disk ends no service; what is not stored yet is tried at the next sweep
                log.error("a sweep could not be stored", extra={"reason": refusal.reason.name})
            _tell(supervisor)
            await take_within(grants, supervisor.clock, supervisor.presence.plan_sweep())


async def _store(supervisor: Supervisor, ending: Sequence[Lease], extended: set[str]) -> None:
    for lease in ending:
        await _end(supervisor, lease)
    for runner_id in sorted(extended):
        if supervisor.presence.renewed_since_start(runner_id):
            await supervisor.do(partial(_end_extension, runner_id), emitter=emitters.RESUMED)
            extended.discard(runner_id)


def _tell(supervisor: Supervisor) -> None:
    presence = supervisor.presence
    for runner_id in presence.runner_ids():
        if presence.changed(runner_id):
            log.info("lease", extra={"runner": runner_id, "state": presence.state(runner_id).value})
            supervisor.announce(runner_id)


async def _end(supervisor: Supervisor, lease: Lease) -> None:
    """Store the end of a lease, so that no restart brings it back. A grant made meanwhile has ended it already."""
    stored = await supervisor.do(partial(_end_lease, lease), emitter=emitters.EXPIRE)
    if stored:
        supervisor.presence.put(ended(lease))


def _end_lease(lease: Lease, session: Session) -> bool:
    ended_now = runners.end_lease(session.uow, lease.runner_id, lease.generation)
    if ended_now:
        about: dict[str, Value] = {"runner.id": lease.runner_id, "generation": lease.generation}
        session.uow.tell(span_names.LEASE_TRANSITION, {"to": "ENDED"}, about=about)
    return ended_now


def _end_extension(runner_id: str, session: Session) -> None:
    runners.end_extension(session.uow, runner_id)
