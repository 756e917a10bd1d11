"""Classify and choose in a loop over a day: what a supervisor does about a task of which nothing is ever heard (S08)."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from supervisor_svc.core.arms import Action, choose
from supervisor_svc.core.supervision import SupervisionConfig
from supervisor_svc.core.verdict import Verdict, classify
from supervisor_svc.core.view import State, Storm, View

CONFIG = SupervisionConfig()
DAY_MS = 24 * 3_600_000
SWEEP_MS = 15_000
ACTIONS = (Action.WAKE, Action.RELAUNCH, Action.SETTLE)
WORKING = View(state=State.RUNNING, attempt=1, worker_alive=True, sensor=True, heard_ms=-DAY_MS)
STORM = Storm(emitter="lane_runner.progress", rows_per_second=640.0, since_ms=1)


def carried_out(view: View, action: Action, now_ms: int) -> View:
    """The task once its runner has done what a supervisor asked for."""
    if action is Action.WAKE:
        return replace(view, woken=True)
    if action is Action.RELAUNCH:
        return replace(
            view,
            state=State.RUNNING,
            attempt=view.attempt + 1,
            relaunches=view.relaunches + 1,
            running_ms=now_ms,
            progressed_ms=None,
        )
    if action is Action.SETTLE:
        return replace(view, state=State.SETTLED, worker_alive=False)
    return view


def a_day(view: View, config: SupervisionConfig = CONFIG) -> tuple[list[tuple[int, Action]], View]:
    """What is done about the task in 24 hours of sweeps, in which it never changes by itself, and what became of it."""
    done = []
    for now_ms in range(0, DAY_MS + 1, SWEEP_MS):
        action = choose(view, classify(view, now_ms, config), config)
        if action in ACTIONS:
            done.append((now_ms, action))
        view = carried_out(view, action, now_ms)
    return done, view


HUNG = replace(WORKING, progress=3, progressed_ms=0)
PARKED = View(state=State.IDLE, session=True, attempt=1, worker_alive=True, input_ms=0, heard_ms=-DAY_MS)


@pytest.mark.parametrize(
    ("view", "expected"),
    [
        (HUNG, [(900_000, Action.RELAUNCH), (960_000, Action.RELAUNCH), (1_020_000, Action.SETTLE)]),
        (
            PARKED,
            [
                (120_000, Action.WAKE),
                (135_000, Action.RELAUNCH),
                (255_000, Action.RELAUNCH),
                (375_000, Action.SETTLE),
            ],
        ),
        (
            replace(WORKING, worker_alive=False),
            [(0, Action.RELAUNCH), (15_000, Action.RELAUNCH), (30_000, Action.SETTLE)],
        ),
        (replace(HUNG, storm=STORM), [(0, Action.RELAUNCH), (15_000, Action.RELAUNCH), (30_000, Action.SETTLE)]),
    ],
    ids=["hung", "parked", "exited", "churning"],
)
def test_s08_a_day_of_silence_ends_in_one_settlement(view: View, expected: list[tuple[int, Action]]) -> None:
    """At most 1 wake, R relaunches and 1 settlement, each at its bound, and nothing after."""
    done, end = a_day(view)
    assert done == expected
    assert len(done) <= 1 + CONFIG.relaunches_max + 1
    assert end.state is State.SETTLED


@pytest.mark.parametrize(
    "view",
    [
        replace(WORKING, sensor=False),
        replace(HUNG, open_holds=("e1",), state=State.HELD),
        replace(HUNG, open_holds=("e1",), state=State.HELD, worker_alive=False),
        replace(HUNG, pauses=("TAKEOVER",)),
        replace(HUNG, reachable=False),
        replace(HUNG, children_open=1),
        replace(HUNG, incident="t1/1/stale"),
        replace(HUNG, state=State.SETTLED, worker_alive=False),
        replace(WORKING, state=State.QUEUED, worker_alive=False),
        replace(WORKING, state=State.IDLE, session=True, worker_alive=False),
    ],
    ids=[
        *(
            "no sensor",
            "held",
            "held, worker gone",
            "taken over",
            "unreachable",
            "parent",
            "filed",
            "settled",
            "queued",
        ),
        "resting",
    ],
)
def test_s08_what_is_nobodys_fault_is_left_alone_for_a_day(view: View) -> None:
    """Not one action in 24 hours."""
    assert a_day(view) == ([], view)


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 5),
    st.lists(st.tuples(st.sampled_from(Verdict), st.booleans(), st.integers(0, 7)), min_size=50, max_size=400),
)
def test_s08_no_course_of_events_makes_more_actions(cap: int, course: list[tuple[Verdict, bool, int]]) -> None:
    """Whatever is said of a task from sweep to sweep, also when the cap moves: per epoch at most 1 wake, as many relaunches
    as the highest cap, 1 settlement; and nothing after it until the next epoch.
    """
    view, count = HUNG, Counter[Action]()
    caps = [cap]
    for verdict, paused, other_cap in course:
        caps.append(other_cap)
        config = replace(CONFIG, relaunches_max=other_cap)
        action = choose(replace(view, pauses=("OPERATOR",) if paused else ()), verdict, config)
        assert view.state is not State.SETTLED or action is Action.NOTHING
        count[action] += 1
        view = carried_out(view, action, 0)
    assert count[Action.WAKE] <= 1
    assert count[Action.RELAUNCH] <= max(caps)
    assert count[Action.SETTLE] <= 1


def test_s08_the_next_epoch_has_a_budget_of_its_own() -> None:
    """A reopened task that hangs again gets its relaunches again, and no more."""
    _, end = a_day(HUNG)
    reopened = replace(end, state=State.RUNNING, epoch=2, attempt=1, relaunches=0, woken=False, worker_alive=True)
    done, end = a_day(replace(reopened, running_ms=0))
    assert [action for _, action in done] == [Action.RELAUNCH, Action.RELAUNCH, Action.SETTLE]
    assert end.state is State.SETTLED
