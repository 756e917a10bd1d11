"""Commands that give a task another attempt, another life or another owner: ``retry``, ``reopen``, ``takeover``."""

from __future__ import annotations

from uuid import uuid4

import click

from lanewarden.cli import resolve, views
from lanewarden.cli.change import change
from lanewarden.cli.connect import operator
from lanewarden.cli.exits import Exit
from lanewarden.cli.inbox import json_option
from lanewarden.cli.state import StateDir
from lanewarden.cli.terminal import one_line, write_json
from lanewarden.v1 import operator_service_pb2 as pb


@click.command()
@click.argument("task")
@json_option
@click.pass_obj
def retry(state: StateDir, task: str, as_json: bool) -> int:
    """Give a failed task, or its failed on_success command, another try.

    Budgets are fresh. A task that waits for its next launch is launched now; a held task stays held.
    """
    return change(
        state,
        task,
        as_json,
        lambda stub, request_id, task_id: stub.RetryTask(
            pb.OperatorServiceRetryTaskRequest(request_id=request_id, task_id=task_id)
        ),
    )


@click.command()
@click.argument("task")
@json_option
@click.pass_obj
def reopen(state: StateDir, task: str, as_json: bool) -> int:
    """Give a task that has ended another life.

    Its epoch rises, budgets and gates are fresh, and input that was parked is delivered.
    """
    return change(
        state,
        task,
        as_json,
        lambda stub, request_id, task_id: stub.ReopenTask(
            pb.OperatorServiceReopenTaskRequest(request_id=request_id, task_id=task_id)
        ),
    )


@click.command()
@click.argument("task")
@click.option("--cause", default="", metavar="TEXT", help="Why.")
@json_option
@click.pass_obj
def takeover(state: StateDir, task: str, cause: str, as_json: bool) -> int:
    """Become the owner of a task and launch nothing more of it.

    Holds, messages, files and logs stay as they are; a worker that runs goes on. `lanewarden resume --takeover TASK` lets
    it go on, and leaves you its owner.
    """
    with operator(state) as stub:
        request = pb.TakeOverRequest(request_id=str(uuid4()), task_id=resolve.task_id(stub, task), cause=cause)
        response: pb.TakeOverResponse = stub.TakeOver(request)
    if as_json:
        write_json(views.document(response))
    else:
        taken, before = response.task, views.person(response.previous_owner)
        was = f" (before: {before})" if before else ""
        click.echo(one_line(f"{taken.task_id}: {views.state(taken)}; owner {views.person(taken.owner)}{was}"))
    return Exit.DONE
