"""``run``."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import click

from lanewarden.cli import durations, resolve
from lanewarden.cli.background import ensure_up
from lanewarden.cli.connect import operator
from lanewarden.cli.context_options import context_options, context_spec, words
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


def _approvers(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> list[task_pb2.Approver]:
    """NAME or NAME=DELAY, repeated, in order."""
    found = []
    for value in values:
        name, equals, delay = value.partition("=")
        if not name:
            raise click.BadParameter(f"{value!r} is not NAME or NAME=DELAY", ctx, param)
        after = durations.given(ctx, param, delay if equals else None)
        found.append(task_pb2.Approver(identity=name, after=after))
    return found


def _runner_loss(ctx: click.Context, param: click.Parameter, value: str) -> timedelta | None:
    """The span of stop-after=D; None for continue."""
    word, equals, span = value.partition("=")
    if value == "continue":
        return None
    if word != "stop-after" or not equals:
        raise click.BadParameter(f"{value!r} is neither continue nor stop-after=D", ctx, param)
    return durations.given(ctx, param, span)


def _progress_source(ctx: click.Context, param: click.Parameter, value: str | None) -> task_pb2.ProgressSource | None:
    """The source of output or files:PATTERN."""
    if value is None:
        return None
    if value == "output":
        return task_pb2.ProgressSource(output_lines=True)
    kind, _, pattern = value.partition(":")
    if kind != "files" or not pattern:
        raise click.BadParameter(f"{value!r} is neither output nor files:PATTERN", ctx, param)
    return task_pb2.ProgressSource(files=pattern)


@click.command(context_settings={"allow_interspersed_args": False})
@click.option("--lane", default="", help="The lane (default: the one with the fewest tasks).")
@click.option("--name", default="", help="A name for people (default: the program's).")
@click.option("--gate", "gates", multiple=True, metavar="GATE", help="A review it must pass; repeatable.")
@click.option("--cwd", type=click.Path(path_type=Path), metavar="DIR", help="Working directory (default: this one).")
@click.option("--env", "variables", multiple=True, callback=_variables, metavar="K=V", help="A variable; repeatable.")
@click.option("--session", is_flag=True, help="Rest until it has input; run once for each batch. Implies --detach.")
@click.option("--parent", default="", metavar="TASK", help="The task to tell, as its input, how this one ends.")
@click.option("--detach", is_flag=True, help="Print the task's id and do not follow it.")
@click.option(
    "--hold-deadline",
    callback=durations.given,
    metavar="D",
    help="How long a question may wait before the task is parked and people are alerted: 90s, 30m, 2h, 1d "
    "(default: for ever).",
)
@click.option(
    "--reminder",
    callback=durations.given,
    metavar="D",
    help="When a question first reminds people; then after twice the time, up to 4 h (default 15m).",
)
@click.option(
    "--approver",
    "approvers",
    multiple=True,
    callback=_approvers,
    metavar="NAME[=D]",
    help="Who owes the rulings, told D after the question; repeatable, in order.",
)
@click.option(
    "--on-success",
    callback=words,
    metavar="CMD",
    help="A command to run once the task has succeeded, such as a merge.",
)
@click.option(
    "--stop-grace", type=click.FloatRange(0, 600), metavar="S", help="From SIGTERM to SIGKILL (default 10 s)."
)
@click.option(
    "--on-runner-loss",
    "runner_loss_stop_after",
    default="continue",
    callback=_runner_loss,
    metavar="WHAT",
    help="What becomes of the worker while its runner is gone: `continue` (default), or `stop-after=D`.",
)
@click.option(
    "--on-supervisor-loss",
    "supervisor_loss",
    type=click.Choice(("continue", "hold")),
    help="While no supervisor answers its runner: go on (default), or launch nothing of it until one is back.",
)
@click.option(
    "--progress-from",
    callback=_progress_source,
    metavar="WHAT",
    help="Progress of a program that cannot report it: `output` (each line is a step) or `files:PATTERN`.",
)
@click.option(
    "--heartbeat",
    callback=durations.given,
    metavar="D",
    help="How often it promises to make progress, if that is slower than the supervisor's own bound.",
)
@context_options
@click.option("--premature-exits", type=click.IntRange(0, 100), metavar="N", help="Of its worker, at most (default 3).")
@click.argument("argv", nargs=-1, required=True, metavar="CMD...", type=click.UNPROCESSED)
@click.pass_obj
def run(state: StateDir, /, detach: bool, parent: str, **wanted: Any) -> int:
    """Run a command as a task and follow it.

    Starts the services in the background if they are not up. Output goes to stdout, what happens to stderr; Ctrl-C stops
    following, not the task. The exit code is the task's outcome, and that of its on_success command.
    """
    spec = _spec(**wanted)
    ensure_up(state)
    with operator(state) as stub:
        if parent:
            spec.parent_task_id = resolve.task_id(stub, parent)
        request = pb.OperatorServiceSubmitTaskRequest(request_id=str(uuid4()), spec=spec)
        response: pb.OperatorServiceSubmitTaskResponse = stub.SubmitTask(request)
    task_id = response.task.task_id
    if detach or spec.kind == task_pb2.TASK_KIND_SESSION:
        click.echo(task_id)
        return Exit.DONE
    complain(f"lanewarden: task {task_id} in {response.task.spec.lane}")
    try:
        ended = asyncio.run(follow(state, task_id))
    except KeyboardInterrupt:
        complain(f"lanewarden: detached; the task goes on: `{command(state)} logs -f {task_id}`")
        return Exit.INTERRUPTED
    if ended.on_success.state == task_pb2.HOOK_STATE_FAILED:
        complain(f"lanewarden: to try its on_success command again: `{command(state)} retry {task_id}`")
        return Exit.FAILED
    if ended.state == task_pb2.TASK_STATE_SETTLED:
        complain(f"lanewarden: why: `{command(state)} why {task_id}`; to go on: `{command(state)} reopen {task_id}`")
    return Exit.DONE if ended.state == task_pb2.TASK_STATE_SUCCEEDED else Exit.FAILED


def _spec(
    *,
    lane: str,
    name: str,
    gates: tuple[str, ...],
    cwd: Path | None,
    variables: dict[str, str],
    hold_deadline: timedelta | None,
    reminder: timedelta | None,
    approvers: list[task_pb2.Approver],
    on_success: list[str],
    stop_grace: float | None,
    runner_loss_stop_after: timedelta | None,
    supervisor_loss: str | None,
    progress_from: task_pb2.ProgressSource | None,
    heartbeat: timedelta | None,
    premature_exits: int | None,
    session: bool,
    argv: tuple[str, ...],
    **context: Any,
) -> task_pb2.TaskSpec:
    return task_pb2.TaskSpec(
        name=name,
        lane=lane,
        kind=task_pb2.TASK_KIND_SESSION if session else task_pb2.TASK_KIND_UNSPECIFIED,
        argv=argv,
        cwd=str((cwd or Path()).absolute()),
        env={"PATH": search_path(), **variables},
        gates=gates,
        hold_deadline=hold_deadline,
        reminder=reminder,
        approvers=approvers,
        on_success=on_success,
        stop_grace=None if stop_grace is None else timedelta(seconds=stop_grace),
        runner_loss_stop_after=runner_loss_stop_after,
        on_supervisor_loss=f"SUPERVISOR_LOSS_{supervisor_loss.upper()}" if supervisor_loss else None,
        progress_from=progress_from,
        heartbeat=heartbeat,
        premature_exits_max=premature_exits,
        context=context_spec(**context),
    )
