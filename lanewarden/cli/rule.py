"""``ack``, ``rule``, ``extend`` and ``steer``."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import click

from lanewarden.cli import durations, resolve, views
from lanewarden.cli.connect import operator
from lanewarden.cli.exits import Exit
from lanewarden.cli.inbox import json_option
from lanewarden.cli.state import StateDir
from lanewarden.cli.terminal import write_json
from lanewarden.v1 import escalation_pb2
from lanewarden.v1 import operator_service_pb2 as pb
from lanewarden.worker_messages import enum_word


def _moment(ctx: click.Context, param: click.Parameter, value: str | None) -> datetime | None:
    """A time: ISO 8601 (local unless it names a zone), or from now as ``+30m``, ``+2h``, ``+1d``."""
    if value is None:
        return None
    try:
        if value.startswith("+"):
            return datetime.now(UTC) + durations.parse(value[1:])
        return datetime.fromisoformat(value).astimezone(UTC)
    except (ValueError, OverflowError):
        wanted = "ISO 8601 (2030-01-31T17:00) nor from now (+30m, +2h, +1d)"
        raise click.BadParameter(f"{value!r} is neither {wanted}", ctx, param) from None


@click.command()
@click.argument("escalation")
@click.option("--note", default="", help="For those who wait.")
@click.option("--expect-by", callback=_moment, metavar="TIME", help="When to expect a ruling: ISO 8601, +30m, +2h.")
@json_option
@click.pass_obj
def ack(state: StateDir, escalation: str, note: str, expect_by: datetime | None, as_json: bool) -> int:
    """Say that a question was received; it stays open."""
    with operator(state) as stub:
        found = resolve.escalation(stub, escalation)
        request = pb.OperatorServiceAcknowledgeRequest(
            request_id=str(uuid4()), escalation_id=found.escalation_id, note=note
        )
        if expect_by is not None:
            request.expected_by.FromDatetime(expect_by)
        response: pb.OperatorServiceAcknowledgeResponse = stub.Acknowledge(request)
    _report(response, f"acknowledged {found.escalation_id}; its hold stays open", response.delivery, as_json)
    return Exit.DONE


@click.command()
@click.argument("escalation")
@click.argument("decision", type=click.Choice(["approve", "reject", "revise", "choose"]))
@click.option("--option", default="", metavar="KEY", help="The option that is chosen; needed by choose.")
@click.option("-m", "--message", required=True, metavar="TEXT", help="What the worker is to do, in words.")
@click.option("--ratify", multiple=True, metavar="GATE", help="A gate of the task this also approves; repeatable.")
@json_option
@click.pass_obj
def rule(
    state: StateDir,
    escalation: str,
    decision: str,
    option: str,
    message: str,
    ratify: tuple[str, ...],
    as_json: bool,
) -> int:
    """Rule on a question, which releases its hold.

    The first ruling wins; a second is refused as ALREADY_RULED.
    """
    with operator(state) as stub:
        found = resolve.escalation(stub, escalation)
        ruling = escalation_pb2.Ruling(
            escalation_id=found.escalation_id,
            decision=f"DECISION_{decision.upper()}",
            instructions=message,
            option_key=option,
            ratifies=ratify,
        )
        response: pb.OperatorServiceSteerResponse = stub.Steer(
            pb.OperatorServiceSteerRequest(request_id=str(uuid4()), ruling=ruling)
        )
    said = f"{decision} {option}".strip()
    _report(response, f"ruled {said} on {found.escalation_id}", response.delivery, as_json)
    return Exit.DONE


@click.command()
@click.argument("escalation")
@click.argument("duration", callback=durations.given)
@json_option
@click.pass_obj
def extend(state: StateDir, escalation: str, duration: timedelta, as_json: bool) -> int:
    """Move the deadline of an open question to DURATION from now.

    30m, 2h or 1d, from 1 minute to 1 year. A task that the old deadline has parked is parked no longer.
    """
    with operator(state) as stub:
        request = pb.OperatorServiceExtendHoldRequest(
            request_id=str(uuid4()),
            escalation_id=resolve.escalation(stub, escalation).escalation_id,
            deadline=duration,
        )
        extended: escalation_pb2.Escalation = stub.ExtendHold(request).escalation
    if as_json:
        write_json(views.document(extended))
    else:
        click.echo(f"extended {extended.escalation_id}; due {views.deadline(extended)}")
    return Exit.DONE


@click.command()
@click.argument("task")
@click.option("-m", "--message", required=True, metavar="TEXT", help="What to tell the worker.")
@json_option
@click.pass_obj
def steer(state: StateDir, task: str, message: str, as_json: bool) -> int:
    """Send an instruction to a task; it releases nothing."""
    with operator(state) as stub:
        request = pb.OperatorServiceSteerRequest(
            request_id=str(uuid4()),
            task_id=resolve.task_id(stub, task),
            instruction=escalation_pb2.Instruction(text=message),
        )
        response: pb.OperatorServiceSteerResponse = stub.Steer(request)
    _report(response, f"sent {response.message_id} to {request.task_id}", response.delivery, as_json)
    return Exit.DONE


def _report(response: Any, said: str, delivery: escalation_pb2.DeliveryState, as_json: bool) -> None:
    if as_json:
        write_json(views.document(response))
        return
    stored = delivery == escalation_pb2.DELIVERY_STATE_STORED
    where = (
        "kept by the supervisor; its runner cannot be reached and gets it later"
        if stored
        else f"delivery: {enum_word(escalation_pb2.DeliveryState, delivery)}"
    )
    click.echo(f"{said} ({where})")
