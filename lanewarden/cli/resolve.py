"""From what a person typed to one task or escalation: an id, the unique beginning of one, or a task's name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import click

from lanewarden.cli.connect import pages
from lanewarden.errors import Reason, Refusal, refuse
from lanewarden.v1 import escalation_pb2, task_pb2
from lanewarden.v1 import operator_service_pb2 as pb

CANDIDATES_SHOWN: Final = 6


def task_id(operator: Any, text: str) -> str:
    """The id of the task that ``text`` means.

    Raises:
        UsageError: more than one task is meant; the message lists them.
        Refusal: TASK_UNKNOWN.
    """
    _check(text, "TASK")
    tasks: list[task_pb2.Task] = pages(operator.ListTasks, pb.OperatorServiceListTasksRequest(), "tasks")
    ids = {task.task_id for task in tasks}
    if text in ids:
        return text
    named = [task.task_id for task in tasks if task.spec.name == text]
    found = named or sorted(each for each in ids if each.startswith(text))
    # Beyond the rows of a listing there may be older tasks: those the service knows by their whole id.
    return _one(found, text, "TASK") if found else _known_task(operator, text)


def _known_task(operator: Any, text: str) -> str:
    request = pb.OperatorServiceGetTaskRequest(task_id=text)
    response: pb.OperatorServiceGetTaskResponse = operator.GetTask(request)
    return response.task.task_id


def escalation(operator: Any, text: str) -> escalation_pb2.Escalation:
    """The escalation that ``text`` means; a task means its only open hold.

    Raises:
        UsageError: more than one escalation is meant; the message lists them.
        Refusal: ESCALATION_UNKNOWN.
    """
    _check(text, "ESCALATION")
    try:
        response: pb.GetEscalationResponse = operator.GetEscalation(pb.GetEscalationRequest(escalation_id=text))
    except Refusal as refusal:
        if refusal.reason is not Reason.ESCALATION_UNKNOWN:
            raise
    else:
        return response.escalation
    states = escalation_pb2.HoldState.keys()[1:]
    everything = pb.ListEscalationsRequest(states=states, notices=True)
    listed: list[escalation_pb2.Escalation] = pages(operator.ListEscalations, everything, "escalations")
    by_id = {each.escalation_id: each for each in listed}
    waiting = {each.escalation_id for each in listed if each.hold_state == escalation_pb2.HOLD_STATE_OPEN}
    meant = [each.escalation_id for each in listed if text in (each.task_name, each.task_id)]
    meant = meant or [each for each in by_id if each.startswith(text)]
    # An open hold is what people have in mind, where an older question of the same task matches as well.
    found = [each for each in meant if each in waiting] or meant
    if not found:
        raise refuse(
            Reason.ESCALATION_UNKNOWN,
            f"no escalation {text!r}; `lanewarden inbox --all` lists them",
            escalation_id=text,
        )
    return by_id[_one(found, text, "ESCALATION")]


def _check(text: str, what: str) -> None:
    if not text or not text.isprintable():
        raise click.UsageError(f"{what} {text!r} is not an id or a name", click.get_current_context(silent=True))


def _one(found: Sequence[str], text: str, what: str) -> str:
    if len(found) == 1:
        return found[0]
    shown = ", ".join(found[:CANDIDATES_SHOWN]) + (", …" if len(found) > CANDIDATES_SHOWN else "")
    raise click.UsageError(
        f"{what} {text!r} may be any of {len(found)}: {shown}", click.get_current_context(silent=True)
    )
