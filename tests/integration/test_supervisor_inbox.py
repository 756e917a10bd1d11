"""Escalations, acks and rulings through a supervisor, over real gRPC and a real store."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from lanewarden.errors import Reason, refuse
from lanewarden.v1 import escalation_pb2, task_pb2
from lanewarden.v1 import operator_service_pb2 as pb
from lanewarden.v1 import supervisor_service_pb2 as supervisor_pb
from tests.integration.supervisor_kit import (
    OPENED_MS,
    PATIENCE_SECONDS,
    escalation,
    fresh,
    refused,
    ruling,
    world,
)

PENDING = escalation_pb2.DELIVERY_STATE_PENDING
STORED = escalation_pb2.DELIVERY_STATE_STORED
REFUSED = escalation_pb2.DELIVERY_STATE_REFUSED


def instruction(text: str = "look again", task_id: str = "t1") -> pb.OperatorServiceSteerRequest:
    return pb.OperatorServiceSteerRequest(
        request_id=fresh(), task_id=task_id, instruction=escalation_pb2.Instruction(text=text)
    )


async def test_a_ruling_is_stored_then_delivered_at_once(tmp_path: Path) -> None:
    """A ruling reaches its runner with the operator's name and its own id, and the audit has both steps."""
    async with world(tmp_path) as w:
        request = ruling()
        response = await w.operator.Steer(request)
        assert (response.delivery, response.message_id) == (PENDING, request.request_id)
        assert response.task.state == task_pb2.TASK_STATE_QUEUED
        (effect,) = w.runner.effects
        assert (effect.request_id, effect.on_behalf_of.role) == (request.request_id, "operator")
        assert effect.on_behalf_of.identity
        assert await w.audit() == [("Steer ruling APPROVE", "STORED"), ("Steer ruling APPROVE", "OK")]
        shown = (await w.operator.GetEscalation(pb.GetEscalationRequest(escalation_id="e1"))).escalation
        assert (shown.ruling.ruling_id, shown.ruling.delivery) == (request.request_id, PENDING)


@pytest.mark.parametrize("runner_up", [True, False])
async def test_h06_the_first_of_many_rulings_wins(tmp_path: Path, runner_up: bool) -> None:
    """Operators rule at the same instant: one wins, the others learn who, what and when; the runner sees one effect."""
    async with world(tmp_path, runner_up=runner_up) as w:
        requests = [ruling(instructions=f"way {number}") for number in range(8)]
        results = await asyncio.gather(*(w.operator.Steer(each) for each in requests), return_exceptions=True)
        (winner,) = [each for each in results if not isinstance(each, BaseException)]
        losers = [each for each in results if isinstance(each, BaseException)]
        assert winner.delivery == (PENDING if runner_up else STORED)
        assert len(losers) == 7
        for loser in losers:
            assert loser.reason is Reason.ALREADY_RULED
            assert loser.metadata["ruling_id"] == winner.message_id
            assert loser.metadata["decision"] == "APPROVE"
            assert loser.metadata["ruled_by"]
            assert loser.metadata["ruled_at"].startswith("20")
        assert len(w.runner.effects) == (1 if runner_up else 0)


async def test_h05_ruling_waits_for_a_runner_that_is_down_and_arrives_once(tmp_path: Path) -> None:
    """STORED while the runner is away, shown as that, delivered as soon as it registers, once."""
    async with world(tmp_path, runner_up=False) as w:
        request = ruling()
        assert (await w.operator.Steer(request)).delivery == STORED
        shown = (await w.operator.GetEscalation(pb.GetEscalationRequest(escalation_id="e1"))).escalation
        assert (shown.ruling.delivery, shown.ruling.ruled_by.role) == (STORED, "operator")
        assert (await w.operator.Steer(request)).delivery == STORED
        await w.start_runner()
        w.side.incarnation = fresh()
        await w.side.register()
        await w.settled("e1", PENDING)
        assert [each.request_id for each in w.runner.effects] == [request.request_id]
        assert (await w.operator.Steer(request)).delivery == PENDING
        assert len(w.runner.requests) == 1
        assert [outcome for _, outcome in await w.audit()] == ["STORED", "OK"]


async def test_h09_supervisor_restart_keeps_the_hold_and_the_stored_ruling(tmp_path: Path) -> None:
    """After a restart the escalation has the same id and age, and the ruling that was accepted before arrives once."""
    async with world(tmp_path, runner_up=False) as w:
        before = (await w.operator.ListEscalations(pb.ListEscalationsRequest())).escalations
        request = ruling()
        assert (await w.operator.Steer(request)).delivery == STORED
        await w.stop()
        await w.start_runner()
        await w.start()
        (after,) = (await w.operator.ListEscalations(pb.ListEscalationsRequest())).escalations
        assert (after.escalation_id, after.opened_at) == ("e1", before[0].opened_at)
        assert after.opened_at.ToMilliseconds() == OPENED_MS
        await w.settled("e1", PENDING)
        assert [each.request_id for each in w.runner.effects] == [request.request_id]
        other = await refused(w.operator.Steer(ruling()))
        assert (other.reason, other.metadata["ruling_id"]) == (Reason.ALREADY_RULED, request.request_id)


async def test_i02_an_answer_that_is_lost_leads_to_one_effect(tmp_path: Path) -> None:
    """The runner carried it out but its answer got lost, twice: the command is sent again and has one effect."""
    async with world(tmp_path) as w:
        w.runner.losses = [refuse(Reason.SHUTTING_DOWN, "bye"), refuse(Reason.STORE_FULL, "no space for the answer")]
        assert (await w.operator.Steer(ruling())).delivery == STORED
        await w.settled("e1", PENDING)
        assert (len(w.runner.effects), len(w.runner.requests)) == (1, 3)
        assert [outcome for _, outcome in await w.audit()] == ["STORED", "OK"]


async def test_a_refusal_of_the_runner_passes_through_and_stays(tmp_path: Path) -> None:
    """The runner's final no is what the operator gets, also for the same request again, and the audit has it."""
    async with world(tmp_path) as w:
        w.runner.refusals = [refuse(Reason.WORKER_DEAD, "the worker is gone; send input", pid=7, attempt=2)]
        request = instruction()
        for _ in range(2):
            refusal = await refused(w.operator.Steer(request))
            assert (refusal.reason, refusal.message) == (Reason.WORKER_DEAD, "the worker is gone; send input")
            assert dict(refusal.metadata) == {"pid": "7", "attempt": "2"}
        assert len(w.runner.requests) == 1
        assert await w.audit() == [("Steer instruction", "STORED"), ("Steer instruction", "WORKER_DEAD")]


async def test_a_stored_ruling_that_is_refused_later_is_shown_and_leaves_the_hold_to_others(tmp_path: Path) -> None:
    """What became of a stored ruling is seen on its escalation; the next ruling is accepted."""
    async with world(tmp_path, runner_up=False) as w:
        assert (await w.operator.Steer(ruling())).delivery == STORED
        w.runner.refusals = [refuse(Reason.HOLD_NOT_OPEN, "the hold is CANCELED", state="CANCELED")]
        await w.start_runner()
        shown = await w.settled("e1", REFUSED)
        assert shown.ruling.refusal == "HOLD_NOT_OPEN: the hold is CANCELED"
        second = ruling()
        assert (await w.operator.Steer(second)).delivery == PENDING
        assert [each.request_id for each in w.runner.effects] == [second.request_id]


async def test_commands_of_a_runner_arrive_in_order(tmp_path: Path) -> None:
    """What was stored first is delivered first, also when a later command finds the runner up again."""
    async with world(tmp_path, runner_up=False, delivery_seconds=1.0) as w:
        ack = pb.OperatorServiceAcknowledgeRequest(request_id=fresh(), escalation_id="e1", note="on it")
        assert (await w.operator.Acknowledge(ack)).delivery == STORED
        first = instruction("first")
        assert (await w.operator.Steer(first)).delivery == STORED
        await w.start_runner()
        last = ruling()
        await w.operator.Steer(last)
        await w.runner.until_effects(3)
        assert [each.request_id for each in w.runner.effects] == [ack.request_id, first.request_id, last.request_id]


async def test_h04_an_ack_stamps_and_leaves_the_hold_open(tmp_path: Path) -> None:
    """An ack reaches the runner in the operator's name; the hold is as open as before, and a ruling is still accepted."""
    async with world(tmp_path) as w:
        request = pb.OperatorServiceAcknowledgeRequest(request_id=fresh(), escalation_id="e1", note="on it")
        request.expected_by.FromMilliseconds(OPENED_MS + 1)
        response = await w.operator.Acknowledge(request)
        assert (response.delivery, response.escalation.acks) == (PENDING, 1)
        assert response.escalation.hold_state == escalation_pb2.HOLD_STATE_OPEN
        (effect,) = w.runner.effects
        assert (effect.note, effect.expected_by.ToMilliseconds()) == ("on it", OPENED_MS + 1)
        assert (await w.operator.Steer(ruling())).delivery == PENDING


@pytest.mark.parametrize(
    ("request_", "reason"),
    [
        (ruling("e9"), Reason.ESCALATION_UNKNOWN),
        (ruling("e2"), Reason.HOLD_NOT_OPEN),
        (ruling(decision=escalation_pb2.DECISION_UNSPECIFIED), Reason.RULING_INVALID),
        (ruling(instructions=" "), Reason.RULING_INVALID),
        (ruling(option_key="up"), Reason.RULING_INVALID),
        (ruling(task_id="t7"), Reason.RULING_INVALID),
        (ruling(ratifies=["unknown"]), Reason.RULING_INVALID),
        (instruction(task_id="t9"), Reason.TASK_UNKNOWN),
        (pb.OperatorServiceSteerRequest(request_id=fresh(), task_id="t1"), Reason.REQUEST_INVALID),
        (instruction(task_id=""), Reason.REQUEST_INVALID),
    ],
)
async def test_h07_h08_what_is_no_ruling_is_refused_and_changes_nothing(
    tmp_path: Path, request_: pb.OperatorServiceSteerRequest, reason: Reason
) -> None:
    """Each has its own reason, none reaches the runner, the hold stays open, and the audit says who tried."""
    async with world(tmp_path) as w:
        canceled = escalation("e2", hold_state=escalation_pb2.HOLD_STATE_CANCELED)
        await w.side.escalate(3, canceled)
        assert (await refused(w.operator.Steer(request_))).reason is reason
        assert w.runner.requests == []
        shown = (await w.operator.GetEscalation(pb.GetEscalationRequest(escalation_id="e1"))).escalation
        assert not shown.HasField("ruling")
        outcomes = [outcome for _, outcome in await w.audit()]
        assert outcomes == ([] if reason is Reason.REQUEST_INVALID else [reason.name])


async def test_a_request_id_means_one_request(tmp_path: Path) -> None:
    """The same id with other content fails and changes nothing."""
    async with world(tmp_path) as w:
        request = ruling()
        await w.operator.Steer(request)
        other = ruling(instructions="something else", request_id=request.request_id)
        assert (await refused(w.operator.Steer(other))).reason is Reason.REQUEST_ID_REUSED
        assert len(w.runner.requests) == 1


async def test_the_runners_report_has_the_last_word(tmp_path: Path) -> None:
    """A ruling that the runner reports, given elsewhere, is shown and wins over what was given here."""
    async with world(tmp_path, runner_up=False) as w:
        elsewhere = escalation(hold_state=escalation_pb2.HOLD_STATE_RELEASED)
        elsewhere.ruling.ruling_id = "r-elsewhere"
        elsewhere.ruling.ruled_by.identity = "grace"
        elsewhere.ruling.ruling.escalation_id = "e1"
        elsewhere.ruling.ruling.decision = escalation_pb2.DECISION_REJECT
        await w.side.report(supervisor_pb.ReportItem(sequence=3, escalation=elsewhere))
        refusal = await refused(w.operator.Steer(ruling()))
        assert refusal.reason is Reason.ALREADY_RULED
        assert (refusal.metadata["ruling_id"], refusal.metadata["ruled_by"]) == ("r-elsewhere", "grace")
        ack = pb.OperatorServiceAcknowledgeRequest(request_id=fresh(), escalation_id="e1")
        assert (await refused(w.operator.Acknowledge(ack))).reason is Reason.HOLD_NOT_OPEN


async def test_listing_filters_and_pages(tmp_path: Path) -> None:
    """Open and released by default, notices on request, oldest first, a page at a time."""
    async with world(tmp_path) as w:
        notice = escalation("n1", hold_state=escalation_pb2.HOLD_STATE_UNSPECIFIED, expects_reply=False)
        released = escalation("e2", hold_state=escalation_pb2.HOLD_STATE_RELEASED, task_id="t2")
        closed = escalation("e3", hold_state=escalation_pb2.HOLD_STATE_ACKNOWLEDGED)
        for sequence, each in enumerate((notice, released, closed), start=3):
            await w.side.escalate(sequence, each)

        async def ids(**fields: object) -> list[str]:
            found, token = [], ""
            while True:
                request = pb.ListEscalationsRequest(page_size=1, page_token=token, **fields)
                response = await w.operator.ListEscalations(request)
                found += [each.escalation_id for each in response.escalations]
                if not (token := response.next_page_token):
                    return found

        assert await ids() == ["e1", "e2"]
        assert await ids(notices=True) == ["e1", "n1", "e2"]
        assert await ids(task_id="t2") == ["e2"]
        assert await ids(states=[escalation_pb2.HOLD_STATE_ACKNOWLEDGED]) == ["e3"]
        bad = pb.ListEscalationsRequest(page_token="x")
        assert (await refused(w.operator.ListEscalations(bad))).reason is Reason.REQUEST_INVALID


async def test_a_page_fits_into_a_message(tmp_path: Path) -> None:
    """Large questions make pages end early; following the tokens still brings every one."""
    async with world(tmp_path) as w:
        for sequence in range(3, 83):
            large = escalation(f"l{sequence}")
            large.question = "?" * 65_536
            await w.side.escalate(sequence, large)
        found, token = 0, ""
        while True:
            request = pb.ListEscalationsRequest(page_size=1000, page_token=token)
            response = await w.operator.ListEscalations(request)
            found += len(response.escalations)
            if not (token := response.next_page_token):
                break
        assert found == 81


async def test_watching_the_inbox(tmp_path: Path) -> None:
    """A watcher gets the open holds first, then what changes, latest state only."""
    async with world(tmp_path) as w:
        stream = w.operator.WatchInbox(pb.WatchInboxRequest(task_id="t1"))
        async with asyncio.timeout(PATIENCE_SECONDS):
            assert (await anext(stream)).escalation.escalation_id == "e1"
            await w.side.escalate(3, escalation("e5", task_id="t5"))
            await w.side.escalate(4, escalation("e6"))
            assert (await anext(stream)).escalation.escalation_id == "e6"
        await stream.aclose()
