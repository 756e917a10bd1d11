"""Ten thousand healthy tasks at one supervisor: what it costs to take the same news and renewals as with a hundred.

Nothing is due of a healthy task but at its own next step, so what a supervisor costs goes by what happens, not by what there
is. Both sizes are measured in the same windows.
"""

from __future__ import annotations

import asyncio
import statistics
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Final

from lanewarden.auth import Role
from lanewarden.v1 import supervisor_service_pb2 as pb
from lanewarden.v1 import task_pb2
from tests.bench.figures import Figure
from tests.bench.fleet import Runner
from tests.bench.load import Metadata, Target, bearer, target
from tests.bench.processes import SETTLE_SECONDS, cpu_seconds
from tests.integration.pair import SUPERVISOR, Pair

FEW: Final = 100
MANY: Final = 10_000
STEPS_PER_SECOND: Final = 50
WINDOW_SECONDS: Final = 20.0
ROUNDS: Final = 5
BATCH: Final = 100


async def run(rounds: int | None, directory: Path) -> list[Figure]:
    """CPU of each supervisor while its tasks make so many steps a second in turn, and its runner renews its lease."""
    async with _supervised(directory / "few", FEW) as few, _supervised(directory / "many", MANY) as many:
        await asyncio.sleep(SETTLE_SECONDS)
        pairs = [await asyncio.gather(_window(*few), _window(*many)) for _ in range((rounds or ROUNDS) + 1)][1:]
    return [
        Figure(
            bench="healthy",
            what=f"{MANY:,} healthy tasks, {STEPS_PER_SECOND} steps/s among them: supervisor, CPU",
            measured=statistics.median(own for _, own in pairs),
            unit="% of a core",
            reference=f"the same with {FEW}",
            reference_measured=statistics.median(other for other, _ in pairs),
            ratio=statistics.median(own / other for other, own in pairs),
            target="≤ 1.10",
        )
    ]


class Steady(Runner):
    """A runner that is played: its tasks run, and make a step each in turn."""

    def __init__(self, tasks: int, server: Target, metadata: Metadata) -> None:
        super().__init__(1, server, metadata)
        self._tasks = tasks
        self._turns = count()
        self._report = server.caller(SUPERVISOR.methods_by_name["Report"], metadata)

    async def step(self, tasks: int = 1) -> None:
        """Report the next step of the next tasks; the first step of each is its first report."""
        request = pb.ReportRequest(
            request_id=str(uuid.uuid4()), runner_id=self._runner_id, incarnation=self._incarnation
        )
        for _ in range(tasks):
            turn = next(self._turns)
            request.items.add(sequence=turn + 1, task=self._task(turn % self._tasks, 1 + turn // self._tasks))
        await self._report.call(request.SerializeToString())

    def _task(self, number: int, step: int) -> task_pb2.Task:
        return task_pb2.Task(
            task_id=f"t{number}",
            runner_id=self._runner_id,
            spec=task_pb2.TaskSpec(name="copier", lane="lane-1", argv=["copy", "orders"], cwd="/srv"),
            state=task_pb2.TASK_STATE_RUNNING,
            epoch=1,
            attempt=1,
            worker_alive=True,
            progress=step,
            progress_note=f"copied {step} of 1000",
            version=step,
        )


@asynccontextmanager
async def _supervised(directory: Path, tasks: int) -> AsyncIterator[tuple[int, Steady]]:
    """The pid of a supervisor, and its runner, whose tasks have all been reported."""
    pair = Pair(directory)  # of which only the supervisor runs
    pair.supervisor.start()
    try:
        async with target(f"127.0.0.1:{pair.supervisor_port}", own=True) as server:
            runner = Steady(tasks, server, bearer(pair.credentials.tokens[Role.RUNNER]))
            interval_seconds = await runner.register()
            renewing = asyncio.ensure_future(runner.renew_for_ever(time.perf_counter(), interval_seconds, []))
            for _ in range(tasks // BATCH):
                await runner.step(BATCH)
            yield pair.supervisor.pid, runner
            renewing.cancel()
    finally:
        pair.supervisor.stop()


async def _window(pid: int, runner: Steady) -> float:
    """The supervisor's CPU over one window, as percent of a core."""
    spent, start = cpu_seconds(pid), time.monotonic()
    for turn in range(round(WINDOW_SECONDS * STEPS_PER_SECOND)):
        await asyncio.sleep(start + turn / STEPS_PER_SECOND - time.monotonic())
        await runner.step()
    return 100 * (cpu_seconds(pid) - spent) / (time.monotonic() - start)
