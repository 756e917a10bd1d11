"""What is wrong with a request is said by code, reason and facts, at the door that people use and at the runner's own; and
nothing of it is stored.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor, MethodDescriptor
from google.protobuf.message import Message

from lanewarden.auth import METHOD_ROLES, Role
from lanewarden.client_sync import connect
from lanewarden.errors import Code, Reason, Refusal
from lanewarden.rules import ITEMS_DEFAULT, TEXT_BYTES_DEFAULT
from lanewarden.v1 import operator_service_pb2 as operator_pb
from lanewarden.v1 import rules_pb2, write_trace_service_pb2
from tests.integration.pair import LANE_RUNNER, OPERATOR, SUPERVISOR, Pair, eventually
from tests.integration.puppet import WORKER, Puppet, fresh, refused

TRACE = write_trace_service_pb2.DESCRIPTOR.services_by_name["WriteTraceService"]
SERVICES = {service.name: service for service in (OPERATOR, LANE_RUNNER, SUPERVISOR, WORKER)}
OPERATORS, RUNNERS = ("OperatorService",), ("LaneRunnerService",)
BOTH = OPERATORS + RUNNERS
NOBODY = "00000000-0000-4000-8000-000000000000"
_RULES: Any = rules_pb2.rules
# The supervisor keeps in its audit what was refused, and which runner a submission went to; the runner, what was said late.
_AUDITED = ("supervisor.command.", "lane_runner.audit.refusal", "lane_runner.worker.evidence")
# Reports of earlier changes may still be under way when a request is refused.
_LATE = ("lane_runner.outbox.", "supervisor.intake.", "store.clock.")


class World:
    """A pair with one held task, and every way to call it."""

    def __init__(self, pair: Pair, puppet: Puppet, stale: Puppet, directory: Path) -> None:
        self.pair = pair
        self.first = puppet.attempt(1)
        self.stale = stale.attempt(1)
        self.stale_task_id = stale.task_id
        self.directory = directory
        question = self.first.worker.escalate("Which?", options={"left": "", "right": ""})
        pair.open_escalation(puppet.task_id)
        self.names = {"task": puppet.task_id, "escalation": question.escalation_id, "directory": str(directory)}
        self.tokens = {role.value: token for role, token in pair.credentials.tokens.items()}
        self.tokens |= {"worker": self.first.token, "stale": self.stale.token, "made up": "lw_operator_" + "x" * 43}
        self._open: dict[tuple[str, str], Any] = {}
        self._traces = [
            pair.client(port, TRACE, Role.VIEWER, Reason.RUNNER_UNREACHABLE)
            for port in (pair.supervisor_port, pair.runner_port)
        ]

    def stub(self, service: str, who: str) -> Any:
        if (service, who) not in self._open:
            ports = {"LaneRunnerService": self.pair.runner_port}
            target = f"127.0.0.1:{ports.get(service, self.pair.supervisor_port)}"
            if service == "WorkerService":
                target = f"unix:{self.first.socket}"
            connection = connect(target, token=self.tokens.get(who, ""), unreachable=Reason.RUNNER_UNREACHABLE)
            self._open[service, who] = (connection, connection.stub(SERVICES[service]))
        return self._open[service, who][1]

    def close(self) -> None:
        for connection, _ in self._open.values():
            connection.close()

    def stored(self) -> dict[str, int]:
        """Rows written so far by each emitter, but for those that a refusal may leave or that come late."""
        listing = write_trace_service_pb2.ListEmittersRequest()
        totals = [each for trace in self._traces for each in trace.ListEmitters(listing).emitters]
        return {each.emitter: each.rows for each in totals if not each.emitter.startswith(_AUDITED + _LATE)}

    def filled(self, value: Any) -> Any:
        """``value`` with {task}, {escalation} and {directory} replaced by what they are here."""
        if isinstance(value, str) and "{" in value:
            return value.format_map(self.names)
        if isinstance(value, dict):
            return {key: self.filled(each) for key, each in value.items()}
        return [self.filled(each) for each in value] if isinstance(value, list) else value


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    place = tmp_path_factory.mktemp("place")
    (place / "file").touch(mode=0o644)
    workers = tmp_path_factory.mktemp("workers")
    with (
        Pair(tmp_path_factory.mktemp("pair")) as pair,
        Puppet(pair, workers / "held", gates=["review"]) as puppet,
        Puppet(pair, workers / "stale", premature_exits_max=0) as stale,
    ):
        made = World(pair, puppet, stale, place)
        stale.worker_gone(lambda: made.stale.end(1))
        yield made
        made.close()


def request_of(method: MethodDescriptor, fields: dict[str, Any]) -> Message:
    """A request with these fields, and a fresh request_id where it takes one and none is given."""
    needs_id = "request_id" in method.input_type.fields_by_name and "request_id" not in fields
    return message_factory.GetMessageClass(method.input_type)(**({"request_id": fresh()} if needs_id else {}), **fields)


def methods(service: str) -> list[MethodDescriptor]:
    return list(SERVICES[service].methods)


def refusal_of(world: World, service: str, rpc: str, request: Message, who: str = "operator") -> Refusal:
    """The refusal of a request, after which nothing more is stored than before it."""
    before = world.stored()
    refusal = refused(partial(getattr(world.stub(service, who), rpc), request, timeout_seconds=20))
    assert world.stored() == before
    return refusal


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A request that is refused: ``rpc`` with ``fields``, at each of ``doors``, for ``reason``, with ``facts``."""

    rpc: str
    fields: dict[str, Any] = field(default_factory=dict)
    reason: Reason = Reason.REQUEST_INVALID
    code: Code = Code.INVALID_ARGUMENT
    facts: dict[str, str] = field(default_factory=dict)
    doors: tuple[str, ...] = BOTH


def task(wrong: str, **spec: Any) -> Case:
    """A submission whose field ``wrong`` is wrong."""
    fields = {"argv": ["true"], "cwd": "/"} | spec
    return Case(rpc="SubmitTask", fields={"spec": fields}, facts={"field": f"spec.{wrong}"})


def unknown_task(rpc: str, doors: tuple[str, ...] = BOTH, **fields: Any) -> Case:
    known = {"task_id": "t-none"}
    return Case(
        rpc=rpc, fields=known | fields, reason=Reason.TASK_UNKNOWN, code=Code.NOT_FOUND, facts=known, doors=doors
    )


RULING = {"escalation_id": "{escalation}", "decision": "DECISION_APPROVE", "instructions": "go on"}
NO_HOLD = {"escalation_id": "t-none.1.1.1"}
TASK = {"task_id": "{task}"}
HOLD = {"escalation_id": "{escalation}"}
NOT_FOUND = Code.NOT_FOUND

CASES = {
    "no spec": Case(rpc="SubmitTask", facts={"field": "spec"}),
    "argv empty": task("argv", argv=[]),
    "program empty": task("argv[0]", argv=[""]),
    "program not in PATH": task("argv[0]", argv=["no-such-program-anywhere"]),
    "program missing": task("argv[0]", argv=["/no/such/program"]),
    "program is a directory": task("argv[0]", argv=["/"]),
    "program not executable": task("argv[0]", argv=["{directory}/file"]),
    "program with NUL": task("argv[0]", argv=["tr\0ue"]),
    "cwd missing": task("cwd", cwd="{directory}/none"),
    "cwd relative": task("cwd", cwd="some/place"),
    "cwd is a file": task("cwd", cwd="{directory}/file"),
    "cwd too long a name": task("cwd", cwd="/" + "x" * 300),
    "name with a control character": task("name", name="a\x1bb"),
    "name with a line separator": task("name", name="a\u2028b"),
    "name of 64 characters": task("name", name="x" * 64),
    "lane with a slash": task("lane", lane="a/b"),
    "gate that is no name": task("gates[0]", gates=["a gate"]),
    "gate twice": task("gates", gates=["review", "review"]),
    "variable of the runner's": task("env", env={"LANEWARDEN_X": "1"}),
    "variable without a name": task("env", env={"": "1"}),
    "variable with an equals sign": task("env", env={"A=B": "1"}),
    "value with NUL": task("env[0].value", env={"A": "\0"}),
    "grace above its range": task("stop_grace", stop_grace={"seconds": 601}),
    "grace below zero": task("stop_grace", stop_grace={"seconds": -1}),
    "runner loss below its range": task("runner_loss_stop_after", runner_loss_stop_after={"nanos": 1}),
    "premature exits above their range": task("premature_exits_max", premature_exits_max=101),
    "launch failures above their range": task("launch_failures_max", launch_failures_max=101),
    "log smaller than a log can be": task("log_bytes_max", log_bytes_max=1),
    "log larger than SQLite can count": task("log_bytes_max", log_bytes_max=2**63),
    "kind without a name": task("kind", kind=99),
    "lane unknown": Case(
        rpc="SubmitTask",
        fields={"spec": {"argv": ["true"], "lane": "nowhere"}},
        reason=Reason.LANE_UNKNOWN,
        facts={"lane": "nowhere"},
        code=NOT_FOUND,
    ),
    "runner unknown": Case(
        rpc="SubmitTask",
        fields={"spec": {"argv": ["true"]}, "runner_id": "nobody"},
        reason=Reason.RUNNER_UNKNOWN,
        facts={"runner": "nobody"},
        doors=OPERATORS,
        code=NOT_FOUND,
    ),
    "on behalf of somebody": Case(
        rpc="PauseTask",
        fields=TASK | {"on_behalf_of": {"identity": "root", "role": "operator"}},
        reason=Reason.ROLE_NOT_ALLOWED,
        code=Code.PERMISSION_DENIED,
        facts={"role": "operator", "needed": "supervisor"},
        doors=RUNNERS,
    ),
    **{
        f"{rpc}: task unknown": unknown_task(rpc)
        for rpc in ("GetTask", "CancelTask", "PauseTask", "ResumeTask", "CheckCompletion", "TailLog", "WatchTasks")
    },
    "SendInput: task unknown": unknown_task("SendInput", text="hello"),
    "RecordGate: task unknown": unknown_task("RecordGate", gate="review", decision="GATE_DECISION_APPROVED"),
    "Steer: task unknown": unknown_task("Steer", instruction={"text": "hello"}),
    "no task": Case(rpc="CancelTask", facts={"field": "task_id"}),
    "input empty": Case(rpc="SendInput", fields=TASK, facts={"field": "text"}),
    "attempt that has not been": Case(rpc="TailLog", fields=TASK | {"attempt": 9}, facts={"field": "attempt"}),
    "gate unknown": Case(
        rpc="RecordGate",
        fields=TASK | {"gate": "security", "decision": "GATE_DECISION_APPROVED"},
        reason=Reason.GATE_UNKNOWN,
        facts={"gate": "security"},
        code=NOT_FOUND,
    ),
    "gate without a decision": Case(rpc="RecordGate", fields=TASK | {"gate": "review"}, facts={"field": "decision"}),
    "Acknowledge: escalation unknown": Case(
        rpc="Acknowledge", fields=NO_HOLD, reason=Reason.ESCALATION_UNKNOWN, facts=NO_HOLD, code=NOT_FOUND
    ),
    "GetEscalation: escalation unknown": Case(
        rpc="GetEscalation",
        fields=NO_HOLD,
        reason=Reason.ESCALATION_UNKNOWN,
        facts=NO_HOLD,
        doors=OPERATORS,
        code=NOT_FOUND,
    ),
    "Steer: escalation unknown": Case(
        rpc="Steer",
        fields={"ruling": RULING | NO_HOLD},
        reason=Reason.ESCALATION_UNKNOWN,
        facts=NO_HOLD,
        code=NOT_FOUND,
    ),
    "ruling without an escalation": Case(
        rpc="Steer", fields={"ruling": RULING | {"escalation_id": ""}}, facts={"field": "ruling.escalation_id"}
    ),
    "ruling for another task": Case(
        rpc="Steer",
        fields={"task_id": "t-none", "ruling": RULING},
        reason=Reason.RULING_INVALID,
        facts={"rule": "wrong_task", "escalation_id": "{escalation}"},
    ),
    "ruling with a decision without a name": Case(
        rpc="Steer", fields={"ruling": RULING | {"decision": 99}}, facts={"field": "ruling.decision"}
    ),
    "steer without anything": Case(rpc="Steer", fields=TASK, facts={"field": "steer"}),
    "instruction without a task": Case(
        rpc="Steer", fields={"instruction": {"text": "hello"}}, facts={"field": "task_id"}
    ),
    "instruction empty": Case(rpc="Steer", fields=TASK | {"instruction": {}}, facts={"field": "instruction.text"}),
    "expected at no time": Case(
        rpc="Acknowledge",
        fields={"escalation_id": "{escalation}", "expected_by": {"seconds": 2**60}},
        facts={"field": "expected_by"},
    ),
    **{
        f"{rpc}: {wrong}": Case(rpc=rpc, fields=fields, facts={"field": next(iter(fields))}, doors=doors)
        for rpc, doors in (
            *(("ListTasks", BOTH), ("ListHolds", RUNNERS)),
            *(("ListEscalations", OPERATORS), ("ListAudit", OPERATORS), ("ListIncidents", OPERATORS)),
        )
        for wrong, fields in (
            ("page token made up", {"page_token": "next please"}),
            ("page token negative", {"page_token": "-1"}),
            ("page too large", {"page_size": 1001}),
        )
    },
}


@pytest.mark.parametrize(("name", "door"), [(name, door) for name, case in CASES.items() for door in case.doors])
def test_bad_request(world: World, name: str, door: str) -> None:
    """Refused with the code, the reason and the facts that the table states, and nothing is stored."""
    case = CASES[name]
    method = SERVICES[door].methods_by_name[case.rpc]
    refusal = refusal_of(world, door, case.rpc, request_of(method, world.filled(case.fields)))
    assert (refusal.reason, refusal.reason.code) == (case.reason, case.code)
    facts = world.filled(case.facts)
    assert {key: refusal.metadata.get(key) for key in facts} == facts
    if case.reason is Reason.REQUEST_INVALID:
        assert facts["field"] in [violation.field for violation in refusal.violations]


# Every field with a limit


def overlong(descriptor: Descriptor, depth: int = 4) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each field of a message that has a limit, as a path, with the fields of a message that goes beyond it by one."""
    for each in descriptor.fields:
        rules: rules_pb2.FieldRules = each.GetOptions().Extensions[_RULES]
        limit = rules.bytes_max or TEXT_BYTES_DEFAULT
        is_text = each.cpp_type == FieldDescriptor.CPPTYPE_STRING
        inner = each.message_type
        if inner is not None and inner.GetOptions().map_entry:
            yield f"{each.name}[0].value", {each.name: {"k": "x" * (limit + 1)}}
            yield f"{each.name}[0].key", {each.name: {"x" * (TEXT_BYTES_DEFAULT + 1): ""}}
        elif is_text:
            yield (
                (f"{each.name}[0]", {each.name: ["x" * (limit + 1)]})
                if each.is_repeated
                else (each.name, {each.name: "x" * (limit + 1)})
            )
        elif inner is not None and not inner.full_name.startswith("google.") and depth:
            for path, fields in overlong(inner, depth - 1):
                at = f"{each.name}[0]" if each.is_repeated else each.name
                yield f"{at}.{path}", {each.name: [fields] if each.is_repeated else fields}
        if each.is_repeated and not (inner is not None and inner.GetOptions().map_entry):
            item: Any = {} if inner is not None else ("" if is_text else 0)
            yield each.name, {each.name: [item] * ((rules.items_max or ITEMS_DEFAULT) + 1)}


CALLERS = {"OperatorService": "operator", "LaneRunnerService": "operator", "SupervisorService": "runner"}
CALLERS["WorkerService"] = "worker"


def caller(service: str, rpc: str) -> str:
    """Who may call the method."""
    roles = METHOD_ROLES[f"lanewarden.v1.{service}/{rpc}"]
    return "supervisor" if roles == {Role.SUPERVISOR} else CALLERS[service]


LIMITED = [
    (service, method.name)
    for service in SERVICES
    for method in methods(service)
    if any(True for _ in overlong(method.input_type))
]


@pytest.mark.parametrize(("service", "rpc"), LIMITED)
def test_text_over_its_limit(world: World, service: str, rpc: str) -> None:
    """Whatever field of whatever request is one byte or one item too long: TOO_LARGE, which field, how much, how much
    would be accepted; and nothing is stored.
    """
    method = SERVICES[service].methods_by_name[rpc]
    before = world.stored()
    for path, fields in overlong(method.input_type):
        request = message_factory.GetMessageClass(method.input_type)(**fields)
        call = getattr(world.stub(service, caller(service, rpc)), rpc)
        refusal = refused(partial(call, request, timeout_seconds=20))
        told = refusal.metadata
        assert (refusal.reason, told.get("field")) == (Reason.TOO_LARGE, path)
        assert int(told.get("bytes") or told["items"]) == int(told["limit"]) + 1
    assert world.stored() == before


def test_limits_are_found() -> None:
    """The test above would pass on an empty table."""
    submit = dict(overlong(SERVICES["OperatorService"].methods_by_name["SubmitTask"].input_type))
    assert {"spec.argv[0]", "spec.env[0].value", "spec.gates", "spec.cwd", "request_id"} <= submit.keys()
    assert len(LIMITED) >= 40


# request_id

WITH_ID = [
    (service, method.name)
    for service in SERVICES
    for method in methods(service)
    if "request_id" in method.input_type.fields_by_name
]


@pytest.mark.parametrize(("service", "rpc"), WITH_ID)
def test_bad_request_id(world: World, service: str, rpc: str) -> None:
    """A command without a request_id, or with one that is no UUID, is refused and names the field."""
    method = SERVICES[service].methods_by_name[rpc]
    for request_id in ("", "1", NOBODY[:-1], NOBODY + "0", "z" + NOBODY[1:]):
        refusal = refusal_of(world, service, rpc, request_of(method, {"request_id": request_id}), caller(service, rpc))
        assert refusal.reason is Reason.REQUEST_INVALID
        assert "request_id" in [violation.field for violation in refusal.violations]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reuse:
    """A request, and another one that comes with the same id."""

    rpc: str
    fields: dict[str, Any]
    other_rpc: str = ""
    other_fields: dict[str, Any]


REUSED = {
    "other program": Reuse(
        rpc="SubmitTask",
        fields={"spec": {"argv": ["true"], "cwd": "/"}},
        other_fields={"spec": {"argv": ["false"], "cwd": "/"}},
    ),
    "other input": Reuse(rpc="SendInput", fields=TASK | {"text": "one"}, other_fields=TASK | {"text": "two"}),
    "other instruction": Reuse(
        rpc="Steer",
        fields=TASK | {"instruction": {"text": "one"}},
        other_fields=TASK | {"instruction": {"text": "two"}},
    ),
    "other note": Reuse(rpc="Acknowledge", fields=HOLD | {"note": "one"}, other_fields=HOLD | {"note": "two"}),
    "other command": Reuse(rpc="ResumeTask", fields=TASK, other_rpc="PauseTask", other_fields=TASK),
}


@pytest.mark.parametrize("door", BOTH)
@pytest.mark.parametrize("name", REUSED)
def test_request_id_reused_with_other_content(world: World, door: str, name: str) -> None:
    """The same id with the same content gets the first answer; with other content, or for another command, it is refused
    as REQUEST_ID_REUSED and changes nothing.
    """
    reuse, request_id = REUSED[name], fresh()
    known = SERVICES[door].methods_by_name
    request = request_of(known[reuse.rpc], {"request_id": request_id} | world.filled(reuse.fields))
    call = getattr(world.stub(door, "operator"), reuse.rpc)
    answers = [call(request) for _ in range(2)]
    if reuse.rpc == "SubmitTask":
        assert answers[0].task.task_id == answers[1].task.task_id
        world.pair.wait_for_state(answers[0].task.task_id, "SUCCEEDED")
    other_rpc = reuse.other_rpc or reuse.rpc
    other = request_of(known[other_rpc], {"request_id": request_id} | world.filled(reuse.other_fields))
    refusal = refusal_of(world, door, other_rpc, other)
    assert (refusal.reason, refusal.metadata["request_id"]) == (Reason.REQUEST_ID_REUSED, request_id)


# Who calls

STRANGERS = [
    *((service, who) for service in CALLERS for who in ("nobody", "made up")),
    *(("OperatorService", "worker"), ("LaneRunnerService", "worker"), ("SupervisorService", "worker")),
    ("WorkerService", "operator"),
]


@pytest.mark.parametrize(("service", "who"), STRANGERS)
def test_credential_that_is_not_known(world: World, service: str, who: str) -> None:
    """No token, one that nobody made, a worker's at the services' own ports and an operator's at the workers' socket:
    CREDENTIAL_INVALID for every method, built or not.
    """
    for method in methods(service):
        refusal = refusal_of(world, service, method.name, request_of(method, {}), who)
        assert (refusal.reason, refusal.reason.code) == (Reason.CREDENTIAL_INVALID, Code.UNAUTHENTICATED)


@pytest.mark.parametrize("role", ["viewer", "operator", "runner", "supervisor"])
@pytest.mark.parametrize("service", ["OperatorService", "LaneRunnerService", "SupervisorService"])
def test_role_that_may_not(world: World, service: str, role: str) -> None:
    """A known caller gets no method that its role may not call: ROLE_NOT_ALLOWED, with its role and those needed."""
    for method in methods(service):
        allowed = METHOD_ROLES[f"lanewarden.v1.{service}/{method.name}"]
        if Role(role) in allowed:
            continue
        refusal = refusal_of(world, service, method.name, request_of(method, {}), role)
        assert (refusal.reason, refusal.reason.code) == (Reason.ROLE_NOT_ALLOWED, Code.PERMISSION_DENIED)
        needed = ", ".join(sorted(each.value for each in allowed))
        assert (refusal.metadata["role"], refusal.metadata["needed"]) == (role, needed)


STALE: dict[str, dict[str, Any]] = {
    "GetAssignment": {},
    "Escalate": {"question": "May I?", "expects_reply": True},
    "AwaitRuling": {},
    "ReceiveMessages": {"stored_only": True},
    "AcknowledgeMessage": {"message_id": NOBODY},
    "ReportProgress": {"sequence": 7},
    "NextDirective": {"usage": {"tokens": 9, "window": 200_000}},
    "ReportDirective": {"directive_id": NOBODY, "outcome": 1},
    "Complete": {"summary": "done"},
}


@pytest.mark.parametrize("rpc", STALE)
def test_p11_attempt_that_is_over(world: World, rpc: str) -> None:
    """Whatever a worker says after its attempt has ended: ATTEMPT_STALE with both numbers, and nothing is stored but what
    it said, as evidence. What it only asks leaves none.
    """
    asked = operator_pb.OperatorServiceListEvidenceRequest(task_id=world.stale_task_id)
    before = list(world.pair.operator.ListEvidence(asked).entries)
    request = request_of(WORKER.methods_by_name[rpc], STALE[rpc])
    refusal = refusal_of(world, "WorkerService", rpc, request, "stale")
    kept = world.pair.operator.ListEvidence(asked).entries[len(before) :]
    assert [each.method for each in kept] == ([rpc] if "request_id" in request.DESCRIPTOR.fields_by_name else [])
    assert (refusal.reason, refusal.reason.code) == (Reason.ATTEMPT_STALE, Code.FAILED_PRECONDITION)
    assert (refusal.metadata["attempt"], refusal.metadata["current_attempt"]) == ("1", "1")


def test_nothing_came_of_it(world: World) -> None:
    """After all of the above the hold is open, unanswered, and the tasks are the ones that were submitted."""
    asked = operator_pb.GetEscalationRequest(escalation_id=world.names["escalation"])
    escalation = eventually(lambda: world.pair.operator.GetEscalation(asked), "the hold is shown").escalation
    assert not escalation.HasField("ruling")
    assert world.pair.task(world.names["task"]).attempt == 1
