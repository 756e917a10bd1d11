"""A task as stored, and the words that its life is told in; pure."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from lane_runner_svc.core.states import TERMINAL, IllegalTransitionError, State
from lane_runner_svc.core.timers import Patience
from lanewarden.errors import Reason, refuse
from lanewarden.records import replace

SUMMARY_BYTES_MAX = 4096


class Author(enum.Enum):
    """Who wrote a stored text; the names are those of ``lanewarden.v1.Author``."""

    WORKER = "WORKER"
    RUNNER = "RUNNER"
    SUPERVISOR = "SUPERVISOR"
    OPERATOR = "OPERATOR"


class Kind(enum.Enum):
    """How a task ends; the names are those of ``lanewarden.v1.TaskKind``."""

    ONE_SHOT = "ONE_SHOT"
    SESSION = "SESSION"


class PauseCause(enum.Enum):
    """Why a task is not launched; causes are independent."""

    OPERATOR = "OPERATOR"
    HOLD_DEADLINE = "HOLD_DEADLINE"
    TAKEOVER = "TAKEOVER"
    USAGE_LIMIT = "USAGE_LIMIT"
    SUPERVISOR_LOSS = "SUPERVISOR_LOSS"


class HookState(enum.Enum):
    """How far the on_success command has come; NONE: there is none, or the task has not succeeded."""

    NONE = "NONE"
    PENDING = "PENDING"
    DONE = "DONE"
    FAILED = "FAILED"


class Outcome(enum.Enum):
    """What a worker said of its task in Complete."""

    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"


class ExitKind(enum.Enum):
    """How an attempt ended."""

    EXITED = "EXITED"
    SIGNALED = "SIGNALED"
    NEVER_STARTED = "NEVER_STARTED"
    SHIM_LOST = "SHIM_LOST"


@dataclass(frozen=True, slots=True, kw_only=True)
class Exit:
    """The end of an attempt's process tree. ``code`` belongs to EXITED, ``signal`` (a name) to SIGNALED.

    ``runner_lost``: its shim stopped it because no runner came back within the time that the task allows.
    """

    kind: ExitKind
    code: int | None = None
    signal: int | None = None
    signal_name: str = ""
    runner_lost: bool = False

    @property
    def early(self) -> bool:
        """The program did not end by itself, so its end says nothing about the work."""
        return self.kind is not ExitKind.EXITED

    def __str__(self) -> str:
        return f"{self._end}, stopped because its runner was lost" if self.runner_lost else self._end

    @property
    def _end(self) -> str:
        if self.kind is ExitKind.EXITED:
            return f"exited with code {self.code}"
        if self.kind is ExitKind.SIGNALED:
            return f"was killed by {self.signal_name or self.signal}"
        return "was lost with its shim" if self.kind is ExitKind.SHIM_LOST else "was never started"


@dataclass(frozen=True, kw_only=True)
class Task:
    """A task as stored. ``*_wall_ms`` are for people; other ``*_ms`` that are instants are steady time and decide.

    ``fruitless_ms`` has the times of the latest launches of the epoch that came to nothing; ``limited_until_ms`` is set
    exactly while the task is paused for a limit of use.
    """

    task_id: str
    name: str
    lane: str
    gates: tuple[str, ...]
    spec: bytes
    stop_grace_ms: int
    premature_exits_max: int
    launch_failures_max: int
    submitted_wall_ms: int
    patience: Patience = Patience()
    on_success: tuple[str, ...] = ()
    hold_on_supervisor_loss: bool = False
    owner: str = ""
    owner_role: str = ""
    kind: Kind = Kind.ONE_SHOT
    parent_task_id: str = ""
    state: State = State.QUEUED
    epoch: int = 1
    attempt: int = 0
    worker_alive: bool = False
    pauses: frozenset[PauseCause] = frozenset()
    not_before_ms: int = 0
    launch_failures: int = 0
    premature_exits: int = 0
    progress: int | None = None
    progress_note: str = ""
    cancel_cause: str | None = None
    settle_summary: str | None = None
    settle_diagnosis: str = ""
    relaunch_cause: str | None = None
    relaunches: int = 0
    woken: bool = False
    diagnosis: str = ""
    outcome: Outcome | None = None
    outcome_summary: str = ""
    exit_code: int | None = None
    exit_signal: int | None = None
    summary: str = ""
    summary_author: Author | None = None
    finished_wall_ms: int | None = None
    hook_state: HookState = HookState.NONE
    hook_tries: int = 0
    hook_running: bool = False
    hook_not_before_ms: int = 0
    hook_summary: str = ""
    version: int = 1
    claimed_ms: int = 0
    fruitless_ms: tuple[int, ...] = ()
    limited_until_ms: int | None = None

    @property
    def terminal(self) -> bool:
        """It has ended; nothing but Reopen changes it."""
        return self.state in TERMINAL

    @property
    def over(self) -> bool:
        """It has ended, and no on_success command is due: there is nothing left that could be paused."""
        return self.terminal and self.hook_state is not HookState.PENDING

    @property
    def with_supervisor(self) -> Task:
        """The task while somebody supervises its runner."""
        return replace(self, pauses=self.pauses - {PauseCause.SUPERVISOR_LOSS})

    @property
    def without_supervisor(self) -> Task:
        """The task while nobody does: one that asked to be held then is paused, unless nothing of it is left to pause."""
        if self.over or not self.hold_on_supervisor_loss:
            return self
        return replace(self, pauses=self.pauses | {PauseCause.SUPERVISOR_LOSS})

    @property
    def stopping(self) -> bool:
        """A cancel or a settle waits for the worker to be stopped; the first that was stored is the only one."""
        return self.cancel_cause is not None or self.settle_summary is not None

    @property
    def stop_cause(self) -> str | None:
        """Why the worker is to be stopped, if it is: a cancel, a settle or a relaunch has been stored."""
        causes = (self.cancel_cause, self.settle_summary, self.relaunch_cause)
        return next((cause for cause in causes if cause is not None), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Now:
    """One instant on both clocks, in milliseconds: ``steady_ms`` decides, ``wall_ms`` is shown."""

    steady_ms: int
    wall_ms: int


class Effect(enum.Enum):
    """What must follow a transition."""

    STOP_WORKER = "run the stop ladder on the worker"
    CANCEL_HOLDS = "close every hold of the task with the cause"
    END_MESSAGES = "mark what no worker acknowledged as undelivered"
    PARK_MESSAGES = "keep what no worker acknowledged for the next epoch"
    TELL_PARENT = "put what the task came to into its parent's inbox"


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """The task after a transition, and the effects that follow."""

    task: Task
    effects: tuple[Effect, ...] = ()


def illegal(task: Task, error: IllegalTransitionError) -> Exception:
    """The refusal of what cannot happen to the task as it stands."""
    if task.terminal:
        return ended(task)
    return refuse(
        Reason.ILLEGAL_TRANSITION,
        f"task {task.task_id}: {error}",
        task_id=task.task_id,
        state=error.state.name,
        event=error.event.name,
    )


def ended(task: Task) -> Exception:
    """The refusal of anything asked of a task that has ended."""
    reason = Reason.TASK_SETTLED if task.state is State.SETTLED else Reason.TASK_TERMINAL
    return refuse(
        reason,
        f"task {task.task_id} is {task.state.name}: {task.summary}",
        task_id=task.task_id,
        state=task.state.name,
    )


def ending(task: Task) -> Exception:
    """The refusal of what comes too late, because a cancel or a settle of the task has been stored."""
    reason, what = (
        (Reason.TASK_TERMINAL, "canceled") if task.cancel_cause is not None else (Reason.TASK_SETTLED, "settled")
    )
    return refuse(
        reason,
        f"task {task.task_id} is being {what}, and its worker stopped: {task.stop_cause}",
        task_id=task.task_id,
        state=task.state.name,
    )


def clipped(text: str, bytes_max: int = SUMMARY_BYTES_MAX) -> str:
    """``text`` cut to ``bytes_max`` bytes of UTF-8, between characters."""
    encoded = text.encode()
    return text if len(encoded) <= bytes_max else encoded[: bytes_max - 3].decode(errors="ignore") + "…"
