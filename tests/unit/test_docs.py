"""What the documents say is what the code does."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest
from google.protobuf.descriptor import ServiceDescriptor

from lane_runner_svc.core.states import Event, State, chart
from lanewarden.auth import METHOD_ROLES
from lanewarden.v1 import (
    lane_runner_service_pb2,
    operator_service_pb2,
    supervisor_service_pb2,
    worker_service_pb2,
    write_trace_service_pb2,
)

ROOT = Path(__file__).parents[2]
READMES = sorted(path.relative_to(ROOT).as_posix() for path in ROOT.glob("*/README.md"))
DECISION = re.compile(r"\*\*(\d{4}-\d\d-\d\d): [^*]+[.?]\*\* \S")
DECISION_LINES_MAX = 4

# People type these names into grpcurl: they never change. More may be added.
FIXED = {
    "SupervisorService": "Register KeepAlive Escalate Report",
    "OperatorService": (
        "ListEscalations GetEscalation WatchInbox Acknowledge Steer ListRunners ListTasks GetTask WatchTasks SubmitTask"
        " SendInput CancelTask PauseTask ResumeTask RetryTask ReopenTask RecordGate TakeOver ListIncidents ListAudit"
    ),
    "LaneRunnerService": (
        "SubmitTask SendInput GetTask ListTasks ListLanes WatchTasks ListHolds Acknowledge Steer CancelTask PauseTask"
        " ResumeTask RetryTask ReopenTask RecordGate CheckCompletion WakeTask RelaunchTask SettleTask ClaimIncident"
        " RecordIncident"
    ),
    "WorkerService": (
        "GetAssignment Escalate AwaitRuling ReceiveMessages AcknowledgeMessage ReportProgress NextDirective"
        " ReportDirective Complete"
    ),
    "WriteTraceService": "GetWriteRates WatchWriteRates ListEmitters ListFindings",
}
FILES = (
    supervisor_service_pb2,
    operator_service_pb2,
    lane_runner_service_pb2,
    worker_service_pb2,
    write_trace_service_pb2,
)
SERVICES: dict[str, ServiceDescriptor] = {
    name: service for file in FILES for name, service in file.DESCRIPTOR.services_by_name.items()
}


def readme(folder: str) -> str:
    """The README of a folder."""
    return (ROOT / folder / "README.md").read_text(encoding="utf-8")


def blocks(text: str) -> list[str]:
    """The Mermaid blocks of a document."""
    return re.findall(r"```mermaid\n(.*?)\n```", text, re.DOTALL)


def test_the_state_chart_of_the_runner_is_the_table() -> None:
    """The README shows what ``chart()`` renders from the table; paste its output when the table changes."""
    assert chart() in blocks(readme("lane_runner_svc"))


def test_every_state_and_event_of_a_task_is_in_the_readme() -> None:
    """Also the states that this release has no way into."""
    text = readme("lane_runner_svc")
    missing = [state.name for state in State if state.name not in text]
    missing += [event.value for event in Event if event.value not in text]
    assert not missing


@pytest.mark.parametrize("path", READMES)
def test_a_readme_has_a_purpose_a_diagram_and_dated_decisions(path: str) -> None:
    """Purpose first, then at least one diagram; under Decisions every paragraph is dated, titled and short."""
    text = (ROOT / path).read_text(encoding="utf-8")
    title, purpose = text.split("\n\n")[:2]
    assert re.fullmatch(r"# .+", title)
    assert purpose[0].isalpha() or purpose[0] == "`"
    assert blocks(text)
    _, found, decisions = text.partition("\n## Decisions\n\n")
    assert found
    for paragraph in decisions.strip().split("\n\n"):
        assert DECISION.match(paragraph), f"not a decision: {paragraph[:60]}"
        assert len(paragraph.splitlines()) <= DECISION_LINES_MAX, f"longer than four lines: {paragraph[:60]}"


@pytest.mark.parametrize("folder", ["lane_runner_svc", "supervisor_svc"])
def test_the_folders_that_a_readme_names_are_those_that_are_there(folder: str) -> None:
    """The first column of the table: every package of the folder, and nothing that is gone."""
    named = set(re.findall(r"^\| `(\w+)/` \|", readme(folder), re.MULTILINE))
    there = {path.parent.name for path in (ROOT / folder).glob("*/__init__.py")}
    assert named == there


def test_the_telemetry_reference_is_written_from_the_code() -> None:
    """Every metric, attribute, span and variable is in its table, and nothing that is gone; `poe fix` writes it anew."""
    text = readme("deploy")
    written = runpy.run_path(str(ROOT / "deploy" / "reference.py"))["written"]
    assert written(text) == text
    assert written(text.replace("`lanewarden.store.rows`", "`lanewarden.rows`")) == text


def test_the_commands_of_the_contracts_readme_exist() -> None:
    """The generator, and the configuration of the linter."""
    text = readme("protos")
    assert "python protos/generate.py" in text
    assert (ROOT / "protos" / "generate.py").is_file()
    assert (ROOT / "buf.yaml").is_file()


@pytest.mark.parametrize("service", FIXED)
def test_the_names_of_the_contract_are_there(service: str) -> None:
    """Every RPC under the name that people type."""
    assert set(FIXED[service].split()) <= set(SERVICES[service].methods_by_name)


def test_every_rpc_has_its_roles_and_no_role_is_for_an_rpc_that_is_gone() -> None:
    """A method that nobody was given is refused to everybody, which should be a decision and not an oversight."""
    rpcs = {f"{service.full_name}/{method}" for service in SERVICES.values() for method in service.methods_by_name}
    assert rpcs == set(METHOD_ROLES)


def test_every_request_that_changes_something_carries_a_request_id() -> None:
    """All but the reads, the streams, heartbeat and reconciliation (their effects are the same twice), and the unshaped."""
    reads = re.compile(r"(Get|List|Watch|Check|Explain|Await|Receive|Tail|KeepAlive|Reconcile)")
    for service in SERVICES.values():
        for name, method in service.methods_by_name.items():
            fields = method.input_type.fields_by_name
            if fields and not reads.match(name):
                assert "request_id" in fields, f"{service.name}/{name} has no request_id"
