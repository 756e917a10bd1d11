"""R03: a service with open streams stops cleanly and forgets nothing; watchers never starve a heartbeat or a ruling."""

from __future__ import annotations

import asyncio
import sys
import time
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from grpc_health.v1 import health_pb2

from lanewarden import client
from lanewarden.auth import Role
from lanewarden.errors import Reason, Refusal
from lanewarden.v1 import (
    escalation_pb2,
    lane_runner_service_pb2,
    operator_service_pb2,
    supervisor_service_pb2,
    worker_service_pb2,
)
from tests.integration.pair import DEADLINE_SECONDS, LANE_RUNNER, OPERATOR, SUPERVISOR, Pair, Service, eventually

pb = operator_service_pb2
HEALTH = health_pb2.DESCRIPTOR.services_by_name["Health"]
WORKER = worker_service_pb2.DESCRIPTOR.services_by_name["WorkerService"]
SERVING, NOT_SERVING = (health_pb2.HealthCheckResponse.ServingStatus.Value(name) for name in ("SERVING", "NOT_SERVING"))

ASKER = """
test "$LANEWARDEN_REASON" = first && {verb} escalate --expects-reply 'May I?' > id
printf '%s' "$LANEWARDEN_TOKEN" > token.draft && mv token.draft token
{verb} await && exec {verb} complete --summary 'done as ruled'
"""
ACTIONS = ["SubmitTask", "Acknowledge", "Acknowledge"]
"""What the audit has of a task that was submitted and an ack that was stored, then delivered."""
STREAMS = 10
"""Of each of two kinds at each service."""
WATCHERS = 300
PROMPT_SECONDS = 1.0
TRIES = 3
"""A ruling and a heartbeat must be prompt in the best of so many: a busy machine is slow once, a starved service always."""


class Field:
    """A pair with one lane per asked task, and asyncio connections to its doors."""

    def __init__(self, pair: Pair, directory: Path, stack: AsyncExitStack) -> None:
        self.pair = pair
        self._directory = directory
        self._stack = stack
        self.worker_socket = f"unix:{pair.directory / 'runner' / 'worker.sock'}"

    async def connect(self, target: str, token: str) -> client.Connection:
        return await self._stack.enter_async_context(client.connect(target, token=token))

    async def supervisor(self, role: Role = Role.OPERATOR) -> client.Connection:
        return await self.connect(f"127.0.0.1:{self.pair.supervisor_port}", self.pair.credentials.tokens[role])

    async def runner(self) -> client.Connection:
        return await self.connect(f"127.0.0.1:{self.pair.runner_port}", self.pair.credentials.tokens[Role.OPERATOR])

    def ask(self) -> tuple[str, str, str]:
        """A task whose worker waits for a ruling: its id, the escalation's, and the worker's token."""
        directory = self._directory / str(uuid.uuid4())
        directory.mkdir()
        script = ASKER.format(verb=f"{sys.executable} -m lanewarden worker")
        task_id = self.pair.submit("sh", "-c", script, cwd=str(directory))
        eventually((directory / "token").exists, "the worker has asked")
        return task_id, self.pair.open_escalation(task_id).escalation_id, (directory / "token").read_text()


@pytest.fixture
async def field(tmp_path: Path) -> AsyncIterator[Field]:
    with Pair(tmp_path / "s", lanes=TRIES + 1) as pair:
        async with AsyncExitStack() as stack:
            yield Field(pair, tmp_path, stack)


class Listener:
    """Reads a stream to its end; ``first`` is set when it has sent something."""

    def __init__(self, stream: AsyncIterator[Any]) -> None:
        self.heard: list[Any] = []
        self.first = asyncio.Event()
        self.end = asyncio.ensure_future(self._read(stream))

    async def _read(self, stream: AsyncIterator[Any]) -> Refusal | None:
        try:
            async for each in stream:
                self.heard.append(each)
                self.first.set()
        except Refusal as refusal:
            self.first.set()
            return refusal
        return None

    async def opened(self) -> None:
        await asyncio.wait_for(self.first.wait(), DEADLINE_SECONDS)
        assert not self.end.done(), self.end.result()


async def stop(service: Service, listeners: list[Listener], health: Listener) -> None:
    """SIGTERM, and what must come of it while the streams are open."""
    for each in (*listeners, health):
        await each.opened()
    assert await asyncio.to_thread(service.stop) == 0
    ends = await asyncio.wait_for(asyncio.gather(*(each.end for each in (*listeners, health))), DEADLINE_SECONDS)
    assert [end.reason if end else None for end in ends] == [Reason.SHUTTING_DOWN] * len(ends)
    assert [each.status for each in health.heard] == [SERVING, NOT_SERVING]
    assert [event["message"] for event in service.log][-1] == "stopped"
    assert not [event for event in service.log if "exception" in event]


def told(pair: Pair) -> dict[str, Any] | None:
    """All that the two have stored, as they tell it; None while the supervisor has not heard all from the runner."""
    runner, operator = pair.lane_runner, pair.operator
    states = [state for state in escalation_pb2.HoldState.values() if state]
    holds = runner.ListHolds(lane_runner_service_pb2.ListHoldsRequest(states=states)).holds
    reported = operator.ListEscalations(pb.ListEscalationsRequest(states=states, notices=True)).escalations
    for hold in (*holds, *reported):
        hold.ClearField("worker_alive")
    tasks = runner.ListTasks(lane_runner_service_pb2.ListTasksRequest()).tasks
    get = lane_runner_service_pb2.GetTaskRequest
    known = {
        "tasks": [(task.task_id, task.spec, task.state, task.attempt, task.open_holds) for task in tasks],
        "holds": list(holds),
        "audit": list(operator.ListAudit(pb.ListAuditRequest()).entries),
        "inboxes": [list(runner.GetTask(get(task_id=task.task_id)).messages) for task in tasks],
    }
    return known if list(reported) == list(holds) and len(known["audit"]) == len(ACTIONS) else None


@pytest.fixture
def patient() -> Iterator[None]:
    """A grace longer than the test waits for the end: an end that takes its grace fails the test."""
    with pytest.MonkeyPatch.context() as patch:
        for service in ("SUPERVISOR", "LANE_RUNNER"):
            patch.setenv(f"LANEWARDEN_{service}_DRAIN_SECONDS", "300")
        yield


@pytest.mark.usefixtures("patient")
async def test_r03_sigterm_with_twenty_open_streams(tmp_path: Path) -> None:
    """Both say NOT_SERVING, end each stream with SHUTTING_DOWN, exit 0 long before their grace; the next start knows all."""
    pair = Pair(tmp_path / "s")
    pair.runner.command.append("--no-stop-workers-on-exit")
    async with AsyncExitStack() as stack:
        stack.enter_context(pair)
        field = Field(pair, tmp_path, stack)
        task_id, escalation_id, token = await asyncio.to_thread(field.ask)
        await asyncio.to_thread(pair.ack, escalation_id)
        runner, supervisor = await field.runner(), await field.supervisor()
        worker = await field.connect(field.worker_socket, token)
        at_runner = [
            *(runner.stub(LANE_RUNNER).WatchTasks(lane_runner_service_pb2.WatchTasksRequest()) for _ in range(STREAMS)),
            *(worker.stub(WORKER).AwaitRuling(worker_service_pb2.AwaitRulingRequest()) for _ in range(STREAMS)),
        ]
        at_supervisor = [
            *(supervisor.stub(OPERATOR).WatchTasks(pb.OperatorServiceWatchTasksRequest()) for _ in range(STREAMS)),
            *(supervisor.stub(OPERATOR).WatchInbox(pb.WatchInboxRequest()) for _ in range(STREAMS)),
        ]
        request = lane_runner_service_pb2.SendInputRequest(request_id=str(uuid.uuid4()), task_id=task_id, text="more")
        await asyncio.to_thread(pair.lane_runner.SendInput, request)
        before = await asyncio.to_thread(eventually, lambda: told(pair), "both know the same")
        for service, connection, streams in (
            (pair.runner, runner, at_runner),
            (pair.supervisor, supervisor, at_supervisor),
        ):
            health = Listener(connection.stub(HEALTH).Watch(health_pb2.HealthCheckRequest()))
            await stop(service, [Listener(stream) for stream in streams], health)
        # From here on the runner stops its workers when it ends, so that the test leaves none behind.
        pair.runner.command.remove("--no-stop-workers-on-exit")
        for service in (pair.supervisor, pair.runner):
            await asyncio.to_thread(service.start)
        after = await asyncio.to_thread(eventually, lambda: told(pair), "both answer again")
        assert after == before
        assert (len(after["tasks"]), len(after["holds"]), len(after["inboxes"][0])) == (1, 1, 1)
        assert after["holds"][0].ack.note == "on it"
        assert [entry.action for entry in after["audit"]] == ACTIONS
        await asyncio.to_thread(pair.rule, escalation_id)
        ended = await asyncio.to_thread(pair.wait_for_state, task_id, "SUCCEEDED", "FAILED")
        assert (ended.summary, ended.attempt) == ("done as ruled", 1), "the worker went on through both stops"


async def prompt_ruling(field: Field, escalation_id: str, token: str, supervisor: client.Connection) -> float:
    """Rule, and wait until the worker's stream has it; the seconds that took."""
    worker = await field.connect(field.worker_socket, token)
    waiting = Listener(worker.stub(WORKER).AwaitRuling(worker_service_pb2.AwaitRulingRequest()))
    await waiting.opened()
    request = pb.OperatorServiceSteerRequest(request_id=str(uuid.uuid4()))
    request.ruling.escalation_id = escalation_id
    request.ruling.decision = escalation_pb2.DECISION_APPROVE
    request.ruling.instructions = "go on"
    begun = time.monotonic()
    await supervisor.stub(OPERATOR).Steer(request, timeout_seconds=DEADLINE_SECONDS)
    assert await asyncio.wait_for(waiting.end, DEADLINE_SECONDS) is None
    assert waiting.heard[-1].message.ruling.ruling.instructions == "go on"
    return time.monotonic() - begun


async def heartbeats(connection: client.Connection) -> list[float]:
    """Register a runner and renew its lease a few times; the seconds that each renewal took."""
    stub = connection.stub(SUPERVISOR)
    who = {"runner_id": "another", "incarnation": str(uuid.uuid4())}
    registered = await stub.Register(
        supervisor_service_pb2.RegisterRequest(
            request_id=str(uuid.uuid4()), store_id=str(uuid.uuid4()), address="127.0.0.1:1", **who
        )
    )
    renewal = supervisor_service_pb2.KeepAliveRequest(generation=registered.generation, **who)
    took = []
    for _ in range(TRIES):
        begun = time.monotonic()
        await stub.KeepAlive(renewal, timeout_seconds=DEADLINE_SECONDS)
        took.append(time.monotonic() - begun)
    return took


async def test_r03_watchers_do_not_starve_a_heartbeat_or_a_ruling(field: Field) -> None:
    """300 watchers at each service: those beyond the limit are told so, and what matters is as prompt as ever."""
    asked = [await asyncio.to_thread(field.ask) for _ in range(TRIES)]
    await asyncio.to_thread(field.ask)  # never ruled on, so that a new watcher has something to hear of
    runner, supervisor = await field.runner(), await field.supervisor()
    kinds = {
        "supervisor": lambda: supervisor.stub(OPERATOR).WatchTasks(pb.OperatorServiceWatchTasksRequest()),
        "runner": lambda: runner.stub(LANE_RUNNER).WatchTasks(lane_runner_service_pb2.WatchTasksRequest()),
    }
    watchers = {name: [Listener(watch()) for _ in range(WATCHERS)] for name, watch in kinds.items()}
    for listeners in watchers.values():
        await asyncio.wait_for(asyncio.gather(*(each.first.wait() for each in listeners)), DEADLINE_SECONDS)
        refused = [each.end.result() for each in listeners if each.end.done()]
        assert {refusal.reason for refusal in refused if refusal} == {Reason.LIMIT_REACHED}
        assert 0 < len(refused) < WATCHERS
    rulings = [await prompt_ruling(field, escalation_id, token, supervisor) for _, escalation_id, token in asked]
    renewals = await heartbeats(await field.supervisor(Role.RUNNER))
    assert min(rulings) < PROMPT_SECONDS, rulings
    assert min(renewals) < PROMPT_SECONDS, renewals
    for task_id, _, _ in asked:
        await asyncio.to_thread(field.pair.wait_for_state, task_id, "SUCCEEDED")
    for name, listeners in watchers.items():
        for each in listeners:
            each.end.cancel()
        await asyncio.gather(*(each.end for each in listeners), return_exceptions=True)
        await freed(kinds[name])


async def freed(watch: Any) -> None:
    """A watcher is let in again once others have gone."""
    async with asyncio.timeout(DEADLINE_SECONDS):
        while True:
            late = Listener(watch())
            await late.first.wait()
            if late.heard:
                late.end.cancel()
                return
