"""The life of a task, as data.

Rules about this file: a pair ``(state, event)`` that is not in :data:`TABLE` is illegal and changes nothing; a terminal
state has no way out but a person's retry (FAILED) or reopen; code never assigns a state, it names an event. The chart in
the folder's README is rendered from the table by :func:`chart`.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
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


class Event(enum.Enum):
    """What can happen to a task."""

    CLAIMED = "claimed by its lane"
    LAUNCHED = "worker launched"
    LAUNCH_FAILED = "launch failed"
    LAUNCHES_SPENT = "launch failed, budget spent"
    INTERRUPTED = "attempt cut short by the runner"
    HOLD_OPENED = "hold opened"
    RELEASED_ALIVE = "last hold released, worker alive"
    RELEASED_AWAY = "last hold released, worker gone"
    EXITED_HELD = "worker gone, hold open"
    EXITED_EARLY = "worker gone without its word"
    EXITED_LIMITED = "worker gone until its limit of use ends"
    EXITED_DONE = "worker done, nothing blocks"
    EXITED_WRONG = "worker gone in error"
    INPUT_CAME = "input came"
    ROUND_DONE = "round over, no input waits"
    ROUND_FOLLOWS = "round over, input waits"
    WOKEN = "woken"
    RELAUNCHED = "relaunched, no worker alive"
    SETTLED = "settled, no worker alive"
    CANCELED = "canceled, no worker alive"
    RETRIED = "retried"
    REOPENED = "reopened, next epoch"
    REOPENED_IDLE = "reopened, next epoch, a session without input"


TERMINAL: Final = frozenset({State.SUCCEEDED, State.FAILED, State.CANCELED, State.SETTLED})

TABLE: Final[Mapping[tuple[State, Event], State]] = {
    (State.QUEUED, Event.CLAIMED): State.STARTING,
    (State.QUEUED, Event.RELAUNCHED): State.QUEUED,
    (State.QUEUED, Event.SETTLED): State.SETTLED,
    (State.QUEUED, Event.CANCELED): State.CANCELED,
    (State.STARTING, Event.LAUNCHED): State.RUNNING,
    (State.STARTING, Event.LAUNCH_FAILED): State.QUEUED,
    (State.STARTING, Event.LAUNCHES_SPENT): State.FAILED,
    (State.STARTING, Event.INTERRUPTED): State.QUEUED,
    (State.STARTING, Event.RELAUNCHED): State.QUEUED,
    (State.STARTING, Event.SETTLED): State.SETTLED,
    (State.STARTING, Event.CANCELED): State.CANCELED,
    (State.RUNNING, Event.HOLD_OPENED): State.HELD,
    (State.RUNNING, Event.INTERRUPTED): State.QUEUED,
    (State.RUNNING, Event.EXITED_EARLY): State.QUEUED,
    (State.RUNNING, Event.EXITED_LIMITED): State.QUEUED,
    (State.RUNNING, Event.EXITED_DONE): State.SUCCEEDED,
    (State.RUNNING, Event.EXITED_WRONG): State.FAILED,
    (State.RUNNING, Event.ROUND_DONE): State.IDLE,
    (State.RUNNING, Event.ROUND_FOLLOWS): State.QUEUED,
    (State.RUNNING, Event.RELAUNCHED): State.QUEUED,
    (State.RUNNING, Event.SETTLED): State.SETTLED,
    (State.RUNNING, Event.CANCELED): State.CANCELED,
    (State.HELD, Event.HOLD_OPENED): State.HELD,
    (State.HELD, Event.RELEASED_ALIVE): State.RUNNING,
    (State.HELD, Event.RELEASED_AWAY): State.QUEUED,
    (State.HELD, Event.EXITED_HELD): State.HELD,
    (State.HELD, Event.CANCELED): State.CANCELED,
    (State.IDLE, Event.INPUT_CAME): State.QUEUED,
    (State.IDLE, Event.WOKEN): State.QUEUED,
    (State.IDLE, Event.SETTLED): State.SETTLED,
    (State.IDLE, Event.CANCELED): State.CANCELED,
    (State.FAILED, Event.RETRIED): State.QUEUED,
    (State.SUCCEEDED, Event.REOPENED): State.QUEUED,
    (State.FAILED, Event.REOPENED): State.QUEUED,
    (State.CANCELED, Event.REOPENED): State.QUEUED,
    (State.SETTLED, Event.REOPENED): State.QUEUED,
    (State.SUCCEEDED, Event.REOPENED_IDLE): State.IDLE,
    (State.FAILED, Event.REOPENED_IDLE): State.IDLE,
    (State.CANCELED, Event.REOPENED_IDLE): State.IDLE,
    (State.SETTLED, Event.REOPENED_IDLE): State.IDLE,
}


class IllegalTransitionError(Exception):
    """The event cannot happen in this state."""

    def __init__(self, state: State, event: Event) -> None:
        super().__init__(f"{event.name} cannot happen to a task that is {state.name}")
        self.state = state
        self.event = event


def after(state: State, event: Event) -> State:
    """The state that ``event`` leads to.

    Raises:
        IllegalTransitionError: the pair is not in the table.
    """
    try:
        return TABLE[state, event]
    except KeyError:
        raise IllegalTransitionError(state, event) from None


def chart() -> str:
    """The table as a Mermaid state diagram, for the README."""
    lines = ["stateDiagram-v2", "    [*] --> QUEUED: submitted", "    [*] --> IDLE: submitted, a session"]
    lines += [f"    {state.value} --> {target.value}: {event.value}" for (state, event), target in TABLE.items()]
    lines += [f"    {state.value} --> [*]" for state in State if state in TERMINAL]
    return "\n".join(lines)
