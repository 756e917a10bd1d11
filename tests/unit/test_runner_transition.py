"""What ``transition`` makes of launches, exits, cancels and Complete: every branch, and which comes first."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lane_runner_svc.core.budget import BACKOFF_FIRST_MS, BACKOFF_MAX_MS, backoff_ms
from lane_runner_svc.core.completion import Blocker
from lane_runner_svc.core.happenings import (
    CancelAsked,
    Claimed,
    CompleteAsked,
    Exited,
    HoldReleased,
    Launched,
    LaunchFailed,
    transition,
)
from lane_runner_svc.core.states import State
from lane_runner_svc.core.task import (
    SUMMARY_BYTES_MAX,
    Author,
    Effect,
    Exit,
    ExitKind,
    Outcome,
    PauseCause,
    Step,
    Task,
    clipped,
)
from lanewarden.errors import Reason, Refusal
from tests.unit.test_runner_states import NOW, OPERATOR, task

BLOCKER = Blocker(kind="gate", name="review", detail="never reviewed")
ENDING = (Effect.CANCEL_HOLDS, Effect.END_MESSAGES)
DONE = Exit(kind=ExitKind.EXITED, code=0)
WRONG = Exit(kind=ExitKind.EXITED, code=7)
KILLED = Exit(kind=ExitKind.SIGNALED, signal=9, signal_name="SIGKILL")
LOST = Exit(kind=ExitKind.SHIM_LOST)
NEVER_STARTED = Exit(kind=ExitKind.NEVER_STARTED)
ENDS = (DONE, WRONG, KILLED, LOST)


def exit_of(
    before: Task,
    end: Exit = DONE,
    *,
    open_holds: int = 0,
    unacknowledged: tuple[str, ...] = (),
    blockers: tuple[Blocker, ...] = (),
    interrupted: bool = False,
) -> Step:
    """The end of an attempt, judged."""
    happening = Exited(
        exit=end,
        open_holds=open_holds,
        unacknowledged=unacknowledged,
        blockers=blockers,
        jitter=0.5,
        interrupted=interrupted,
    )
    return transition(before, happening, NOW)


def alive(state: State = State.RUNNING, **more: object) -> Task:
    """A task whose worker runs."""
    return task(state, attempt=1, worker_alive=True, **more)


# Exits, in the order in which they are judged: each test has everything that comes later against it as well.

EVERYTHING_ELSE: dict[str, Any] = {"unacknowledged": ("t1.1.1.1",), "blockers": (BLOCKER,)}


@pytest.mark.parametrize("end", [*ENDS, NEVER_STARTED], ids=str)
@pytest.mark.parametrize("state", [State.RUNNING, State.HELD], ids=lambda state: state.name)
def test_exit_first_a_cancel_that_waited_is_carried_out(state: State, end: Exit) -> None:
    """Whatever else is true of the task, it is CANCELED with the operator's cause and everything open is ended."""
    before = alive(state, cancel_cause="not needed", outcome=Outcome.SUCCEEDED, outcome_summary="done")
    step = exit_of(before, end, open_holds=1, interrupted=True, **EVERYTHING_ELSE)
    assert step.task.state is State.CANCELED
    assert (step.task.summary, step.task.summary_author) == ("not needed", Author.OPERATOR)
    assert step.effects == ENDING
    assert not step.task.worker_alive


@pytest.mark.parametrize("end", ENDS, ids=str)
@pytest.mark.parametrize("outcome", [None, *Outcome])
def test_exit_second_open_holds_make_it_a_hold_exit_that_costs_nothing(end: Exit, outcome: Outcome | None) -> None:
    """However the worker ends, with a hold open its task stays HELD, ends nothing and spends no budget (H01)."""
    before = alive(State.HELD, outcome=outcome, outcome_summary="done" if outcome else "")
    step = exit_of(before, end, open_holds=1, interrupted=True, **EVERYTHING_ELSE)
    assert step.effects == ()
    assert step.task == replace(before, worker_alive=False, exit_code=end.code, exit_signal=end.signal)


@pytest.mark.parametrize("end", ENDS, ids=str)
def test_exit_third_what_the_runner_interrupted_goes_back_and_costs_nothing(end: Exit) -> None:
    """A worker that was stopped because its runner goes down spends no budget and waits for no backoff."""
    step = exit_of(alive(), end, interrupted=True, **EVERYTHING_ELSE)
    assert step.task.state is State.QUEUED
    assert (step.task.premature_exits, step.task.launch_failures, step.task.not_before_ms) == (0, 0, 0)
    assert step.effects == ()


def test_exit_third_what_its_shim_stopped_for_want_of_a_runner_goes_back_and_costs_nothing() -> None:
    """As if the runner had stopped it, and the summary says what it was; a hold, a cancel and its own word come first."""
    end = replace(KILLED, runner_lost=True)
    step = exit_of(alive(), end, **EVERYTHING_ELSE)
    assert (step.task.state, step.task.premature_exits, step.task.not_before_ms) == (State.QUEUED, 0, 0)
    assert step.task.summary == "attempt 1: the worker was killed by SIGKILL, stopped because its runner was lost"
    assert exit_of(alive(State.HELD), end, open_holds=1).task.state is State.HELD
    assert exit_of(alive(cancel_cause="enough"), end).task.state is State.CANCELED
    said = alive(outcome=Outcome.SUCCEEDED, outcome_summary="all done")
    assert exit_of(said, end).task.state is State.SUCCEEDED


def test_exit_of_an_interrupted_worker_that_had_said_complete_is_a_completion() -> None:
    """Its word was stored, so the attempt is not repeated."""
    before = alive(outcome=Outcome.SUCCEEDED, outcome_summary="all built")
    assert exit_of(before, KILLED, interrupted=True).task.state is State.SUCCEEDED


def test_exit_fourth_a_worker_that_never_started_is_a_failed_launch() -> None:
    """It spends the launch budget, not the budget of premature exits."""
    step = exit_of(task(State.STARTING, attempt=1), NEVER_STARTED, blockers=(BLOCKER,))
    assert step.task.state is State.QUEUED
    assert (step.task.launch_failures, step.task.premature_exits) == (1, 0)


def test_exit_never_started_of_a_worker_that_has_spoken_is_a_premature_exit() -> None:
    """What was lost of a running worker's record must not make its end impossible to store."""
    step = exit_of(alive(), NEVER_STARTED)
    assert step.task.state is State.QUEUED
    assert (step.task.launch_failures, step.task.premature_exits) == (0, 1)


@pytest.mark.parametrize("end", ENDS, ids=str)
@pytest.mark.parametrize("outcome", [None, *Outcome])
def test_exit_fifth_an_unacknowledged_ruling_sends_it_back(end: Exit, outcome: Outcome | None) -> None:
    """Whatever the worker said, a ruling that it never acknowledged starts another attempt, within the budget."""
    before = alive(outcome=outcome, outcome_summary="done" if outcome else "")
    step = exit_of(before, end, **EVERYTHING_ELSE)
    assert step.task.state is State.QUEUED
    assert step.task.premature_exits == 1
    assert "t1.1.1.1" in step.task.summary
    spent = exit_of(replace(before, premature_exits=before.premature_exits_max), end, **EVERYTHING_ELSE)
    assert spent.task.state is State.FAILED
    assert "without acknowledging the ruling on t1.1.1.1" in spent.task.summary
    assert spent.effects == ENDING


@pytest.mark.parametrize("end", ENDS, ids=str)
def test_exit_sixth_what_the_worker_said_in_complete_decides(end: Exit) -> None:
    """After Complete the exit itself says nothing: the word of the worker does, under its name."""
    done = exit_of(alive(outcome=Outcome.SUCCEEDED, outcome_summary="all built"), end).task
    assert (done.state, done.summary, done.summary_author) == (State.SUCCEEDED, "all built", Author.WORKER)
    failed = exit_of(alive(outcome=Outcome.FAILED, outcome_summary="no disk"), end, blockers=(BLOCKER,)).task
    assert (failed.state, failed.summary, failed.summary_author) == (State.FAILED, "no disk", Author.WORKER)


@pytest.mark.parametrize("end", ENDS, ids=str)
def test_exit_after_complete_is_judged_again(end: Exit) -> None:
    """What has come to block since Complete makes it FAILED, by name, under the runner's name."""
    step = exit_of(alive(outcome=Outcome.SUCCEEDED, outcome_summary="all built"), end, blockers=(BLOCKER,))
    assert step.task.state is State.FAILED
    assert "gate review: never reviewed" in step.task.summary
    assert step.task.summary_author is Author.RUNNER


@pytest.mark.parametrize("end", [KILLED, LOST], ids=str)
def test_exit_seventh_an_early_end_is_repeated_within_the_budget(end: Exit) -> None:
    """Four attempts at most by default: the budget counts, the delays grow, and then it FAILS and says how."""
    current, delays = alive(), []
    for _ in range(current.premature_exits_max):
        gone = exit_of(current, end, blockers=(BLOCKER,)).task
        assert gone.state is State.QUEUED
        assert not gone.worker_alive
        delays.append(gone.not_before_ms - NOW.steady_ms)
        current = transition(transition(gone, Claimed(), NOW).task, Launched(), NOW).task
    assert delays == [500, 1_000, 2_000]
    last = exit_of(current, end, blockers=(BLOCKER,))
    assert last.task.state is State.FAILED
    assert "premature exit 4 of 3 allowed" in last.task.summary
    assert str(end) in last.task.summary
    assert last.effects == ENDING


def test_exit_eighth_another_code_fails() -> None:
    """A program that ends by itself with a code other than 0 has spoken: FAILED, not repeated."""
    step = exit_of(alive(), WRONG, blockers=(BLOCKER,))
    assert (step.task.state, step.task.exit_code) == (State.FAILED, 7)
    assert step.task.summary == "the worker exited with code 7"


def test_exit_ninth_code_0_with_blockers_fails_with_every_blocker() -> None:
    """Exit 0 is not success while anything blocks (I1)."""
    second = Blocker(kind="gate", name="security", detail="latest decision is REVISE")
    step = exit_of(alive(), DONE, blockers=(BLOCKER, second))
    assert step.task.state is State.FAILED
    assert "gate review: never reviewed; gate security: latest decision is REVISE" in step.task.summary


def test_exit_last_code_0_with_nothing_open_succeeds() -> None:
    """The one way to SUCCEEDED without Complete."""
    step = exit_of(alive())
    assert step.task.state is State.SUCCEEDED
    assert step.task.summary
    assert step.task.finished_wall_ms == NOW.wall_ms
    assert step.effects == ENDING


# Launches.


def test_a_claim_counts_the_attempt_and_forgets_what_the_last_one_said() -> None:
    """The attempt is spent before the launch; an old outcome or exit is not taken for the new attempt's."""
    before = task(State.QUEUED, attempt=2, outcome=Outcome.FAILED, outcome_summary="no", exit_code=1, exit_signal=9)
    claimed = transition(before, Claimed(), NOW).task
    assert (claimed.state, claimed.attempt) == (State.STARTING, 3)
    assert (claimed.outcome, claimed.outcome_summary, claimed.exit_code, claimed.exit_signal) == (None, "", None, None)


@pytest.mark.parametrize("wrong", [{"pauses": frozenset({PauseCause.OPERATOR})}, {"worker_alive": True}])
def test_a_claim_of_a_paused_or_living_task_is_our_own_mistake(wrong: dict[str, object]) -> None:
    """The guards stay on in production: no launch of a paused task, no second worker (I5)."""
    with pytest.raises(AssertionError):
        transition(task(State.QUEUED, **wrong), Claimed(), NOW)


def test_launch_failures_are_counted_delayed_and_bounded() -> None:
    """Growing delays, then FAILED with the number and the last cause."""
    current, delays = task(State.QUEUED), []
    for _ in range(current.launch_failures_max - 1):
        claimed = transition(current, Claimed(), NOW).task
        current = transition(claimed, LaunchFailed(cause="no program", jitter=0.5), NOW).task
        assert current.state is State.QUEUED
        delays.append(current.not_before_ms - NOW.steady_ms)
    assert delays == [500, 1_000, 2_000, 4_000]
    last = transition(transition(current, Claimed(), NOW).task, LaunchFailed(cause="no disk", jitter=0.5), NOW)
    assert last.task.state is State.FAILED
    assert last.task.summary == "launch failed 5 times; the last time: no disk"
    assert last.effects == ENDING


def test_a_failed_launch_of_a_task_that_is_being_canceled_cancels_it() -> None:
    """The cancel came during the launch."""
    before = task(State.STARTING, attempt=1, cancel_cause="not needed")
    assert transition(before, LaunchFailed(cause="no program", jitter=0.5), NOW).task.state is State.CANCELED


def test_a_launch_ends_a_row_of_failed_launches_but_refills_no_exits() -> None:
    """Good starts do not refill the budget of premature exits (P08)."""
    before = task(State.STARTING, attempt=3, launch_failures=2, premature_exits=2)
    launched = transition(before, Launched(), NOW).task
    assert (launched.launch_failures, launched.premature_exits, launched.worker_alive) == (0, 2, True)


# Holds.


def test_a_release_with_other_holds_open_moves_nothing() -> None:
    """Two holds, one ruled: still HELD (H12)."""
    before = alive(State.HELD)
    assert transition(before, HoldReleased(open_holds=1), NOW).task == before


@pytest.mark.parametrize(("living", "target"), [(True, State.RUNNING), (False, State.QUEUED)])
def test_the_last_release_goes_on_where_the_worker_is(living: bool, target: State) -> None:
    """A worker that waits goes on; for one that is gone an attempt is queued, without delay."""
    before = task(State.HELD, attempt=1, worker_alive=living, not_before_ms=10**9)
    step = transition(before, HoldReleased(open_holds=0), NOW)
    assert (step.task.state, step.task.not_before_ms) == (target, 0)


# Cancels.


@pytest.mark.parametrize("state", [State.QUEUED, State.HELD, State.IDLE], ids=lambda state: state.name)
def test_a_cancel_without_a_worker_is_done_at_once(state: State) -> None:
    """CANCELED, with everything open ended, and a cause even when none was given (H14)."""
    step = transition(task(state), CancelAsked(cause="", by=OPERATOR), NOW)
    assert (step.task.state, step.task.summary, step.effects) == (State.CANCELED, "canceled by ann", ENDING)


@pytest.mark.parametrize(
    "before", [alive(), alive(State.HELD), task(State.STARTING, attempt=1)], ids=lambda each: each.state.name
)
def test_a_cancel_with_a_worker_waits_for_its_end_and_the_first_cause_stays(before: Task) -> None:
    """The state does not move before the process is gone; a second cancel changes nothing."""
    step = transition(before, CancelAsked(cause="not needed", by=OPERATOR), NOW)
    assert (step.task.state, step.task.cancel_cause) == (before.state, "not needed")
    assert set(step.effects) == {Effect.STOP_WORKER, Effect.CANCEL_HOLDS}
    again = transition(step.task, CancelAsked(cause="other", by=OPERATOR), NOW)
    assert again == Step(task=step.task)


# Complete.


def test_complete_as_succeeded_is_refused_with_every_blocker_and_as_failed_is_not() -> None:
    """COMPLETION_BLOCKED names every blocker; a worker may always say that it has failed."""
    second = Blocker(kind="hold", name="t1.1.1.1", detail="a ruling is owed")
    with pytest.raises(Refusal) as caught:
        transition(alive(), CompleteAsked(outcome=Outcome.SUCCEEDED, summary="", blockers=(second, BLOCKER)), NOW)
    assert caught.value.reason is Reason.COMPLETION_BLOCKED
    assert caught.value.metadata["blockers"] == "hold:t1.1.1.1,gate:review"
    step = transition(alive(), CompleteAsked(outcome=Outcome.FAILED, summary=" ", blockers=(BLOCKER,)), NOW)
    assert (step.task.state, step.task.outcome) == (State.RUNNING, Outcome.FAILED)
    assert step.task.outcome_summary == "the worker said FAILED without a summary"


# Bounds.


@given(failures=st.integers(1, 200), jitter=st.floats(0, 1, exclude_max=True))
def test_backoff_is_full_jitter_under_a_bound_that_doubles(failures: int, jitter: float) -> None:
    """Between 0 and 1 s doubling to 60 s, whatever the count; never an error for a large one."""
    delay = backoff_ms(failures, jitter)
    assert 0 <= delay < min(BACKOFF_MAX_MS, BACKOFF_FIRST_MS * 2 ** (failures - 1))


def test_backoff_reaches_its_bound_and_starts_at_nothing() -> None:
    """Jitter spans the whole range, the bound is reached at the seventh failure, and no failure means no delay."""
    almost = 1 - 1e-9
    assert [backoff_ms(n, almost) for n in (0, 1, 2, 6, 7, 99)] == [0, 999, 1_999, 31_999, 59_999, 59_999]
    assert backoff_ms(50, 0.0) == 0


@given(st.text(max_size=3_000))
def test_stored_texts_are_cut_between_characters(text: str) -> None:
    """At most the bound in bytes, valid UTF-8, a true beginning of the text, and cutting twice changes nothing."""
    text = text.encode("utf-8", "ignore").decode()
    cut = clipped(text, 64)
    assert len(cut.encode()) <= 64
    assert text.startswith(cut.removesuffix("…"))
    assert clipped(cut, 64) == cut
    if len(text.encode()) <= 64:
        assert cut == text


def test_a_summary_never_outgrows_its_bound() -> None:
    """A long cause in a launch failure is cut (I9)."""
    before = task(State.STARTING, attempt=1, launch_failures=4)
    ended = transition(before, LaunchFailed(cause="x" * 100_000, jitter=0.5), NOW).task
    assert len(ended.summary.encode()) <= SUMMARY_BYTES_MAX
