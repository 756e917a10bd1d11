"""Cancels, gates, pauses and lanes on a real store, through the handlers and units of work of the lane runner."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lane_runner_svc.core.holds import HoldState
from lane_runner_svc.core.states import State
from lane_runner_svc.core.task import Author
from lanewarden.errors import Reason
from lanewarden.v1 import lane_runner_service_pb2 as pb
from lanewarden.v1 import task_pb2
from tests import runner_checks as checks
from tests.runner_checks import changes_nothing, refused
from tests.runner_kit import KILLED, RunnerKit, make_runner


@pytest.fixture
def kit(tmp_path: Path) -> Iterator[RunnerKit]:
    """A runner; when it is closed, every row that it wrote had an author (I11)."""
    made = make_runner(tmp_path)
    yield made
    made.close()


# Cancels


@pytest.mark.parametrize("when", ["queued", "backing off", "held"])
def test_h14_a_cancel_without_a_process_is_done_at_once(kit: RunnerKit, when: str) -> None:
    """CANCELED, holds closed with the cause, messages ended, a late answer starts nothing, a second cancel is the same."""
    escalation_id = ""
    if when == "queued":
        task_id = kit.submit().task_id
    else:
        ref = kit.running()
        task_id = ref.task_id
        escalation_id = kit.escalate(ref) if when == "held" else ""
        kit.exited(ref, KILLED)
    kit.ask("SendInput", pb.SendInputRequest(task_id=task_id, text="more"))
    canceled = kit.cancel(task_id, "not needed")
    assert (canceled.state, canceled.summary, canceled.summary_author) == (
        State.CANCELED,
        "not needed",
        Author.OPERATOR,
    )
    assert kit.waiting(task_id) == []
    before = kit.dump()
    assert kit.cancel(task_id, "another cause") == canceled
    assert kit.dump() == before
    if escalation_id:
        closed = kit.hold(escalation_id)
        assert (closed.state, closed.cancel_cause, closed.ruling) == (HoldState.CANCELED, "not needed", None)
        changes_nothing(kit, Reason.HOLD_NOT_OPEN, lambda: kit.rule(escalation_id))
    kit.clock.advance(3600)
    assert kit.claim() is None


def test_h14_a_cancel_with_a_worker_stops_it_and_waits(kit: RunnerKit) -> None:
    """The stop is asked for once, the holds are closed now, the state moves with the process; Complete changes nothing."""
    ref = kit.running()
    escalation_id = kit.escalate(ref)
    assert kit.cancel(ref.task_id, "not needed").state is State.HELD
    assert kit.hold(escalation_id).state is HoldState.CANCELED
    kit.cancel(ref.task_id, "again")
    assert kit.stopped == [ref]
    kit.complete(ref)
    ended = kit.exited(ref)
    assert (ended.state, ended.summary) == (State.CANCELED, "not needed")


def test_h14_a_ruling_taken_during_the_stop_does_not_reopen_what_the_cancel_closed(kit: RunnerKit) -> None:
    """The hold stays CANCELED, the message is taken."""
    ref = kit.running()
    escalation_id = kit.escalate(ref)
    ruling_id = kit.rule(escalation_id).message.message_id
    kit.cancel(ref.task_id)
    assert kit.take(ref, ruling_id).acknowledged_now
    assert kit.hold(escalation_id).state is HoldState.CANCELED
    assert kit.exited(ref, KILLED).state is State.CANCELED


def test_h14_a_cancel_during_the_launch_is_carried_out_when_the_worker_is_there(kit: RunnerKit) -> None:
    """Nobody can stop what is not there yet; the news of the launch stops it."""
    kit.submit()
    launch = kit.claim()
    assert launch is not None
    assert kit.cancel(launch.ref.task_id).state is State.STARTING
    kit.stopped.clear()
    kit.launched(launch.ref)
    assert kit.stopped == [launch.ref]
    assert kit.exited(launch.ref, KILLED).state is State.CANCELED


# Gates


def test_h15_a_gate_that_was_never_reviewed_blocks(kit: RunnerKit) -> None:
    """Exit 0 without a review is FAILED."""
    checks.check_exit_0_asks_the_judge(kit)


def test_h15_the_latest_decision_of_a_gate_counts(kit: RunnerKit) -> None:
    """APPROVED lets through, REVISE after it blocks again, a waiver lets through and is visible as one."""
    ref = kit.running(gates=["review"])
    blockers = lambda: [  # noqa: E731
        (each.name, each.detail)
        for each in kit.ask("CheckCompletion", pb.CheckCompletionRequest(task_id=ref.task_id)).blockers
    ]
    assert blockers() == [("review", "never reviewed")]
    kit.review(ref.task_id, "review", "APPROVED")
    assert blockers() == []
    kit.review(ref.task_id, "review", "REVISE")
    assert blockers() == [("review", "latest decision is REVISE")]
    refused(Reason.COMPLETION_BLOCKED, lambda: kit.complete(ref))
    shown = kit.review(ref.task_id, "review", "WAIVED").task.gates[0]
    assert (shown.decision, shown.decided_by.identity) == (task_pb2.GATE_DECISION_WAIVED, "operator")
    kit.complete(ref)
    kit.review(ref.task_id, "review", "REJECTED")
    ended = kit.exited(ref)
    assert ended.state is State.FAILED, "a rejection after Complete was overlooked"
    changes_nothing(kit, Reason.TASK_TERMINAL, lambda: kit.review(ref.task_id, "review", "APPROVED"))


def test_h15_a_ruling_ratifies_the_gates_it_names_and_no_other(kit: RunnerKit) -> None:
    """Ratified: approved by the one who ruled, with the ruling as evidence. The other still blocks."""
    ref = kit.running(gates=["review", "security"])
    ruling_id = kit.rule(kit.escalate(ref), ratifies=["review"], by="ann").message.message_id
    kit.take(ref, ruling_id)
    refusal = refused(Reason.COMPLETION_BLOCKED, lambda: kit.complete(ref))
    assert refusal.metadata["blockers"] == "gate:security"
    review = kit.ask("GetTask", pb.GetTaskRequest(task_id=ref.task_id)).task.gates[0]
    assert (review.decided_by.identity, review.note) == ("ann", f"ratified by ruling {ruling_id}")


def test_h15_a_gate_the_task_does_not_have_is_unknown(kit: RunnerKit) -> None:
    """GATE_UNKNOWN, which names the ones it has."""
    task = kit.submit(gates=["review"])
    refusal = changes_nothing(kit, Reason.GATE_UNKNOWN, lambda: kit.review(task.task_id, "vibes", "APPROVED"))
    assert "review" in refusal.message


# Pauses, lanes


def test_h16_a_paused_task_is_not_launched(kit: RunnerKit) -> None:
    """Not by its place in the queue, an input, a ruling, a timer or a restart."""
    checks.check_a_paused_task_is_not_launched(kit)


def test_h16_neither_a_paused_nor_a_delayed_task_blocks_its_lane(kit: RunnerKit) -> None:
    """The next one passes; the lane looks again when the delay is over."""
    delayed = kit.running()
    kit.exited(delayed, KILLED)
    kit.ask("PauseTask", pb.PauseTaskRequest(task_id=kit.submit().task_id))
    free = kit.submit()
    launch = kit.claim()
    assert launch is not None
    assert launch.ref.task_id == free.task_id
    assert kit.claim() is None, "the lane is taken"
    kit.exited(launch.ref)
    assert kit.start().task_id == delayed.task_id


def test_h18_a_ruling_finds_its_own_task(kit: RunnerKit) -> None:
    """A lane's reuse cannot deliver it to another."""
    checks.check_a_ruling_finds_its_own_task(kit)
