"""Holds and rulings on a real store, through the handlers and units of work of the lane runner."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from lane_runner_svc import emitters
from lane_runner_svc.core.holds import HoldState
from lane_runner_svc.core.states import State
from lane_runner_svc.work import inbox
from lanewarden.auth import Role
from lanewarden.errors import Reason
from lanewarden.store import Emitter
from lanewarden.v1 import escalation_pb2, task_pb2, worker_service_pb2
from lanewarden.v1 import lane_runner_service_pb2 as pb
from tests import runner_checks as checks
from tests.runner_checks import changes_nothing, refused
from tests.runner_kit import KILLED, RunnerKit, exit_code, finished, make_runner

DEADLINE_SECONDS = 10


@pytest.fixture
def kit(tmp_path: Path) -> Iterator[RunnerKit]:
    """A runner; when it is closed, every row that it wrote had an author (I11)."""
    made = make_runner(tmp_path)
    yield made
    made.close()


async def next_of(stream: AsyncIterator[Any]) -> Any:
    """The next answer of a stream."""
    async with asyncio.timeout(DEADLINE_SECONDS):
        return await anext(stream)


# Holds


def test_h01_a_hold_outlives_its_worker(kit: RunnerKit) -> None:
    """Asked and gone: HELD, no claim in 24 h nor after a restart, and the stored task does not change at all."""
    checks.check_a_hold_outlives_its_worker(kit)


def test_h01_the_answer_starts_exactly_one_attempt_with_the_ruling_first(kit: RunnerKit) -> None:
    """The ruling waits before older input; the hold is closed by its acknowledgement and by nothing before."""
    ref = kit.running()
    escalation_id = kit.escalate(ref)
    kit.exited(ref)
    kit.ask("SendInput", pb.SendInputRequest(task_id=ref.task_id, text="older"))
    kit.restart()
    ruling = kit.rule(escalation_id)
    launch = kit.claim()
    assert launch is not None
    assert (launch.reason, launch.ref.attempt) == ("RULING", 2)
    assert kit.claim() is None, "one answer has started two attempts"
    kit.launched(launch.ref)
    assert [message.kind for message in kit.waiting(ref.task_id)] == ["RULING", "INPUT"]
    assignment = kit.say(launch.ref, "GetAssignment", worker_service_pb2.GetAssignmentRequest())
    assert assignment.reason == worker_service_pb2.START_REASON_RULING
    assert [hold.escalation_id for hold in assignment.holds] == [escalation_id]
    assert kit.hold(escalation_id).state is HoldState.RELEASED
    kit.take(launch.ref, ruling.message.message_id)
    closed = kit.hold(escalation_id)
    assert (closed.state, closed.closed_wall_ms) == (HoldState.ACKNOWLEDGED, kit.clock.wall_ms())
    ended = kit.exited(launch.ref)
    assert (ended.state, ended.premature_exits) == (State.SUCCEEDED, 0)


async def test_h02_a_waiting_worker_gets_the_ruling_on_its_stream(kit: RunnerKit) -> None:
    """The waiting is shown, an ack is shown, the ruling ends the stream; nothing is launched; one acknowledgement."""
    ref = kit.running()
    escalation_id = kit.escalate(ref)
    stream = kit.worker_handlers.AwaitRuling(worker_service_pb2.AwaitRulingRequest(), kit.worker_call(ref))
    assert (await next_of(stream)).waiting.escalation_id == escalation_id
    wait = asyncio.ensure_future(next_of(stream))
    await asyncio.sleep(0)  # now it is parked
    kit.ask("Acknowledge", pb.AcknowledgeRequest(escalation_id=escalation_id, note="in a minute"))
    acked = (await wait).waiting
    assert (acked.acks, acked.ack.note, acked.ack.acked_by.identity) == (1, "in a minute", "operator")
    wait = asyncio.ensure_future(next_of(stream))
    await asyncio.sleep(0)
    kit.rule(escalation_id, decision="REVISE", instructions="smaller steps", by="ann")
    message = (await wait).message
    assert message.ruling.ruling.instructions == "smaller steps"
    assert (message.ruling.ruled_by.identity, message.ruling.ruled_by.role) == ("ann", "operator")
    with pytest.raises(StopAsyncIteration):
        await next_of(stream)
    assert kit.message(message.message_id).state == "IN_FLIGHT"
    assert kit.task(ref.task_id).state is State.RUNNING
    assert kit.claim() is None
    assert kit.take(ref, message.message_id).acknowledged_now
    assert not kit.take(ref, message.message_id).acknowledged_now
    assert kit.hold(escalation_id).state is HoldState.ACKNOWLEDGED
    assert kit.task(ref.task_id).attempt == 1


def test_h04_an_ack_releases_nothing(kit: RunnerKit) -> None:
    """Three acks later, still held."""
    checks.check_an_ack_releases_nothing(kit)


def test_h04_an_instruction_releases_nothing(kit: RunnerKit) -> None:
    """Whatever its words."""
    checks.check_an_instruction_releases_nothing(kit)


@pytest.mark.parametrize("restart", [False, True])
async def test_h05_a_ruling_before_the_wait_is_not_lost(kit: RunnerKit, restart: bool) -> None:
    """Sent 0 ms after the question, also with a restart between: the wait returns it at once, and once."""
    ref = kit.running()
    escalation_id = kit.escalate(ref)
    ruling = kit.rule(escalation_id)
    if restart:
        kit.restart()
    request = worker_service_pb2.AwaitRulingRequest(escalation_id=escalation_id)
    stream = kit.worker_handlers.AwaitRuling(request, kit.worker_call(ref))
    assert (await next_of(stream)).message.message_id == ruling.message.message_id
    with pytest.raises(StopAsyncIteration):
        await next_of(stream)


def test_h06_the_first_ruling_wins(kit: RunnerKit) -> None:
    """The second learns who, what and when."""
    checks.check_the_first_ruling_wins(kit)


def test_h07_a_ruling_on_what_is_not_open_says_what_it_is(kit: RunnerKit) -> None:
    """Unknown, of another task, a notice, released, acknowledged, canceled: a reason of its own, and nothing changed."""
    ref = kit.running()
    notice = kit.escalate(ref, expects_reply=False)
    ruled, taken, canceled = (kit.escalate(ref) for _ in range(3))
    kit.rule(ruled)
    kit.take(ref, kit.rule(taken).message.message_id)
    changes_nothing(kit, Reason.ESCALATION_UNKNOWN, lambda: kit.rule("t9.1.1.1"))
    wrong_task = changes_nothing(kit, Reason.RULING_INVALID, lambda: kit.rule(canceled, task_id="t9"))
    assert wrong_task.metadata["rule"] == "wrong_task"
    assert "notice" in changes_nothing(kit, Reason.HOLD_NOT_OPEN, lambda: kit.rule(notice)).message
    changes_nothing(kit, Reason.ALREADY_RULED, lambda: kit.rule(ruled))
    changes_nothing(kit, Reason.ALREADY_RULED, lambda: kit.rule(taken))
    kit.cancel(ref.task_id, "not needed")
    late = changes_nothing(kit, Reason.HOLD_NOT_OPEN, lambda: kit.rule(canceled))
    assert (late.metadata["state"], late.metadata["cause"]) == ("CANCELED", "not needed")


def test_h08_what_is_no_ruling_leaves_the_hold_open(kit: RunnerKit) -> None:
    """No decision, empty instructions, an option that was not offered: RULING_INVALID by rule; the hold stays open."""
    ref = kit.running()
    escalation_id = kit.escalate(ref, options=[{"key": "red"}, {"key": "blue"}])
    for rule, ruling in {
        "no_decision": {"decision": "UNSPECIFIED"},
        "empty_instructions": {"instructions": "  "},
        "no_option": {"decision": "CHOOSE"},
        "option_not_offered": {"decision": "CHOOSE", "option_key": "green"},
        "gate_unknown": {"ratifies": ["vibes"]},
    }.items():
        refusal = changes_nothing(kit, Reason.RULING_INVALID, lambda ruling=ruling: kit.rule(escalation_id, **ruling))
        assert refusal.metadata["rule"] == rule
    assert kit.hold(escalation_id).state is HoldState.OPEN
    assert kit.rule(escalation_id, decision="CHOOSE", option_key="blue").message.ruling.ruling.option_key == "blue"


@pytest.mark.parametrize("role", [Role.WORKER, Role.RUNNER, Role.VIEWER], ids=lambda role: role.value)
def test_h08_only_operators_and_supervisors_may_steer_and_review(kit: RunnerKit, role: Role) -> None:
    """A worker, another runner and a viewer get ROLE_NOT_ALLOWED for rulings and gates (H15)."""
    ref = kit.running(gates=["review"])
    escalation_id = kit.escalate(ref)
    request = pb.SteerRequest(ruling={"escalation_id": escalation_id, "decision": "DECISION_APPROVE"})
    changes_nothing(kit, Reason.ROLE_NOT_ALLOWED, lambda: kit.ask("Steer", request, role=role))
    changes_nothing(kit, Reason.ROLE_NOT_ALLOWED, lambda: kit.review(ref.task_id, "review", "APPROVED", role=role))


def test_h08_who_ruled_comes_from_the_channel(kit: RunnerKit) -> None:
    """An operator cannot name somebody else; a supervisor can name the one that it authenticated."""
    escalation_id = kit.escalate(kit.running())
    request = pb.SteerRequest(
        ruling={"escalation_id": escalation_id, "decision": "DECISION_APPROVE", "instructions": "go on"},
        on_behalf_of=task_pb2.Actor(identity="ann", role="operator"),
    )
    changes_nothing(kit, Reason.ROLE_NOT_ALLOWED, lambda: kit.ask("Steer", request))
    kit.ask("Steer", request, role=Role.SUPERVISOR)
    ruling = kit.hold(escalation_id).ruling
    assert ruling is not None
    assert (ruling.ruled_by.identity, ruling.ruled_by.role) == ("ann", "operator")


def test_h10_an_unacknowledged_ruling_comes_again(kit: RunnerKit) -> None:
    """Exit 0 without acknowledging is not success; the next attempt gets the ruling first."""
    checks.check_an_unacknowledged_ruling_comes_again(kit)


async def test_h10_a_worker_killed_between_receive_and_acknowledge(kit: RunnerKit) -> None:
    """IN_FLIGHT goes back to PENDING, the next attempt gets the same message, and acknowledging twice is once."""
    ref = kit.running()
    ruling_id = kit.rule(kit.escalate(ref)).message.message_id
    request = worker_service_pb2.ReceiveMessagesRequest(stored_only=True)
    for attempt in (ref, None):
        current = attempt or kit.start()
        stream = kit.worker_handlers.ReceiveMessages(request, kit.worker_call(current))
        received = [answer.message.message_id async for answer in stream]
        assert received == [ruling_id]
        assert kit.message(ruling_id).state == "IN_FLIGHT"
        if attempt:
            kit.exited(current, KILLED)
            assert kit.message(ruling_id).state == "PENDING"
    assert kit.take(current, ruling_id).acknowledged_now
    before = kit.dump()
    assert not kit.take(current, ruling_id).acknowledged_now
    assert kit.dump() == before


def test_h10_what_goes_out_on_the_stream_of_a_dead_attempt_is_not_in_flight(kit: RunnerKit) -> None:
    """The end of the attempt can overtake the note that its stream took the message."""
    ref = kit.running()
    ruling_id = kit.rule(kit.escalate(ref)).message.message_id
    kit.exited(ref, KILLED)
    before = kit.dump()
    sent = kit.runner.do(lambda session: inbox.sent(session, ref, ruling_id), emitter=emitters.DELIVER)
    finished(sent)
    assert kit.dump() == before


def test_h10_a_worker_that_never_acknowledges_spends_the_budget_and_fails(kit: RunnerKit) -> None:
    """Four attempts by default, then FAILED, which says which ruling was never taken; its sender is told."""
    ref = kit.running()
    escalation_id = kit.escalate(ref)
    ruling_id = kit.rule(escalation_id).message.message_id
    for _ in range(3):
        assert kit.exited(ref).state is State.QUEUED
        ref = kit.start()
    ended = kit.exited(ref)
    assert ended.state is State.FAILED
    assert escalation_id in ended.summary
    assert kit.message(ruling_id).state == "UNDELIVERED"
    assert kit.hold(escalation_id).state is HoldState.CANCELED


def test_h11_complete_asks_the_judge(kit: RunnerKit) -> None:
    """With a hold, with a ruling that is not acknowledged, with a gate: every blocker by name."""
    checks.check_complete_asks_the_judge(kit)


def test_h11_a_question_after_complete_holds_the_task(kit: RunnerKit) -> None:
    """Complete was accepted, then the worker asked and left: HELD; after the answer another attempt decides anew."""
    ref = kit.running()
    kit.complete(ref)
    escalation_id = kit.escalate(ref)
    assert kit.exited(ref).state is State.HELD
    ruling_id = kit.rule(escalation_id).message.message_id
    again = kit.start()
    assert kit.task(ref.task_id).outcome is None
    kit.take(again, ruling_id)
    assert kit.exited(again, exit_code(3)).state is State.FAILED


def test_h12_two_holds_one_ruled(kit: RunnerKit) -> None:
    """Held by the other, which the task names; released by its own ruling."""
    ref = kit.running()
    first, second = kit.escalate(ref, "first?"), kit.escalate(ref, "second?")
    kit.exited(ref)
    shown = kit.rule(first).task
    assert (shown.state, list(shown.open_holds)) == (task_pb2.TASK_STATE_HELD, [second])
    assert kit.claim() is None
    assert kit.rule(second).task.state == task_pb2.TASK_STATE_QUEUED


def test_h13_pause_resume_and_restart_keep_the_hold(kit: RunnerKit) -> None:
    """A held task that is paused is both; nothing but its ruling moves it."""
    ref = kit.running()
    escalation_id = kit.escalate(ref)
    kit.exited(ref)
    for method, request in (("PauseTask", pb.PauseTaskRequest), ("ResumeTask", pb.ResumeTaskRequest)):
        shown = kit.ask(method, request(task_id=ref.task_id)).task
        assert shown.state == task_pb2.TASK_STATE_HELD
        assert list(shown.open_holds) == [escalation_id]
        kit.restart()
        assert kit.claim() is None
    assert kit.task(ref.task_id).pauses == frozenset()


# The ledger


def test_w03_every_row_has_an_author_that_the_runner_declares(kit: RunnerKit) -> None:
    """A whole life of a task: nothing is unattributed, and every emitter is one of ``emitters`` or the store's own."""
    ref = kit.running(gates=["review"])
    escalation_id = kit.escalate(ref)
    kit.ask("Acknowledge", pb.AcknowledgeRequest(escalation_id=escalation_id))
    refused(Reason.RULING_INVALID, lambda: kit.rule(escalation_id, instructions=" "))
    kit.take(ref, kit.rule(escalation_id).message.message_id)
    kit.review(ref.task_id, "review", "APPROVED")
    kit.complete(ref)
    assert kit.exited(ref).state is State.SUCCEEDED
    declared = {each.name for each in vars(emitters).values() if isinstance(each, Emitter)}
    assert kit.runner.store.unattributed_rows() == 0
    assert set(kit.ledger.emitters()) <= declared | {"store.migrate"}
    assert {"lane_runner.hold.rule", "lane_runner.worker.escalate"} <= set(kit.ledger.emitters())


def test_a_ruling_that_was_never_taken_is_marked_for_the_supervisor(kit: RunnerKit) -> None:
    """The ruling of a task that ends without taking it is marked again, so that its sender learns UNDELIVERED."""
    ref = kit.running()
    escalation_id = kit.escalate(ref)
    ruling_id = kit.rule(escalation_id).message.message_id
    kit.cancel(ref.task_id)
    marks = len(kit.dump()["outbox"])
    kit.exited(ref, KILLED)
    assert kit.message(ruling_id).state == "UNDELIVERED"
    assert escalation_id in {row[2] for row in kit.dump()["outbox"][marks:]}
    shown = kit.ask("ListHolds", pb.ListHoldsRequest(states=["HOLD_STATE_CANCELED"])).holds[0]
    assert shown.ruling.delivery == escalation_pb2.DELIVERY_STATE_UNDELIVERED
