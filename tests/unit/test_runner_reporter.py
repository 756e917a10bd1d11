"""When the runner reports: a lone change at once, a burst gathered. Real store, no transport."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from lane_runner_svc import emitters
from lane_runner_svc.core.holds import Actor
from lane_runner_svc.holder import Holder
from lane_runner_svc.loop.carrier import Carrier
from lane_runner_svc.loop.reporter import BATCH_MAX, GATHER_MARKS_MIN, GATHER_SECONDS, Reporter
from lane_runner_svc.runner import Runner
from lane_runner_svc.store import meta
from lane_runner_svc.store.schema import MIGRATIONS
from lane_runner_svc.work import tasks
from lanewarden.build import UNKNOWN
from lanewarden.clock import SystemClock
from lanewarden.hub import Hub
from lanewarden.ledger import WriteLedger
from lanewarden.loop_lag import LoopLag
from lanewarden.stamps import duration
from lanewarden.store import Store
from lanewarden.v1 import supervisor_service_pb2 as pb
from tests.databases import empty_database

PATIENCE_SECONDS = 20.0
SUBMISSION = tasks.Submission(
    name="job", lane="a", gates=(), spec=b"", stop_grace_ms=0, premature_exits_max=1, launch_failures_max=1
)


class GatheringClock(SystemClock):
    """Time stands still: whoever gathers does so until :meth:`gathered`, and every other sleep is for ever."""

    def __init__(self) -> None:
        super().__init__()
        self.gathering = asyncio.Event()
        self._over = asyncio.Event()

    async def sleep(self, seconds: float) -> None:
        if seconds != GATHER_SECONDS:
            await asyncio.Event().wait()
        self.gathering.set()
        await self._over.wait()
        self._over.clear()
        self.gathering.clear()

    def gathered(self) -> None:
        self._over.set()


class FakeSupervisor:
    """Takes everything; ``reports`` holds the number of items of each report."""

    def __init__(self) -> None:
        self.reports: asyncio.Queue[int] = asyncio.Queue()

    async def Register(self, request: Any, **options: Any) -> Any:
        return pb.RegisterResponse(generation=1, ttl=duration(10_000), renew_interval=duration(3_000))

    async def KeepAlive(self, request: Any, **options: Any) -> Any:
        return pb.KeepAliveResponse(ttl=duration(10_000), renew_interval=duration(3_000))

    async def Reconcile(self, request: Any, **options: Any) -> Any:
        return pb.ReconcileResponse()

    async def Report(self, request: Any, **options: Any) -> Any:
        self.reports.put_nowait(len(request.items))
        return pb.ReportResponse(taken_sequence=request.items[-1].sequence)


class Bench:
    """A runner whose reporter runs."""

    def __init__(self, store: Store, clock: GatheringClock) -> None:
        self.clock = clock
        self.supervisor = FakeSupervisor()
        self.runner = Runner(runner_id="r1", lanes=("a",), store=store, clock=clock, random=Random(7), hub=Hub())
        supervisor: Any = self.supervisor
        handlers: Any = None
        self.reporter = Reporter(
            self.runner,
            {"127.0.0.1:2": supervisor},
            Holder(self.runner),
            incarnation=str(uuid.uuid4()),
            address="127.0.0.1:1",
            build=UNKNOWN,
            loop_lag=LoopLag(clock),
            carrier=Carrier(handlers),
            fresh_uuid=lambda: str(uuid.uuid4()),
        )

    async def change(self, times: int) -> None:
        """That many changes, each in a unit of work of its own; nobody else runs meanwhile."""
        for _ in range(times):
            await self.runner.do(
                lambda session: tasks.submit(session, SUBMISSION, Actor(identity="ada", role="operator")),
                emitter=emitters.SUBMIT,
            )

    async def next_report(self) -> int:
        async with asyncio.timeout(PATIENCE_SECONDS):
            return await self.supervisor.reports.get()


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    clock = GatheringClock()
    store = Store.open(
        empty_database(tmp_path / "r.sqlite3", MIGRATIONS),
        migrations=MIGRATIONS,
        ledger=WriteLedger(clock),
        threaded=False,
    )
    made = Bench(store, clock)
    await store.write(lambda uow: meta.ensure_store_id(uow, "s1"), emitter=emitters.START)
    reporting = asyncio.ensure_future(made.reporter.run())
    yield made
    reporting.cancel()
    await asyncio.gather(reporting, return_exceptions=True)
    store.close()


async def test_a_lone_change_is_reported_at_once(bench: Bench) -> None:
    """Nobody waits for company that may not come: one less than a burst is no burst."""
    for changes in (1, 2, GATHER_MARKS_MIN - 1, 1):
        await bench.change(changes)
        assert await bench.next_report() == changes
    assert not bench.clock.gathering.is_set()


async def test_after_a_burst_changes_are_gathered_into_one_report(bench: Bench) -> None:
    """What comes within the pause goes together, and the pause is over with the burst."""
    await bench.change(GATHER_MARKS_MIN)
    assert await bench.next_report() == GATHER_MARKS_MIN
    async with asyncio.timeout(PATIENCE_SECONDS):
        await bench.clock.gathering.wait()
    for _ in range(3):
        await bench.change(1)
        await asyncio.sleep(0)
    assert bench.supervisor.reports.empty()
    bench.clock.gathered()
    assert await bench.next_report() == 3
    await bench.change(1)
    assert await bench.next_report() == 1


async def test_a_backlog_is_not_held_up(bench: Bench) -> None:
    """A report that is full is followed by the next one: there is nothing to wait for."""
    await bench.change(BATCH_MAX + 1)
    assert [await bench.next_report(), await bench.next_report()] == [BATCH_MAX, 1]
