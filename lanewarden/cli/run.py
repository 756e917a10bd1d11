"""``run``."""

from __future__ import annotations

import asyncio
from pathlib import Path
from uuid import uuid4

import click

from lanewarden.cli.background import ensure_up
from lanewarden.cli.connect import operator
from lanewarden.cli.exits import Exit
from lanewarden.cli.follow import command, follow
from lanewarden.cli.settings import search_path
from lanewarden.cli.state import StateDir
from lanewarden.cli.terminal import complain
from lanewarden.v1 import operator_service_pb2 as pb
from lanewarden.v1 import task_pb2


def _variables(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    """K=V, repeated."""
    found = {}
    for value in values:
        key, equals, text = value.partition("=")
        if not (key and equals):
            raise click.BadParameter(f"{value!r} is not K=V", ctx, param)
        found[key] = text
    return found


@click.command(context_settings={"allow_interspersed_args": False})
@click.option("--lane", default="", help="The lane (default: the one with the fewest tasks).")
@click.option("--name", default="", help="A name for people (default: the program's).")
@click.option("--gate", "gates", multiple=True, metavar="GATE", help="A review it must pass; repeatable.")
@click.option("--cwd", type=click.Path(path_type=Path), metavar="DIR", help="Working directory (default: this one).")
@click.option("--env", "variables", multiple=True, callback=_variables, metavar="K=V", help="A variable; repeatable.")
@click.option("--detach", is_flag=True, help="Print the task's id and do not follow it.")
@click.option(
    "--stop-grace", type=click.FloatRange(0, 600), metavar="S", help="From SIGTERM to SIGKILL (default 10 s)."
)
@click.option("--premature-exits", type=click.IntRange(0, 100), metavar="N", help="Of its worker, at most (default 3).")
@click.argument("argv", nargs=-1, required=True, metavar="CMD...", type=click.UNPROCESSED)
@click.pass_obj
def run(
    state: StateDir,
    lane: str,
    name: str,
    gates: tuple[str, ...],
    cwd: Path | None,
    variables: dict[str, str],
    detach: bool,
    stop_grace: float | None,
    premature_exits: int | None,
    argv: tuple[str, ...],
) -> int:
    """Run a command as a task and follow it.

    Starts the services in the background if they are not up. Output goes to stdout, what happens to stderr; Ctrl-C stops
    following, not the task. The exit code is the task's outcome.
    """
    spec = task_pb2.TaskSpec(
        name=name,
        lane=lane,
        argv=argv,
        cwd=str((cwd or Path()).absolute()),
        env={"PATH": search_path(), **variables},
        gates=gates,
        premature_exits_max=premature_exits,
    )
    if stop_grace is not None:
        spec.stop_grace.FromMilliseconds(round(stop_grace * 1000))
    ensure_up(state)
    with operator(state) as stub:
        request = pb.OperatorServiceSubmitTaskRequest(request_id=str(uuid4()), spec=spec)
        response: pb.OperatorServiceSubmitTaskResponse = stub.SubmitTask(request)
    task_id = response.task.task_id
    if detach:
        click.echo(task_id)
        return Exit.DONE
    complain(f"lanewarden: task {task_id} in {response.task.spec.lane}")
    try:
        ended = asyncio.run(follow(state, task_id))
    except KeyboardInterrupt:
        complain(f"lanewarden: detached; the task goes on: `{command(state)} logs -f {task_id}`")
        return Exit.INTERRUPTED
    return Exit.DONE if ended.state == task_pb2.TASK_STATE_SUCCEEDED else Exit.FAILED
