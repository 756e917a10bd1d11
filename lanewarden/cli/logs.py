"""``logs``, and the tail that survives restarts, which ``run`` uses too."""

from __future__ import annotations

import sys

import click

from lanewarden.cli import resolve
from lanewarden.cli.connect import operator
from lanewarden.cli.exits import Exit
from lanewarden.cli.state import StateDir
from lanewarden.v1 import lane_runner_service_pb2
from lanewarden.v1 import operator_service_pb2 as pb


class Position:
    """How far the output of a task has been printed, so that a tail which begins anew prints nothing twice.

    It counts bytes; of a log that was rotated in between, the new tail shows somewhat less than there was.
    """

    def __init__(self) -> None:
        self._printed: dict[int, int] = {}
        self._sent: dict[int, int] = {}

    def rewind(self) -> None:
        """A new stream begins; it sends an attempt from its start."""
        self._sent.clear()

    def fresh(self, piece: lane_runner_service_pb2.TailLogResponse) -> bytes:
        """What of a piece has not been printed."""
        start = self._sent.get(piece.attempt, 0)
        end = start + len(piece.data)
        printed = self._printed.get(piece.attempt, 0)
        self._sent[piece.attempt] = end
        self._printed[piece.attempt] = max(printed, end)
        return piece.data[max(0, printed - start) :]


def write_output(data: bytes) -> None:
    """A worker's output as it is, at once."""
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


@click.command()
@click.argument("task")
@click.option("-f", "--follow", is_flag=True, help="Go on as output comes, until the task is over.")
@click.option("--attempt", type=click.IntRange(1), help="Of this attempt (default: the latest).")
@click.pass_obj
def logs(state: StateDir, task: str, follow: bool, attempt: int | None) -> int:
    """Print the output of a task."""
    with operator(state) as stub:
        request = pb.OperatorServiceTailLogRequest(
            task_id=resolve.task_id(stub, task), attempt=attempt or 0, follow=follow
        )
        for response in stub.TailLog(request):
            write_output(response.piece.data)
    return Exit.DONE
