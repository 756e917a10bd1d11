"""``runners`` and ``audit``."""

from __future__ import annotations

import click

from lanewarden.cli import resolve, views
from lanewarden.cli.connect import ROWS_MAX, operator, pages
from lanewarden.cli.exits import Exit
from lanewarden.cli.inbox import json_option
from lanewarden.cli.state import StateDir
from lanewarden.v1 import operator_service_pb2 as pb
from lanewarden.worker_messages import enum_word


@click.command()
@json_option
@click.pass_obj
def runners(state: StateDir, as_json: bool) -> int:
    """List the lane runners and their leases."""
    with operator(state) as stub:
        response: pb.ListRunnersResponse = stub.ListRunners(pb.ListRunnersRequest())
    if as_json:
        views.print_documents(response.runners)
        return Exit.DONE
    rows = [
        [
            each.runner_id,
            enum_word(pb.RunnerState, each.state),
            f"{each.lease_remaining.ToMilliseconds() / 1000:.1f} s",
            str(each.generation),
            views.age(each.last_seen) if each.last_seen.seconds else "not since the start",
            each.address,
            ", ".join(each.lanes),
        ]
        for each in response.runners
    ]
    headers = ("RUNNER", "STATE", "LEASE", "GENERATION", "SEEN", "ADDRESS", "LANES")
    views.print_table(headers, rows, empty="no runner has registered")
    return Exit.DONE


@click.command()
@click.option("--task", default="", help="Only what was done about this task.")
@click.option("--limit", type=click.IntRange(1, ROWS_MAX), default=1000, show_default=True, help="The most entries.")
@json_option
@click.pass_obj
def audit(state: StateDir, task: str, limit: int, as_json: bool) -> int:
    """List who did what.

    Oldest first.
    """
    with operator(state) as stub:
        request = pb.ListAuditRequest(task_id=resolve.task_id(stub, task) if task else "")
        entries = pages(stub.ListAudit, request, "entries", rows_max=limit)
    if as_json:
        views.print_documents(entries)
    else:
        views.print_table(views.AUDIT_HEADERS, views.audit_rows(entries), empty="nobody has done anything")
    return Exit.DONE
