"""Whom the benchmark of escalations calls: the supervisor in the place of runners, and the runner in that of workers."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

from lanewarden.auth import Role
from lanewarden.v1 import escalation_pb2, lane_runner_service_pb2, operator_service_pb2
from lanewarden.v1 import supervisor_service_pb2 as pb
from lanewarden.v1 import worker_service_pb2 as worker_pb
from tests.bench.load import Caller, bearer, target
from tests.bench.workers import Workers
from tests.integration.pair import LANE_RUNNER, SUPERVISOR, Pair, eventually
from tests.ports import free_port

CALLERS: Final = 64
CALLS_PER_ROUND: Final = 40  # of each caller
HOLDS_PER_ROUND: Final = 10  # of each task: no more than one page of the inbox, for all
SETTLE_SECONDS_MAX: Final = 120.0
QUESTION: Final = "The migration drops a column that three reports still read. Drop it, or keep it for a release?"
WORKER: Final = worker_pb.DESCRIPTOR.services_by_name["WorkerService"]

Requests = list[list[bytes]]


def fresh_uuid() -> str:
    """A request id."""
    return str(uuid.uuid4())


def question() -> bytes:
    """A worker's question, ready to be sent."""
    request = worker_pb.WorkerServiceEscalateRequest(request_id=fresh_uuid(), question=QUESTION, expects_reply=True)
    return request.SerializeToString()


def ruling(escalation_id: str) -> escalation_pb2.Ruling:
    """An answer to it."""
    return escalation_pb2.Ruling(
        escalation_id=escalation_id,
        decision=escalation_pb2.DECISION_APPROVE,
        instructions="Keep it for one release.",
    )


class AtSupervisor:
    """SupervisorService.Escalate over TCP; a caller is a registered runner with a sequence of its own."""

    what = "SupervisorService.Escalate"
    transport = "TCP"
    lanes = 1

    def __init__(self) -> None:
        self._runners = [pb.KeepAliveRequest(runner_id=f"r{n}", incarnation=fresh_uuid()) for n in range(CALLERS)]
        self._sent = 0

    def addresses(self, directory: Path) -> tuple[str, str]:
        """Where the two echoes listen."""
        del directory
        return f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"

    async def open(self, pair: Pair, stack: AsyncExitStack) -> list[Caller]:
        """The callers, registered."""
        server = await stack.enter_async_context(target(f"127.0.0.1:{pair.supervisor_port}"))
        self._metadata = bearer(pair.credentials.tokens[Role.RUNNER])
        self._server = server
        register = server.caller(SUPERVISOR.methods_by_name["Register"], self._metadata)
        for runner in self._runners:
            request = pb.RegisterRequest(
                request_id=fresh_uuid(),
                runner_id=runner.runner_id,
                incarnation=runner.incarnation,
                address="127.0.0.1:1",
                store_id=fresh_uuid(),
            )
            grant = pb.RegisterResponse.FromString(await register.call(request.SerializeToString()))
            runner.generation = grant.generation
        return [server.caller(SUPERVISOR.methods_by_name["Escalate"], self._metadata) for _ in self._runners]

    async def requests(self) -> Requests:
        """What each caller sends in a round; before it, every lease is renewed."""
        await self.renew()
        first = self._sent + 1
        self._sent += CALLS_PER_ROUND
        return [[self._item(runner, n) for n in range(first, self._sent + 1)] for runner in self._runners]

    async def renew(self) -> None:
        """Renew every lease."""
        renew = self._server.caller(SUPERVISOR.methods_by_name["KeepAlive"], self._metadata)
        await asyncio.gather(*(renew.call(runner.SerializeToString()) for runner in self._runners))

    def _item(self, runner: pb.KeepAliveRequest, sequence: int) -> bytes:
        task_id = f"task-of-{runner.runner_id}"
        escalation = escalation_pb2.Escalation(
            escalation_id=f"{task_id}.1.1.{sequence}",
            runner_id=runner.runner_id,
            task_id=task_id,
            task_name="migration",
            lane="lane-1",
            epoch=1,
            attempt=1,
            question=QUESTION,
            expects_reply=True,
            hold_state=escalation_pb2.HOLD_STATE_OPEN,
            worker_alive=True,
        )
        return pb.EscalateRequest(
            request_id=fresh_uuid(),
            runner_id=runner.runner_id,
            incarnation=runner.incarnation,
            sequence=sequence,
            escalation=escalation,
        ).SerializeToString()

    def check(self, answers: Sequence[bytes]) -> None:
        """Every item was taken."""
        taken = {pb.EscalateResponse.FromString(answer).taken_sequence for answer in answers}
        assert taken == {self._sent}, f"taken {taken}, not {self._sent}"

    async def settle(self) -> float:
        """Nothing is left to do: an answer means that the item is in the inbox."""
        return 0.0


class AtRunner:
    """WorkerService.Escalate over the runner's socket; a caller speaks for the worker of a task of its own."""

    what = "WorkerService.Escalate"
    transport = "Unix socket"
    lanes = CALLERS

    def addresses(self, directory: Path) -> tuple[str, str]:
        """Where the two echoes listen."""
        return f"unix:{directory / 'echo.sock'}", f"unix:{directory / 'row.sock'}"

    async def open(self, pair: Pair, stack: AsyncExitStack) -> list[Caller]:
        """The callers, each with the token of a worker."""
        self._pair = pair
        self._server = await stack.enter_async_context(target(f"unix:{pair.directory / 'runner' / 'worker.sock'}"))
        runner = await stack.enter_async_context(target(f"127.0.0.1:{pair.runner_port}"))
        operator = bearer(pair.credentials.tokens[Role.OPERATOR])
        self._steer = runner.caller(LANE_RUNNER.methods_by_name["Steer"], operator)
        self._workers = {
            task_id: bearer(token)
            for task_id, token in Workers(pair, pair.directory / "workers").start(CALLERS).items()
        }
        escalate = WORKER.methods_by_name["Escalate"]
        return [self._server.caller(escalate, credential) for credential in self._workers.values()]

    async def requests(self) -> Requests:
        """What each caller sends in a round."""
        return [[question() for _ in range(HOLDS_PER_ROUND)] for _ in range(CALLERS)]

    async def renew(self) -> None:
        """A worker has no lease."""

    def check(self, answers: Sequence[bytes]) -> None:
        """Every question has opened a hold."""
        for answer in answers:
            stored = worker_pb.WorkerServiceEscalateResponse.FromString(answer).escalation
            assert stored.hold_state == escalation_pb2.HOLD_STATE_OPEN, stored

    async def settle(self) -> float:
        """Wait for the inbox to have every question, then rule on each and take the ruling, so that all rounds begin alike
        and nothing is under way while the echoes run. The seconds until the inbox had them.
        """
        start = time.perf_counter()
        inbox = eventually(lambda: self._inbox(CALLERS * HOLDS_PER_ROUND), "every question is in the inbox")
        seconds = time.perf_counter() - start
        by_task: dict[str, list[str]] = {task_id: [] for task_id in self._workers}
        for escalation in inbox:
            by_task[escalation.task_id].append(escalation.escalation_id)
        await asyncio.gather(*(self._rule(task_id, ids) for task_id, ids in by_task.items()))
        eventually(lambda: self._inbox(0) is not None, "the inbox is empty again", SETTLE_SECONDS_MAX)
        return seconds

    def _inbox(self, wanted: int) -> list[escalation_pb2.Escalation] | None:
        request = operator_service_pb2.ListEscalationsRequest(page_size=1_000)
        found = list(self._pair.operator.ListEscalations(request).escalations)
        return found if len(found) == wanted else None

    async def _rule(self, task_id: str, escalation_ids: Sequence[str]) -> None:
        take = self._server.caller(WORKER.methods_by_name["AcknowledgeMessage"], self._workers[task_id])
        for escalation_id in escalation_ids:
            steer = lane_runner_service_pb2.SteerRequest(request_id=fresh_uuid(), ruling=ruling(escalation_id))
            await self._steer.call(steer.SerializeToString())
            taken = worker_pb.AcknowledgeMessageRequest(request_id=fresh_uuid(), message_id=steer.request_id)
            await take.call(taken.SerializeToString())
