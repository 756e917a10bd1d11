"""The supervisor's pure judgements: rulings, routing, intake, delivery."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lanewarden.errors import Reason, Refusal, refuse
from supervisor_svc.core.delivery import BACKOFF_MAX_SECONDS, BACKOFF_MIN_SECONDS, Outcome, backoff_seconds, judge
from supervisor_svc.core.holds import HoldView, KnownRuling, Ruling, check_ack, check_ruling
from supervisor_svc.core.intake import takeable
from supervisor_svc.core.routing import Candidate, choose_runner

HOLD = HoldView(escalation_id="e1", task_id="t1", state="OPEN", options=("left",), cancel_cause="", ruling=None)
RULING = Ruling(decision="APPROVE", instructions="go on", option_key="", ratifies=())
FIRST = KnownRuling(ruling_id="m1", ruled_by="ada", ruled_wall_ms=12, decision="REJECT")


def refusal_of(hold: HoldView, ruling: Ruling, *, named: str = "", gates: tuple[str, ...] | None = ("g",)) -> Refusal:
    with pytest.raises(Refusal) as refused:
        check_ruling(hold, ruling, gates=gates, named_task_id=named)
    return refused.value


@pytest.mark.parametrize(
    ("ruling", "named", "rule"),
    [
        (replace(RULING, decision="UNSPECIFIED"), "", "no_decision"),
        (replace(RULING, instructions=" \n"), "", "empty_instructions"),
        (RULING, "t2", "wrong_task"),
        (replace(RULING, decision="CHOOSE"), "", "no_option"),
        (replace(RULING, decision="CHOOSE", option_key="right"), "", "option_not_offered"),
        (replace(RULING, option_key="right"), "", "option_not_offered"),
        (replace(RULING, ratifies=("h",)), "", "gate_unknown"),
    ],
)
def test_h08_each_broken_rule_has_its_name(ruling: Ruling, named: str, rule: str) -> None:
    """A ruling that is none is refused as RULING_INVALID, naming the rule."""
    refusal = refusal_of(HOLD, ruling, named=named)
    assert (refusal.reason, refusal.metadata["rule"]) == (Reason.RULING_INVALID, rule)


def test_h08_valid_rulings_pass() -> None:
    """A control: well-formed rulings pass; gates that are not known here are left to the runner."""
    check_ruling(HOLD, RULING, gates=(), named_task_id="t1")
    check_ruling(HOLD, replace(RULING, decision="CHOOSE", option_key="left"), gates=(), named_task_id="")
    check_ruling(HOLD, replace(RULING, ratifies=("unheard-of",)), gates=None, named_task_id="")


def test_h06_second_ruling_learns_who_what_when() -> None:
    """Who comes second learns the first ruling, also once the hold is closed."""
    for state in ("OPEN", "RELEASED", "ACKNOWLEDGED"):
        refusal = refusal_of(replace(HOLD, state=state, ruling=FIRST), RULING)
        assert refusal.reason is Reason.ALREADY_RULED
        assert dict(refusal.metadata) == {
            "escalation_id": "e1",
            "ruling_id": "m1",
            "ruled_by": "ada",
            "ruled_at": "1970-01-01T00:00:00.012Z",
            "decision": "REJECT",
        }


@pytest.mark.parametrize("state", ["NONE", "CANCELED"])
def test_h07_a_hold_that_is_not_open_is_not_ruled_or_acknowledged(state: str) -> None:
    """Notices and canceled holds wait for nobody."""
    hold = replace(HOLD, state=state, cancel_cause="task canceled")
    assert refusal_of(hold, RULING).reason is Reason.HOLD_NOT_OPEN
    with pytest.raises(Refusal) as refused:
        check_ack(hold)
    assert refused.value.reason is Reason.HOLD_NOT_OPEN


def test_ack_of_a_ruled_hold_is_refused() -> None:
    """An ack that comes after a ruling, even one that is still on its way, stamps nothing; before it, it passes."""
    check_ack(HOLD)
    with pytest.raises(Refusal) as refused:
        check_ack(replace(HOLD, ruling=FIRST))
    assert refused.value.reason is Reason.HOLD_NOT_OPEN


@pytest.mark.parametrize(
    ("taken", "sequences", "expected"),
    [
        (0, [1, 2, 3], [0, 1, 2]),
        (2, [1, 2, 3], [2]),
        (0, [2, 3], []),
        (1, [2, 4], [0]),
        (5, [1], []),
        (0, [1, 1, 2], [0, 2]),
    ],
)
def test_items_are_taken_once_and_without_gaps(taken: int, sequences: list[int], expected: list[int]) -> None:
    """Old items are passed over; a gap ends the batch."""
    assert takeable(taken, sequences) == expected


@given(st.lists(st.lists(st.integers(1, 12), max_size=6), max_size=20))
def test_p13_whatever_is_sent_each_item_is_taken_once_in_order(batches: list[list[int]]) -> None:
    """Under any repetition, loss and reordering of batches, what was taken is 1, 2, 3 … without repetition."""
    taken: list[int] = []
    for batch in batches:
        taken += [batch[index] for index in takeable(len(taken), batch)]
    assert taken == list(range(1, len(taken) + 1))


@pytest.mark.parametrize(
    ("reason", "outcome"),
    [
        (Reason.RUNNER_UNREACHABLE, Outcome.AWAY),
        (Reason.SHUTTING_DOWN, Outcome.AWAY),
        (Reason.STORE_FAILED, Outcome.AWAY),
        (Reason.DEADLINE_PASSED, Outcome.AWAY),
        (Reason.CREDENTIAL_INVALID, Outcome.AWAY),
        (Reason.STORE_FULL, Outcome.BUSY),
        (Reason.LIMIT_REACHED, Outcome.BUSY),
        (Reason.ALREADY_RULED, Outcome.REFUSED),
        (Reason.HOLD_NOT_OPEN, Outcome.REFUSED),
        (Reason.WORKER_DEAD, Outcome.REFUSED),
        (Reason.UNEXPECTED, Outcome.REFUSED),
    ],
)
def test_only_what_may_pass_keeps_a_command_stored(reason: Reason, outcome: Outcome) -> None:
    """A failure that may pass is tried again; any other refusal is final."""
    assert judge(refuse(reason, "no"), "m1") is outcome


def test_h05_already_ruled_by_this_very_command_is_a_delivery() -> None:
    """A try whose answer was lost is recognised by its ruling id; another's ruling is a refusal."""
    assert judge(refuse(Reason.ALREADY_RULED, "no", ruling_id="m1"), "m1") is Outcome.DELIVERED
    assert judge(refuse(Reason.ALREADY_RULED, "no", ruling_id="m2"), "m1") is Outcome.REFUSED


@given(st.integers(1, 10_000), st.floats(0, 1, exclude_max=True))
def test_backoff_is_bounded(failures: int, jitter: float) -> None:
    """However often it failed, the next try comes within the bounds."""
    assert BACKOFF_MIN_SECONDS <= backoff_seconds(failures, jitter) <= BACKOFF_MAX_SECONDS


ONE = Candidate(runner_id="r1", lanes=("a",), live=True, unfinished=2)
TWO = Candidate(runner_id="r2", lanes=("a", "b"), live=True, unfinished=1)


@pytest.mark.parametrize(
    ("candidates", "named", "lane", "expected"),
    [
        ([ONE], "", "", "r1"),
        ([ONE, TWO], "r1", "b", "r1"),
        ([ONE, TWO], "", "b", "r2"),
        ([ONE, TWO], "", "a", "r2"),
        ([ONE, replace(TWO, live=False)], "", "a", "r1"),
        ([ONE, replace(TWO, live=False)], "", "b", "r2"),
    ],
)
def test_a_task_goes_to_a_runner_that_can_take_it(
    candidates: list[Candidate], named: str, lane: str, expected: str
) -> None:
    """Named first; then who has the lane, live before not, the least busy first."""
    assert choose_runner(candidates, named=named, lane=lane) == expected


@pytest.mark.parametrize(
    ("candidates", "named", "lane", "reason"),
    [
        ([ONE], "r9", "", Reason.RUNNER_UNKNOWN),
        ([ONE], "", "z", Reason.LANE_UNKNOWN),
        ([], "", "", Reason.RUNNER_UNREACHABLE),
    ],
)
def test_a_task_that_nobody_can_take_is_refused(
    candidates: list[Candidate], named: str, lane: str, reason: Reason
) -> None:
    """Each way of having nobody has its own reason."""
    with pytest.raises(Refusal) as refused:
        choose_runner(candidates, named=named, lane=lane)
    assert refused.value.reason is reason
