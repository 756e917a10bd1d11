"""What a supervisor knows of one task when it judges it: facts only, every text with its author; pure.

All times are the supervisor's own steady clock, in milliseconds, from when it received what it tells of. No time of a
runner or of a worker is ever compared with them.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final


class State(enum.Enum):
    """Where a task stands; the names are those of ``lanewarden.v1.TaskState``."""

    QUEUED = "QUEUED"
    STARTING = "STARTING"
    RUNNING = "RUNNING"
    HELD = "HELD"
    IDLE = "IDLE"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    CANCELED = "CANCELED"
    SETTLED = "SETTLED"


TERMINAL: Final = frozenset({State.SUCCEEDED, State.FAILED, State.CANCELED, State.SETTLED})


class Author(enum.Enum):
    """Who wrote a stored text or said a fact; the names are those of ``lanewarden.v1.Author``."""

    WORKER = "WORKER"
    RUNNER = "RUNNER"
    SUPERVISOR = "SUPERVISOR"
    OPERATOR = "OPERATOR"


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """What somebody wrote about the task."""

    author: Author
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Storm:
    """Writes or activity at a sustained rate: who causes them, how fast, and since when. ``origin`` is who asked for them,
    where that was another service or program.
    """

    emitter: str
    rows_per_second: float
    since_ms: int
    origin: str = ""

    @property
    def who(self) -> str:
        """The emitter, and for whom."""
        return f"{self.emitter} (for {self.origin})" if self.origin else self.emitter


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """One task. What is counted is counted in its present epoch.

    ``sensor`` says whether progress can be known at all; ``progress`` is the highest sequence, ``progressed_ms`` when it
    last moved in this attempt (None: not yet), ``running_ms`` since when the attempt runs without a hold. ``heartbeat_ms``
    is how often the task promises progress (0: it does not say). ``input_ms`` is since when the oldest input that no worker
    has taken waits. ``heard_ms`` is since when the runner has been heard without a break (None: not since this supervisor
    started), ``last_seen`` the same for people. ``mishaps`` are what was written about attempts and ends, oldest first;
    ``note`` is the worker's latest word on its progress.
    """

    state: State
    epoch: int = 1
    attempt: int = 0
    session: bool = False
    worker_alive: bool = False
    pauses: tuple[str, ...] = ()
    open_holds: tuple[str, ...] = ()
    children_open: int = 0
    sensor: bool = False
    progress: int | None = None
    progressed_ms: int | None = None
    running_ms: int = 0
    heartbeat_ms: int = 0
    input_ms: int | None = None
    storm: Storm | None = None
    reachable: bool = True
    heard_ms: int | None = 0
    last_seen: str = ""
    relaunches: int = 0
    woken: bool = False
    incident: str = ""
    mishaps: tuple[Text, ...] = ()
    note: str = ""

    @property
    def terminal(self) -> bool:
        """It has ended; nothing but Reopen, or a person's retry, changes that."""
        return self.state in TERMINAL

    @property
    def held(self) -> bool:
        """It waits for a ruling."""
        return bool(self.open_holds) or self.state is State.HELD
