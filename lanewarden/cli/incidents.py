"""``incidents`` and ``incident resolve``."""

from __future__ import annotations

import uuid

import click

from lanewarden.cli import given_up, resolve, views
from lanewarden.cli.connect import ROWS_MAX, operator, pages
from lanewarden.cli.exits import Exit
from lanewarden.cli.inbox import json_option
from lanewarden.cli.state import StateDir
from lanewarden.v1 import operator_service_pb2 as pb


@click.command()
@click.option("--task", default="", help="Only those of this task.")
@click.option("--resolved", is_flag=True, help="Also those that somebody has resolved.")
@click.option("--limit", type=click.IntRange(1, ROWS_MAX), default=100, show_default=True, help="The most of them.")
@json_option
@click.pass_obj
def incidents(state: StateDir, task: str, resolved: bool, limit: int, as_json: bool) -> int:
    """List what was filed about tasks that were given up.

    And what is to be, newest first. `supervisor-svc --incidents` names where they are filed.
    """
    with operator(state) as stub:
        request = pb.ListIncidentsRequest(resolved=resolved)
        if task:
            request.task_id = resolve.task_id(stub, task)
        found = pages(stub.ListIncidents, request, "incidents", rows_max=limit)
    if as_json:
        views.print_documents(found)
        return Exit.DONE
    rows = [[each.key, given_up.filing(each), views.moment(each.claimed_at), given_up.place(each)] for each in found]
    # Half an address leads nowhere.
    views.print_table(("INCIDENT", "STATE", "CLAIMED", "WHERE"), rows, empty="no incidents", whole="WHERE")
    return Exit.DONE


@click.group()
def incident() -> None:
    """Act on an incident: `incident resolve`."""


@incident.command("resolve")
@click.argument("key", metavar="INCIDENT")
@json_option
@click.pass_obj
def resolve_incident(state: StateDir, key: str, as_json: bool) -> int:
    """Say that an incident is over.

    The next problem of its task is filed anew, and names this one. The tracker's item is not touched.
    """
    with operator(state) as stub:
        response: pb.OperatorServiceResolveIncidentResponse = stub.ResolveIncident(
            pb.OperatorServiceResolveIncidentRequest(request_id=str(uuid.uuid4()), key=key)
        )
    if as_json:
        views.print_documents([response.incident])
    else:
        click.echo(f"{response.incident.key} is resolved")
    return Exit.DONE
