"""Rulings, acks and the one judge of completion, without a store."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from lane_runner_svc.core.completion import Blocker, GateDecision, completion_blockers, named
from lane_runner_svc.core.holds import (
    Actor,
    Decision,
    Hold,
    HoldState,
    Ruling,
    check_ruling,
    escalation_id,
    release,
    stamp,
)
from lanewarden.errors import Reason, Refusal

ANN = Actor(identity="ann", role="operator")
BOB = Actor(identity="bob", role="operator")
RULING = Ruling(
    ruling_id="r1",
    escalation_id="t1.1.1.1",
    decision=Decision.APPROVE,
    instructions="go on",
    option_key="",
    ratifies=(),
    ruled_by=ANN,
    ruled_wall_ms=1_000,
)


def hold(state: HoldState = HoldState.OPEN, **more: object) -> Hold:
    """A hold of task t1; one that is past OPEN was ruled on."""
    values: dict[str, object] = {
        "escalation_id": "t1.1.1.1",
        "task_id": "t1",
        "epoch": 1,
        "attempt": 1,
        "sequence": 1,
        "question": "may I?",
        "options": (),
        "state": state,
        "opened_wall_ms": 1,
        "ruling": RULING if state in (HoldState.RELEASED, HoldState.ACKNOWLEDGED) else None,
        **more,
    }
    return Hold(**values)  # type: ignore[arg-type]


# check_ruling

BROKEN = {
    "no_decision": ({"decision": Decision.UNSPECIFIED}, {}),
    "empty_instructions": ({"instructions": " \n\t "}, {}),
    "wrong_task": ({}, {"named_task_id": "t2"}),
    "no_option": ({"decision": Decision.CHOOSE}, {}),
    "option_not_offered": ({"decision": Decision.CHOOSE, "option_key": "purple"}, {}),
    "gate_unknown": ({"ratifies": ("review", "vibes")}, {}),
}


def judge(ruling: Ruling, **asked: object) -> None:
    """Check a ruling on a hold of t1 that offered red and blue; the task has one gate."""
    values: dict[str, object] = {
        "options": ["red", "blue"],
        "gates": ["review"],
        "task_id": "t1",
        "named_task_id": "",
        **asked,
    }
    check_ruling(ruling, **values)  # type: ignore[arg-type]


@pytest.mark.parametrize("rule", BROKEN)
def test_h08_each_broken_rule_has_its_own_name(rule: str) -> None:
    """RULING_INVALID says which rule, and for which escalation."""
    change, asked = BROKEN[rule]
    with pytest.raises(Refusal) as caught:
        judge(replace(RULING, **change), **asked)
    assert caught.value.reason is Reason.RULING_INVALID
    assert caught.value.metadata == {"rule": rule, "escalation_id": "t1.1.1.1"}


@pytest.mark.parametrize("decision", [Decision.APPROVE, Decision.REJECT, Decision.REVISE], ids=lambda each: each.name)
def test_an_option_belongs_to_choose_but_may_come_with_any_decision(decision: Decision) -> None:
    """With another decision an option is only checked for having been offered."""
    judge(replace(RULING, decision=decision))
    judge(replace(RULING, decision=decision, option_key="red"))
    with pytest.raises(Refusal) as caught:
        judge(replace(RULING, decision=decision, option_key="purple"))
    assert caught.value.metadata["rule"] == "option_not_offered"


def test_a_whole_ruling_passes() -> None:
    """A choice that was offered, a gate that exists, the right task."""
    ruling = replace(RULING, decision=Decision.CHOOSE, option_key="blue", ratifies=("review",))
    judge(ruling, named_task_id="t1")


# release, stamp


def test_an_open_hold_is_released_by_the_ruling_and_only_its_ruling_changes() -> None:
    """RELEASED, with the ruling that did it."""
    assert release(hold(), RULING) == replace(hold(), state=HoldState.RELEASED, ruling=RULING)


@pytest.mark.parametrize("state", [HoldState.RELEASED, HoldState.ACKNOWLEDGED, HoldState.CANCELED])
def test_a_ruled_hold_is_already_ruled_and_says_who_what_when(state: HoldState) -> None:
    """The first ruling wins, also when the hold was closed since; the second learns everything about it (H06)."""
    with pytest.raises(Refusal) as caught:
        release(hold(state, ruling=RULING), replace(RULING, ruling_id="r2", ruled_by=BOB))
    assert caught.value.reason is Reason.ALREADY_RULED
    assert caught.value.metadata == {
        "escalation_id": "t1.1.1.1",
        "ruling_id": "r1",
        "ruled_by": "ann",
        "ruled_at": "1970-01-01T00:00:01.000Z",
        "decision": "APPROVE",
    }


@pytest.mark.parametrize(
    ("state", "word"), [(HoldState.NONE, "notice"), (HoldState.CANCELED, "CANCELED")], ids=lambda each: str(each)
)
def test_a_notice_and_a_canceled_hold_are_not_open(state: HoldState, word: str) -> None:
    """HOLD_NOT_OPEN, with the cause of a cancel."""
    with pytest.raises(Refusal) as caught:
        release(hold(state, cancel_cause="not needed" if state is HoldState.CANCELED else ""), RULING)
    assert caught.value.reason is Reason.HOLD_NOT_OPEN
    assert word in caught.value.message
    assert caught.value.metadata.get("cause") == ("not needed" if state is HoldState.CANCELED else None)


def test_h04_a_stamp_leaves_the_hold_as_open_as_before() -> None:
    """Three acks: three stamps, the latest shown, still OPEN, no ruling."""
    stamped = hold()
    for number, actor in enumerate((ANN, BOB, ANN), start=1):
        stamped = stamp(stamped, by=actor, wall_ms=number, expected_by_wall_ms=number + 10, note=f"note {number}")
    assert stamped == replace(hold(), acks=3, acked_by=ANN, acked_wall_ms=3, expected_by_wall_ms=13, ack_note="note 3")


@pytest.mark.parametrize("state", [state for state in HoldState if state is not HoldState.OPEN])
def test_only_an_open_hold_can_be_stamped(state: HoldState) -> None:
    """HOLD_NOT_OPEN, and the state by name."""
    with pytest.raises(Refusal) as caught:
        stamp(hold(state), by=ANN, wall_ms=1, expected_by_wall_ms=None, note="")
    assert caught.value.reason is Reason.HOLD_NOT_OPEN
    assert caught.value.metadata["state"] == state.name


def test_escalation_ids_of_different_questions_differ() -> None:
    """Whatever task, epoch, attempt and sequence: no two questions share an id."""
    keys = list(itertools.product(("t1", "t11"), (1, 11), (1, 11), (1, 11)))
    assert len({escalation_id(*key) for key in keys}) == len(keys)


# The judge

BLOCKS = {
    HoldState.NONE: None,
    HoldState.OPEN: "a ruling is owed",
    HoldState.RELEASED: "its ruling is not acknowledged",
    HoldState.ACKNOWLEDGED: None,
    HoldState.CANCELED: None,
}
GATE_BLOCKS = {
    None: "never reviewed",
    GateDecision.UNSPECIFIED: "never reviewed",
    GateDecision.REVISE: "latest decision is REVISE",
    GateDecision.REJECTED: "latest decision is REJECTED",
    GateDecision.APPROVED: None,
    GateDecision.WAIVED: None,
}


def test_the_tables_of_this_test_are_complete() -> None:
    """A new hold state or gate decision must say here whether it blocks."""
    assert set(BLOCKS) == set(HoldState)
    assert set(GATE_BLOCKS) == {None, *GateDecision}


@pytest.mark.parametrize(
    ("state", "decision"), list(itertools.product(BLOCKS, GATE_BLOCKS)), ids=lambda each: each.name if each else "none"
)
def test_completion_is_judged_by_the_table(state: HoldState, decision: GateDecision | None) -> None:
    """Every hold state with every gate decision: exactly what blocks is named, holds first."""
    decisions = {"review": decision} if decision else {}
    expected = []
    if BLOCKS[state]:
        expected.append(Blocker(kind="hold", name="t1.1.1.1", detail=str(BLOCKS[state])))
    if GATE_BLOCKS[decision]:
        expected.append(Blocker(kind="gate", name="review", detail=str(GATE_BLOCKS[decision])))
    assert completion_blockers([hold(state)], ["review"], decisions) == tuple(expected)


def test_every_blocker_is_named_and_a_decision_on_another_gate_counts_for_nothing() -> None:
    """Two holds and two gates; an approval of a gate that the task does not have unblocks nothing."""
    second = hold(escalation_id="t1.1.1.2")
    found = completion_blockers(
        [hold(), second], ["review", "security"], {"vibes": GateDecision.APPROVED, "security": GateDecision.WAIVED}
    )
    assert named(found) == (
        "hold t1.1.1.1: a ruling is owed; hold t1.1.1.2: a ruling is owed; gate review: never reviewed"
    )
    assert completion_blockers([], [], {"vibes": GateDecision.REJECTED}) == ()
