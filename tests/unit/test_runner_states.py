"""The table of task states, against a table written here from the design, and what ``transition`` makes of it."""

from __future__ import annotations

import itertools

import pytest

from lane_runner_svc.core.happenings import (
    CancelAsked,
    Claimed,
    CompleteAsked,
    Exited,
    Happening,
    HoldOpened,
    HoldReleased,
    Launched,
    LaunchFailed,
    transition,
)
from lane_runner_svc.core.holds import Actor
from lane_runner_svc.core.states import TABLE, TERMINAL, Event, IllegalTransitionError, State, after, chart
from lane_runner_svc.core.task import Author, Exit, ExitKind, Now, Outcome, Task
from lanewarden.errors import Reason, Refusal

EXPECTED = """
QUEUED    CLAIMED         STARTING
QUEUED    CANCELED        CANCELED
STARTING  LAUNCHED        RUNNING
STARTING  LAUNCH_FAILED   QUEUED
STARTING  LAUNCHES_SPENT  FAILED
STARTING  INTERRUPTED     QUEUED
STARTING  CANCELED        CANCELED
RUNNING   HOLD_OPENED     HELD
RUNNING   INTERRUPTED     QUEUED
RUNNING   EXITED_EARLY    QUEUED
RUNNING   EXITED_DONE     SUCCEEDED
RUNNING   EXITED_WRONG    FAILED
RUNNING   CANCELED        CANCELED
HELD      HOLD_OPENED     HELD
HELD      RELEASED_ALIVE  RUNNING
HELD      RELEASED_AWAY   QUEUED
HELD      EXITED_HELD     HELD
HELD      CANCELED        CANCELED
IDLE      CANCELED        CANCELED
"""
LEGAL = {
    (State[state], Event[event]): State[target]
    for state, event, target in (line.split() for line in EXPECTED.strip().splitlines())
}
PAIRS = list(itertools.product(State, Event))
OPERATOR = Actor(identity="ann", role="operator")
NOW = Now(steady_ms=5_000, wall_ms=1_800_000_000_000)

ENDED = {"summary": "it ended", "summary_author": Author.RUNNER}
HAPPENINGS: dict[str, Happening] = {
    "claimed": Claimed(),
    "launched": Launched(),
    "launch failed": LaunchFailed(cause="no program", jitter=0.5),
    "hold opened": HoldOpened(),
    "last hold released": HoldReleased(open_holds=0),
    "exited": Exited(exit=Exit(kind=ExitKind.EXITED, code=0), open_holds=0, unacknowledged=(), blockers=(), jitter=0.5),
    "cancel asked": CancelAsked(cause="", by=OPERATOR),
    "complete asked": CompleteAsked(outcome=Outcome.SUCCEEDED, summary="done", blockers=()),
}
WELCOME = {
    "claimed": {State.QUEUED},
    "launched": {State.STARTING},
    "launch failed": {State.STARTING},
    "hold opened": {State.RUNNING, State.HELD},
    "last hold released": {State.HELD},
    "exited": {State.RUNNING},
    "cancel asked": {State.QUEUED, State.STARTING, State.RUNNING, State.HELD, State.IDLE},
    # Complete moves no state; only that the task has not ended is judged here, the attempt is judged before.
    "complete asked": {State.QUEUED, State.STARTING, State.RUNNING, State.HELD, State.IDLE},
}


def task(state: State = State.RUNNING, **more: object) -> Task:
    """A task in a state, as the store would give it."""
    values: dict[str, object] = {
        "task_id": "t1",
        "name": "build",
        "lane": "a",
        "gates": (),
        "spec": b"",
        "stop_grace_ms": 10_000,
        "premature_exits_max": 3,
        "launch_failures_max": 5,
        "submitted_wall_ms": 1,
        "state": state,
        **(ENDED if state in TERMINAL else {}),
        **more,
    }
    return Task(**values)  # type: ignore[arg-type]


@pytest.mark.parametrize(("state", "event"), PAIRS, ids=lambda each: each.name)
def test_every_pair_is_legal_exactly_as_designed(state: State, event: Event) -> None:
    """A pair of the expected table leads where it says; any other raises and names both."""
    if (state, event) in LEGAL:
        assert after(state, event) is LEGAL[state, event]
        return
    with pytest.raises(IllegalTransitionError) as caught:
        after(state, event)
    assert (caught.value.state, caught.value.event) == (state, event)


def test_terminal_states_have_no_way_out() -> None:
    """Nothing leaves SUCCEEDED, FAILED, CANCELED or SETTLED."""
    assert {state.name for state in TERMINAL} == {"SUCCEEDED", "FAILED", "CANCELED", "SETTLED"}
    assert not [pair for pair in TABLE if pair[0] in TERMINAL]


def test_success_has_one_way_in() -> None:
    """Only a running worker that is done, with nothing open, makes a task SUCCEEDED (I1)."""
    ways_in = [pair for pair, target in TABLE.items() if target is State.SUCCEEDED]
    assert ways_in == [(State.RUNNING, Event.EXITED_DONE)]


def test_the_chart_shows_every_transition_and_no_other() -> None:
    """The Mermaid chart has one arrow for each row of the table, and the two ends."""
    lines = chart().splitlines()
    assert lines[0] == "stateDiagram-v2"
    arrows = {line.strip() for line in lines[1:]}
    expected = {f"{state.name} --> {target.name}: {event.value}" for (state, event), target in LEGAL.items()}
    ends = {f"{state.name} --> [*]" for state in TERMINAL}
    assert arrows == expected | ends | {"[*] --> QUEUED: submitted"}


@pytest.mark.parametrize("state", State, ids=lambda state: state.name)
@pytest.mark.parametrize("what", HAPPENINGS)
def test_a_happening_is_refused_wherever_the_table_has_no_place_for_it(what: str, state: State) -> None:
    """TASK_TERMINAL (TASK_SETTLED) for a task that has ended, ILLEGAL_TRANSITION for one that has not; and the task
    is a value that the refusal cannot have changed.
    """
    living = state is State.RUNNING and what != "claimed"
    before = task(state, worker_alive=living)
    if state in WELCOME[what]:
        assert transition(before, HAPPENINGS[what], NOW).task.state in {state, *(LEGAL.get((state, e)) for e in Event)}
        return
    with pytest.raises(Refusal) as caught:
        transition(before, HAPPENINGS[what], NOW)
    refusal = caught.value
    if state is State.SETTLED:
        assert refusal.reason is Reason.TASK_SETTLED
    elif state in TERMINAL:
        assert refusal.reason is Reason.TASK_TERMINAL
        assert "it ended" in refusal.message
    else:
        assert refusal.reason is Reason.ILLEGAL_TRANSITION
        assert (state, Event[refusal.metadata["event"]]) not in LEGAL
    assert refusal.metadata["state"] == state.name
    assert before == task(state, worker_alive=living)
