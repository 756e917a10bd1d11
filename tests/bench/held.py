"""A thousand tasks that wait for rulings, and nothing else: no process of a worker, next to no CPU, bounded memory."""

from __future__ import annotations

import asyncio
import statistics
import time
from pathlib import Path
from typing import Final

from lanewarden.v1 import lane_runner_service_pb2 as pb
from lanewarden.v1 import operator_service_pb2, task_pb2
from tests.bench.figures import Figure
from tests.bench.load import Target, bearer, target
from tests.bench.processes import SETTLE_SECONDS, costs, shims
from tests.bench.subjects import WORKER, question
from tests.bench.workers import Workers
from tests.integration.pair import Pair, eventually

TASKS: Final = 1_000
LANES: Final = 16
CREATION_SECONDS_MAX: Final = 600.0
LOOK_SECONDS: Final = 0.005


async def run(rounds: int | None, directory: Path) -> list[Figure]:
    """How the tasks came to be held, and what they cost from then on."""
    with Pair(directory, lanes=LANES) as pair:
        workers = Workers(pair, directory / "workers")
        start = time.monotonic()
        async with target(f"unix:{directory / 'runner' / 'worker.sock'}") as runner:
            await _hold(workers, runner)
        eventually(lambda: _held(pair) == TASKS, f"{TASKS} tasks held", seconds=CREATION_SECONDS_MAX)
        seconds = time.monotonic() - start
        eventually(lambda: _known(pair) == TASKS, "the supervisor knows them", seconds=CREATION_SECONDS_MAX)
        eventually(lambda: shims(pair.runner.pid) == 0, "no shim is left")
        time.sleep(SETTLE_SECONDS)
        found = [costs(pair.runner.pid, pair.supervisor.pid) for _ in range(rounds or 1)]
        alive = shims(pair.runner.pid)
    what = f"{TASKS:,} held tasks"
    figures = [
        Figure(bench="held", what=f"{what}: made, through {LANES} lanes, in", measured=seconds, unit="s"),
        Figure(bench="held", what=f"{what}: worker processes", measured=alive, unit="alive", target="0"),
    ]
    for name, number, cpu, memory in (("runner", 0, "< 2 %", "< 250 MiB"), ("supervisor", 1, "", "")):
        cpu_percent = statistics.median(each[number].cpu_percent for each in found)
        rss_mib = statistics.median(each[number].rss_mib for each in found)
        figures += [
            Figure(bench="held", what=f"{what}: {name}, CPU", measured=cpu_percent, unit="% of a core", target=cpu),
            Figure(bench="held", what=f"{what}: {name}, resident", measured=rss_mib, unit="MiB", target=memory),
        ]
    return figures


async def _hold(workers: Workers, runner: Target) -> None:
    """Have every task's worker ask and exit: its question is asked from here with its token, then it is let go."""
    submitted = asyncio.ensure_future(asyncio.to_thread(_submit, workers))
    deadline = time.monotonic() + CREATION_SECONDS_MAX
    while len(workers.tokens) < TASKS or not submitted.done():
        assert time.monotonic() < deadline, f"only {len(workers.tokens)} workers came"
        for task_id, token in list(workers.arrived()):
            await runner.caller(WORKER.methods_by_name["Escalate"], bearer(token)).call(question())
            workers.let_go(task_id)
        await asyncio.sleep(LOOK_SECONDS)
    await submitted


def _submit(workers: Workers) -> None:
    for number in range(TASKS):
        workers.submit(f"lane-{number % LANES + 1}")


def _held(pair: Pair) -> int:
    """How many tasks are held with no worker alive."""
    request = pb.ListTasksRequest(states=[task_pb2.TASK_STATE_HELD], page_size=1_000)
    return sum(not task.worker_alive for task in pair.lane_runner.ListTasks(request).tasks)


def _known(pair: Pair) -> int:
    """How many of them the supervisor shows so."""
    request = operator_service_pb2.OperatorServiceListTasksRequest(states=[task_pb2.TASK_STATE_HELD], page_size=1_000)
    return sum(not task.worker_alive for task in pair.operator.ListTasks(request).tasks)
