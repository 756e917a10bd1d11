"""S09: what runners tell of storms, and what a supervisor makes of it. Real handlers, loop and store; the clock stands."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lanewarden.auth import Identity, Role
from lanewarden.server import Call
from lanewarden.stamps import duration
from lanewarden.v1 import supervisor_service_pb2 as pb
from lanewarden.v1 import task_pb2
from supervisor_svc.core.verdict import Judgement, Verdict, judge
from supervisor_svc.rpc.supervisor import SupervisorHandlers
from supervisor_svc.store import views
from supervisor_svc.work import judging
from supervisor_svc.work.carriage import Carriage
from supervisor_svc.work.courier import Courier
from supervisor_svc.work.vitals import STORM_MS_MAX
from tests.contract.test_supervise import Bench, bench

EMITTER = "lane_runner.worker.progress"
CALL = Call(
    method="lanewarden.v1.SupervisorService/KeepAlive",
    identity=Identity(name="runner", role=Role.RUNNER),
    origin="",
    traceparent="",
    deadline_seconds=None,
)


class Stormy:
    """A runner whose task t1 is written to by itself."""

    def __init__(self, b: Bench) -> None:
        self.b = b
        self._handlers = SupervisorHandlers(
            b.supervisor, Carriage(b.supervisor, Courier(b.supervisor, timeout_seconds=1))
        )
        self.began_ms = b.clock.now_ms
        self.version = 0

    async def running(self, progress: int, **fields: Any) -> None:
        """Report the task as it is now."""
        self.version += 1
        said = {"epoch": 1, "attempt": 1, "worker_alive": True, **fields}
        state = task_pb2.TASK_STATE_RUNNING
        await self.b.report(
            task_pb2.Task(task_id="t1", runner_id="r1", state=state, version=self.version, progress=progress, **said)
        )

    async def renew(self, *, storm: bool = True) -> None:
        """A renewal, and what it tells."""
        lasted = duration(self.b.clock.now_ms - self.began_ms)
        told = pb.WriteStorm(task_id="t1", emitter=EMITTER, origin="worker", rows_per_second=300, lasted=lasted)
        request = pb.KeepAliveRequest(
            runner_id="r1", incarnation="i1", generation=1, supervision_generation=7, storms=[told] if storm else []
        )
        await self._handlers.KeepAlive(request, CALL)

    def judged(self) -> Judgement:
        """What the supervisor makes of the task now."""
        supervisor = self.b.supervisor
        stored = supervisor.read(lambda reader: views.task(reader, "t1"))
        assert stored is not None
        assert stored.observed is not None
        task = task_pb2.Task.FromString(stored.payload)
        storm = supervisor.storm_against(task, stored.observed)
        view = judging.view(task, stored.observed, supervisor.presence, storm)
        return judge(view, self.b.clock.now_ms, supervisor.supervision)


async def test_s09_a_storm_without_progress_is_churning_within_ten_seconds(tmp_path: Path) -> None:
    """Told with a renewal every three seconds; it names the emitter and for whom, and the worker is relaunched for it."""
    async with bench(tmp_path) as b:
        stormy = Stormy(b)
        await stormy.running(1)
        async with b.acting():
            await b.tick(3.0)
            await stormy.renew()
            assert stormy.judged().verdict is Verdict.HEALTHY
            await b.tick(3.0)
            await stormy.renew()
            judged = stormy.judged()
            assert judged.verdict is Verdict.CHURNING
            assert judged.because == f"{EMITTER} (for worker) writes 300 rows/s, and there is no progress"
            await b.asked("t1")
            assert "CHURNING" in str(b.runner.about("t1")[0])


async def test_s09_the_next_attempt_answers_for_its_own_storm_only(tmp_path: Path) -> None:
    """What the relaunched one wrote is still in the ledger's window; the next one is judged when it has had five seconds."""
    async with bench(tmp_path) as b:
        stormy = Stormy(b)
        await stormy.running(1)
        async with b.acting():
            await b.tick(9.0)
            await stormy.renew()
            await b.asked("t1")
            await stormy.running(1, attempt=2, relaunches=1)
            for _ in range(4):
                await b.tick(1.0)
                await stormy.renew()
                assert stormy.judged().verdict is Verdict.HEALTHY
            assert len(b.runner.about("t1")) == 1
            await b.tick(1.0)
            await stormy.renew()
            assert stormy.judged().verdict is Verdict.CHURNING
            await b.asked("t1", 2)


async def test_s09_progress_within_a_storm_is_progress(tmp_path: Path) -> None:
    """25 minutes of a storm with steady progress: healthy at every look. Without, it is churning soon, however often it has
    made progress before.
    """
    async with bench(tmp_path) as b:
        stormy = Stormy(b)
        for step in range(25 * 60 * 2 // 9):
            await stormy.running(step + 1)
            await b.tick(4.5)
            await stormy.renew()
            assert stormy.judged().verdict is Verdict.HEALTHY, step
        await b.tick(0.6)
        await stormy.renew()
        assert stormy.judged().verdict is Verdict.CHURNING


@pytest.mark.parametrize("how", ["told", "silent"])
async def test_s09_a_storm_that_is_told_no_more_is_over(tmp_path: Path, how: str) -> None:
    """At the next renewal, or when there was none for so long that nobody knows."""
    async with bench(tmp_path) as b:
        stormy = Stormy(b)
        await stormy.running(1)
        await b.tick(9.0)
        await stormy.renew()
        assert stormy.judged().verdict is Verdict.CHURNING
        if how == "told":
            await stormy.renew(storm=False)
        else:
            await b.tick(STORM_MS_MAX / 1000 + 0.001)
        assert stormy.judged().verdict is Verdict.HEALTHY
