"""The table of task states, against a table written here from the design, and what ``transition`` makes of it."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from lane_runner_svc.core import lives
from lane_runner_svc.core.happenings import (
    CancelAsked,
    Claimed,
    CompleteAsked,
    Exited,
    Happening,
    HoldOpened,
    HoldReleased,
    InputCame,
    Launched,
    LaunchFailed,
    transition,
)
from lane_runner_svc.core.holds import Actor
from lane_runner_svc.core.states import TABLE, TERMINAL, Event, IllegalTransitionError, State, after, chart
from lane_runner_svc.core.task import Author, Exit, ExitKind, HookState, Now, Outcome, PauseCause, Task
from lanewarden.errors import Reason, Refusal

EXPECTED = """
QUEUED    CLAIMED         STARTING
QUEUED    RELAUNCHED      QUEUED
QUEUED    SETTLED         SETTLED
QUEUED    CANCELED        CANCELED
STARTING  LAUNCHED        RUNNING
STARTING  LAUNCH_FAILED   QUEUED
STARTING  LAUNCHES_SPENT  FAILED
STARTING  INTERRUPTED     QUEUED
STARTING  RELAUNCHED      QUEUED
STARTING  SETTLED         SETTLED
STARTING  CANCELED        CANCELED
RUNNING   HOLD_OPENED     HELD
RUNNING   INTERRUPTED     QUEUED
RUNNING   EXITED_EARLY    QUEUED
RUNNING   EXITED_LIMITED  QUEUED
RUNNING   EXITED_DONE     SUCCEEDED
RUNNING   EXITED_WRONG    FAILED
RUNNING   ROUND_DONE      IDLE
RUNNING   ROUND_FOLLOWS   QUEUED
RUNNING   RELAUNCHED      QUEUED
RUNNING   SETTLED         SETTLED
RUNNING   CANCELED        CANCELED
HELD      HOLD_OPENED     HELD
HELD      RELEASED_ALIVE  RUNNING
HELD      RELEASED_AWAY   QUEUED
HELD      EXITED_HELD     HELD
HELD      CANCELED        CANCELED
IDLE      INPUT_CAME      QUEUED
IDLE      WOKEN           QUEUED
IDLE      SETTLED         SETTLED
IDLE      CANCELED        CANCELED
FAILED    RETRIED         QUEUED
SUCCEEDED REOPENED        QUEUED
FAILED    REOPENED        QUEUED
CANCELED  REOPENED        QUEUED
SETTLED   REOPENED        QUEUED
SUCCEEDED REOPENED_IDLE   IDLE
FAILED    REOPENED_IDLE   IDLE
CANCELED  REOPENED_IDLE   IDLE
SETTLED   REOPENED_IDLE   IDLE
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
    "input came": InputCame(),
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
    "input came": {State.IDLE},
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


def test_terminal_states_are_left_by_a_person_only() -> None:
    """Reopen is the way out of SUCCEEDED, FAILED, CANCELED and SETTLED, and retry one more of FAILED; no happening leads
    out, for none of them names these events (I9).
    """
    assert {state.name for state in TERMINAL} == {"SUCCEEDED", "FAILED", "CANCELED", "SETTLED"}
    ways_out = {pair for pair in TABLE if pair[0] in TERMINAL}
    reopened = {(state, event) for state in TERMINAL for event in (Event.REOPENED, Event.REOPENED_IDLE)}
    assert ways_out == {(State.FAILED, Event.RETRIED), *reopened}


@pytest.mark.parametrize("state", State, ids=lambda state: state.name)
def test_reopen_is_for_what_has_ended_and_begins_anew(state: State) -> None:
    """Epoch + 1 and nothing of the last life that could count in the next; a task that lives is not reopened."""
    spent = task(
        state,
        attempt=4,
        premature_exits=3,
        launch_failures=2,
        relaunches=2,
        woken=True,
        progress=9,
        progress_note="nearly",
        cancel_cause="not needed",
        outcome=Outcome.FAILED,
        outcome_summary="no",
        exit_code=1,
        finished_wall_ms=7,
        hook_state=HookState.FAILED,
        hook_tries=5,
        hook_not_before_ms=99,
        hook_summary="no",
    )
    if state not in TERMINAL:
        with pytest.raises(IllegalTransitionError):
            lives.reopen(spent)
        return
    assert lives.reopen(spent) == replace(task(State.QUEUED), epoch=2)
    assert lives.reopen(spent, rests=True) == replace(task(State.IDLE), epoch=2)


@pytest.mark.parametrize("state", State, ids=lambda state: state.name)
def test_retry_is_for_what_has_failed_and_keeps_the_epoch(state: State) -> None:
    """FAILED goes back into the queue with fresh budgets and the next attempt number to come; what has not ended loses its
    delay and nothing else, so a held task stays held; any other end is no failure to retry.
    """
    before = task(state, attempt=4, premature_exits=3, launch_failures=2, not_before_ms=77)
    if state is State.FAILED:
        again = lives.retry(before)
        assert again == replace(before, state=State.QUEUED, premature_exits=0, launch_failures=0, not_before_ms=0)
        assert (again.epoch, again.attempt) == (1, 4)
    elif state in TERMINAL:
        with pytest.raises(IllegalTransitionError):
            lives.retry(before)
    else:
        assert lives.retry(before) == replace(before, not_before_ms=0)


def test_retry_of_a_failed_command_goes_on_counting() -> None:
    """The tries of an on_success command are its directories' names: none is used twice."""
    failed = task(State.SUCCEEDED, hook_state=HookState.FAILED, hook_tries=5, hook_not_before_ms=9)
    assert lives.retry(failed) == replace(failed, hook_state=HookState.PENDING, hook_not_before_ms=0)


@pytest.mark.parametrize("state", State, ids=lambda state: state.name)
def test_takeover_changes_the_owner_and_adds_its_pause(state: State) -> None:
    """Nothing else: it completes, skips and deletes nothing, and other pauses stay."""
    before = task(state, owner="bob", owner_role="operator", pauses=frozenset({PauseCause.OPERATOR}), attempt=2)
    both = frozenset({PauseCause.OPERATOR, PauseCause.TAKEOVER})
    assert lives.take_over(before, OPERATOR) == replace(before, owner="ann", pauses=both)


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
    assert arrows == expected | ends | {"[*] --> QUEUED: submitted", "[*] --> IDLE: submitted, a session"}


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
