"""Leases and reports, over real gRPC and a real store."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from lanewarden.errors import Reason
from lanewarden.v1 import escalation_pb2, task_pb2
from lanewarden.v1 import operator_service_pb2 as pb
from lanewarden.v1 import supervisor_service_pb2 as supervisor_pb
from lanewarden.v1 import write_trace_service_pb2 as trace_pb
from supervisor_svc.rpc.leases import AT_ONCE_MAX, LeaseHandlers
from tests.integration.supervisor_kit import PATIENCE_SECONDS, World, escalation, fresh, refused, ruling, task, world

QUICK = {
    "lease_ttl_seconds": 1.0,
    "lease_renew_seconds": 0.1,
    "lease_grace_seconds": 0.2,
    "lease_rpc_deadline_seconds": 0.5,
}


def item(sequence: int, **change: Any) -> supervisor_pb.ReportItem:
    return supervisor_pb.ReportItem(sequence=sequence, **change)


async def runner_of(w: World) -> pb.Runner:
    (found,) = (await w.operator.ListRunners(pb.ListRunnersRequest())).runners
    return found  # type: ignore[no-any-return]


async def test_registering_is_idempotent_by_incarnation(tmp_path: Path) -> None:
    """The same start keeps its generation while its lease lives; the next start at the address gets the next one."""
    async with world(tmp_path) as w:
        assert w.side.generation == 1
        assert (await w.side.register()).generation == 1
        w.side.incarnation = fresh()
        grant = await w.side.register()
        assert (grant.generation, grant.taken_sequence) == (2, 2)
        assert (grant.ttl.ToMilliseconds(), grant.renew_interval.ToMilliseconds()) == (10_000, 3_000)


async def test_concurrent_registrations_share_no_generation(tmp_path: Path) -> None:
    """Starts that register at the same moment get a generation each (I7)."""
    async with world(tmp_path) as w:
        grants = await asyncio.gather(*(w.side.register(incarnation=fresh()) for _ in range(16)))
        assert len({grant.generation for grant in grants}) == 16


async def test_p20_second_runner_elsewhere_is_refused_and_the_first_undisturbed(tmp_path: Path) -> None:
    """A live id at another address is refused; the first goes on with its generation."""
    async with world(tmp_path) as w:
        refusal = await refused(w.side.register(incarnation=fresh(), address="127.0.0.1:9"))
        assert refusal.reason is Reason.RUNNER_DUPLICATE
        await w.side.keep_alive()
        assert (await runner_of(w)).address == w.side.address


@pytest.mark.parametrize("address", ["", "localhost", "unix:/tmp/x", "host:0", "host:70000", "dns:///a:1", "a b:1"])
async def test_an_address_that_is_none_is_refused(tmp_path: Path, address: str) -> None:
    """Only host:port is ever connected to."""
    async with world(tmp_path) as w:
        assert (await refused(w.side.register(address=address))).reason is Reason.REQUEST_INVALID


async def test_another_store_begins_anew(tmp_path: Path) -> None:
    """A runner with another store numbers its items from 1 again."""
    async with world(tmp_path) as w:
        grant = await w.side.register(incarnation=fresh(), store_id=fresh())
        assert grant.taken_sequence == 0


async def test_w02_renewals_write_no_row(tmp_path: Path) -> None:
    """Heartbeats change no row: SQLite's own counter and the ledger stand still."""
    async with world(tmp_path) as w:
        trace = w.trace()
        changes = w.service.supervisor.store._connection.total_changes
        before = await trace.ListEmitters(trace_pb.ListEmittersRequest())
        for _ in range(50):
            renewed = await w.side.keep_alive()
        assert renewed.taken_sequence == 2
        assert renewed.sweep >= 1
        assert w.service.supervisor.store._connection.total_changes == changes
        assert await trace.ListEmitters(trace_pb.ListEmittersRequest()) == before
        rates = await trace.GetWriteRates(trace_pb.GetWriteRatesRequest())
        assert rates.unattributed_rows == 0
        assert "supervisor.intake.escalate" in {rate.emitter for rate in rates.rates}


async def test_renewals_that_are_not_the_holders(tmp_path: Path) -> None:
    """An unknown runner, another start and an old generation each learn what they have to."""
    async with world(tmp_path) as w:
        assert (await refused(w.side.keep_alive(runner_id="r9"))).reason is Reason.LEASE_UNKNOWN
        for other in ({"incarnation": fresh()}, {"generation": 9}):
            refusal = await refused(w.side.keep_alive(**other))
            assert (refusal.reason, refusal.metadata["current_generation"]) == (Reason.LEASE_EXPIRED, "1")


async def test_p13_items_are_taken_once_and_in_order(tmp_path: Path) -> None:
    """Repeats are ignored, a gap is not taken, and a resend from the answer on brings everything."""
    async with world(tmp_path) as w:
        assert await w.side.escalate(4, escalation("e4")) == 2
        assert await w.side.report(item(4, task=task("t4")), item(5, task=task("t5"))) == 2
        assert (await refused(get(w, "e4"))).reason is Reason.ESCALATION_UNKNOWN
        old = escalation(hold_state=escalation_pb2.HOLD_STATE_CANCELED)
        assert await w.side.escalate(2, old) == 2
        assert (await get(w, "e1")).hold_state == escalation_pb2.HOLD_STATE_OPEN
        batch = [item(2, escalation=old), item(3, task=task("t3")), item(4, escalation=escalation("e4"))]
        assert await w.side.report(*batch, item(6, task=task("t6"))) == 4
        assert (await get(w, "e1")).hold_state == escalation_pb2.HOLD_STATE_OPEN
        listed = (await w.operator.ListTasks(pb.OperatorServiceListTasksRequest())).tasks
        assert [each.task_id for each in listed] == ["t3", "t1"]
        assert (await w.side.keep_alive()).taken_sequence == 4


async def get(w: World, escalation_id: str) -> escalation_pb2.Escalation:
    response = await w.operator.GetEscalation(pb.GetEscalationRequest(escalation_id=escalation_id))
    return response.escalation  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    "bad",
    [
        {"task": task("t9", runner_id="r2")},
        {"escalation": escalation("e9", runner_id="r2")},
        {"task": task("t9", state=task_pb2.TASK_STATE_UNSPECIFIED)},
        {"escalation": escalation("")},
        {},
    ],
)
async def test_a_batch_with_a_foreign_or_broken_item_is_refused_whole(tmp_path: Path, bad: dict[str, Any]) -> None:
    """Nobody speaks for another runner; a batch that cannot be right leaves nothing behind."""
    async with world(tmp_path) as w:
        refusal = await refused(w.side.report(item(3, task=task("t3")), item(4, **bad)))
        assert refusal.reason is Reason.REQUEST_INVALID
        assert refusal.violations[0].field.startswith("items[1]")
        assert (await w.side.keep_alive()).taken_sequence == 2


async def test_i06_an_earlier_start_of_a_runner_is_not_listened_to(tmp_path: Path) -> None:
    """Reports of a start that was replaced have no effect and are told so; so are those of a stranger."""
    async with world(tmp_path) as w:
        old = w.side.incarnation
        w.side.incarnation = fresh()
        await w.side.register()
        refusal = await refused(w.side.escalate(3, escalation("e3"), incarnation=old))
        assert (refusal.reason, refusal.metadata["current_generation"]) == (Reason.LEASE_EXPIRED, "2")
        stranger = escalation("e3", runner_id="r9")
        assert (await refused(w.side.escalate(3, stranger, runner_id="r9"))).reason is Reason.LEASE_UNKNOWN


async def test_p13_unreachable_is_shown_and_heals(tmp_path: Path) -> None:
    """When the lease runs out watchers see the task as last heard of, never as ended; registering again heals it."""
    async with world(tmp_path, **QUICK) as w:
        stream = w.operator.WatchTasks(pb.OperatorServiceWatchTasksRequest(task_id="t1"))
        async with asyncio.timeout(PATIENCE_SECONDS):
            assert not (await anext(stream)).task.runner_unreachable
            marked = (await anext(stream)).task
            while (await runner_of(w)).generation == 1:
                marked = (await anext(stream)).task
        assert marked.runner_unreachable
        assert marked.state == task_pb2.TASK_STATE_HELD
        assert marked.last_seen.seconds > 0
        runner = await runner_of(w)
        assert (runner.state, runner.generation) == (pb.RUNNER_STATE_UNREACHABLE, 2)
        assert runner.lease_remaining.ToMilliseconds() == 0
        assert (await refused(w.side.keep_alive())).reason is Reason.LEASE_EXPIRED
        assert (await w.side.register()).generation == 3
        async with asyncio.timeout(PATIENCE_SECONDS):
            while (await anext(stream)).task.runner_unreachable:
                pass
        assert (await runner_of(w)).state == pb.RUNNER_STATE_LIVE
        await stream.aclose()


async def test_p20_an_expired_id_may_move(tmp_path: Path) -> None:
    """A control: once the lease is over, another start elsewhere gets the id."""
    async with world(tmp_path, **QUICK) as w:
        stream = w.operator.WatchTasks(pb.OperatorServiceWatchTasksRequest(task_id="t1"))
        async with asyncio.timeout(PATIENCE_SECONDS):
            while (await runner_of(w)).state != pb.RUNNER_STATE_UNREACHABLE:
                await anext(stream)
        await stream.aclose()
        grant = await w.side.register(incarnation=fresh(), address="127.0.0.1:9")
        assert grant.generation > 1


async def test_p15_a_restart_extends_the_lease(tmp_path: Path) -> None:
    """A restarted supervisor counts the runner as live, keeps its generation, and takes its renewal."""
    async with world(tmp_path) as w:
        await w.stop()
        await w.start()
        runner = await runner_of(w)
        assert (runner.state, runner.generation) == (pb.RUNNER_STATE_LIVE, 1)
        assert not runner.HasField("last_seen")
        await w.side.keep_alive()
        assert (await runner_of(w)).HasField("last_seen")


async def test_p13_a_stored_command_goes_out_when_the_runner_shows_itself(tmp_path: Path) -> None:
    """A lease that comes back wakes the delivery at once, whatever its backoff had come to."""
    async with world(tmp_path, runner_up=False, **QUICK) as w:
        await w.operator.Steer(ruling())
        await w.start_runner()
        await w.side.register(incarnation=fresh())
        await w.runner.until_effects(1)


async def test_a_long_list_of_runners_holds_nobody_up(tmp_path: Path) -> None:
    """Whatever else is to be done gets its turn after every few runners, renewals above all."""
    async with world(tmp_path) as w:
        ids = [f"r{number:03}" for number in range(3 * AT_ONCE_MAX)]
        await asyncio.gather(*(w.side.register(runner_id=each, incarnation=fresh(), store_id=fresh()) for each in ids))
        asked: Any = (pb.ListRunnersRequest(), None)
        listing = asyncio.ensure_future(LeaseHandlers(w.service.supervisor).ListRunners(*asked))
        turns = 0
        while not listing.done():
            await asyncio.sleep(0)
            turns += 1
        assert turns > 3
        listed = [each.runner_id for each in listing.result().runners if each.runner_id != w.side.runner_id]
        assert listed == ids
