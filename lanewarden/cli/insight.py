"""``audit`` and ``notifications``."""

from __future__ import annotations

import heapq
from typing import Final

import click

from lanewarden.cli import resolve, views
from lanewarden.cli.connect import ROWS_MAX, operator, pages, service
from lanewarden.cli.exits import Exit
from lanewarden.cli.inbox import json_option
from lanewarden.cli.state import StateDir
from lanewarden.cli.terminal import complain, write_json
from lanewarden.errors import Code, Reason, Refusal
from lanewarden.v1 import audit_pb2, lane_runner_service_pb2
from lanewarden.v1 import operator_service_pb2 as pb

Entry = tuple[str, audit_pb2.AuditEntry]
"""An entry of the audit with the service that has it."""

_LANE_RUNNER: Final = lane_runner_service_pb2.DESCRIPTOR.services_by_name["LaneRunnerService"]


@click.command()
@click.option("--task", default="", help="Only what was done about this task.")
@click.option("--limit", type=click.IntRange(1, ROWS_MAX), default=1000, show_default=True, help="The most entries.")
@json_option
@click.pass_obj
def audit(state: StateDir, task: str, limit: int, as_json: bool) -> int:
    """List who did what.

    At the supervisor and at the runner, oldest first. Exit code 3 when the runner cannot be asked; what the supervisor has
    is shown then.
    """
    task_id = ""
    if task:
        with operator(state) as stub:
            task_id = resolve.task_id(stub, task)
    known, missing = audit_of_supervisor(state, task_id, rows_max=limit), ""
    try:
        known = merged(known, audit_of_runner(state, task_id, rows_max=limit))[:limit]
    except Refusal as refusal:
        if refusal.reason.code not in (Code.UNAVAILABLE, Code.DEADLINE_EXCEEDED):
            raise
        missing = str(refusal)
    if as_json:
        write_json([{"service": name, **views.document(entry)} for name, entry in known])
    else:
        views.print_table(views.AUDIT_HEADERS, views.audit_rows(known), empty="nobody has done anything")
    if missing:
        complain(f"{missing}; the entries of the runner are not shown")
    return Exit.NOT_UP if missing else Exit.DONE


def audit_of_supervisor(state: StateDir, task_id: str = "", *, rows_max: int = ROWS_MAX) -> list[Entry]:
    """What was asked of the supervisor, oldest first."""
    with operator(state) as stub:
        entries = pages(stub.ListAudit, pb.ListAuditRequest(task_id=task_id), "entries", rows_max=rows_max)
    return [("supervisor", each) for each in entries]


def audit_of_runner(state: StateDir, task_id: str = "", *, rows_max: int = ROWS_MAX) -> list[Entry]:
    """What was asked of the runner, by the supervisor for people or by people themselves, oldest first."""
    request = lane_runner_service_pb2.LaneRunnerServiceListAuditRequest(task_id=task_id)
    with service(state, state.endpoints().runner, _LANE_RUNNER, Reason.RUNNER_UNREACHABLE) as stub:
        entries = pages(stub.ListAudit, request, "entries", rows_max=rows_max)
    return [("runner", each) for each in entries]


def merged(*audits: list[Entry]) -> list[Entry]:
    """By time; each service's own order is kept, also where its clock was set back."""
    return list(heapq.merge(*audits, key=lambda entry: entry[1].at.ToNanoseconds()))


@click.command()
@click.option("--escalation", default="", help="Only those about this one.")
@click.option("--limit", type=click.IntRange(1, ROWS_MAX), default=100, show_default=True, help="The most of them.")
@json_option
@click.pass_obj
def notifications(state: StateDir, escalation: str, limit: int, as_json: bool) -> int:
    """List what people were told about questions.

    And what waits to be, newest first: one line for each sink. `up --notify` names the sinks.
    """
    with operator(state) as stub:
        request = pb.ListNotificationsRequest()
        if escalation:
            request.escalation_id = resolve.escalation(stub, escalation).escalation_id
        found = pages(stub.ListNotifications, request, "notifications", rows_max=limit)
    if as_json:
        views.print_documents(found)
    else:
        rows = [
            [each.escalation_id, each.kind, each.to, each.sink, str(each.tries), _delivered(each)] for each in found
        ]
        headers = ("ESCALATION", "KIND", "TO", "SINK", "TRIES", "DELIVERED")
        views.print_table(headers, rows, empty="nobody was told anything")
    return Exit.DONE


def _delivered(each: pb.Notification) -> str:
    return views.moment(each.delivered_at) or (f"no: {each.failure}" if each.failure else "not yet")
