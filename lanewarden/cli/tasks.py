"""``tasks`` and ``task``."""

from __future__ import annotations

import shlex
from typing import Final

import click

from lanewarden.cli import durations, given_up, resolve, views
from lanewarden.cli.connect import ROWS_MAX, operator, pages
from lanewarden.cli.exits import Exit
from lanewarden.cli.inbox import json_option
from lanewarden.cli.state import StateDir
from lanewarden.cli.terminal import one_line, write_json
from lanewarden.v1 import context_pb2, message_pb2, task_pb2
from lanewarden.v1 import operator_service_pb2 as pb
from lanewarden.worker_messages import enum_word

_STATES: Final = [name.removeprefix("TASK_STATE_").lower() for name in task_pb2.TaskState.keys()[1:]]


@click.command()
@click.option("--state", "states", type=click.Choice(_STATES), multiple=True, help="Only these; repeatable.")
@click.option("--limit", type=click.IntRange(1, ROWS_MAX), default=100, show_default=True, help="The most tasks.")
@json_option
@click.pass_obj
def tasks(state: StateDir, states: tuple[str, ...], limit: int, as_json: bool) -> int:
    """List tasks, newest first."""
    wanted = [f"TASK_STATE_{word.upper()}" for word in states]
    with operator(state) as stub:
        request = pb.OperatorServiceListTasksRequest(states=wanted)
        found = pages(stub.ListTasks, request, "tasks", rows_max=limit)
    if as_json:
        views.print_documents(found)
    else:
        views.print_table(views.TASK_HEADERS, views.task_rows(found), empty="no tasks")
    return Exit.DONE


@click.command()
@click.argument("task")
@json_option
@click.pass_obj
def task(state: StateDir, task: str, as_json: bool) -> int:
    """Show one task in full."""
    with operator(state) as stub:
        request = pb.OperatorServiceGetTaskRequest(task_id=resolve.task_id(stub, task))
        response: pb.OperatorServiceGetTaskResponse = stub.GetTask(request)
    if as_json:
        write_json(views.document(response))
        return Exit.DONE
    views.print_fields(_fields(response.task))
    for message in response.messages:
        click.echo(f"message {message.sequence}  {_message(message)}")
    return Exit.DONE


def _fields(task: task_pb2.Task) -> list[tuple[str, str]]:
    spec = task.spec
    return [
        ("task", task.task_id),
        ("name", spec.name),
        ("state", views.state(task)),
        ("verdict", f"{views.verdict(task)}; see `lanewarden why {task.task_id}`" if views.verdict(task) else ""),
        ("summary", task.summary),
        ("written by", enum_word(task_pb2.Author, task.summary_author) if task.summary else ""),
        *given_up.fields(task),
        ("owner", views.person(task.owner)),
        ("lane", f"{spec.lane} of {task.runner_id}"),
        ("command", shlex.join(spec.argv)),
        ("directory", spec.cwd),
        ("attempt", f"{task.attempt} of epoch {task.epoch}"),
        ("worker", _worker(task)),
        ("progress", views.progress(task)),
        ("exit", _exit(task)),
        ("premature exits", _premature(task)),
        ("launch failures", f"{task.launch_failures} in a row" if task.launch_failures else ""),
        ("next launch", views.moment(task.not_before)),
        ("open holds", ", ".join(task.open_holds)),
        *(("asked", _signal(signal)) for signal in task.signals),
        ("hold deadline", durations.exact(spec.hold_deadline.seconds) if spec.HasField("hold_deadline") else ""),
        ("first reminder", durations.exact(spec.reminder.seconds) if spec.HasField("reminder") else ""),
        ("approvers", ", ".join(_approver(each) for each in spec.approvers)),
        *((f"gate {gate.gate}", _gate(gate)) for gate in task.gates),
        ("on success", f"{shlex.join(spec.on_success)}\n{views.on_success(task)}" if spec.on_success else ""),
        ("submitted", views.moment(task.submitted_at)),
        ("finished", views.moment(task.finished_at)),
        ("last seen", views.moment(task.last_seen) if task.runner_unreachable else ""),
    ]


def _signal(signal: context_pb2.Signal) -> str:
    kind = enum_word(context_pb2.SignalKind, signal.kind).replace("_", " ")
    return one_line(f"{kind} by {signal.raised_by}, {views.age(signal.raised_at)} ago: {signal.cause}")


def _approver(each: task_pb2.Approver) -> str:
    return f"{each.identity} after {durations.exact(each.after.seconds)}" if each.after.seconds else each.identity


def _worker(task: task_pb2.Task) -> str:
    known = f"alive, pid {task.worker_pid}" if task.worker_alive else "none"
    return f"unknown, was {known}" if task.runner_unreachable or task.runner_forgot else known


def _premature(task: task_pb2.Task) -> str:
    bound = f" of at most {task.spec.premature_exits_max}" if task.spec.HasField("premature_exits_max") else ""
    return f"{task.premature_exits}{bound}"


def _exit(task: task_pb2.Task) -> str:
    if task.HasField("exit_signal"):
        return f"signal {task.exit_signal}"
    return f"code {task.exit_code}" if task.HasField("exit_code") else ""


def _gate(gate: task_pb2.GateState) -> str:
    if not gate.decision:
        return "not reviewed, blocks"
    decision = enum_word(task_pb2.GateDecision, gate.decision)
    return f"{decision} by {views.person(gate.decided_by)} {gate.note}".strip()


def _message(message: message_pb2.Message) -> str:
    state = enum_word(message_pb2.MessageState, message.state)
    kind = message.WhichOneof("body") or "message"
    text = message.instruction.text or message.input.text or views.ruling_word(message.ruling.ruling)
    return one_line(f"{kind} from {views.person(message.sent_by)}, {state}: {text}")
