"""What a unit of work of the runner has at hand, and what it tells the rest of the process once it is committed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from operator import attrgetter
from random import Random
from typing import Any, Final

from lane_runner_svc.core import directives, family
from lane_runner_svc.core.checkpoints import Checkpoint, CheckpointState
from lane_runner_svc.core.happenings import Happening, InputCame, transition
from lane_runner_svc.core.holds import Actor, Hold, HoldState
from lane_runner_svc.core.signals import Signal, SignalKind
from lane_runner_svc.core.states import State
from lane_runner_svc.core.task import Effect, Now, Step, Task
from lane_runner_svc.store import audit, contexts, holds, messages, signals, tasks
from lane_runner_svc.store.audit import Deed
from lane_runner_svc.work import telling
from lanewarden.hub import Topic
from lanewarden.records import replace
from lanewarden.store import Entity, UnitOfWork
from lanewarden.telemetry import span_names

QUEUE: Final = Topic("queue")
OUTBOX: Final = Topic("outbox")
LIMITS: Final = Topic("limits")
HOOKS: Final = Topic("hooks")
WRITERS: Final = Topic("writers")
RUNNER: Final = Actor(identity="lane runner", role="runner")
_CLAIMS: Final = attrgetter("state", "worker_alive", "pauses", "not_before_ms")
"""What of a task decides whether its lane may launch something; every other change leaves the launcher asleep."""
_HOOK: Final = attrgetter("hook_state", "hook_running", "hook_not_before_ms", "pauses")
"""What of a task decides whether its on_success command may be started."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptRef:
    """One launch of a task's worker."""

    task_id: str
    epoch: int
    attempt: int


@dataclass(slots=True)
class Session:
    """One unit of work: the transaction, one instant, the process's randomness.

    ``changed``, ``stops`` and ``completed`` are carried out by the runner after the commit.
    """

    uow: UnitOfWork
    now: Now
    random: Random
    generation: int = 0
    """By what right it was asked for, where a supervisor asked by itself."""
    changed: dict[Topic, None] = field(default_factory=dict)
    marks: list[tuple[str, str]] = field(default_factory=list)
    """The kind and the id of what the supervisor has to hear of, in order."""
    stops: list[AttemptRef] = field(default_factory=list)
    completed: list[AttemptRef] = field(default_factory=list)
    by: Actor = RUNNER
    """Who asked for it, where somebody did."""
    note: str = ""
    """What the audit adds to the name of the action, such as who owned a task before."""
    subject: str = ""
    """The task that the audit names, where the request could not: one that was made by it."""

    @property
    def traceparent(self) -> str:
        """The trace that the unit is part of."""
        return self.uow.traceparent

    def happen(self, task: Task, happening: Happening) -> Task:
        """Judge a happening, store the task as it is then, and carry out the effects that belong to the transaction."""
        return self.take(task, transition(task, happening, self.now), cause=type(happening).__name__)

    def take(self, task: Task, step: Step, *, cause: str) -> Task:
        """Store the task as it is after a step, and carry out the effects that belong to the transaction."""
        moved = self.save(task, step.task, cause=cause)
        for effect in step.effects:
            self._carry_out(effect, moved)
        return moved

    def save(self, before: Task, after: Task, *, cause: str = "") -> Task:
        """Store a task with its next version, though perhaps only what is shown with it has changed, and mark it. ``cause``
        is a word for telemetry, about what brought it into another state.
        """
        self.touch_task(after.task_id, claims=_CLAIMS(before) != _CLAIMS(after))
        if before.limited_until_ms != after.limited_until_ms:
            self.changed[LIMITS] = None
        if _HOOK(before) != _HOOK(after):
            self.changed[HOOKS] = None
        if after.progress is not None:  # without a sensor a version that moves says nothing
            progressed = after.progress > (before.progress or 0) or after.epoch != before.epoch
            self.uow.moved(Entity("task", after.task_id), progressed=progressed)
        saved = replace(after, version=before.version + 1)
        tasks.update(self.uow, before, saved)
        telling.transition(self.uow, before, saved, cause=cause, generation=self.generation)
        if saved.terminal and not before.terminal:
            self._over(saved)
        return saved

    def about(self, task_id: str) -> None:
        """What is changed from here on is counted as about that task; for units that find out what they are about."""
        self.uow.about(Entity("task", task_id))

    def touch_task(self, task_id: str, *, claims: bool = True) -> None:
        """The task, or something shown with it, has changed; with ``claims`` perhaps also what a lane may launch."""
        if claims:
            self.changed[QUEUE] = None
        topic = Topic("task", task_id)
        if topic not in self.changed:
            self.changed[topic] = None
            self._mark("task", task_id)

    def save_hold(self, hold: Hold, *, was: HoldState | None = None) -> Hold:
        """Store a changed escalation, which ``was`` perhaps in another state, and mark it for the supervisor."""
        holds.update(self.uow, hold)
        if was is not None:
            telling.hold(self.uow, hold, was=was)
        self.touch_hold(hold.escalation_id)
        return hold

    def touch_hold(self, escalation_id: str, *, new: bool = False) -> None:
        """The escalation is new or has changed."""
        topic = Topic("escalation", escalation_id)
        if topic not in self.changed:
            self.changed[topic] = None
            self._mark("new_escalation" if new else "escalation", escalation_id)

    def record(self, deed: Deed, outcome: str) -> None:
        """Add an entry to the audit."""
        if self.note or self.subject:
            action = f"{deed.action} {self.note}".rstrip()
            deed = replace(deed, action=action, task_id=deed.task_id or self.subject)
        audit.record(self.uow, deed, outcome=outcome, wall_ms=self.now.wall_ms)

    def after_commit(self, tell: Callable[[Session], None]) -> None:
        """Have the runner told of this session once it is durable."""
        self.uow.after_commit(lambda: tell(self))

    def _mark(self, kind: str, entity_id: str) -> None:
        self.marks.append((kind, entity_id))
        self.changed[OUTBOX] = None

    def store_marks(self) -> None:
        """Put what has been marked into the outbox; the last write of the unit."""
        if self.marks:
            messages.mark(self.uow, self.marks, self.traceparent)

    def _carry_out(self, effect: Effect, task: Task) -> None:
        match effect:
            case Effect.STOP_WORKER:
                self.stop(task, cause=task.stop_cause or "")
            case Effect.CANCEL_HOLDS:
                for hold in holds.blocking(self.uow, task.task_id):
                    cause = task.cancel_cause or f"the task ended: {task.state.name}"
                    closed = replace(
                        hold, state=HoldState.CANCELED, closed_wall_ms=self.now.wall_ms, cancel_cause=cause
                    )
                    self.save_hold(closed, was=hold.state)
            case Effect.END_MESSAGES:
                self._touch_undelivered_rulings(task)
                messages.end_waiting(self.uow, task.task_id, "UNDELIVERED")
            case Effect.PARK_MESSAGES:
                self._touch_undelivered_rulings(task)
                messages.park_waiting(self.uow, task.task_id)
            case Effect.TELL_PARENT:
                self._tell_parent(task)

    def _touch_undelivered_rulings(self, task: Task) -> None:
        for message in messages.waiting(self.uow, task.task_id):  # rulings first: their senders are told
            if message.escalation_id is not None:
                self.touch_hold(message.escalation_id)

    def _tell_parent(self, child: Task) -> None:
        """Put the end of a child into its parent's inbox, and a session that rests to work; no full inbox turns it away.
        A settled parent keeps it for its next epoch, any other that has ended needs it no more.
        """
        parent = tasks.load(self.uow, child.parent_task_id)
        if parent.terminal and parent.state is not State.SETTLED:
            return
        told = messages.insert(
            self.uow,
            message_id=family.report_id(child),
            task_id=parent.task_id,
            kind="INPUT",
            body=family.report(child),
            sent_by=Actor(identity=f"task {child.task_id}", role="runner"),
            wall_ms=self.now.wall_ms,
            traceparent=self.traceparent,
            state="PARKED" if parent.terminal else "PENDING",
        )
        assert told is not None, "each end of a child has a version, and so an id, of its own"
        self.input_came(parent)

    def family_changed(self, child: Task) -> None:
        """A child was submitted, retried or reopened: its parent, if that has not ended, is shown with one more."""
        if child.parent_task_id:
            parent = tasks.load(self.uow, child.parent_task_id)
            if not parent.terminal:
                self.save(parent, parent)

    def input_came(self, task: Task) -> Task:
        """An input was stored for a task: a session that rests goes to work, and what is shown of any has changed."""
        if task.terminal:
            return task
        return self.happen(task, InputCame()) if task.state is State.IDLE else self.save(task, task)

    def stop(self, task: Task, *, cause: str) -> None:
        """Store the intent to stop the worker, so that a crash does not forget it, and have it carried out."""
        ref = AttemptRef(task_id=task.task_id, epoch=task.epoch, attempt=task.attempt)
        tasks.set_attempt(self.uow, ref.task_id, ref.epoch, ref.attempt, stop_cause=cause)
        self.raise_signal(task, SignalKind.STOP, cause=cause, by=self.by, attempt=ref.attempt)
        self.stops.append(ref)

    def raise_signal(self, task: Task, kind: SignalKind, *, cause: str, by: Actor, attempt: int = 0) -> None:
        """Ask for something once: while it is outstanding for the task, or for that attempt of it, nothing is stored."""
        wanted = (kind, task.epoch, attempt)
        if any((each.kind, each.epoch, each.attempt) == wanted for each in signals.outstanding(self.uow, task.task_id)):
            return
        number = signals.count(self.uow, task.task_id) + 1
        signal = Signal(
            signal_id=f"{task.task_id}.s{number}",
            task_id=task.task_id,
            epoch=task.epoch,
            attempt=attempt,
            kind=kind,
            cause=cause,
            raised_by=by,
            raised_wall_ms=self.now.wall_ms,
        )
        signals.insert(self.uow, signal)
        telling.event(self.uow, span_names.SIGNAL_RAISED, task.task_id, kind=kind.value)

    def discharge(self, task_id: str, kind: SignalKind, *, by: Actor, how: str) -> None:
        """Somebody acts on what was asked for, in this transaction; nothing if it is not asked for, or no longer."""
        for signal in signals.outstanding(self.uow, task_id):
            if signal.kind is kind:
                self._discharge(signal, by=by, how=how)

    def _discharge(self, signal: Signal, *, by: Actor, how: str) -> None:
        signals.discharge(self.uow, signal.signal_id, by=by, how=how, wall_ms=self.now.wall_ms)
        telling.event(self.uow, span_names.SIGNAL_DISCHARGED, signal.task_id, kind=signal.kind.value)

    def _over(self, task: Task) -> None:
        """The end of a task answers whatever was asked of it. A pause outlives it: it holds the next epoch back as well."""
        for signal in signals.outstanding(self.uow, task.task_id):
            if signal.kind is not SignalKind.PAUSE:
                self._discharge(signal, by=RUNNER, how=f"the task is {task.state.name}")
            if signal.kind is SignalKind.REDUCE_CONTEXT:
                contexts.change(self.uow, task.task_id, task.epoch, directives.withdrawn)
        for checkpoint in contexts.in_flight(self.uow, task.task_id):
            self.end_checkpoint(checkpoint, CheckpointState.SUPERSEDED, detail=f"the task is {task.state.name}")

    def end_checkpoint(self, checkpoint: Checkpoint, state: CheckpointState, *, detail: str, **more: Any) -> None:
        """Store what a start of the writer came to, also for its rung, and have its process looked after."""
        ended = replace(checkpoint, state=state, detail=detail, ended_wall_ms=self.now.wall_ms, **more)
        contexts.update_checkpoint(self.uow, ended)
        told = lambda context: directives.written(context, checkpoint, state)  # noqa: E731
        contexts.change(self.uow, checkpoint.task_id, checkpoint.epoch, told)
        self.changed[WRITERS] = None
        self.changed[Topic("context", checkpoint.task_id)] = None
        telling.event(self.uow, span_names.CHECKPOINT_ENDED, checkpoint.task_id, state=state.value)
