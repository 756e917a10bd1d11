"""Checkpoints of a context: what each start of the writer came to; pure.

Rules about this file: every outcome is one of :class:`CheckpointState`; a writer that is slow has not failed, nor has one
that is stopped for somebody else's reason; and only the marker commits, never the presence of a file.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from lane_runner_svc.core.task import Exit, ExitKind, clipped

CONTENT_BYTES_MAX: Final = 1 << 20


class CheckpointState(enum.Enum):
    """The names are those of ``lanewarden.v1.CheckpointState``."""

    WRITING = "WRITING"
    TIMED_OUT = "TIMED_OUT"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    NOT_STARTED = "NOT_STARTED"
    SUPERSEDED = "SUPERSEDED"


IN_FLIGHT: Final = frozenset({CheckpointState.WRITING, CheckpointState.TIMED_OUT})


class Failure(enum.Enum):
    """How a writer fails; the names are those of ``lanewarden.v1.CheckpointFailure``."""

    TRANSIENT = "TRANSIENT"
    AUTH = "AUTH"
    BAD_REQUEST = "BAD_REQUEST"
    UNCOMMITTED = "UNCOMMITTED"
    LOST = "LOST"
    UNKNOWN = "UNKNOWN"

    @property
    def retryable(self) -> bool:
        """Whether the same writer may succeed later, with nothing changed but the time."""
        return self in (Failure.TRANSIENT, Failure.LOST)


_OF_EXIT_CODE: Final[Mapping[int, Failure]] = {
    75: Failure.TRANSIENT,
    77: Failure.AUTH,
    64: Failure.BAD_REQUEST,
    65: Failure.BAD_REQUEST,
    0: Failure.UNCOMMITTED,
}
"""By sysexits.h."""


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """One start of the writer. ``command``: a command writes it, not the worker. ``consumed_before`` is the highest rung
    that had been consumed before this start. ``*_wall_ms`` are for people; ``started_ms`` is steady time and decides.
    """

    checkpoint_id: str
    task_id: str
    epoch: int
    number: int
    attempt: int
    cycle: int
    command: bool
    tokens: int
    consumed_before: int
    started_ms: int
    started_wall_ms: int
    state: CheckpointState = CheckpointState.WRITING
    failure: Failure | None = None
    detail: str = ""
    content: str | None = None
    ended_wall_ms: int | None = None

    @property
    def in_flight(self) -> bool:
        """It is being written."""
        return self.state in IN_FLIGHT


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """What one start of a writer came to; ``content`` belongs to SUCCEEDED, ``failure`` to FAILED."""

    state: CheckpointState
    detail: str
    failure: Failure | None = None
    content: str | None = None


def committed(content: str) -> Written:
    """A checkpoint that is whole."""
    return Written(state=CheckpointState.SUCCEEDED, detail="committed", content=content)


def failed(failure: Failure, detail: str) -> Written:
    """A writer that failed."""
    return Written(state=CheckpointState.FAILED, failure=failure, detail=clipped(detail))


def of_exit(exit_: Exit, *, marked: bool, content: str | None, stopped: bool, going_down: bool) -> Written:
    """What the end of a writer's process means. ``marked``: its marker names this very checkpoint; ``content`` is None when
    there is none that can be used; ``stopped`` and ``going_down``: the runner stopped it, and because it goes down itself.
    """
    if marked and content is not None:
        return committed(content)
    if exit_.kind is ExitKind.NEVER_STARTED or (stopped and going_down) or exit_.runner_lost:
        return Written(state=CheckpointState.SUPERSEDED, detail=f"the writer {exit_}, for its runner ended")
    if stopped or exit_.kind is ExitKind.SHIM_LOST:
        return failed(Failure.LOST, f"the writer {exit_}")
    failure = _OF_EXIT_CODE.get(exit_.code, Failure.UNKNOWN) if exit_.code is not None else Failure.UNKNOWN
    without = " without committing anything that can be used" if failure is Failure.UNCOMMITTED else ""
    return failed(failure, f"the writer {exit_}{without}")
