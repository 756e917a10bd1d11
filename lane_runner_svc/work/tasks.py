"""Units of work about tasks: submit, cancel, pause, resume, gates, progress, complete."""

from __future__ import annotations

from dataclasses import dataclass

from lane_runner_svc.core.completion import GateDecision
from lane_runner_svc.core.happenings import CancelAsked, CompleteAsked
from lane_runner_svc.core.holds import Actor
from lane_runner_svc.core.signals import SignalKind
from lane_runner_svc.core.states import State
from lane_runner_svc.core.task import Kind, Outcome, PauseCause, Task, clipped, ended, ending
from lane_runner_svc.core.timers import Patience
from lane_runner_svc.store import holds, tasks
from lane_runner_svc.store.tasks import Reader
from lane_runner_svc.work import limits, telling
from lane_runner_svc.work.attempts import blockers, current, is_current
from lane_runner_svc.work.session import AttemptRef, Session
from lane_runner_svc.work.supervision import as_supervised
from lanewarden.errors import Reason, invalid, refuse
from lanewarden.records import replace

PROGRESS_MAX = 2**63 - 1
_ID_ALPHABET = "23456789bcdfghjkmnpqrstvwxyz"
_ID_LENGTH = 9


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """A task spec that has been checked; ``spec`` is the contract's own message, kept as it came."""

    name: str
    lane: str
    gates: tuple[str, ...]
    spec: bytes
    stop_grace_ms: int
    premature_exits_max: int
    launch_failures_max: int
    patience: Patience = Patience()
    on_success: tuple[str, ...] = ()
    hold_on_supervisor_loss: bool = False
    kind: Kind = Kind.ONE_SHOT
    parent_task_id: str = ""


def submit(session: Session, submission: Submission, owner: Actor) -> Task:
    """Store a task and queue it in its lane, or have it rest until it has input; ``owner`` answers for it.

    Raises:
        Refusal: TASK_UNKNOWN, TASK_TERMINAL or TASK_SETTLED when the parent is not here or has ended.
    """
    if submission.parent_task_id:
        parent = tasks.load(session.uow, submission.parent_task_id)
        if parent.terminal or parent.stopping:
            raise ended(parent) if parent.terminal else ending(parent)
    task = Task(
        # Letters that people can read to each other, none of which spell a word.
        task_id="t" + "".join(session.random.choices(_ID_ALPHABET, k=_ID_LENGTH)),
        name=submission.name,
        lane=submission.lane,
        gates=submission.gates,
        spec=submission.spec,
        stop_grace_ms=submission.stop_grace_ms,
        premature_exits_max=submission.premature_exits_max,
        launch_failures_max=submission.launch_failures_max,
        patience=submission.patience,
        on_success=submission.on_success,
        hold_on_supervisor_loss=submission.hold_on_supervisor_loss,
        owner=owner.identity,
        owner_role=owner.role,
        kind=submission.kind,
        parent_task_id=submission.parent_task_id,
        state=State.IDLE if submission.kind is Kind.SESSION else State.QUEUED,
        submitted_wall_ms=session.now.wall_ms,
    )
    task = as_supervised(session, task)
    session.about(task.task_id)
    tasks.insert(session.uow, task)
    telling.transition(session.uow, None, task, cause="Submit", generation=0)
    session.touch_task(task.task_id)
    session.family_changed(task)
    return task


def cancel(session: Session, task_id: str, *, cause: str, by: Actor) -> Task:
    """End a task: at once if no worker is alive, else once its worker is stopped. A second cancel changes nothing.

    Raises:
        Refusal: TASK_UNKNOWN; TASK_TERMINAL or TASK_SETTLED when it ended, or is being settled.
    """
    task = tasks.load(session.uow, task_id)
    if task.cancel_cause is not None:
        return task
    session.raise_signal(task, SignalKind.CANCEL, cause=cause or f"canceled by {by.identity}", by=by)
    return session.happen(task, CancelAsked(cause=cause, by=by))


def pause(session: Session, task_id: str) -> Task:
    """Add the operator's pause: nothing is launched until it is cleared, no on_success command either.

    Raises:
        Refusal: TASK_UNKNOWN, TASK_TERMINAL or TASK_SETTLED.
    """
    before = tasks.load(session.uow, task_id)
    task = _set_pauses(session, task_id, add=PauseCause.OPERATOR)
    if PauseCause.OPERATOR not in before.pauses:
        session.raise_signal(task, SignalKind.PAUSE, cause=f"paused by {session.by.identity}", by=session.by)
    return task


def resume(session: Session, task_id: str, cause: PauseCause = PauseCause.OPERATOR) -> Task:
    """Clear one cause of a pause and no other.

    Raises:
        Refusal: TASK_UNKNOWN, TASK_TERMINAL or TASK_SETTLED; REQUEST_INVALID for a passed deadline, which only a ruling or
            another deadline clears, and for the loss of the supervisor, which ends when there is one.
    """
    if cause is PauseCause.HOLD_DEADLINE:
        raise invalid(("cause", "a passed deadline is cleared by a ruling on the hold, or by ExtendHold"))
    if cause is PauseCause.SUPERVISOR_LOSS:
        raise invalid(("cause", "the loss of the supervisor ends when one supervises the runner again"))
    task = _set_pauses(session, task_id, remove=cause)
    if cause is PauseCause.OPERATOR:
        session.discharge(task_id, SignalKind.PAUSE, by=session.by, how="resumed")
    return task


def _set_pauses(
    session: Session, task_id: str, *, add: PauseCause | None = None, remove: PauseCause | None = None
) -> Task:
    task = tasks.load(session.uow, task_id)
    if task.over:
        raise ended(task)
    pauses = (task.pauses | {add} if add else task.pauses) - {remove}
    if pauses == task.pauses:
        return task
    until_ms = task.limited_until_ms if PauseCause.USAGE_LIMIT in pauses else None
    return session.save(task, replace(task, pauses=frozenset(pauses), limited_until_ms=until_ms))


def record_gate(session: Session, task_id: str, gate: str, decision: GateDecision, *, by: Actor, note: str) -> Task:
    """Store the decision of a review; it replaces an earlier one.

    Raises:
        Refusal: TASK_UNKNOWN, GATE_UNKNOWN, TASK_TERMINAL or TASK_SETTLED.
    """
    task = tasks.load(session.uow, task_id)
    if gate not in task.gates:
        has = ", ".join(task.gates) or "none"
        raise refuse(Reason.GATE_UNKNOWN, f"task {task_id} has no gate {gate!r}; it has: {has}", gate=gate)
    if task.terminal:
        raise ended(task)
    holds.record_gate(session.uow, task_id, task.epoch, gate, decision, by, session.now.wall_ms, note)
    return session.save(task, task)


def progress_told(reader: Reader, ref: AttemptRef, sequence: int) -> int | None:
    """The progress as stored, if a report of ``sequence`` would change nothing; None if it would, or would be refused."""
    task = tasks.load(reader, ref.task_id)
    attempt = tasks.load_attempt(reader, ref.task_id, ref.epoch, ref.attempt)
    speaks = is_current(task, attempt, ref) and task.state is not State.STARTING
    return task.progress if speaks and sequence <= (task.progress or 0) else None


def report_progress(
    session: Session, ref: AttemptRef, *, sequence: int, note: str, retry_wall_ms: int | None = None
) -> tuple[int, bool]:
    """Raise the task's progress; returns what is stored now and whether this raised it.

    ``retry_wall_ms`` is when the worker's limit of use ends. Who says that, and no sequence, has made no progress.

    Raises:
        Refusal: ATTEMPT_STALE; REQUEST_INVALID for a sequence or a time beyond its bound.
    """
    task = current(session, ref)
    known = task.progress or 0
    if retry_wall_ms is not None:
        limits.say(session, ref, retry_wall_ms)
    wanted = sequence or (known + 1 if retry_wall_ms is None else known)
    if wanted > PROGRESS_MAX:
        raise invalid(("sequence", f"at most {PROGRESS_MAX}"))
    if wanted <= known:
        return known, False
    session.save(task, replace(task, progress=wanted, progress_note=clipped(note)))
    return wanted, True


def complete(session: Session, ref: AttemptRef, *, outcome: Outcome, summary: str) -> Task:
    """Store what the worker says its task came to; the task is terminal once the worker has exited.

    Raises:
        Refusal: ATTEMPT_STALE, COMPLETION_BLOCKED with every blocker named.
    """
    task = current(session, ref)
    asked = CompleteAsked(outcome=outcome, summary=summary, blockers=blockers(session.uow, task))
    session.completed.append(ref)
    return session.happen(task, asked)
