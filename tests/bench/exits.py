"""From the SIGKILL of a worker to the moment its runner, and its supervisor, say that it is gone."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import statistics
import subprocess
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from google.protobuf.descriptor import ServiceDescriptor

from lanewarden import wire
from lanewarden.auth import Role
from lanewarden.v1 import lane_runner_service_pb2 as runner_pb
from lanewarden.v1 import operator_service_pb2 as operator_pb
from lanewarden.v1 import task_pb2
from tests.bench.figures import Figure
from tests.bench.load import Target, bearer, target
from tests.integration.pair import LANE_RUNNER, OPERATOR, Pair

ROUNDS: Final = 5
KILLS_PER_ROUND: Final = 40
EVENT_SECONDS_MAX: Final = 20.0
PAUSE_SECONDS: Final = 0.05  # a worker dies in a pair at rest, not in one that is still busy with its start


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """Milliseconds from each kill until: the runner says so, the supervisor says so, the parent of a bare child wakes."""

    at_runner: list[float]
    at_supervisor: list[float]
    bare: list[float]


async def run(rounds: int | None, directory: Path) -> list[Figure]:
    """p50 and p99 at both services, and the ratio to a child of one's own."""
    async with AsyncExitStack() as stack:
        pair = stack.enter_context(Pair(directory, lanes=1))
        metadata = bearer(pair.credentials.tokens[Role.OPERATOR])
        runner = await stack.enter_async_context(target(f"127.0.0.1:{pair.runner_port}"))
        supervisor = await stack.enter_async_context(target(f"127.0.0.1:{pair.supervisor_port}"))
        found = []
        for _ in range((rounds or ROUNDS) + 1):
            ends = [await _kill(pair, runner, supervisor, metadata) for _ in range(KILLS_PER_ROUND)]
            bare = [_bare_ms() for _ in range(KILLS_PER_ROUND)]
            at_runner, at_supervisor = ([end[number] for end in ends] for number in (0, 1))
            found.append(Round(at_runner=at_runner, at_supervisor=at_supervisor, bare=bare))
    return _figures(found[1:])  # the first one warms up


async def _kill(pair: Pair, runner: Target, supervisor: Target, metadata: Any) -> tuple[float, float]:
    """Kill the worker of a task of its own that is not tried again; how long until each service showed the task FAILED."""
    task_id = await asyncio.to_thread(pair.submit, "sleep", "1000", premature_exits_max=0)
    watches = [
        _Watch(runner, LANE_RUNNER, runner_pb.WatchTasksRequest, runner_pb.WatchTasksResponse, task_id, metadata),
        _Watch(
            supervisor,
            OPERATOR,
            operator_pb.OperatorServiceWatchTasksRequest,
            operator_pb.OperatorServiceWatchTasksResponse,
            task_id,
            metadata,
        ),
    ]
    running = [await watch.until(task_pb2.TASK_STATE_RUNNING) for watch in watches]
    await asyncio.sleep(PAUSE_SECONDS)
    failed = [asyncio.ensure_future(watch.until(task_pb2.TASK_STATE_FAILED)) for watch in watches]
    start = time.perf_counter()
    os.kill(running[0].worker_pid, signal.SIGKILL)
    await asyncio.gather(*failed)
    return (watches[0].seen - start) * 1000, (watches[1].seen - start) * 1000


class _Watch:
    """WatchTasks of one task at one service; ``seen`` is when the state last waited for was there."""

    def __init__(
        self, where: Target, service: ServiceDescriptor, request: Any, response: Any, task_id: str, metadata: Any
    ) -> None:
        path = wire.path(service.methods_by_name["WatchTasks"])
        open_stream: Any = where.channel.unary_stream(path)
        self._response = response
        self._events = open_stream(request(task_id=task_id).SerializeToString(), metadata=metadata)
        self.seen = 0.0

    async def until(self, state: task_pb2.TaskState) -> task_pb2.Task:
        """The task, once it is in the state."""
        async with asyncio.timeout(EVENT_SECONDS_MAX):
            while True:
                event = await self._events.read()
                self.seen = time.perf_counter()
                task: task_pb2.Task = self._response.FromString(event).task
                if task.state == state:
                    return task


def _bare_ms() -> float:
    """The same kill of a child of this process, until a poll of it wakes."""
    with subprocess.Popen(["sleep", "1000"]) as child:
        process = os.pidfd_open(child.pid)
        time.sleep(PAUSE_SECONDS)
        start = time.perf_counter()
        child.kill()
        select.select([process], [], [])
        taken_ms = (time.perf_counter() - start) * 1000
        os.close(process)
    return taken_ms


def _figures(rounds: Sequence[Round]) -> list[Figure]:
    figures = []
    for name, where in (("at_runner", "its runner shows its end stored"), ("at_supervisor", "its supervisor shows it")):
        taken = [each for one in rounds for each in getattr(one, name)]
        what = f"SIGKILL of a worker → {where}"
        figures += [
            Figure(
                bench="exit",
                what=f"{what}, p50",
                measured=statistics.median(taken),
                unit="ms",
                reference="SIGKILL of a bare child → its parent wakes, p50",
                reference_measured=statistics.median(statistics.median(one.bare) for one in rounds),
                ratio=statistics.median(
                    statistics.median(getattr(one, name)) / statistics.median(one.bare) for one in rounds
                ),
            ),
            Figure(
                bench="exit",
                what=f"{what}, p99",
                measured=statistics.quantiles(taken, n=100)[98],
                unit="ms",
                target="< 100 ms",
            ),
        ]
    return figures
