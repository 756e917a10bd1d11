"""Units of work about holds and messages: ask, acknowledge, rule, instruct, deliver."""

from __future__ import annotations

from collections.abc import Sequence

from lane_runner_svc.core import timers
from lane_runner_svc.core.completion import GateDecision
from lane_runner_svc.core.happenings import HoldOpened, HoldReleased
from lane_runner_svc.core.holds import Actor, Hold, HoldState, Ruling, check_ruling, escalation_id, release, stamp
from lane_runner_svc.core.states import State
from lane_runner_svc.core.task import Task, ended, ending
from lane_runner_svc.store import holds, messages, tasks
from lane_runner_svc.store.messages import StoredMessage
from lane_runner_svc.work import telling
from lane_runner_svc.work.attempts import current
from lane_runner_svc.work.session import AttemptRef, Session
from lane_runner_svc.work.timers import unpark
from lanewarden.errors import Reason, Refusal, invalid, refuse
from lanewarden.records import replace
from lanewarden.telemetry import span_names
from lanewarden.walltime import rfc3339

HOLDS_PER_TASK_MAX = 100
WAITING_MAX = 1_000


def escalate(
    session: Session,
    ref: AttemptRef,
    *,
    question: str,
    options: Sequence[tuple[str, str]],
    expects_reply: bool,
    key: str = "",
) -> tuple[Hold, Task]:
    """Store what the worker asks or tells; with ``expects_reply`` its task is HELD from this commit on.

    Raises:
        Refusal: ATTEMPT_STALE; TASK_SETTLED while its worker is being stopped for a settle; LIMIT_REACHED beyond 100 open
            holds of one task; REQUEST_INVALID for repeated option keys.
    """
    keys = [key for key, _ in options]
    if len(set(keys)) != len(keys):
        raise invalid(("options", "every option needs a key of its own"))
    if options and not expects_reply:
        raise invalid(("options", "options need expects_reply: a notice has no answer"))
    task = current(session, ref)
    if expects_reply and task.settle_summary is not None:
        raise ending(task)
    if expects_reply and holds.count_blocking(session.uow, ref.task_id) >= HOLDS_PER_TASK_MAX:
        raise refuse(
            Reason.LIMIT_REACHED,
            f"task {ref.task_id} has {HOLDS_PER_TASK_MAX} holds already; wait for their rulings first",
            holds_max=HOLDS_PER_TASK_MAX,
        )
    sequence = holds.next_sequence(session.uow, ref.task_id, ref.epoch, ref.attempt)
    hold = Hold(
        escalation_id=escalation_id(ref.task_id, ref.epoch, ref.attempt, sequence),
        task_id=ref.task_id,
        epoch=ref.epoch,
        attempt=ref.attempt,
        sequence=sequence,
        question=question,
        options=tuple(options),
        state=HoldState.OPEN if expects_reply else HoldState.NONE,
        opened_wall_ms=session.now.wall_ms,
        key=key,
    )
    if expects_reply:
        hold = timers.begin(hold, task.patience, session.now.steady_ms)
    holds.insert(session.uow, hold)
    session.touch_hold(hold.escalation_id, new=True)
    if expects_reply:
        telling.hold(session.uow, hold, was=None)
        task = session.happen(task, HoldOpened())
    return hold, task


def acknowledge(session: Session, *, escalation: str, by: Actor, expected_by_wall_ms: int | None, note: str) -> Hold:
    """Stamp a hold: received, ruling pending. Nothing else about it moves.

    Raises:
        Refusal: ESCALATION_UNKNOWN, HOLD_NOT_OPEN.
    """
    hold = holds.load(session.uow, escalation)
    stamped = stamp(hold, by=by, wall_ms=session.now.wall_ms, expected_by_wall_ms=expected_by_wall_ms, note=note)
    task = tasks.load(session.uow, hold.task_id)
    return session.save_hold(timers.restart_reminders(stamped, task.patience, session.now.steady_ms))


def rule(session: Session, ruling: Ruling, *, named_task_id: str) -> tuple[StoredMessage, Task]:
    """Release the hold that the ruling names and put the ruling into the task's inbox: one transaction, first wins.

    Raises:
        Refusal: ESCALATION_UNKNOWN, RULING_INVALID, ALREADY_RULED, HOLD_NOT_OPEN.
    """
    hold = holds.load(session.uow, ruling.escalation_id)
    task = tasks.load(session.uow, hold.task_id)
    check_ruling(
        ruling,
        options=[key for key, _ in hold.options],
        gates=task.gates,
        task_id=task.task_id,
        named_task_id=named_task_id,
    )
    released = release(hold, ruling)
    message = _send(session, task, ruling.ruling_id, "RULING", "", ruling.ruled_by, hold.escalation_id)
    session.save_hold(released, was=hold.state)
    task = unpark(session, task)
    for gate in ruling.ratifies:
        note = f"ratified by ruling {ruling.ruling_id}"
        decision = GateDecision.APPROVED
        holds.record_gate(
            session.uow, task.task_id, task.epoch, gate, decision, ruling.ruled_by, session.now.wall_ms, note
        )
    still_open = holds.count_open(session.uow, task.task_id)
    moved = session.happen(task, HoldReleased(open_holds=still_open))
    return message, moved


def instruct(session: Session, task_id: str, *, message_id: str, text: str, by: Actor) -> tuple[StoredMessage, Task]:
    """Put an instruction into a task's inbox. It releases nothing.

    Raises:
        Refusal: TASK_UNKNOWN, TASK_TERMINAL or TASK_SETTLED, WORKER_DEAD, LIMIT_REACHED.
    """
    task = tasks.load(session.uow, task_id)
    _refuse_dead(session, task)
    if task.terminal:
        raise ended(task)
    message = _send(session, task, message_id, "INSTRUCTION", text, by)
    session.touch_task(task_id)
    return message, task


def send_input(session: Session, task_id: str, *, message_id: str, text: str, by: Actor) -> StoredMessage:
    """Put an input into a task's inbox; a later attempt gets it if this one does not.

    Raises:
        Refusal: TASK_UNKNOWN, TASK_TERMINAL or TASK_SETTLED, LIMIT_REACHED.
    """
    task = tasks.load(session.uow, task_id)
    if task.terminal:
        raise ended(task)
    message = _send(session, task, message_id, "INPUT", text, by)
    session.input_came(task)
    return message


def _send(
    session: Session, task: Task, message_id: str, kind: str, body: str, by: Actor, escalation: str | None = None
) -> StoredMessage:
    # A ruling is never turned away: its task may be waiting for it to take anything at all. Holds bound their number.
    if kind != "RULING" and messages.count_waiting(session.uow, task.task_id) >= WAITING_MAX:
        raise refuse(
            Reason.LIMIT_REACHED,
            f"{WAITING_MAX} messages wait for task {task.task_id} already; its worker has to take some first",
            messages_max=WAITING_MAX,
        )
    stored = messages.insert(
        session.uow,
        message_id=message_id,
        task_id=task.task_id,
        kind=kind,
        body=body,
        sent_by=by,
        wall_ms=session.now.wall_ms,
        escalation_id=escalation,
        traceparent=session.traceparent,
    )
    if stored is None:
        raise refuse(
            Reason.REQUEST_ID_REUSED,
            "this request_id is the id of an earlier message; give every new request a new UUID",
            request_id=message_id,
        )
    return stored


def _refuse_dead(session: Session, task: Task) -> None:
    """A message for a worker that was killed must not look delivered: say so, and what to do instead."""
    if task.worker_alive or task.state not in (State.QUEUED, State.FAILED):
        return
    attempt = tasks.load_attempt(session.uow, task.task_id, task.epoch, task.attempt)
    if attempt is None or attempt.ended not in ("SIGNALED", "SHIM_LOST"):
        return
    retried = not task.terminal
    remedy = "send it as input, which waits for the next attempt" if retried else "read the summary; the task is over"
    raise refuse(
        Reason.WORKER_DEAD,
        f"the worker of task {task.task_id} (attempt {attempt.attempt}, pid {attempt.pid}) {attempt.ended_detail}; {remedy}",
        pid=attempt.pid,
        attempt=attempt.attempt,
        exit=attempt.ended_detail,
        last_seen=rfc3339(attempt.ended_wall_ms or 0),
        state=task.state.name,
        remedy=remedy,
    )


def sent(session: Session, ref: AttemptRef, message_id: str) -> None:
    """A message went out on the attempt's stream; if the attempt ends without acknowledging it, it is sent again."""
    message = messages.load(session.uow, message_id)
    if message is None or message.state != "PENDING" or message.task_id != ref.task_id:
        return
    attempt = tasks.load_attempt(session.uow, ref.task_id, ref.epoch, ref.attempt)
    if attempt is None or attempt.ended is not None:  # nobody is left to acknowledge it
        return
    messages.set_state(session.uow, message_id, "IN_FLIGHT")
    telling.message(session.uow, span_names.MESSAGE_SENT, message, epoch=ref.epoch, attempt=ref.attempt)
    if message.escalation_id:
        session.touch_hold(message.escalation_id)


def acknowledge_message(session: Session, ref: AttemptRef, message_id: str) -> tuple[StoredMessage, bool]:
    """The worker has taken a message; returns it and whether this call acknowledged it. Closes the hold of a ruling.

    Raises:
        Refusal: ATTEMPT_STALE, MESSAGE_UNKNOWN.
    """
    task = current(session, ref)
    message = messages.load(session.uow, message_id)
    if message is None or message.task_id != ref.task_id:
        raise _unknown(ref, message_id)
    if message.state == "ACKNOWLEDGED":
        return message, False
    messages.set_state(session.uow, message_id, "ACKNOWLEDGED")
    telling.message(session.uow, span_names.MESSAGE_ACKNOWLEDGED, message, epoch=ref.epoch, attempt=ref.attempt)
    if message.escalation_id is not None:
        hold = holds.load(session.uow, message.escalation_id)
        was = hold.state
        if was is HoldState.RELEASED:  # one that a cancel closed meanwhile stays canceled
            hold = replace(hold, state=HoldState.ACKNOWLEDGED, closed_wall_ms=session.now.wall_ms)
        session.save_hold(hold, was=was)
    if message.kind == "INPUT":  # its oldest input is shown with the task
        session.save(task, task)
    else:
        session.touch_task(ref.task_id)
    return replace(message, state="ACKNOWLEDGED"), True


def _unknown(ref: AttemptRef, message_id: str) -> Refusal:
    return refuse(
        Reason.MESSAGE_UNKNOWN,
        f"task {ref.task_id} has no message {message_id!r}; `lanewarden worker messages` lists them",
        message_id=message_id,
    )
