"""A pair of stand-ins for the services, and the command line run against them in this process."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from lanewarden.auth import AttemptClaim, Credentials, Identity, Role
from lanewarden.cli import main
from lanewarden.cli.state import Endpoints, StateDir
from lanewarden.errors import Reason, refuse
from lanewarden.server import Call, Server
from lanewarden.v1 import (
    audit_pb2,
    context_pb2,
    escalation_pb2,
    incident_pb2,
    lane_runner_service_pb2,
    message_pb2,
    operator_service_pb2,
    task_pb2,
    worker_service_pb2,
    write_trace_service_pb2,
)

pb = operator_service_pb2
trace_pb = write_trace_service_pb2
OPERATOR = pb.DESCRIPTOR.services_by_name["OperatorService"]
LANE_RUNNER = lane_runner_service_pb2.DESCRIPTOR.services_by_name["LaneRunnerService"]
WRITE_TRACE = write_trace_service_pb2.DESCRIPTOR.services_by_name["WriteTraceService"]
WORKER = worker_service_pb2.DESCRIPTOR.services_by_name["WorkerService"]


def task(task_id: str, name: str = "build", **fields: Any) -> task_pb2.Task:
    """A running task."""
    spec = task_pb2.TaskSpec(name=name, lane="lane-1", argv=["make", "a b"])
    return task_pb2.Task(
        **{"task_id": task_id, "spec": spec, "state": task_pb2.TASK_STATE_RUNNING, "attempt": 1, "epoch": 1, **fields}
    )


def hold(escalation_id: str, **fields: Any) -> escalation_pb2.Escalation:
    """An open hold."""
    defaults: dict[str, Any] = {
        "escalation_id": escalation_id,
        "task_id": escalation_id.split(".")[0],
        "task_name": "build",
        "question": "Drop the column?\nIt is empty.",
        "expects_reply": True,
        "hold_state": escalation_pb2.HOLD_STATE_OPEN,
        "options": [escalation_pb2.Option(key="keep", text="leave it"), escalation_pb2.Option(key="drop")],
    }
    return escalation_pb2.Escalation(**{**defaults, **fields})


def entry(action: str, *, seconds: int = 0) -> audit_pb2.AuditEntry:
    """What ada did, at a time."""
    done = audit_pb2.AuditEntry(action=action, outcome="OK", task_id="tabc1")
    done.actor.CopyFrom(task_pb2.Actor(identity="ada", role="operator"))
    done.at.FromSeconds(seconds)
    return done


@dataclass
class FakeOperator:
    """OperatorService over two lists; keeps the requests that it got, and refuses what ``refusals`` names."""

    tasks: list[task_pb2.Task] = field(default_factory=list)
    escalations: list[escalation_pb2.Escalation] = field(default_factory=list)
    requests: list[Any] = field(default_factory=list)
    refusals: dict[str, Exception] = field(default_factory=dict)
    delivery: Any = escalation_pb2.DELIVERY_STATE_PENDING
    blockers: list[task_pb2.Blocker] = field(default_factory=list)
    notifications: list[pb.Notification] = field(default_factory=list)
    incidents: list[incident_pb2.Incident] = field(default_factory=list)
    runners: list[pb.Runner] = field(
        default_factory=lambda: [
            pb.Runner(runner_id="r1", address="127.0.0.1:1", state=pb.RUNNER_STATE_LIVE, lanes=["lane-1", "lane-2"])
        ]
    )
    audit: list[audit_pb2.AuditEntry] = field(default_factory=lambda: [entry("Steer ruling APPROVE")])
    evidence: list[lane_runner_service_pb2.Evidence] = field(default_factory=list)
    checkpoints: list[context_pb2.Checkpoint] = field(default_factory=list)
    ending: list[task_pb2.Task] = field(
        default_factory=lambda: [task("t-new", state=task_pb2.TASK_STATE_FAILED, summary="it broke")]
    )
    """What a watch shows after RUNNING and HELD."""

    def _got(self, name: str, request: Any) -> None:
        self.requests.append(request)
        if name in self.refusals:
            raise self.refusals[name]

    def _task(self, task_id: str) -> task_pb2.Task:
        for each in self.tasks:
            if each.task_id == task_id:
                return each
        raise refuse(Reason.TASK_UNKNOWN, f"no task {task_id!r}")

    async def ListTasks(self, request: Any, call: Call) -> Any:
        self._got("ListTasks", request)
        at = int(request.page_token or 0)  # one row per page, so that every listing has to turn pages
        token = str(at + 1) if at + 1 < len(self.tasks) else ""
        return pb.OperatorServiceListTasksResponse(tasks=self.tasks[at : at + 1], next_page_token=token)

    async def GetTask(self, request: Any, call: Call) -> Any:
        self._got("GetTask", request)
        message = message_pb2.Message(sequence=1, input=message_pb2.Input(text="more\x1b[2J"))
        return pb.OperatorServiceGetTaskResponse(task=self._task(request.task_id), messages=[message])

    async def ExplainTask(self, request: Any, call: Call) -> Any:
        self._got("ExplainTask", request)
        return pb.ExplainTaskResponse(
            verdict=task_pb2.VERDICT_STALE,
            because="no progress for 901 s, allowed 900 s",
            arm="relaunch",
            action="relaunch it",
            passed=[pb.ArmPassed(arm="terminal", because="it has not ended: RUNNING")],
            facts=[pb.Fact(name="said", value="more\x1b[2J", author=task_pb2.AUTHOR_WORKER)],
            config_version=1,
            task=self._task(request.task_id),
        )

    async def ListEscalations(self, request: Any, call: Call) -> Any:
        self._got("ListEscalations", request)
        return pb.ListEscalationsResponse(escalations=self.escalations)

    async def GetEscalation(self, request: Any, call: Call) -> Any:
        self._got("GetEscalation", request)
        for each in self.escalations:
            if each.escalation_id == request.escalation_id:
                return pb.GetEscalationResponse(escalation=each)
        raise refuse(Reason.ESCALATION_UNKNOWN, f"no escalation {request.escalation_id!r}")

    async def Acknowledge(self, request: Any, call: Call) -> Any:
        self._got("Acknowledge", request)
        return pb.OperatorServiceAcknowledgeResponse(delivery=self.delivery)

    async def Steer(self, request: Any, call: Call) -> Any:
        self._got("Steer", request)
        return pb.OperatorServiceSteerResponse(message_id=request.request_id, delivery=self.delivery)

    async def SubmitTask(self, request: Any, call: Call) -> Any:
        self._got("SubmitTask", request)
        self.tasks.append(task("t-new", spec=request.spec, state=task_pb2.TASK_STATE_QUEUED))
        return pb.OperatorServiceSubmitTaskResponse(task=self.tasks[-1])

    async def SendInput(self, request: Any, call: Call) -> Any:
        self._got("SendInput", request)
        return pb.OperatorServiceSendInputResponse(message=message_pb2.Message(message_id=request.request_id))

    async def CancelTask(self, request: Any, call: Call) -> Any:
        self._got("CancelTask", request)
        return pb.OperatorServiceCancelTaskResponse(task=self._task(request.task_id))

    async def PauseTask(self, request: Any, call: Call) -> Any:
        self._got("PauseTask", request)
        return pb.OperatorServicePauseTaskResponse(task=self._task(request.task_id))

    async def ResumeTask(self, request: Any, call: Call) -> Any:
        self._got("ResumeTask", request)
        return pb.OperatorServiceResumeTaskResponse(task=self._task(request.task_id))

    async def RecordGate(self, request: Any, call: Call) -> Any:
        self._got("RecordGate", request)
        return pb.OperatorServiceRecordGateResponse(task=self._task(request.task_id))

    async def ListEvidence(self, request: Any, call: Call) -> Any:
        self._got("ListEvidence", request)
        return pb.OperatorServiceListEvidenceResponse(entries=self.evidence)

    async def ListCheckpoints(self, request: Any, call: Call) -> Any:
        self._got("ListCheckpoints", request)
        return pb.OperatorServiceListCheckpointsResponse(checkpoints=self.checkpoints)

    async def GetCheckpoint(self, request: Any, call: Call) -> Any:
        self._got("GetCheckpoint", request)
        found = next((each for each in self.checkpoints if each.checkpoint_id == request.checkpoint_id), None)
        if found is None:
            raise refuse(Reason.CHECKPOINT_UNKNOWN, "no such checkpoint")
        return pb.OperatorServiceGetCheckpointResponse(checkpoint=found)

    async def CheckCompletion(self, request: Any, call: Call) -> Any:
        self._got("CheckCompletion", request)
        return pb.OperatorServiceCheckCompletionResponse(blockers=self.blockers, state=task_pb2.TASK_STATE_HELD)

    async def TailLog(self, request: Any, call: Call) -> AsyncIterator[Any]:
        self._got("TailLog", request)
        for data in (b"one\n", b"two\xff\n"):
            yield pb.OperatorServiceTailLogResponse(piece={"attempt": 1, "data": data})

    async def WatchTasks(self, request: Any, call: Call) -> AsyncIterator[Any]:
        self._got("WatchTasks", request)
        holds = [each.escalation_id for each in self.escalations]
        held = task(request.task_id, state=task_pb2.TASK_STATE_HELD, open_holds=holds)
        for each in (task(request.task_id), held, *self.ending):
            yield pb.OperatorServiceWatchTasksResponse(task=each)

    async def WatchInbox(self, request: Any, call: Call) -> AsyncIterator[Any]:
        self._got("WatchInbox", request)
        for each in self.escalations:
            yield pb.WatchInboxResponse(escalation=each)
        raise refuse(Reason.ROLE_NOT_ALLOWED, "the end of the test")

    async def ListRunners(self, request: Any, call: Call) -> Any:
        self._got("ListRunners", request)
        return pb.ListRunnersResponse(
            runners=self.runners, supervisor=pb.SupervisorInfo(supervisor_id="s1", incarnation="5678", build="aaa")
        )

    async def ListAudit(self, request: Any, call: Call) -> Any:
        self._got("ListAudit", request)
        return pb.ListAuditResponse(entries=self.audit)

    async def RetryTask(self, request: Any, call: Call) -> Any:
        self._got("RetryTask", request)
        return pb.OperatorServiceRetryTaskResponse(task=self._task(request.task_id))

    async def ReopenTask(self, request: Any, call: Call) -> Any:
        self._got("ReopenTask", request)
        return pb.OperatorServiceReopenTaskResponse(task=self._task(request.task_id))

    async def TakeOver(self, request: Any, call: Call) -> Any:
        self._got("TakeOver", request)
        taken = task_pb2.Task()
        taken.CopyFrom(self._task(request.task_id))
        before = task_pb2.Actor()
        before.CopyFrom(taken.owner)
        taken.owner.CopyFrom(task_pb2.Actor(identity="ada", role="operator"))
        taken.pauses.append(task_pb2.PAUSE_CAUSE_TAKEOVER)
        return pb.TakeOverResponse(task=taken, previous_owner=before)

    async def ExtendHold(self, request: Any, call: Call) -> Any:
        self._got("ExtendHold", request)
        extended = hold(request.escalation_id)
        extended.deadline_at.FromSeconds(int(time.time()) + request.deadline.seconds)
        return pb.OperatorServiceExtendHoldResponse(escalation=extended)

    async def ListIncidents(self, request: Any, call: Call) -> Any:
        self._got("ListIncidents", request)
        at = int(request.page_token or 0)
        token = str(at + 1) if at + 1 < len(self.incidents) else ""
        return pb.ListIncidentsResponse(incidents=self.incidents[at : at + 1], next_page_token=token)

    async def ResolveIncident(self, request: Any, call: Call) -> Any:
        self._got("ResolveIncident", request)
        resolved = incident_pb2.Incident(key=request.key, state=incident_pb2.INCIDENT_STATE_RESOLVED)
        return pb.OperatorServiceResolveIncidentResponse(incident=resolved)

    async def ListNotifications(self, request: Any, call: Call) -> Any:
        self._got("ListNotifications", request)
        at = int(request.page_token or 0)
        token = str(at + 1) if at + 1 < len(self.notifications) else ""
        return pb.ListNotificationsResponse(notifications=self.notifications[at : at + 1], next_page_token=token)


@dataclass
class FakeRunner:
    """LaneRunnerService as far as the command line asks it directly."""

    audit: list[audit_pb2.AuditEntry] = field(default_factory=list)
    requests: list[Any] = field(default_factory=list)
    supervision: lane_runner_service_pb2.Supervision = field(default_factory=lane_runner_service_pb2.Supervision)

    async def GetSupervision(self, request: Any, call: Call) -> Any:
        self.requests.append(request)
        return lane_runner_service_pb2.GetSupervisionResponse(
            runner_id="r1", incarnation="1234", build="aaa", supervision=self.supervision
        )

    async def ListAudit(self, request: Any, call: Call) -> Any:
        self.requests.append(request)
        return lane_runner_service_pb2.LaneRunnerServiceListAuditResponse(entries=self.audit)


class FakeLedger:
    """WriteTraceService with one busy emitter, and a storm of it."""

    unattributed_rows = 0

    def __init__(self) -> None:
        self.requests: list[Any] = []

    def _rates(self) -> dict[str, Any]:
        about = {"emitter": "lane_runner.attempt.launch", "entity_kind": "task"}
        rates = [
            trace_pb.WriteRate(**about, entity_id="tabc1", origin="worker", rows=7, rows_per_second=0.7),
            trace_pb.WriteRate(**about, entity_id="tabd2", rows=3, rows_per_second=0.3),
        ]
        return {"rates": rates, "unattributed_rows": self.unattributed_rows}

    async def GetWriteRates(self, request: Any, call: Call) -> Any:
        self.requests.append(request)
        return trace_pb.GetWriteRatesResponse(**self._rates())

    async def WatchWriteRates(self, request: Any, call: Call) -> AsyncIterator[Any]:
        self.requests.append(request)
        for _ in range(3):
            yield trace_pb.WatchWriteRatesResponse(**self._rates())

    async def ListEmitters(self, request: Any, call: Call) -> Any:
        total = trace_pb.EmitterTotal(emitter="lane_runner.attempt.launch", rows=7)
        return trace_pb.ListEmittersResponse(emitters=[total])

    async def ListFindings(self, request: Any, call: Call) -> Any:
        self.requests.append(request)
        who = [trace_pb.EmitterShare(emitter="lane_runner.worker.progress", origin="worker", share=0.99)]
        stormy = trace_pb.Finding(
            kind="FINDING_KIND_ENTITY_RATE",
            entity_kind="task",
            entity_id="tabc1",
            emitters=who,
            rows_per_second=297.4,
            entities=1,
        )
        stormy.since.GetCurrentTime()
        held = trace_pb.Finding(kind="FINDING_KIND_STORE_HELD", emitters=who[:1], held={"seconds": 20})
        held.since.GetCurrentTime()
        held.ended_at.GetCurrentTime()
        return trace_pb.ListFindingsResponse(findings=[stormy, held])


@contextmanager
def in_thread(setup: Callable[[], Any]) -> Iterator[Any]:
    """Run ``setup()``, a coroutine that returns (what to yield, server), on a loop of its own, then drain the server."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()

    def call(coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, loop).result(10)

    async def closed(server: Server) -> None:
        await server.drain(0.1)

    value, server = call(setup())
    try:
        yield value
    finally:
        call(closed(server))
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()


@dataclass
class Desk:
    """A state directory whose services are stand-ins."""

    state: StateDir
    operator: FakeOperator
    runner: FakeRunner
    ledger: FakeLedger
    capture: pytest.CaptureFixture[bytes]

    def run(self, *words: str) -> tuple[int, str, str]:
        """Exit code, stdout and stderr of one command; bytes that are not UTF-8 become lone surrogates."""
        self.capture.readouterr()
        code = main(["--state-dir", str(self.state.path), *words])
        out, err = (each.decode("utf-8", "surrogateescape") for each in self.capture.readouterr())
        return code, out, err

    def got(self, kind: type[Any]) -> Any:
        """The latest request of a kind."""
        return next(each for each in reversed(self.operator.requests) if isinstance(each, kind))


@contextmanager
def desk(path: Path, capture: pytest.CaptureFixture[bytes]) -> Iterator[Desk]:
    """Stand-ins that answer, and the files that say where."""
    operator, runner, ledger = FakeOperator(), FakeRunner(), FakeLedger()
    credentials = Credentials.ensure(path / "credentials")

    async def setup() -> tuple[int, Server]:
        server = Server(name="fake", authenticator=credentials.authenticator())
        server.add(OPERATOR, operator)
        server.add(LANE_RUNNER, runner)
        server.add(WRITE_TRACE, ledger)
        port = await server.bind_tcp("127.0.0.1", 0)
        await server.start()
        return port, server

    with in_thread(setup) as port:
        address = f"127.0.0.1:{port}"
        Endpoints(supervisor=address, runner=address).save(path / "endpoints.json")
        yield Desk(StateDir(path), operator, runner, ledger, capture)


class OneWorker:
    """Knows the worker by the token ``secret``."""

    def authenticate(self, metadata: Mapping[str, str]) -> Identity:
        if metadata.get("authorization") != "Bearer secret":
            raise refuse(Reason.CREDENTIAL_INVALID, "no attempt has this token")
        claim = AttemptClaim(task_id="t1", epoch=1, attempt=1)
        return Identity(name="worker of t1", role=Role.WORKER, attempt=claim)


@contextmanager
def worker_service(path: Path, handlers: Any) -> Iterator[None]:
    """WorkerService by ``handlers`` at a Unix socket."""

    async def setup() -> tuple[None, Server]:
        server = Server(name="workers", authenticator=OneWorker())
        server.add(WORKER, handlers)
        await server.bind_unix(path)
        await server.start()
        return None, server

    with in_thread(setup):
        yield
