"""``why``."""

from __future__ import annotations

import click

from lanewarden.cli import given_up, resolve, views
from lanewarden.cli.connect import operator
from lanewarden.cli.exits import Exit
from lanewarden.cli.inbox import json_option
from lanewarden.cli.state import StateDir
from lanewarden.cli.terminal import write_json
from lanewarden.v1 import operator_service_pb2 as pb
from lanewarden.v1 import task_pb2
from lanewarden.worker_messages import enum_word


@click.command()
@click.argument("task")
@json_option
@click.pass_obj
def why(state: StateDir, task: str, as_json: bool) -> int:
    """Say what the supervisor makes of a task, and why.

    The verdict, what would be done about it, why each earlier arm of the decision does not match, and every fact with
    whoever said it.
    """
    with operator(state) as stub:
        request = pb.ExplainTaskRequest(task_id=resolve.task_id(stub, task))
        explained: pb.ExplainTaskResponse = stub.ExplainTask(request)
    if as_json:
        write_json(views.document(explained))
        return Exit.DONE
    views.print_fields(
        [
            ("task", f"{explained.task.task_id} ({explained.task.spec.name})"),
            ("verdict", f"{enum_word(task_pb2.Verdict, explained.verdict)}: {explained.because}"),
            ("action", f"{explained.action} (arm {explained.arm})"),
            *given_up.fields(explained.task),
        ]
    )
    passed = [[each.arm, each.because] for each in explained.passed]
    click.echo()
    views.print_table(("EARLIER ARM", "DOES NOT MATCH BECAUSE"), passed, empty="no earlier arm")
    click.echo()
    facts = [(each.name, f"{each.value}  ({enum_word(task_pb2.Author, each.author)})") for each in explained.facts]
    views.print_fields([("FACT", "VALUE (WHO SAID IT)"), *facts])
    return Exit.DONE
