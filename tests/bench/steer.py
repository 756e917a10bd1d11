"""From an operator's ruling at the supervisor to the worker that wakes up with it."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from lanewarden import wire
from lanewarden.auth import Role
from lanewarden.v1 import operator_service_pb2 as operator_pb
from lanewarden.v1 import worker_service_pb2 as worker_pb
from tests.bench.figures import Figure
from tests.bench.load import Caller, Target, bearer, echo_target, latencies_ms, target
from tests.bench.subjects import WORKER, fresh_uuid, question, ruling
from tests.bench.workers import Workers
from tests.integration.pair import OPERATOR, Pair
from tests.ports import free_port

ROUNDS: Final = 5
RULINGS_PER_ROUND: Final = 60
ECHOES_PER_ROUND: Final = 200
INBOX_SECONDS_MAX: Final = 5.0
PAUSE_SECONDS: Final = 0.02  # a person rules on a pair at rest, not on one that is still busy with the question


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """Milliseconds: each wake, the echo called once before each of them, and the echo called again and again."""

    wakes: list[float]
    paced: list[float]
    hot: list[float]


async def run(rounds: int | None, directory: Path) -> list[Figure]:
    """p50 and p99 of the wake, and the ratio to an echo with one caller."""
    async with AsyncExitStack() as stack:
        pair = stack.enter_context(Pair(directory, lanes=1))
        address = f"127.0.0.1:{free_port()}"
        bare = (await stack.enter_async_context(echo_target(address))).caller(None, ())
        job = Job(
            await stack.enter_async_context(target(f"127.0.0.1:{pair.supervisor_port}")),
            await stack.enter_async_context(target(f"unix:{pair.directory / 'runner' / 'worker.sock'}")),
            operator_token=pair.credentials.tokens[Role.OPERATOR],
            worker_token=next(iter(Workers(pair, directory / "workers").start(1).values())),
        )
        found = [await _round(job, bare) for _ in range((rounds or ROUNDS) + 1)]
    return _figures(found[1:])  # the first one warms up


async def _round(job: Job, bare: Caller) -> Round:
    wakes, paced = [], []
    for _ in range(RULINGS_PER_ROUND):
        await asyncio.sleep(PAUSE_SECONDS)
        paced += await latencies_ms(bare, [_steer("task.1.1.1")])
        wakes.append(await job.wake_ms())
    return Round(wakes=wakes, paced=paced, hot=await latencies_ms(bare, [_steer("task.1.1.1")] * ECHOES_PER_ROUND))


def _figures(rounds: Sequence[Round]) -> list[Figure]:
    wakes = [wake for each in rounds for wake in each.wakes]
    what = "ruling at the supervisor → worker in AwaitRuling wakes"

    def p50(reference: str, name: str, wanted: str = "") -> Figure:
        return Figure(
            bench="steer",
            what=f"{what}, p50",
            measured=statistics.median(wakes),
            unit="ms",
            reference=name,
            reference_measured=statistics.median(statistics.median(getattr(each, reference)) for each in rounds),
            ratio=statistics.median(
                statistics.median(each.wakes) / statistics.median(getattr(each, reference)) for each in rounds
            ),
            target=wanted,
        )

    return [
        p50("hot", "bare echo, 1 caller without a pause, p50", "≤ 8"),
        # Like with like: each process that a ruling passes through was at rest, and so was this echo.
        p50("paced", "bare echo, 1 caller as seldom as the rulings, p50"),
        Figure(bench="steer", what=f"{what}, p99", measured=statistics.quantiles(wakes, n=100)[98], unit="ms"),
    ]


class Job:
    """Asks, waits, is ruled on, and takes the ruling: the worker's and the operator's part of the main job."""

    def __init__(self, supervisor: Target, runner: Target, *, operator_token: str, worker_token: str) -> None:
        operator, worker = bearer(operator_token), bearer(worker_token)
        self._steer = supervisor.caller(OPERATOR.methods_by_name["Steer"], operator)
        self._list = supervisor.caller(OPERATOR.methods_by_name["ListEscalations"], operator)
        self._escalate = runner.caller(WORKER.methods_by_name["Escalate"], worker)
        self._take = runner.caller(WORKER.methods_by_name["AcknowledgeMessage"], worker)
        self._await: Any = runner.channel.unary_stream(wire.path(WORKER.methods_by_name["AwaitRuling"]))
        self._worker = worker

    async def wake_ms(self) -> float:
        """From the moment the ruling is sent to the moment the waiting worker has it."""
        escalation_id = await self._ask()
        waiting = self._await(
            worker_pb.AwaitRulingRequest(escalation_id=escalation_id).SerializeToString(), metadata=self._worker
        )
        assert worker_pb.AwaitRulingResponse.FromString(await waiting.read()).HasField("waiting")
        await self._in_the_inbox(escalation_id)
        await asyncio.sleep(PAUSE_SECONDS)
        request = _steer(escalation_id)
        start = time.perf_counter()
        ruled = asyncio.ensure_future(self._steer.call(request))
        news = worker_pb.AwaitRulingResponse.FromString(await waiting.read())
        taken_ms = (time.perf_counter() - start) * 1000
        assert news.message.ruling.ruling.escalation_id == escalation_id
        await ruled
        taken = worker_pb.AcknowledgeMessageRequest(request_id=fresh_uuid(), message_id=news.message.message_id)
        await self._take.call(taken.SerializeToString())
        return taken_ms

    async def _ask(self) -> str:
        answer = await self._escalate.call(question())
        return worker_pb.WorkerServiceEscalateResponse.FromString(answer).escalation.escalation_id

    async def _in_the_inbox(self, escalation_id: str) -> None:
        """Return once the supervisor knows the escalation."""
        deadline = time.monotonic() + INBOX_SECONDS_MAX
        request = operator_pb.ListEscalationsRequest().SerializeToString()
        while time.monotonic() < deadline:
            found = operator_pb.ListEscalationsResponse.FromString(await self._list.call(request)).escalations
            if any(each.escalation_id == escalation_id for each in found):
                return
        raise AssertionError(f"{escalation_id} is not in the inbox after {INBOX_SECONDS_MAX} s")


def _steer(escalation_id: str) -> bytes:
    request = operator_pb.OperatorServiceSteerRequest(request_id=fresh_uuid(), ruling=ruling(escalation_id))
    return request.SerializeToString()
