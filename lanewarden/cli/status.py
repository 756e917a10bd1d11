"""``status``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final

import click
from grpc_health.v1 import health_pb2

from lanewarden import client_sync
from lanewarden.cli import control, leases, views
from lanewarden.cli.connect import operator, pages
from lanewarden.cli.exits import Exit
from lanewarden.cli.inbox import json_option
from lanewarden.cli.state import NotUp, StateDir
from lanewarden.cli.terminal import complain, write_json
from lanewarden.errors import Refusal
from lanewarden.v1 import operator_service_pb2 as pb
from lanewarden.v1 import task_pb2
from lanewarden.worker_messages import enum_word

HEALTH_SECONDS: Final = 2.0
_HEALTH: Final = health_pb2.DESCRIPTOR.services_by_name["Health"]


@click.command()
@json_option
@click.pass_obj
def status(state: StateDir, as_json: bool) -> int:
    """Show whether they are up and what they do.

    Exit code 3 when they are not up or not ready.
    """
    found = _look(state)
    if as_json:
        write_json(found)
    elif not found["up"]:
        complain(f"lanewarden: not up: run `lanewarden up` (state directory {state.path})")
    else:
        _print(found)
    return Exit.DONE if found.get("ready") else Exit.NOT_UP


def _look(state: StateDir) -> dict[str, Any]:
    answer = control.ask(state, "status")
    found: dict[str, Any] = {"up": answer is not None, "state_dir": str(state.path), "version": _version()}
    if answer is None:
        return found
    services = {
        name: {**facts, "health": _health(state, facts["address"])} for name, facts in answer["services"].items()
    }
    found |= {**answer, "services": services}
    try:
        with operator(state) as stub:
            listed = stub.ListRunners(pb.ListRunnersRequest())
            tasks = pages(stub.ListTasks, pb.OperatorServiceListTasksRequest(), "tasks")
            holds = pages(stub.ListEscalations, pb.ListEscalationsRequest(), "escalations")
    except (Refusal, NotUp):
        return found  # the services' health has said it
    counts = Counter(enum_word(task_pb2.TaskState, task.state) for task in tasks)
    found["runners"] = [views.document(runner) for runner in listed.runners]
    found["leases"] = {runner.runner_id: leases.state_words(runner) for runner in listed.runners}
    found["builds"] = leases.build_warning(listed.supervisor, listed.runners)
    found["tasks"] = dict(counts)
    found["open_holds"] = sum(1 for hold in holds if hold.hold_state == 1)
    return found


def _version() -> str:
    try:
        return version("lanewarden")
    except PackageNotFoundError:  # run from a source tree
        return "unknown"


def _health(state: StateDir, address: str) -> str:
    with client_sync.connect(address, credentials=state.channel_credentials()) as connection:
        check = connection.stub(_HEALTH).Check
        try:
            answer = check(health_pb2.HealthCheckRequest(), timeout_seconds=HEALTH_SECONDS)
        except Refusal:
            return "unreachable"
    return str(enum_word(health_pb2.HealthCheckResponse.ServingStatus, answer.status))


def _print(found: Mapping[str, Any]) -> None:
    how = "stopping" if found["stopping"] else "up" if found["ready"] else "starting"
    fields = [
        ("state", f"{how} (pid {found['pid']})"),
        ("directory", found["state_dir"]),
        ("version", found["version"]),
    ]
    for name, facts in found["services"].items():
        again = f", started again {facts['restarts']} times" if facts["restarts"] else ""
        fields.append((name, f"{facts['address']} {facts['health']} (pid {facts['pid']}{again})"))
    for runner in found.get("runners", ()):
        name = runner["runner_id"]
        fields.append(("lease", f"{name} {found['leases'][name]}, lanes {', '.join(runner['lanes'])}"))
    fields.append(("warning", found.get("builds", "")))
    if "tasks" in found:
        counted = ", ".join(f"{count} {word}" for word, count in sorted(found["tasks"].items()))
        fields += [("tasks", counted or "none"), ("open holds", str(found["open_holds"]))]
    views.print_fields(fields)
