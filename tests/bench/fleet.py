"""Many runners in one process: ``python -m tests.bench.fleet ADDRESS CREDENTIALS RUNNERS SECONDS``.

Each registers, reconciles once, and then renews its lease for as long as the process lives. Speaks by lines on stdout:
``measuring`` once every runner has renewed, and ``SECONDS`` later what the callers saw meanwhile, as JSON.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass
from itertools import count
from pathlib import Path
from statistics import quantiles
from typing import Final, NamedTuple

import grpc

from lanewarden import wire
from lanewarden.auth import Credentials, Role
from lanewarden.errors import Reason
from lanewarden.v1 import supervisor_service_pb2 as pb
from tests.bench.load import Metadata, Target, bearer, target
from tests.integration.pair import SUPERVISOR

LANES: Final = 20
CHANNELS: Final = 50
BUSY_EVERY: Final = 10
"""One runner in so many has another task in one of its lanes with each renewal."""
RENEWAL_SECONDS_MAX: Final = 1.0
"""How long a runner waits for the answer to a renewal."""
SETTLE_INTERVALS: Final = 2
OVER: Final = frozenset({Reason.LEASE_EXPIRED, Reason.LEASE_UNKNOWN})


class Renewal(NamedTuple):
    """One renewal. ``late_ms`` is how much later than planned this process sent it; ``reason`` is why it failed."""

    runner_id: str
    latency_ms: float
    late_ms: float
    reason: Reason | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What the callers saw within the window; ``over`` are the runners that were told that their lease is over."""

    renewals: int
    failed: int
    over: list[str]
    p50_ms: float
    p99_ms: float
    late_p99_ms: float


class Runner:
    """One runner that is played."""

    def __init__(self, number: int, server: Target, metadata: Metadata) -> None:
        self.number = number
        self._lanes = [f"lane-{n + 1}" for n in range(LANES)]
        self._runner_id, self._incarnation = f"runner-{number}", str(uuid.uuid4())
        self._generation = 0
        self._register, self._reconcile, self._renew = (
            server.caller(SUPERVISOR.methods_by_name[name], metadata) for name in ("Register", "Reconcile", "KeepAlive")
        )

    async def register(self) -> float:
        """Get a lease and compare an empty inventory; the seconds between two renewals."""
        asked = pb.RegisterRequest(
            request_id=str(uuid.uuid4()),
            runner_id=self._runner_id,
            incarnation=self._incarnation,
            address="127.0.0.1:1",
            lanes=self._lanes,
            store_id=str(uuid.uuid4()),
        )
        grant = pb.RegisterResponse.FromString(await self._register.call(asked.SerializeToString()))
        self._generation = grant.generation
        has = pb.ReconcileRequest(runner_id=self._runner_id, incarnation=self._incarnation, generation=self._generation)
        await self._reconcile.call(has.SerializeToString())
        return grant.renew_interval.ToTimedelta().total_seconds()

    async def renew_for_ever(self, first_at: float, interval_seconds: float, done: list[Renewal]) -> None:
        """Renew at fixed times, whatever comes of it."""
        for turn, request in enumerate(self._renewals()):
            due = first_at + turn * interval_seconds
            await asyncio.sleep(due - time.perf_counter())
            request.wall_time.GetCurrentTime()
            data = request.SerializeToString()
            start, reason = time.perf_counter(), None
            try:
                await self._renew.call(data, RENEWAL_SECONDS_MAX)
            except grpc.aio.AioRpcError as error:
                reason = _reason(error)
            taken = time.perf_counter() - start
            done.append(Renewal(self._runner_id, taken * 1000, (start - due) * 1000, reason))

    def _renewals(self) -> Iterator[pb.KeepAliveRequest]:
        """The first names every lane; later ones the lane that has changed, where the runner is a busy one."""
        request = pb.KeepAliveRequest(
            runner_id=self._runner_id,
            incarnation=self._incarnation,
            generation=self._generation,
            supervision_generation=1,
        )
        request.loop_lag.FromMilliseconds(1)
        for lane in self._lanes:
            request.changed_lanes.add(lane=lane, task_id=f"task-of-{lane}")
        for turn in count():
            yield request
            del request.changed_lanes[:]
            if self.number % BUSY_EVERY == 0:
                request.changed_lanes.add(lane=self._lanes[turn % LANES], task_id=str(uuid.uuid4()))


def _reason(error: grpc.aio.AioRpcError) -> Reason:
    unreachable = Reason.SUPERVISOR_UNREACHABLE
    trailers = error.trailing_metadata()
    return wire.decode(error.code(), error.details(), trailers, target="supervisor", unreachable=unreachable).reason


async def play(address: str, credentials: Path, runners: int, seconds: float) -> None:
    """Register all, spread their renewals evenly over the interval, and say what came of those within the window."""
    metadata = bearer(Credentials.ensure(credentials).tokens[Role.RUNNER])
    done: list[Renewal] = []
    async with AsyncExitStack() as stack:
        targets = [await stack.enter_async_context(target(address, own=True)) for _ in range(CHANNELS)]
        fleet = [Runner(number, targets[number % CHANNELS], metadata) for number in range(runners)]
        interval_seconds = (await asyncio.gather(*(runner.register() for runner in fleet)))[0]
        start, apart = time.perf_counter(), interval_seconds / runners
        jobs = [
            asyncio.ensure_future(runner.renew_for_ever(start + number * apart, interval_seconds, done))
            for number, runner in enumerate(fleet)
        ]
        await asyncio.sleep(SETTLE_INTERVALS * interval_seconds)
        done.clear()
        print("measuring", flush=True)
        await asyncio.sleep(seconds)
        print(json.dumps(asdict(_seen(done))), flush=True)
        for job in jobs:
            job.cancel()
        await asyncio.gather(*jobs, return_exceptions=True)


def _seen(done: Sequence[Renewal]) -> Seen:
    latency = quantiles((each.latency_ms for each in done), n=100)
    return Seen(
        renewals=len(done),
        failed=sum(each.reason is not None for each in done),
        over=sorted({each.runner_id for each in done if each.reason in OVER}),
        p50_ms=latency[49],
        p99_ms=latency[98],
        late_p99_ms=quantiles((each.late_ms for each in done), n=100)[98],
    )


if __name__ == "__main__":
    asyncio.run(play(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])))
