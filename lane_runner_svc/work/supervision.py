"""Units of work about who supervises this runner, and the fence: what a supervisor does by itself has an effect only while
it supervises this runner (I6).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from lane_runner_svc.core.holds import Actor
from lane_runner_svc.core.supervision import next_generation
from lane_runner_svc.core.task import Task
from lane_runner_svc.store import supervision, tasks
from lane_runner_svc.store.audit import Deed
from lane_runner_svc.store.supervision import Supervision
from lane_runner_svc.work.session import Session
from lanewarden.errors import Reason, refuse
from lanewarden.records import replace

ROLE: Final = "runner"


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """What a supervisor answered to Register. ``generation_seen`` is the highest generation of its right to act that this
    runner ever told it.
    """

    supervisor_id: str
    supervisor_incarnation: str
    address: str
    lease_generation: int
    generation_seen: int


def fence(session: Session, generation: int) -> None:
    """Let an automatic action pass; called inside its unit of work, so that no grant can come between.

    Raises:
        Refusal: SUPERVISION_FENCED when ``generation`` is not the current one, or its lease has ended.
    """
    current = supervision.load(session.uow)
    if current.live and generation == current.generation:
        session.generation = generation
        return
    raise refuse(
        Reason.SUPERVISION_FENCED,
        f"generation {generation} may not act at this runner, the current one is {current.generation}; somebody else"
        " supervises it or the lease has ended: do nothing more about its tasks until it has registered with you again",
        generation=generation,
        current_generation=current.generation,
    )


def grant(session: Session, granted: Grant, *, runner_id: str) -> Supervision:
    """Let the start of a supervisor act here, under a generation that was never used; one that may already keeps its own.

    Another owner than before is an entry in the audit that names both.
    """
    before = supervision.load(session.uow)
    seen = max(before.lease_generation_seen, granted.lease_generation)
    same = before.supervisor_incarnation == granted.supervisor_incarnation
    if before.live and same and granted.generation_seen <= before.generation:
        kept = replace(before, address=granted.address, lease_generation_seen=seen)
        if kept != before:
            supervision.put(session.uow, kept)
        return kept
    after = Supervision(
        generation=next_generation(before.generation, granted.generation_seen),
        supervisor_id=granted.supervisor_id,
        supervisor_incarnation=granted.supervisor_incarnation,
        address=granted.address,
        live=True,
        lease_generation_seen=seen,
    )
    _change(session, after)
    if not same:
        deed = Deed(by=Actor(identity=runner_id, role=ROLE), action=f"Supervise by {_owner(after)} {_from(before)}")
        session.record(deed, "OK")
    return after


def lapse(session: Session, generation: int) -> None:
    """End the right to act under ``generation``, which raises it; nothing when it has ended, or somebody else has it by
    now.
    """
    before = supervision.load(session.uow)
    if before.live and before.generation == generation:
        _change(session, replace(before, generation=next_generation(generation), live=False))


def begin(session: Session) -> None:
    """After a start: whoever supervised the runner before has to be heard anew, and what it sent before is fenced."""
    lapse(session, supervision.load(session.uow).generation)


def as_supervised(session: Session, task: Task) -> Task:
    """The task as somebody's supervision, or nobody's, has it."""
    return task.with_supervisor if supervision.load(session.uow).live else task.without_supervisor


def _change(session: Session, after: Supervision) -> None:
    """Store a grant or an end, and what it means for tasks that asked to be held without a supervisor."""
    supervision.put(session.uow, after)
    for task in tasks.held_on_supervisor_loss(session.uow):
        judged = as_supervised(session, task)
        if judged != task:
            session.save(task, judged)


def _owner(of: Supervision) -> str:
    return f"{of.supervisor_id} at {of.address}, start {of.supervisor_incarnation[:8]}, generation {of.generation}"


def _from(before: Supervision) -> str:
    if not before.generation:
        return "from nobody"
    return f"from {_owner(before)}{'' if before.live else ', lapsed'}"
