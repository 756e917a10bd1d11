"""``checkpoints``."""

from __future__ import annotations

from typing import Final

import click

from lanewarden.cli import resolve, views
from lanewarden.cli.connect import ROWS_MAX, operator, pages
from lanewarden.cli.exits import Exit
from lanewarden.cli.inbox import json_option
from lanewarden.cli.state import StateDir
from lanewarden.v1 import context_pb2
from lanewarden.v1 import operator_service_pb2 as pb
from lanewarden.worker_messages import enum_word

_HEADERS: Final = ("CHECKPOINT", "STARTED", "TOKENS", "CYCLE", "STATE", "BYTES", "DETAIL")


@click.command()
@click.argument("task")
@click.option("--read", "checkpoint", metavar="CHECKPOINT", help="Print what this one holds, and nothing else.")
@click.option("--limit", type=click.IntRange(1, ROWS_MAX), default=100, show_default=True, help="The most checkpoints.")
@json_option
@click.pass_obj
def checkpoints(state: StateDir, task: str, checkpoint: str | None, limit: int, as_json: bool) -> int:
    """List the checkpoints of a task's context, or print one.

    Every start of the checkpoint writer is one, oldest first, with what it came to.

    A state is writing, timed_out (a reduction has stopped waiting for it; it may still succeed), succeeded, failed,
    not_started or superseded. A checkpoint is used in its own cycle, which a rebuild ends.
    """
    with operator(state) as stub:
        if checkpoint:
            request = pb.OperatorServiceGetCheckpointRequest(checkpoint_id=checkpoint)
            found: context_pb2.Checkpoint = stub.GetCheckpoint(request).checkpoint
            if as_json:
                views.print_documents([found])
            else:
                click.echo(found.content, nl=False)
            return Exit.DONE
        listed = pb.OperatorServiceListCheckpointsRequest(task_id=resolve.task_id(stub, task))
        rows = pages(stub.ListCheckpoints, listed, "checkpoints", rows_max=limit)
    if as_json:
        views.print_documents(rows)
    else:
        views.print_table(_HEADERS, [_row(each) for each in rows], empty="no checkpoint was ever begun")
    return Exit.DONE


def _row(found: context_pb2.Checkpoint) -> list[str]:
    state = enum_word(context_pb2.CheckpointState, found.state)
    if found.failure:
        again = "tried again" if found.retryable else "not tried again"
        state += f" ({enum_word(context_pb2.CheckpointFailure, found.failure)}, {again})"
    started = views.moment(found.started_at)
    return [
        *(found.checkpoint_id, started, str(found.tokens), str(found.cycle), state),
        *(str(found.content_bytes), found.detail),
    ]
