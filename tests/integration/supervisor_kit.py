"""A supervisor on real gRPC and a real store, and a runner that is a few dictionaries behind a real server."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from lanewarden import client
from lanewarden.auth import Credentials, Role
from lanewarden.client import Stub
from lanewarden.errors import Reason, Refusal, refuse
from lanewarden.server import Call, Server
from lanewarden.store import StateDirectory
from lanewarden.telemetry import OFF
from lanewarden.v1 import escalation_pb2, lane_runner_service_pb2, message_pb2, task_pb2
from lanewarden.v1 import lane_runner_service_pb2 as runner_pb
from lanewarden.v1 import operator_service_pb2 as pb
from lanewarden.v1 import supervisor_service_pb2 as supervisor_pb
from supervisor_svc.bootstrap import OPERATOR, SUPERVISOR, WRITE_TRACE, RunningSupervisor, running
from supervisor_svc.config import SupervisorConfig
from tests.ports import free_port

LANE_RUNNER = lane_runner_service_pb2.DESCRIPTOR.services_by_name["LaneRunnerService"]
PATIENCE_SECONDS = 20.0
OPENED_MS = 1_700_000_000_000


def fresh() -> str:
    return str(uuid.uuid4())


def task(task_id: str = "t1", **fields: Any) -> task_pb2.Task:
    values = {"runner_id": "r1", "state": task_pb2.TASK_STATE_HELD, "version": 1, **fields}
    spec = task_pb2.TaskSpec(argv=["true"], lane="a", gates=["review"])
    return task_pb2.Task(task_id=task_id, spec=spec, **values)


def escalation(escalation_id: str = "e1", **fields: Any) -> escalation_pb2.Escalation:
    values = {
        "task_id": "t1",
        "runner_id": "r1",
        "hold_state": escalation_pb2.HOLD_STATE_OPEN,
        "expects_reply": True,
        **fields,
    }
    made = escalation_pb2.Escalation(escalation_id=escalation_id, question="left or right?", **values)
    made.opened_at.FromMilliseconds(OPENED_MS)
    made.options.add(key="left", text="left")
    return made


class FakeRunner:
    """Answers like a runner: idempotent by request_id, first ruling wins. ``refusals`` are given before any effect,
    ``losses`` after it, as an answer that never arrives.
    """

    def __init__(self) -> None:
        self.tasks = {"t1": task(version=2)}
        self.rulings: dict[str, runner_pb.SteerRequest] = {}
        self.effects: list[Any] = []
        self.requests: list[Any] = []
        self.refusals: list[Refusal] = []
        self.losses: list[Refusal] = []
        self.news = asyncio.Event()
        self._answers: dict[str, Any] = {}

    async def until_effects(self, count: int) -> None:
        """Return when so many requests have had an effect."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while len(self.effects) < count:
                self.news.clear()
                await self.news.wait()

    def _once(self, request: Any, answer: Any) -> Any:
        self.requests.append(request)
        if self.refusals:
            raise self.refusals.pop(0)
        if request.request_id not in self._answers:
            self._answers[request.request_id] = answer()
            self.effects.append(request)
            self.news.set()
        if self.losses:
            raise self.losses.pop(0)
        return self._answers[request.request_id]

    async def Steer(self, request: runner_pb.SteerRequest, call: Call) -> runner_pb.SteerResponse:
        def answer() -> runner_pb.SteerResponse:
            if request.HasField("ruling"):
                first = self.rulings.setdefault(request.ruling.escalation_id, request)
                if first is not request:
                    raise refuse(Reason.ALREADY_RULED, "second", ruling_id=first.request_id)
            moved = task_pb2.Task(state=task_pb2.TASK_STATE_QUEUED, version=3)
            self.tasks["t1"].MergeFrom(moved)
            message = message_pb2.Message(message_id=request.request_id)
            return runner_pb.SteerResponse(message=message, task=self.tasks["t1"])

        return self._once(request, answer)  # type: ignore[no-any-return]

    async def Acknowledge(self, request: runner_pb.AcknowledgeRequest, call: Call) -> runner_pb.AcknowledgeResponse:
        stamped = escalation(request.escalation_id, acks=1)
        stamped.ack.acked_by.CopyFrom(request.on_behalf_of)
        return self._once(request, lambda: runner_pb.AcknowledgeResponse(escalation=stamped))  # type: ignore[no-any-return]

    async def SubmitTask(self, request: runner_pb.SubmitTaskRequest, call: Call) -> runner_pb.SubmitTaskResponse:
        new = task(f"t{len(self.tasks) + 1}", state=task_pb2.TASK_STATE_QUEUED)
        self.tasks[new.task_id] = new
        return self._once(request, lambda: runner_pb.SubmitTaskResponse(task=new))  # type: ignore[no-any-return]

    async def CancelTask(self, request: runner_pb.CancelTaskRequest, call: Call) -> runner_pb.CancelTaskResponse:
        canceled = task(request.task_id, state=task_pb2.TASK_STATE_CANCELED, version=9)
        return self._once(request, lambda: runner_pb.CancelTaskResponse(task=canceled))  # type: ignore[no-any-return]

    async def RecordGate(self, request: runner_pb.RecordGateRequest, call: Call) -> runner_pb.RecordGateResponse:
        return self._once(request, lambda: runner_pb.RecordGateResponse(task=task()))  # type: ignore[no-any-return]

    async def SendInput(self, request: runner_pb.SendInputRequest, call: Call) -> runner_pb.SendInputResponse:
        message = message_pb2.Message(message_id=request.request_id)
        return self._once(request, lambda: runner_pb.SendInputResponse(message=message))  # type: ignore[no-any-return]

    async def PauseTask(self, request: runner_pb.PauseTaskRequest, call: Call) -> runner_pb.PauseTaskResponse:
        return self._once(request, lambda: runner_pb.PauseTaskResponse(task=task()))  # type: ignore[no-any-return]

    async def ResumeTask(self, request: runner_pb.ResumeTaskRequest, call: Call) -> runner_pb.ResumeTaskResponse:
        return self._once(request, lambda: runner_pb.ResumeTaskResponse(task=task()))  # type: ignore[no-any-return]

    async def GetTask(self, request: runner_pb.GetTaskRequest, call: Call) -> runner_pb.GetTaskResponse:
        return runner_pb.GetTaskResponse(
            task=self.tasks[request.task_id], messages=[message_pb2.Message(message_id="m")]
        )

    async def CheckCompletion(
        self, request: runner_pb.CheckCompletionRequest, call: Call
    ) -> runner_pb.CheckCompletionResponse:
        blocker = task_pb2.Blocker(kind="hold", name="e1")
        return runner_pb.CheckCompletionResponse(blockers=[blocker], state=task_pb2.TASK_STATE_HELD)

    async def TailLog(self, request: runner_pb.TailLogRequest, call: Call) -> AsyncIterator[runner_pb.TailLogResponse]:
        for piece in (b"one", b"two"):
            yield runner_pb.TailLogResponse(attempt=1, data=piece)


class RunnerSide:
    """What a runner does towards its supervisor."""

    def __init__(self, stub: Stub, address: str, *, runner_id: str = "r1") -> None:
        self.stub = stub
        self.address = address
        self.runner_id = runner_id
        self.incarnation = fresh()
        self.store_id = fresh()
        self.generation = 0

    async def register(self, **other: Any) -> supervisor_pb.RegisterResponse:
        values = {
            "request_id": fresh(),
            "runner_id": self.runner_id,
            "incarnation": self.incarnation,
            "address": self.address,
            "lanes": ["a"],
            "store_id": self.store_id,
            **other,
        }
        grant: supervisor_pb.RegisterResponse = await self.stub.Register(supervisor_pb.RegisterRequest(**values))
        self.generation = grant.generation
        return grant

    async def keep_alive(self, **other: Any) -> supervisor_pb.KeepAliveResponse:
        values = {
            "runner_id": self.runner_id,
            "incarnation": self.incarnation,
            "generation": self.generation,
            **other,
        }
        renewed: supervisor_pb.KeepAliveResponse = await self.stub.KeepAlive(supervisor_pb.KeepAliveRequest(**values))
        return renewed

    async def escalate(self, sequence: int, what: escalation_pb2.Escalation, **other: Any) -> int:
        values = {"runner_id": self.runner_id, "incarnation": self.incarnation, **other}
        request = supervisor_pb.EscalateRequest(request_id=fresh(), sequence=sequence, escalation=what, **values)
        return int((await self.stub.Escalate(request)).taken_sequence)

    async def report(self, *items: supervisor_pb.ReportItem, **other: Any) -> int:
        values = {"runner_id": self.runner_id, "incarnation": self.incarnation, **other}
        request = supervisor_pb.ReportRequest(request_id=fresh(), items=items, **values)
        return int((await self.stub.Report(request)).taken_sequence)


class World:
    """One state directory with its credentials; supervisors and runners come and go."""

    def __init__(self, path: Path, stack: AsyncExitStack) -> None:
        self.path = path
        self.stack = stack
        self.credentials = Credentials.ensure(path / "credentials")
        self.runner = FakeRunner()
        self.runner_port = free_port()
        self.service: RunningSupervisor
        self.operator: Stub
        self.side: RunnerSide
        self._supervisor_stack = AsyncExitStack()
        self._runner_server: Server | None = None

    async def start(self, **settings: Any) -> None:
        """Start the supervisor, connect everybody, register nobody."""
        config = SupervisorConfig(
            state_dir=self.path, listen_port=0, credentials_dir=self.path / "credentials", drain_seconds=1.0, **settings
        )
        directory = self._supervisor_stack.enter_context(StateDirectory.acquire(self.path))
        self.service = await self._supervisor_stack.enter_async_context(running(config, directory, OFF))
        self.operator = self.stub(OPERATOR, Role.OPERATOR)
        stub = self.stub(SUPERVISOR, Role.RUNNER)
        if hasattr(self, "side"):
            self.side.stub = stub
        else:
            self.side = RunnerSide(stub, f"127.0.0.1:{self.runner_port}")

    async def stop(self) -> None:
        await self._supervisor_stack.aclose()

    def stub(self, service: Any, role: Role | None) -> Stub:
        token = self.credentials.tokens[role] if role else ""
        connection = client.connect(f"127.0.0.1:{self.service.port}", token=token)
        self.stack.push_async_callback(connection.close)
        return connection.stub(service)

    def trace(self) -> Stub:
        return self.stub(WRITE_TRACE, Role.VIEWER)

    async def start_runner(self) -> None:
        """Let the runner answer at its address."""
        self._runner_server = Server(name="runner", authenticator=self.credentials.authenticator())
        self._runner_server.add(LANE_RUNNER, self.runner)
        await self._runner_server.bind_tcp("127.0.0.1", self.runner_port)
        await self._runner_server.start()

    async def stop_runner(self) -> None:
        if self._runner_server is not None:
            await self._runner_server.drain(0.1)
            self._runner_server = None

    async def settled(self, escalation_id: str, delivery: escalation_pb2.DeliveryState) -> escalation_pb2.Escalation:
        """The escalation once its ruling has come so far."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            async for each in self.operator.WatchInbox(pb.WatchInboxRequest()):
                found: escalation_pb2.Escalation = each.escalation
                if found.escalation_id == escalation_id and found.ruling.delivery == delivery:
                    return found
        raise AssertionError("the watch ended")

    async def audit(self) -> list[tuple[str, str]]:
        entries = (await self.operator.ListAudit(pb.ListAuditRequest())).entries
        return [(entry.action, entry.outcome) for entry in entries]


@asynccontextmanager
async def world(path: Path, *, runner_up: bool = True, **settings: Any) -> AsyncIterator[World]:
    """A supervisor with one registered runner that owns task t1 with the open hold e1."""
    async with AsyncExitStack() as stack:
        made = World(path, stack)
        stack.push_async_callback(made.stop)
        stack.push_async_callback(made.stop_runner)
        await made.start(**settings)
        if runner_up:
            await made.start_runner()
        await made.side.register()
        await made.side.report(supervisor_pb.ReportItem(sequence=1, task=task()))
        assert await made.side.escalate(2, escalation()) == 2
        yield made


def ruling(escalation_id: str = "e1", **fields: Any) -> pb.OperatorServiceSteerRequest:
    """A ruling with a fresh id; ``request_id`` and ``task_id`` go into the request, the rest into the ruling."""
    outer = {key: fields.pop(key) for key in ("request_id", "task_id") if key in fields}
    values = {"decision": escalation_pb2.DECISION_APPROVE, "instructions": "go on", **fields}
    made = escalation_pb2.Ruling(escalation_id=escalation_id, **values)
    return pb.OperatorServiceSteerRequest(**{"request_id": fresh(), **outer}, ruling=made)


async def refused(call: Any) -> Refusal:
    """The refusal that a call ends with."""
    try:
        await call
    except Refusal as refusal:
        return refusal
    raise AssertionError("the call was not refused")
