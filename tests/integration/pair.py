"""The two services as real processes, to be killed and started again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from lanewarden.auth import Credentials, Role
from lanewarden.client_sync import SyncConnection, connect
from lanewarden.errors import Reason, Refusal
from lanewarden.tls import Tls
from lanewarden.v1 import (
    escalation_pb2,
    lane_runner_service_pb2,
    operator_service_pb2,
    supervisor_service_pb2,
    task_pb2,
)
from tests.certificates import Files
from tests.ports import free_port

DEADLINE_SECONDS = 20.0
PASSING = frozenset({Reason.RUNNER_UNREACHABLE, Reason.SUPERVISOR_UNREACHABLE, Reason.DEADLINE_PASSED})
OPERATOR = operator_service_pb2.DESCRIPTOR.services_by_name["OperatorService"]
SUPERVISOR = supervisor_service_pb2.DESCRIPTOR.services_by_name["SupervisorService"]
LANE_RUNNER = lane_runner_service_pb2.DESCRIPTOR.services_by_name["LaneRunnerService"]
T = TypeVar("T")


def eventually(look: Callable[[], T | None], what: str, seconds: float = DEADLINE_SECONDS) -> T:
    """The first true result of ``look``; a refusal of a service that is just starting counts as not yet."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            if found := look():
                return found
        except Refusal as refusal:
            if refusal.reason not in PASSING:
                raise
        time.sleep(0.01)
    raise AssertionError(f"not within {seconds} s: {what}")


class Service:
    """One service process: a module and its arguments. ``log`` keeps what it said over all its starts."""

    def __init__(self, *module: str, env: dict[str, str] | None = None) -> None:
        self.command = [sys.executable, "-m", *module]
        self.env = {**os.environ, **(env or {})}
        self.log: list[dict[str, Any]] = []
        self.process: subprocess.Popen[bytes] | None = None
        self._ready = threading.Event()

    def start(self) -> None:
        self._ready.clear()
        self.process = subprocess.Popen(self.command, stderr=subprocess.PIPE, env=self.env)
        threading.Thread(target=self._read, args=(self.process,), daemon=True).start()
        if not self._ready.wait(DEADLINE_SECONDS):
            raise AssertionError(f"{self.command} is not ready; it said {self.log[-3:]}")

    def _read(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stderr is not None
        for line in process.stderr:
            try:
                event = json.loads(line)
            except ValueError:
                event = {"message": line.decode(errors="replace").rstrip()}
            self.log.append(event)
            if event["message"] == "ready":
                self._ready.set()

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        """Ask it to end, as an init system would; its exit code."""
        if self.process is None or self.process.poll() is not None:
            return 0
        self.process.terminate()
        return self.process.wait(DEADLINE_SECONDS)

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid


class Pair:
    """Supervisor and runner below one directory, on ports that survive a restart.

    ``through`` is a module, with its first arguments, that runs a service in place of the service's own.
    """

    def __init__(
        self,
        directory: Path,
        *,
        lanes: int = 2,
        runner_env: dict[str, str] | None = None,
        tls: Files | None = None,
        through: Sequence[str] = (),
        supervisor_flags: Sequence[str] = (),
    ) -> None:
        self.directory = directory
        self._trusted = Tls.load(ca=tls.ca).channel_credentials() if tls else None
        self.credentials = Credentials.ensure(directory / "credentials")
        self.supervisor_port, self.runner_port = free_port(), free_port()
        common = ("--credentials-dir", str(directory / "credentials"), *(tls.flags if tls else ()))
        self.supervisor = Service(
            *(*through, "supervisor_svc"),
            *("--state-dir", str(directory / "supervisor"), "--listen-port", str(self.supervisor_port)),
            *supervisor_flags,
            *common,
        )
        self.runner = Service(
            *(*through, "lane_runner_svc"),
            *("--state-dir", str(directory / "runner"), "--listen-port", str(self.runner_port)),
            *("--supervisor", f"127.0.0.1:{self.supervisor_port}", "--runner-id", "runner", "--stop-workers-on-exit"),
            *[word for number in range(lanes) for word in ("--lanes", f"lane-{number + 1}")],
            *common,
            env=runner_env,
        )
        self._connections: list[SyncConnection] = []
        self.operator = self.client(self.supervisor_port, OPERATOR, Role.OPERATOR, Reason.SUPERVISOR_UNREACHABLE)
        self.lane_runner = self.client(self.runner_port, LANE_RUNNER, Role.OPERATOR, Reason.RUNNER_UNREACHABLE)

    def client(self, port: int, service: Any, role: Role, unreachable: Reason) -> Any:
        connection = connect(
            f"127.0.0.1:{port}",
            token=self.credentials.tokens[role],
            unreachable=unreachable,
            credentials=self._trusted,
        )
        self._connections.append(connection)
        return connection.stub(service)

    def __enter__(self) -> Pair:
        self.supervisor.start()
        self.runner.start()
        eventually(lambda: self.operator.ListRunners(operator_service_pb2.ListRunnersRequest()).runners, "runner known")
        return self

    def __exit__(self, *exc: object) -> None:
        for connection in self._connections:
            connection.close()
        try:
            self.runner.stop()
            self.supervisor.stop()
        finally:  # a service that does not end fails its test, and must not stay behind
            self.runner.kill()
            self.supervisor.kill()

    def submit(self, *argv: str, cwd: str = "/", **spec: Any) -> str:
        request = operator_service_pb2.OperatorServiceSubmitTaskRequest(
            request_id=str(uuid.uuid4()), spec=task_pb2.TaskSpec(argv=argv, cwd=cwd, **spec)
        )
        response = eventually(lambda: self.operator.SubmitTask(request), "submitted")
        return str(response.task.task_id)

    def task(self, task_id: str) -> task_pb2.Task:
        """The task as its runner knows it now."""
        request = lane_runner_service_pb2.GetTaskRequest(task_id=task_id)
        task: task_pb2.Task = self.lane_runner.GetTask(request).task
        return task

    def wait_for_state(self, task_id: str, *states: str, seconds: float = DEADLINE_SECONDS) -> task_pb2.Task:
        def look() -> task_pb2.Task | None:
            task = self.task(task_id)
            return task if task_pb2.TaskState.Name(task.state).removeprefix("TASK_STATE_") in states else None

        return eventually(look, f"task {task_id} {' or '.join(states)}", seconds)

    def inbox(self, task_id: str) -> list[escalation_pb2.Escalation]:
        """Every escalation of the task that the supervisor has."""
        request = operator_service_pb2.ListEscalationsRequest(
            task_id=task_id, states=[state for state in escalation_pb2.HoldState.values() if state], notices=True
        )
        return list(self.operator.ListEscalations(request).escalations)

    def open_escalation(self, task_id: str) -> escalation_pb2.Escalation:
        """The one open escalation of the task, once the supervisor has it."""

        def look() -> escalation_pb2.Escalation | None:
            return next((e for e in self.inbox(task_id) if e.hold_state == escalation_pb2.HOLD_STATE_OPEN), None)

        return eventually(look, f"an open escalation of {task_id}")

    def ack(self, escalation_id: str) -> None:
        request = operator_service_pb2.OperatorServiceAcknowledgeRequest(
            request_id=str(uuid.uuid4()), escalation_id=escalation_id, note="on it"
        )
        eventually(lambda: self.operator.Acknowledge(request), "acknowledged")

    def rule(
        self, escalation_id: str, instructions: str = "go on"
    ) -> operator_service_pb2.OperatorServiceSteerResponse:
        request = operator_service_pb2.OperatorServiceSteerRequest(request_id=str(uuid.uuid4()))
        request.ruling.escalation_id = escalation_id
        request.ruling.decision = escalation_pb2.DECISION_APPROVE
        request.ruling.instructions = instructions
        response: operator_service_pb2.OperatorServiceSteerResponse = eventually(
            lambda: self.operator.Steer(request), "ruled"
        )
        return response


def kill_pid(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
