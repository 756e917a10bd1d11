"""Commands that change a task: ``send``, ``cancel``, ``pause``, ``resume``, ``gate``; and ``check``, which asks about it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final
from uuid import uuid4

import click

from lanewarden.cli import resolve, views
from lanewarden.cli.connect import operator
from lanewarden.cli.exits import Exit
from lanewarden.cli.inbox import json_option
from lanewarden.cli.state import StateDir
from lanewarden.cli.terminal import one_line, write_json
from lanewarden.v1 import operator_service_pb2 as pb
from lanewarden.v1 import task_pb2
from lanewarden.worker_messages import enum_word

_GATE_WORDS: Final[Mapping[str, task_pb2.GateDecision]] = {
    "approve": task_pb2.GATE_DECISION_APPROVED,
    "revise": task_pb2.GATE_DECISION_REVISE,
    "reject": task_pb2.GATE_DECISION_REJECTED,
    "waive": task_pb2.GATE_DECISION_WAIVED,
}


@click.command()
@click.argument("task")
@click.option("-m", "--message", required=True, metavar="TEXT", help="The input; at most 1 MiB.")
@json_option
@click.pass_obj
def send(state: StateDir, task: str, message: str, as_json: bool) -> int:
    """Put an input into a task's inbox."""
    with operator(state) as stub:
        task_id = resolve.task_id(stub, task)
        request = pb.OperatorServiceSendInputRequest(request_id=str(uuid4()), task_id=task_id, text=message)
        response: pb.OperatorServiceSendInputResponse = stub.SendInput(request)
    if as_json:
        write_json(views.document(response.message))
    else:
        click.echo(f"sent {response.message.message_id} to {task_id}")
    return Exit.DONE


@click.command()
@click.argument("task")
@click.option("--cause", default="", metavar="TEXT", help="Why.")
@json_option
@click.pass_obj
def cancel(state: StateDir, task: str, cause: str, as_json: bool) -> int:
    """End a task; approves nothing."""
    return change(
        state,
        task,
        as_json,
        lambda stub, request_id, task_id: stub.CancelTask(
            pb.OperatorServiceCancelTaskRequest(request_id=request_id, task_id=task_id, cause=cause)
        ),
    )


@click.command()
@click.argument("task")
@json_option
@click.pass_obj
def pause(state: StateDir, task: str, as_json: bool) -> int:
    """Launch nothing of a task until it is resumed."""
    return change(
        state,
        task,
        as_json,
        lambda stub, request_id, task_id: stub.PauseTask(
            pb.OperatorServicePauseTaskRequest(request_id=request_id, task_id=task_id)
        ),
    )


@click.command()
@click.argument("task")
@click.option("--takeover", is_flag=True, help="Give back a task that was taken over; other pauses stay.")
@click.option("--usage-limit", is_flag=True, help="Do not wait until its limit of use ends; other pauses stay.")
@json_option
@click.pass_obj
def resume(state: StateDir, task: str, takeover: bool, usage_limit: bool, as_json: bool) -> int:
    """Clear one pause of a task: the operator's, a takeover, or a limit of use."""
    if takeover and usage_limit:
        raise click.UsageError("--takeover and --usage-limit are two pauses; clear one at a time")
    cause = task_pb2.PAUSE_CAUSE_OPERATOR
    if takeover:
        cause = task_pb2.PAUSE_CAUSE_TAKEOVER
    elif usage_limit:
        cause = task_pb2.PAUSE_CAUSE_USAGE_LIMIT
    return change(
        state,
        task,
        as_json,
        lambda stub, request_id, task_id: stub.ResumeTask(
            pb.OperatorServiceResumeTaskRequest(request_id=request_id, task_id=task_id, cause=cause)
        ),
    )


@click.command()
@click.argument("task")
@click.argument("gate")
@click.argument("decision", type=click.Choice(list(_GATE_WORDS)))
@click.option("-m", "--message", default="", metavar="TEXT", help="What the reviewer has to say.")
@json_option
@click.pass_obj
def gate(state: StateDir, task: str, gate: str, decision: str, message: str, as_json: bool) -> int:
    """Record the review of a gate."""
    return change(
        state,
        task,
        as_json,
        lambda stub, request_id, task_id: stub.RecordGate(
            pb.OperatorServiceRecordGateRequest(
                request_id=request_id, task_id=task_id, gate=gate, decision=_GATE_WORDS[decision], note=message
            )
        ),
    )


def change(state: StateDir, task: str, as_json: bool, send: Callable[[Any, str, str], Any]) -> int:
    """Send a command about a task and print the task as it is then."""
    with operator(state) as stub:
        changed: task_pb2.Task = send(stub, str(uuid4()), resolve.task_id(stub, task)).task
    if as_json:
        write_json(views.document(changed))
    else:
        gates = "".join(f", gate {each.gate} {_decision(each)}" for each in changed.gates)
        click.echo(f"{changed.task_id}: {views.state(changed)}{one_line(gates)}")
    return Exit.DONE


def _decision(gate: task_pb2.GateState) -> str:
    return enum_word(task_pb2.GateDecision, gate.decision) if gate.decision else "not reviewed"


@click.command()
@click.argument("task")
@json_option
@click.pass_obj
def check(state: StateDir, task: str, as_json: bool) -> int:
    """Say whether a task may complete; for merge scripts.

    Exit code 0 when nothing blocks it, 1 when something does; each blocker is a line.
    """
    with operator(state) as stub:
        task_id = resolve.task_id(stub, task)
        request = pb.OperatorServiceCheckCompletionRequest(task_id=task_id)
        response: pb.OperatorServiceCheckCompletionResponse = stub.CheckCompletion(request)
    if as_json:
        write_json(views.document(response))
    else:
        word = enum_word(task_pb2.TaskState, response.state)
        click.echo(f"{task_id} is {word}: " + ("blocked" if response.blockers else "nothing blocks it"))
        for blocker in response.blockers:
            click.echo(one_line(f"  {blocker.kind} {blocker.name}: {blocker.detail}"))
    return Exit.FAILED if response.blockers else Exit.DONE
