"""Units of work about attempts: claim, launch, end."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from lane_runner_svc.core.completion import Blocker, GateDecision, completion_blockers
from lane_runner_svc.core.happenings import Claimed, Exited, Launched, LaunchFailed
from lane_runner_svc.core.holds import HoldState
from lane_runner_svc.core.signals import SignalKind
from lane_runner_svc.core.states import State
from lane_runner_svc.core.task import Exit, ExitKind, Kind, Task
from lane_runner_svc.store import holds, messages, tasks
from lane_runner_svc.store.tasks import Attempt, Reader
from lane_runner_svc.work import checkpoints
from lane_runner_svc.work.session import RUNNER, AttemptRef, Session
from lanewarden.errors import Reason, refuse

TOKEN_BYTES = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """A claimed task, to be launched. ``token`` exists here and in the worker's environment, nowhere else."""

    task: Task
    ref: AttemptRef
    reason: str
    token: str
    traceparent: str
    """The trace of the claim."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What a lane found: something to launch, or when to look again (steady milliseconds; None: when told)."""

    launch: Launch | None = None
    look_again_ms: int | None = None


def token_hash(token: str) -> bytes:
    """What is stored of a worker's token."""
    return hashlib.sha256(token.encode()).digest()


def claim(session: Session, lane: str) -> Claim:
    """Take the lane's first task that may run, if the lane is free, and count its attempt before the launch."""
    if tasks.lane_holder(session.uow, lane) is not None:
        return Claim()
    look_again_ms: int | None = None
    for task in tasks.queued(session.uow, lane):
        if task.pauses:
            continue
        if task.not_before_ms > session.now.steady_ms:
            look_again_ms = min(look_again_ms or task.not_before_ms, task.not_before_ms)
            continue
        return Claim(launch=_launch(session, task))
    return Claim(look_again_ms=look_again_ms)


def _launch(session: Session, task: Task) -> Launch:
    session.about(task.task_id)
    reason = start_reason(session.uow, task)
    claimed = session.happen(task, Claimed())
    ref = AttemptRef(task_id=task.task_id, epoch=claimed.epoch, attempt=claimed.attempt)
    token = session.random.randbytes(TOKEN_BYTES).hex()
    attempt = Attempt(
        task_id=ref.task_id,
        epoch=ref.epoch,
        attempt=ref.attempt,
        token_hash=token_hash(token),
        reason=reason,
        claimed_wall_ms=session.now.wall_ms,
        inputs_through=messages.waiting_inputs(session.uow, task.task_id).last,
    )
    tasks.insert_attempt(session.uow, attempt)
    return Launch(task=claimed, ref=ref, reason=reason, token=token, traceparent=session.traceparent)


def start_reason(reader: Reader, task: Task) -> str:
    """Why a queued task's next attempt starts; the names are those of ``lanewarden.v1.StartReason``."""
    if any(message.kind == "RULING" for message in messages.waiting(reader, task.task_id)):
        return "RULING"
    if task.relaunch_cause is not None:
        return "RELAUNCH"
    if task.kind is Kind.SESSION and messages.waiting_inputs(reader, task.task_id).count:
        return "INPUT"
    return "FIRST" if task.attempt == 0 else "RETRY"


def launched(session: Session, ref: AttemptRef, *, pid: int, start_ticks: int, boot_id: str) -> Task:
    """The worker is alive. A cancel, settle or relaunch that came meanwhile is carried out now."""
    tasks.set_attempt(
        session.uow, ref.task_id, ref.epoch, ref.attempt, pid=pid, start_ticks=start_ticks, boot_id=boot_id
    )
    task = tasks.load(session.uow, ref.task_id)
    if _ended(session, ref):  # its end overtook the news of its launch; the task may be in its next attempt
        return task
    task = ensure_launched(session, task)
    if task.stop_cause is not None:
        session.stop(task, cause=task.stop_cause)
    return session.save(task, task)


def ensure_launched(session: Session, task: Task) -> Task:
    """A worker that speaks or has ended was launched, even if that was not heard yet."""
    return session.happen(task, Launched()) if task.state is State.STARTING else task


def launch_failed(session: Session, ref: AttemptRef, cause: str) -> Task:
    """The worker could not be started. A second report of the same failure changes nothing."""
    task = tasks.load(session.uow, ref.task_id)
    if _ended(session, ref):
        return task
    if task.state is not State.STARTING:  # it has spoken, so it was started, and was lost before the launch was over
        return exited(session, ref, Exit(kind=ExitKind.SHIM_LOST), interrupted=False)
    _end_attempt(session, ref, "LAUNCH_FAILED", cause)
    return session.happen(task, LaunchFailed(cause=cause, jitter=session.random.random()))


def exited(session: Session, ref: AttemptRef, exit_: Exit, *, interrupted: bool) -> Task:
    """The attempt's process tree is gone. A second report of the same end changes nothing."""
    task = tasks.load(session.uow, ref.task_id)
    attempt = tasks.load_attempt(session.uow, ref.task_id, ref.epoch, ref.attempt)
    if attempt is None or attempt.ended is not None:
        return task
    _end_attempt(session, ref, exit_.kind.value, str(exit_))
    if exit_.kind is not ExitKind.NEVER_STARTED:
        task = ensure_launched(session, task)
    messages.return_in_flight(session.uow, task.task_id)
    blocking = holds.blocking(session.uow, task.task_id)
    unread, more = _inputs_left(session.uow, task, attempt)
    happening = Exited(
        exit=exit_,
        open_holds=sum(hold.open for hold in blocking),
        unacknowledged=[hold.escalation_id for hold in blocking if hold.state is HoldState.RELEASED],
        blockers=blockers(session.uow, task),
        jitter=session.random.random(),
        interrupted=interrupted,
        retry_ms=attempt.retry_ms,
        unread=unread,
        more=more,
    )
    for hold in blocking:
        session.touch_hold(hold.escalation_id)
    return session.happen(task, happening)


def _inputs_left(reader: Reader, task: Task, attempt: Attempt) -> tuple[int, bool]:
    """How many inputs of its round a session's attempt has left, and whether any input waits for the next round."""
    if task.kind is not Kind.SESSION:
        return 0, False
    unread = messages.waiting_inputs(reader, task.task_id, through=attempt.inputs_through).count
    return unread, messages.waiting_inputs(reader, task.task_id).count > 0


def _ended(session: Session, ref: AttemptRef) -> bool:
    attempt = tasks.load_attempt(session.uow, ref.task_id, ref.epoch, ref.attempt)
    return attempt is None or attempt.ended is not None


def _end_attempt(session: Session, ref: AttemptRef, ended: str, detail: str) -> None:
    tasks.set_attempt(
        session.uow,
        ref.task_id,
        ref.epoch,
        ref.attempt,
        ended=ended,
        ended_detail=detail,
        ended_wall_ms=session.now.wall_ms,
    )
    session.discharge(ref.task_id, SignalKind.STOP, by=RUNNER, how=f"attempt {ref.attempt} has ended")
    checkpoints.worker_ended(session, ref)


def blockers(reader: Reader, task: Task) -> tuple[Blocker, ...]:
    """The one judge's word on a stored task."""
    reviewed = holds.gate_decisions(reader, task.task_id, task.epoch) if task.gates else {}
    decisions = {gate: GateDecision[row["decision"]] for gate, row in reviewed.items()}
    return completion_blockers(holds.blocking(reader, task.task_id), task.gates, decisions)


def current(session: Session, ref: AttemptRef) -> Task:
    """The task of a worker that speaks.

    Raises:
        Refusal: ATTEMPT_STALE when the attempt has ended or another is the current one (I6).
    """
    task = tasks.load(session.uow, ref.task_id)
    check_current(task, tasks.load_attempt(session.uow, ref.task_id, ref.epoch, ref.attempt), ref)
    return ensure_launched(session, task)


def is_current(task: Task, attempt: Attempt | None, ref: AttemptRef) -> bool:
    """Whether ``ref``, of which ``attempt`` is stored, is the attempt of the task that may speak now."""
    same = (task.epoch, task.attempt) == (ref.epoch, ref.attempt)
    return same and attempt is not None and attempt.ended is None


def check_current(task: Task, attempt: Attempt | None, ref: AttemptRef) -> None:
    """Refuse with ATTEMPT_STALE unless ``ref`` is the attempt of the task that may speak now."""
    if not is_current(task, attempt, ref):
        raise refuse(
            Reason.ATTEMPT_STALE,
            f"attempt {ref.attempt} of task {ref.task_id} is over; exit now, nothing you say has an effect",
            task_id=ref.task_id,
            attempt=ref.attempt,
            current_attempt=task.attempt,
        )
