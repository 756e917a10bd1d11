"""Units of work about incidents: claim, record, resolve. The claim is taken here, so any number of supervisors file once."""

from __future__ import annotations

from lane_runner_svc.core import incidents as core
from lane_runner_svc.core.incidents import Filing, Incident
from lane_runner_svc.store import incidents, supervision, tasks
from lane_runner_svc.work.actions import Quote, check_epoch
from lane_runner_svc.work.session import Session
from lane_runner_svc.work.supervision import fence
from lanewarden.errors import invalid


def claim(session: Session, quote: Quote, kind: str) -> Incident:
    """The incident to file, its claim the caller's: a new one, its own again, or one whose holder supervises no more.

    While the epoch has an incident that is not resolved, that is the one, whatever kind is asked for; and one of an earlier
    epoch can still be taken over, but not begun.

    Raises:
        Refusal: SUPERVISION_FENCED, TASK_UNKNOWN, ILLEGAL_TRANSITION, CLAIM_LOST with the holder and its generation.
    """
    fence(session, quote.generation)
    task = tasks.load(session.uow, quote.task_id)
    holder = _holder(session)
    known = incidents.unresolved(session.uow, quote.task_id, quote.epoch)
    if known is not None:
        return _save(session, known, core.claim(known, holder))
    check_epoch(task, quote.epoch)
    occurrence = incidents.occurrences(session.uow, quote.task_id, quote.epoch, kind) + 1
    new = Incident(
        key=core.key_of(quote.task_id, quote.epoch, kind, occurrence),
        task_id=quote.task_id,
        epoch=quote.epoch,
        kind=kind,
        holder=holder,
        claimed_wall_ms=session.now.wall_ms,
        follows=incidents.latest_key(session.uow, quote.task_id, kind),
    )
    incidents.insert(session.uow, new)
    session.save(task, task)
    return new


def record(session: Session, quote: Quote, key: str, *, claim_generation: int, filing: Filing) -> Incident:
    """Store what came of filing; also of an incident whose epoch is over.

    Raises:
        Refusal: SUPERVISION_FENCED, INCIDENT_UNKNOWN, CLAIM_LOST, ILLEGAL_TRANSITION; REQUEST_INVALID unless there is
            either an id or a failure.
    """
    if bool(filing.external_id) == bool(filing.failure):
        raise invalid(("external_id", "must be set when it was filed, and failure when it was not; never both"))
    fence(session, quote.generation)
    incident = incidents.load(session.uow, quote.task_id, key)
    if incident.epoch != quote.epoch:
        raise invalid(("epoch", f"incident {key} is of epoch {incident.epoch}"))
    recorded = core.record(incident, filing, holder=_holder(session), claim_generation=claim_generation)
    return _save(session, incident, recorded)


def resolve(session: Session, task_id: str, key: str) -> Incident:
    """Somebody has done something about it: the next incident of its kind is another occurrence.

    Raises:
        Refusal: INCIDENT_UNKNOWN.
    """
    incident = incidents.load(session.uow, task_id, key)
    return _save(session, incident, core.resolve(incident))


def _holder(session: Session) -> str:
    current = supervision.load(session.uow)
    return f"{current.supervisor_id}/{current.supervisor_incarnation}"


def _save(session: Session, before: Incident, after: Incident) -> Incident:
    if after != before:
        incidents.update(session.uow, after)
        task = tasks.load(session.uow, after.task_id)
        session.save(task, task)
    return after
