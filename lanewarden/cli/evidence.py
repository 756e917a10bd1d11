"""``evidence``."""

from __future__ import annotations

from typing import Final

import click

from lanewarden.cli import resolve, views
from lanewarden.cli.connect import ROWS_MAX, operator, pages
from lanewarden.cli.exits import Exit
from lanewarden.cli.inbox import json_option
from lanewarden.cli.state import StateDir
from lanewarden.v1 import operator_service_pb2 as pb

_HEADERS: Final = ("AT", "ATTEMPT", "SAID", "CONTENT", "REFUSED FOR")


@click.command()
@click.argument("task")
@click.option("--limit", type=click.IntRange(1, ROWS_MAX), default=100, show_default=True, help="The most entries.")
@json_option
@click.pass_obj
def evidence(state: StateDir, task: str, limit: int, as_json: bool) -> int:
    """List what earlier attempts of a task said too late.

    It had no effect. The first 100 of a task are kept, oldest first.
    """
    with operator(state) as stub:
        request = pb.OperatorServiceListEvidenceRequest(task_id=resolve.task_id(stub, task))
        found = pages(stub.ListEvidence, request, "entries", rows_max=limit)
    if as_json:
        views.print_documents(found)
    else:
        rows = [
            [views.moment(each.at), f"{each.attempt} of epoch {each.epoch}", each.method, each.content, each.reason]
            for each in found
        ]
        views.print_table(_HEADERS, rows, empty="no attempt has said anything too late")
    return Exit.DONE
