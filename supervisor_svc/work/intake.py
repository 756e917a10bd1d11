"""Units of work about what runners tell: each item once, in order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lanewarden.errors import Reason, invalid, refuse
from lanewarden.hub import Topic
from lanewarden.store import Entity
from lanewarden.v1 import escalation_pb2, incident_pb2, task_pb2
from supervisor_svc.core.intake import takeable
from supervisor_svc.store import incidents, runners, views
from supervisor_svc.work import announce, judging
from supervisor_svc.work.presence import lease_expired
from supervisor_svc.work.session import Session

Change = escalation_pb2.Escalation | task_pb2.Task


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One change that a runner reports; ``field`` is where it stands in the request.

    ``new`` says that the runner announces an escalation; otherwise it reports it again.
    """

    sequence: int
    field: str
    change: Change | None
    new: bool = False


def check_items(runner_id: str, items: Sequence[Item]) -> None:
    """Refuse items that cannot be what the runner stored.

    Raises:
        Refusal: REQUEST_INVALID with every violation.
    """
    found = [(item.field, problem) for item in items if (problem := _problem(runner_id, item.change))]
    if found:
        raise invalid(*found)


def _problem(runner_id: str, change: Change | None) -> str:
    if change is None:
        return "carries no change that this supervisor knows"
    if change.runner_id != runner_id:
        return f"belongs to runner {change.runner_id!r}, not to {runner_id!r}"
    if not change.task_id:
        return "names no task"
    if isinstance(change, escalation_pb2.Escalation):
        return "" if change.escalation_id else "names no escalation"
    return "" if change.state else "has no state"


def take(session: Session, runner_id: str, incarnation: str, items: Sequence[Item]) -> int:
    """Take the items that come next; the highest sequence taken from this runner.

    Raises:
        Refusal: LEASE_UNKNOWN; LEASE_EXPIRED when another start of the runner has registered since (I6).
    """
    runner = runners.find(session.uow, runner_id)
    if runner is None:
        raise refuse(Reason.LEASE_UNKNOWN, f"runner {runner_id} has never registered here", runner=runner_id)
    if runner.incarnation != incarnation:
        raise lease_expired(runner_id, runner.generation)
    taken = runner.taken_sequence
    for index in takeable(taken, [item.sequence for item in items]):
        change = items[index].change
        if change is not None:
            session.uow.about(Entity("task", change.task_id))
        if isinstance(change, escalation_pb2.Escalation):
            put_escalation(session, change, new=items[index].new)
        elif change is not None:
            put_task(session, change)
        taken = items[index].sequence
    if taken != runner.taken_sequence:
        session.uow.about(Entity("runner", runner_id))
        runners.set_taken(session.uow, runner_id, taken)
    return taken


def put_escalation(session: Session, escalation: escalation_pb2.Escalation, *, new: bool) -> None:
    """Store an escalation as its runner has it now, and what people are to be told of that."""
    known = views.escalation(session.uow, escalation.escalation_id)
    _store(session, escalation)
    before = None if known is None else escalation_pb2.Escalation.FromString(known.payload)
    announce.tell(session, before, escalation, retold=not new)


def _store(session: Session, escalation: escalation_pb2.Escalation) -> None:
    views.put_escalation(
        session.uow,
        escalation_id=escalation.escalation_id,
        runner_id=escalation.runner_id,
        task_id=escalation.task_id,
        hold_state=announce.hold_state(escalation),
        payload=escalation.SerializeToString(),
        wall_ms=session.wall_ms,
    )
    session.touch(Topic("escalation", escalation.escalation_id))


def put_task(session: Session, task: task_pb2.Task) -> None:
    """Store a task as its runner has it now, and when what it says has moved."""
    known = views.task(session.uow, task.task_id)
    views.put_task(
        session.uow,
        task_id=task.task_id,
        runner_id=task.runner_id,
        state=task_pb2.TaskState.Name(task.state).removeprefix("TASK_STATE_"),
        version=task.version,
        payload=task.SerializeToString(),
        wall_ms=session.wall_ms,
        observed=judging.observed(known, task, session.steady_ms),
        unfiled=judging.unfiled(task),
    )
    for each in task.incidents:
        put_incident(session, task.task_id, each)
    session.touch(Topic("task", task.task_id))


def put_incident(session: Session, task_id: str, incident: incident_pb2.Incident) -> None:
    """Store an incident of a task as its runner has it now."""
    resolved = incident.state == incident_pb2.INCIDENT_STATE_RESOLVED
    payload, now_ms = incident.SerializeToString(), session.steady_ms
    incidents.put(session.uow, incident.key, task_id, resolved=resolved, payload=payload, now_ms=now_ms)


def learn_task(session: Session, task: task_pb2.Task) -> None:
    """Store a task that a runner answered with, unless a later report was here first."""
    if task.task_id and task.version > views.task_version(session.uow, task.task_id):
        put_task(session, task)


def learn_ack(session: Session, escalation: escalation_pb2.Escalation) -> None:
    """Show the ack that a runner answered with, unless a later report was here first.

    Nothing else of the answer is taken: reports come in order, and what people are told follows from reports alone.
    """
    view = views.escalation(session.uow, escalation.escalation_id)
    if view is None:
        return
    known = escalation_pb2.Escalation.FromString(view.payload)
    if escalation.acks > known.acks:
        known.acks = escalation.acks
        known.ack.CopyFrom(escalation.ack)
        _store(session, known)
