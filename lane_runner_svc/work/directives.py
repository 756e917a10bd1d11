"""Units of work about context windows: what a worker is to do next, and how that went.

What is decided, the signal that it discharges and the directive that the worker gets commit together, so that no crash can
have one without the others.
"""

from __future__ import annotations

from dataclasses import dataclass

from lane_runner_svc.core import directives as core
from lane_runner_svc.core.checkpoints import Checkpoint, CheckpointState, Failure, committed, failed
from lane_runner_svc.core.directives import ACTS, Context, Decision, Directive, Seen, Usage
from lane_runner_svc.core.holds import Actor
from lane_runner_svc.core.ladder import Wish, ladder
from lane_runner_svc.core.signals import Signal, SignalKind
from lane_runner_svc.core.task import Task, clipped
from lane_runner_svc.store import contexts, signals
from lane_runner_svc.store.contexts import Given
from lane_runner_svc.store.tasks import Reader
from lane_runner_svc.work import checkpoints, telling
from lane_runner_svc.work.attempts import current
from lane_runner_svc.work.session import RUNNER, WRITERS, AttemptRef, Session
from lanewarden.errors import Reason, invalid, refuse
from lanewarden.records import replace
from lanewarden.telemetry import span_names


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What a worker says of its context; ``window_tokens`` and ``turn`` are 0 where it leaves them to the runner."""

    tokens: int
    window_tokens: int
    measurement_id: str
    turn: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What the worker is told; ``directive_id`` is empty where there is nothing to report. ``signals`` are outstanding."""

    directive: Directive
    directive_id: str
    cause: str
    checkpoint: Checkpoint | None
    reductions: int
    signals: list[Signal]


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What a worker says came of a directive."""

    done: bool
    content: str = ""
    failure: Failure = Failure.UNKNOWN
    inserted_tokens: int = 0
    detail: str = ""


def next_directive(session: Session, ref: AttemptRef, measured: Measured, wish: Wish) -> Answer:
    """Judge a measurement, and act on what is outstanding.

    Raises:
        Refusal: ATTEMPT_STALE; REQUEST_INVALID for a window without a size, or too small for a reduction to help.
    """
    task = current(session, ref)
    window_tokens = measured.window_tokens or wish.window_tokens
    if not window_tokens:
        raise invalid(("usage.window", "must be set, for the task does not name the size of its window either"))
    before = contexts.load(session.uow, task.task_id, task.epoch)
    usage = Usage(
        attempt=ref.attempt,
        turn=measured.turn or core.next_turn(before, ref.attempt),
        measurement_id=measured.measurement_id,
        tokens=measured.tokens,
    )
    seen = _seen(session.uow, task, before)
    decision = core.judge(before, usage, seen, ladder(window_tokens, wish), wish, session.now.steady_ms)
    if decision.context != before:
        contexts.save(session.uow, decision.context)
    return _carry_out(session, ref, task, decision, seen, wish)


def wait_ms(reader: Reader, ref: AttemptRef, wish: Wish, now_ms: int) -> int:
    """How long a reduction that is due would still wait for a checkpoint that is being written."""
    if not _asked(reader, ref.task_id):
        return 0
    writer = contexts.latest_checkpoint(reader, ref.task_id, ref.epoch)
    return max(0, core.waited_until_ms(writer, wish) - now_ms)


def report(session: Session, ref: AttemptRef, directive_id: str, said: Report) -> bool:
    """Store what came of a directive; whether this was the first report of it.

    Raises:
        Refusal: ATTEMPT_STALE; DIRECTIVE_UNKNOWN for one that this attempt was not given; REQUEST_INVALID for a checkpoint
            that is done and empty.
    """
    task = current(session, ref)
    given = contexts.find_given(session.uow, directive_id)
    if given is None or (given.task_id, given.epoch, given.attempt) != (ref.task_id, ref.epoch, ref.attempt):
        raise refuse(
            Reason.DIRECTIVE_UNKNOWN,
            f"attempt {ref.attempt} of task {ref.task_id} was given no directive {directive_id!r}; ask for the next one",
            directive_id=directive_id,
        )
    if given.outcome is not None:
        return False
    if given.kind is Directive.CHECKPOINT and said.done and not said.content:
        raise invalid(("content", "a checkpoint that is done has a content"))
    outcome = "DONE" if said.done else "FAILED"
    contexts.report(
        session.uow,
        directive_id,
        outcome,
        detail=clipped(said.detail),
        inserted_tokens=said.inserted_tokens,
        wall_ms=session.now.wall_ms,
    )
    telling.event(
        session.uow, span_names.DIRECTIVE_REPORTED, given.task_id, directive=given.kind.value, outcome=outcome
    )
    if given.kind is Directive.CHECKPOINT:
        assert given.checkpoint_id is not None, "the directive names what is to be written"
        written = committed(said.content) if said.done else failed(said.failure, said.detail or "the worker said so")
        checkpoints.ended(session, given.checkpoint_id, written)
    if given.kind is Directive.REBUILD and said.done:
        assert given.checkpoint_id is not None, "a rebuild has something to rebuild from"
        _rearm(session, task, contexts.load_checkpoint(session.uow, given.checkpoint_id).cycle, said.inserted_tokens)
    return True


def _rearm(session: Session, task: Task, cycle: int, inserted_tokens: int) -> None:
    """The context was rebuilt: a new cycle begins, and whatever was being written is about the old one. A cycle ends once:
    a report that comes after another rebuild from the same cycle takes nothing of the new one away.
    """
    context = contexts.load(session.uow, task.task_id, task.epoch)
    if context.cycle != cycle:
        return
    for checkpoint in contexts.in_flight(session.uow, task.task_id):
        checkpoints.superseded(session, checkpoint.checkpoint_id, "the context was rebuilt meanwhile")
    contexts.save(session.uow, core.rebuilt(context, inserted_tokens))


def _asked(reader: Reader, task_id: str) -> bool:
    return any(signal.kind is SignalKind.REDUCE_CONTEXT for signal in signals.outstanding(reader, task_id))


def _seen(reader: Reader, task: Task, context: Context) -> Seen:
    return Seen(
        signal=_asked(reader, task.task_id),
        writer=contexts.latest_checkpoint(reader, task.task_id, task.epoch),
        usable=contexts.usable_checkpoint(reader, context),
    )


def _carry_out(session: Session, ref: AttemptRef, task: Task, decision: Decision, seen: Seen, wish: Wish) -> Answer:
    """Store what was decided: the signal, the writer's start or its lateness, and the directive."""
    if decision.raised:
        session.raise_signal(task, SignalKind.REDUCE_CONTEXT, cause=decision.raised, by=RUNNER)
    if decision.timed_out:
        assert seen.writer is not None, "somebody was waited for"
        waited = f"a reduction has waited {wish.writer_wait_ms / 1000:g} s for it; it is still being written"
        late = replace(seen.writer, state=CheckpointState.TIMED_OUT, detail=waited)
        contexts.update_checkpoint(session.uow, late)
        telling.event(session.uow, span_names.CHECKPOINT_TIMED_OUT, task.task_id)
    started = _start(session, ref, task, decision, seen, wish) if decision.start else None
    directive_id, checkpoint = "", started
    if decision.directive is Directive.REBUILD:
        assert seen.usable is not None, "a rebuild has something to rebuild from"
        checkpoint = contexts.load_checkpoint(session.uow, seen.usable)
    if decision.directive in ACTS or decision.directive is Directive.CHECKPOINT:
        directive_id = _give(session, ref, decision, checkpoint)
    if decision.directive in ACTS:
        _act(session, ref, task, decision, directive_id)
    if decision.raised or decision.directive in ACTS:
        session.save(task, task)  # its signals are shown with it
    return Answer(
        directive=decision.directive,
        directive_id=directive_id,
        cause=decision.cause,
        checkpoint=checkpoint,
        reductions=decision.context.reductions,
        signals=signals.outstanding(session.uow, task.task_id),
    )


def _start(session: Session, ref: AttemptRef, task: Task, decision: Decision, seen: Seen, wish: Wish) -> Checkpoint:
    number = (seen.writer.number if seen.writer else 0) + 1
    started = Checkpoint(
        checkpoint_id=f"{task.task_id}.{task.epoch}.c{number}",
        task_id=task.task_id,
        epoch=task.epoch,
        number=number,
        attempt=ref.attempt,
        cycle=decision.context.cycle,
        command=wish.command,
        tokens=decision.context.tokens,
        consumed_before=decision.consumed_before,
        started_ms=session.now.steady_ms,
        started_wall_ms=session.now.wall_ms,
    )
    contexts.insert_checkpoint(session.uow, started)
    session.changed[WRITERS] = None
    telling.event(session.uow, span_names.CHECKPOINT_STARTED, started.task_id)
    return started


def _give(session: Session, ref: AttemptRef, decision: Decision, checkpoint: Checkpoint | None) -> str:
    number = contexts.given_count(session.uow, ref.task_id, ref.epoch) + 1
    given = Given(
        directive_id=f"{ref.task_id}.{ref.epoch}.d{number}",
        task_id=ref.task_id,
        epoch=ref.epoch,
        number=number,
        attempt=ref.attempt,
        kind=decision.directive,
        cause=decision.cause,
        checkpoint_id=checkpoint.checkpoint_id if checkpoint else None,
        given_wall_ms=session.now.wall_ms,
    )
    contexts.give(session.uow, given)
    telling.event(session.uow, span_names.DIRECTIVE_GIVEN, ref.task_id, directive=decision.directive.value)
    return given.directive_id


def _act(session: Session, ref: AttemptRef, task: Task, decision: Decision, directive_id: str) -> None:
    """Whoever acts on the signal discharges it, whatever the act is (I10)."""
    worker = Actor(identity=f"attempt {ref.attempt} of {ref.task_id}", role="worker")
    how = f"{decision.directive.value} {directive_id}"
    session.discharge(task.task_id, SignalKind.REDUCE_CONTEXT, by=worker, how=how)
    if decision.directive is Directive.WRAP_UP:
        session.raise_signal(task, SignalKind.WRAP_UP, cause=decision.cause, by=RUNNER)
        session.discharge(task.task_id, SignalKind.WRAP_UP, by=worker, how=how)
