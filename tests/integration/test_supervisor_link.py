"""What travels with renewals and what a registration compares, over real gRPC and a real store."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from lanewarden.errors import Reason
from lanewarden.v1 import operator_service_pb2 as pb
from lanewarden.v1 import supervisor_service_pb2 as supervisor_pb
from lanewarden.v1 import task_pb2
from tests.integration.supervisor_kit import PATIENCE_SECONDS, World, escalation, fresh, refused, ruling, task, world

UNKNOWN = supervisor_pb.INVENTORY_VERDICT_UNKNOWN
DIFFERS = supervisor_pb.INVENTORY_VERDICT_DIFFERS
NOT_LISTED = supervisor_pb.INVENTORY_VERDICT_NOT_LISTED
LOST_CALLS = {"delivery_seconds": 0.3, "forward_seconds": 0.3}


async def runner_of(w: World) -> pb.Runner:
    (found,) = (await w.operator.ListRunners(pb.ListRunnersRequest())).runners
    return found  # type: ignore[no-any-return]


def changes(w: World) -> int:
    return w.service.supervisor.store._connection.total_changes


def lanes(**occupants: str) -> list[supervisor_pb.LaneOccupant]:
    return [supervisor_pb.LaneOccupant(lane=lane, task_id=task_id) for lane, task_id in occupants.items()]


async def until_settled(w: World, command_id: str) -> None:
    """Return once nothing waits for the runner."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while (await runner_of(w)).commands_waiting:
            await w.side.keep_alive()


async def test_w02_what_renewals_tell_is_shown_and_not_stored(tmp_path: Path) -> None:
    """Lanes by their changes, lag, clock and generation are as last told; no row changes; another grant begins anew."""
    async with world(tmp_path) as w:
        await w.side.keep_alive(changed_lanes=lanes(a="t1", b="t2", c=""), supervision_generation=5)
        before = changes(w)
        await w.side.keep_alive(loop_lag={"nanos": 7_000_000}, supervision_generation=5)
        assert (await runner_of(w)).loop_lag.ToMilliseconds() == 7
        await w.side.keep_alive(changed_lanes=lanes(b="", c="t3"), wall_time={"seconds": 1}, supervision_generation=5)
        shown = await runner_of(w)
        assert {each.lane: each.task_id for each in shown.occupants} == {"a": "t1", "c": "t3"}
        assert (shown.loop_lag.ToMilliseconds(), shown.supervision_generation) == (0, 5)
        assert shown.clock_lead.ToMilliseconds() < -1_000_000
        assert changes(w) == before
        w.side.incarnation = fresh()
        await w.side.register(build="abc")
        await w.side.keep_alive(changed_lanes=lanes(d="t4"))
        shown = await runner_of(w)
        assert [each.lane for each in shown.occupants] == ["d"]
        assert shown.build == "abc"


async def test_a_supervisor_tells_its_build_sweeps_and_start(tmp_path: Path) -> None:
    """What people compare with the runners; a renewal names the start that answers."""
    async with world(tmp_path) as w:
        told = (await w.operator.ListRunners(pb.ListRunnersRequest())).supervisor
        assert (len(told.build), told.sweeps >= 1) == (12, True)
        assert (await w.side.keep_alive()).supervisor_incarnation == told.incarnation
        await w.stop()
        await w.start()
        assert (await w.side.keep_alive()).supervisor_incarnation != told.incarnation


async def test_p19_a_command_that_no_call_delivers_comes_with_each_renewal_until_it_is_answered(tmp_path: Path) -> None:
    """Degraded is shown at once; the same ids and content come again; the answer settles it and is audited once."""
    async with world(tmp_path, runner_up=False, **LOST_CALLS) as w:
        assert not (await w.side.keep_alive()).commands
        asked = ruling()
        await w.operator.Steer(asked)
        shown = await runner_of(w)
        assert (shown.state, shown.commands_waiting) == (pb.RUNNER_STATE_LIVE, 1)
        assert shown.HasField("degraded_since")
        for _ in range(2):
            (command,) = (await w.side.keep_alive()).commands
            assert command.command_id == command.steer.request_id == asked.request_id
            assert command.steer.ruling == asked.ruling
            assert command.steer.on_behalf_of.role == "operator"
        answer = supervisor_pb.CommandAnswer(command_id=asked.request_id, steered={})
        assert not (await w.side.keep_alive(answers=[answer])).commands
        await until_settled(w, asked.request_id)
        await w.side.keep_alive(answers=[answer])
        assert await w.audit() == [("Steer ruling APPROVE", "STORED"), ("Steer ruling APPROVE", "OK")]


@pytest.mark.parametrize(
    ("reason", "metadata", "outcome"),
    [
        ("HOLD_NOT_OPEN", {}, "HOLD_NOT_OPEN"),
        ("ALREADY_RULED", {"ruling_id": "somebody else's"}, "ALREADY_RULED"),
        ("NOT_YET_INVENTED", {}, "UNEXPECTED"),
    ],
)
async def test_p19_a_refusal_that_came_with_a_renewal_is_the_operators(
    tmp_path: Path, reason: str, metadata: dict[str, str], outcome: str
) -> None:
    """A final no has the runner's reason, as if it had been called."""
    async with world(tmp_path, runner_up=False, **LOST_CALLS) as w:
        asked = ruling()
        await w.operator.Steer(asked)
        refusal = supervisor_pb.CommandRefusal(reason=reason, message="no", metadata=metadata)
        await w.side.keep_alive(answers=[supervisor_pb.CommandAnswer(command_id=asked.request_id, refused=refusal)])
        await until_settled(w, asked.request_id)
        assert (await refused(w.operator.Steer(asked))).reason is Reason[outcome]


@pytest.mark.parametrize("reason", ["STORE_FULL", "LIMIT_REACHED", "STORE_FAILED"])
async def test_p19_a_refusal_that_passes_keeps_the_command_stored(tmp_path: Path, reason: str) -> None:
    """No room now is not a no; neither is the answer of a runner that was never asked."""
    async with world(tmp_path, runner_up=False, **LOST_CALLS) as w:
        asked = ruling()
        await w.operator.Steer(asked)
        await w.side.register(runner_id="r2", address="127.0.0.1:9")
        answer = supervisor_pb.CommandAnswer(command_id=asked.request_id, steered={})
        await w.side.keep_alive(runner_id="r2", answers=[answer], generation=1)
        refusal = supervisor_pb.CommandAnswer(command_id=asked.request_id, refused={"reason": reason})
        await w.side.keep_alive(answers=[refusal], generation=1)
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not (await w.side.keep_alive(generation=1)).commands:
                pass
        assert [outcome for _, outcome in await w.audit()] == ["STORED"]


async def test_p19_a_task_gets_its_commands_one_after_the_other(tmp_path: Path) -> None:
    """Each renewal brings the oldest command of each task, so that none overtakes another."""
    async with world(tmp_path, runner_up=False, **LOST_CALLS) as w:
        await w.side.report(supervisor_pb.ReportItem(sequence=3, task=task("t2")))
        ids = []
        for task_id, text in (("t1", "one"), ("t1", "two"), ("t2", "other")):
            asked = pb.OperatorServiceSteerRequest(request_id=fresh(), task_id=task_id, instruction={"text": text})
            await w.operator.Steer(asked)
            ids.append(asked.request_id)
        assert [each.command_id for each in (await w.side.keep_alive()).commands] == [ids[0], ids[2]]
        done = supervisor_pb.CommandAnswer(command_id=ids[0], steered={})
        renewed = await w.side.keep_alive(answers=[done])
        assert [each.command_id for each in renewed.commands] == [ids[1], ids[2]]


async def test_degraded_ends_with_the_next_call_that_is_answered(tmp_path: Path) -> None:
    """Also when nothing waits for the runner any more, and nobody calls it."""
    async with world(tmp_path, runner_up=False, lease_renew_seconds=0.1, **LOST_CALLS) as w:
        asked = pb.OperatorServiceCancelTaskRequest(request_id=fresh(), task_id="t1")
        assert (await refused(w.operator.CancelTask(asked))).reason is Reason.RUNNER_UNREACHABLE
        assert (await runner_of(w)).HasField("degraded_since")
        await w.start_runner()
        async with asyncio.timeout(PATIENCE_SECONDS):
            while (await runner_of(w)).HasField("degraded_since"):
                await w.side.keep_alive()


def page(w: World, *items: supervisor_pb.InventoryItem, **other: Any) -> supervisor_pb.ReconcileRequest:
    values = {"runner_id": "r1", "incarnation": w.side.incarnation, "generation": w.side.generation, **other}
    return supervisor_pb.ReconcileRequest(items=items, **values)


def listed(task_id: str, version: int = 1, *holds: str) -> supervisor_pb.InventoryItem:
    return supervisor_pb.InventoryItem(task_id=task_id, version=version, open_holds=holds)


async def found(w: World, *items: supervisor_pb.InventoryItem, **other: Any) -> list[tuple[str, int, list[str]]]:
    response = await w.side.stub.Reconcile(page(w, *items, **other))
    return [(each.task_id, each.verdict, list(each.open_holds)) for each in response.findings]


async def test_what_an_inventory_is_found_to_be(tmp_path: Path) -> None:
    """In step, unknown, another version, more or fewer open holds, not listed; within the range only; nothing is written."""
    async with world(tmp_path) as w:
        before = changes(w)
        assert await found(w, listed("t1", 1, "e1")) == []
        assert await found(w, listed("t0"), listed("t1", 1, "e1")) == [("t0", UNKNOWN, [])]
        assert await found(w, listed("t1", 2, "e1")) == [("t1", DIFFERS, [])]
        assert await found(w, listed("t1", 1, "e1", "e2")) == [("t1", UNKNOWN, [])]
        assert await found(w, listed("t1", 1)) == [("t1", DIFFERS, ["e1"])]
        assert await found(w) == [("t1", NOT_LISTED, ["e1"])]
        assert await found(w, through_task_id="t0") == []
        assert await found(w, after_task_id="t1") == []
        assert changes(w) == before


async def test_p13_a_task_that_its_runner_forgot_is_shown_as_that(tmp_path: Path) -> None:
    """Its state is what it was last heard to be; it counts as unfinished no more; its question waits for nobody; and a
    report undoes all of it.
    """
    async with world(tmp_path) as w:
        assert await found(w, forgotten_task_ids=["t1", "stranger"]) == []
        (shown,) = (await w.operator.ListTasks(pb.OperatorServiceListTasksRequest())).tasks
        assert (shown.runner_forgot, shown.state) == (True, task_pb2.TASK_STATE_HELD)
        asked = await w.operator.GetTask(pb.OperatorServiceGetTaskRequest(task_id="t1"))
        assert asked.task.runner_forgot
        assert not (await w.operator.ListEscalations(pb.ListEscalationsRequest())).escalations
        (hold,) = (await w.operator.ListEscalations(pb.ListEscalationsRequest(states=[1]))).escalations
        assert hold.runner_forgot
        await w.side.report(
            supervisor_pb.ReportItem(sequence=3, task=task()),
            supervisor_pb.ReportItem(sequence=4, escalation=escalation()),
        )
        (shown,) = (await w.operator.ListTasks(pb.OperatorServiceListTasksRequest())).tasks
        assert not shown.runner_forgot
        assert len((await w.operator.ListEscalations(pb.ListEscalationsRequest())).escalations) == 1
        assert await found(w, listed("t1", 1, "e1")) == []


@pytest.mark.parametrize(
    ("items", "other"),
    [
        ([listed("b"), listed("a")], {}),
        ([listed("a"), listed("a")], {}),
        ([listed("a")], {"after_task_id": "a"}),
        ([listed("b")], {"through_task_id": "a"}),
    ],
)
async def test_a_page_that_is_no_range_is_refused(tmp_path: Path, items: list[Any], other: dict[str, str]) -> None:
    """Out of order, twice or outside of the range: nothing could be concluded from it."""
    async with world(tmp_path) as w:
        assert (await refused(w.side.stub.Reconcile(page(w, *items, **other)))).reason is Reason.REQUEST_INVALID


async def test_i06_only_the_holder_of_the_lease_is_compared_with(tmp_path: Path) -> None:
    """An earlier start or grant makes nothing forgotten, and learns that it is over."""
    async with world(tmp_path) as w:
        for other in ({"incarnation": fresh()}, {"generation": 9}):
            request = page(w, forgotten_task_ids=["t1"], **other)
            assert (await refused(w.side.stub.Reconcile(request))).reason is Reason.LEASE_EXPIRED
        assert (await refused(w.side.stub.Reconcile(page(w, runner_id="r9")))).reason is Reason.LEASE_UNKNOWN
        (shown,) = (await w.operator.ListTasks(pb.OperatorServiceListTasksRequest())).tasks
        assert not shown.runner_forgot
