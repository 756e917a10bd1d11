"""Units of work about the commands that are stored here until their runner has them: acks, rulings, instructions."""

from __future__ import annotations

from dataclasses import dataclass

from lanewarden.errors import Reason, Refusal, refuse
from lanewarden.hub import Topic
from lanewarden.store import Connection
from lanewarden.telemetry import Value, span_names
from lanewarden.v1 import escalation_pb2, task_pb2
from lanewarden.v1 import lane_runner_service_pb2 as runner_pb
from supervisor_svc.core.holds import Actor, HoldView, KnownRuling, Ruling, check_ack, check_ruling
from supervisor_svc.store import outbox, views
from supervisor_svc.store.outbox import Command
from supervisor_svc.work import announce, intake
from supervisor_svc.work.session import Deed, Session, outbox_of

RunnerRequest = runner_pb.AcknowledgeRequest | runner_pb.SteerRequest
RunnerResponse = runner_pb.AcknowledgeResponse | runner_pb.SteerResponse


@dataclass(frozen=True, slots=True, kw_only=True)
class Addressee:
    """Who is to get a command, as far as it is known here."""

    runner_id: str
    task_id: str
    escalation_id: str | None = None


def accept(session: Session, deed: Deed, request: RunnerRequest) -> Command:
    """Store a command, so that it reaches its runner whatever happens. The same request again is the same command.

    Raises:
        Refusal: ESCALATION_UNKNOWN, TASK_UNKNOWN, RULING_INVALID, ALREADY_RULED, HOLD_NOT_OPEN, REQUEST_ID_REUSED.
    """
    kind = outbox.ACKNOWLEDGE if isinstance(request, runner_pb.AcknowledgeRequest) else outbox.STEER
    payload = request.SerializeToString(deterministic=True)
    known = outbox.find(session.uow, request.request_id)
    if known is not None:
        if (known.kind, known.payload) != (kind, payload):
            raise refuse(
                Reason.REQUEST_ID_REUSED,
                "this request_id was used for another request; give every new request a new UUID",
                request_id=request.request_id,
            )
        return known
    to = _check(session.uow, request)
    command = Command(
        command_id=request.request_id,
        kind=kind,
        runner_id=to.runner_id,
        escalation_id=to.escalation_id,
        task_id=to.task_id,
        payload=payload,
        identity=deed.actor.identity,
        role=deed.actor.role,
        stored_ms=session.steady_ms,
        stored_wall_ms=session.wall_ms,
        traceparent=deed.traceparent,
    )
    outbox.insert(session.uow, command)
    session.record(deed, outbox.STORED, task_id=to.task_id)
    session.touch(outbox_of(command.runner_id))
    _touch_escalation(session, command)
    session.uow.tell(span_names.COMMAND_TRANSITION, {"to": outbox.STORED}, about=span_of(command))
    return command


def _check(reader: Connection, request: RunnerRequest) -> Addressee:
    """Everything about a command that can be judged here; the runner has the final word."""
    if isinstance(request, runner_pb.AcknowledgeRequest):
        escalation = find_escalation(reader, request.escalation_id)
        check_ack(hold_view(reader, escalation))
    elif request.HasField("ruling"):
        escalation = find_escalation(reader, request.ruling.escalation_id)
        task = views.task(reader, escalation.task_id)
        gates = None if task is None else list(task_pb2.Task.FromString(task.payload).spec.gates)
        ruling = Ruling(
            decision=decision_name(request.ruling.decision),
            instructions=request.ruling.instructions,
            option_key=request.ruling.option_key,
            ratifies=list(request.ruling.ratifies),
        )
        check_ruling(hold_view(reader, escalation), ruling, gates=gates, named_task_id=request.task_id)
    else:
        return Addressee(runner_id=owner(reader, request.task_id), task_id=request.task_id)
    return Addressee(runner_id=escalation.runner_id, task_id=escalation.task_id, escalation_id=escalation.escalation_id)


def settle(session: Session, command: Command, answer: RunnerResponse | Refusal | None) -> None:
    """Record what the runner made of a command: it has it (None: since an earlier try), or its final no."""
    refusal = answer if isinstance(answer, Refusal) else None
    if not outbox.settle(session.uow, command.command_id, refusal):
        return
    session.record(deed_of(command), "OK" if refusal is None else refusal.reason.name)
    moved: dict[str, Value] = {"from": outbox.STORED, "to": outbox.DELIVERED}
    if refusal is not None:
        moved |= {"to": outbox.REFUSED, "reason": refusal.reason.name}
    session.uow.tell(span_names.COMMAND_TRANSITION, moved, about=span_of(command))
    _touch_escalation(session, command)
    if isinstance(answer, runner_pb.SteerResponse):
        intake.learn_task(session, answer.task)
    elif isinstance(answer, runner_pb.AcknowledgeResponse):
        intake.learn_ack(session, answer.escalation)


def _touch_escalation(session: Session, command: Command) -> None:
    if command.escalation_id:
        session.touch(Topic("escalation", command.escalation_id))


def request_of(command: Command) -> RunnerRequest:
    """The request to the runner."""
    if command.kind == outbox.ACKNOWLEDGE:
        return runner_pb.AcknowledgeRequest.FromString(command.payload)
    return runner_pb.SteerRequest.FromString(command.payload)


def span_of(command: Command) -> dict[str, Value]:
    """What a span says about a command."""
    about: dict[str, Value] = {"runner.id": command.runner_id, "task.id": command.task_id}
    return about | ({"escalation.id": command.escalation_id} if command.escalation_id else {})


def deed_of(command: Command) -> Deed:
    """What a stored command is in the audit."""
    return Deed(
        actor=Actor(identity=command.identity, role=command.role),
        action=action_of(request_of(command)),
        request_id=command.command_id,
        traceparent=command.traceparent,
        task_id=command.task_id,
        escalation_id=command.escalation_id or "",
    )


def action_of(request: RunnerRequest) -> str:
    """What a command is called in the audit."""
    if isinstance(request, runner_pb.AcknowledgeRequest):
        return "Acknowledge"
    if request.HasField("ruling"):
        return f"Steer ruling {decision_name(request.ruling.decision)}"
    return "Steer instruction"


def decision_name(decision: escalation_pb2.Decision) -> str:
    """The decision without its prefix."""
    return escalation_pb2.Decision.Name(decision).removeprefix("DECISION_")


def owner(reader: Connection, task_id: str) -> str:
    """The runner that owns a task.

    Raises:
        Refusal: TASK_UNKNOWN.
    """
    return find_task(reader, task_id).runner_id


def find_task(reader: Connection, task_id: str) -> task_pb2.Task:
    """A task as last reported.

    Raises:
        Refusal: TASK_UNKNOWN.
    """
    return task_pb2.Task.FromString(find_task_view(reader, task_id).payload)


def find_task_view(reader: Connection, task_id: str) -> views.View:
    """A task as it is stored.

    Raises:
        Refusal: TASK_UNKNOWN.
    """
    view = views.task(reader, task_id)
    if view is None:
        raise refuse(Reason.TASK_UNKNOWN, f"no task {task_id!r} here; `lanewarden tasks` lists them", task_id=task_id)
    return view


def find_escalation(reader: Connection, escalation_id: str) -> escalation_pb2.Escalation:
    """An escalation as last reported.

    Raises:
        Refusal: ESCALATION_UNKNOWN.
    """
    view = views.escalation(reader, escalation_id)
    if view is None:
        raise refuse(
            Reason.ESCALATION_UNKNOWN,
            f"no escalation {escalation_id!r} here; `lanewarden inbox` lists them",
            escalation_id=escalation_id,
        )
    return escalation_pb2.Escalation.FromString(view.payload)


def shown_escalation(reader: Connection, escalation: escalation_pb2.Escalation) -> escalation_pb2.Escalation:
    """An escalation as last reported, with the ruling given here where its runner has not reported one yet."""
    if escalation.HasField("ruling"):
        return escalation
    command = outbox.latest_ruling(reader, escalation.escalation_id)
    if command is not None:
        escalation.ruling.CopyFrom(_ruling_record(command))
    return escalation


def _ruling_record(command: Command) -> escalation_pb2.RulingRecord:
    deliveries = {
        outbox.STORED: escalation_pb2.DELIVERY_STATE_STORED,
        outbox.DELIVERED: escalation_pb2.DELIVERY_STATE_PENDING,
        outbox.REFUSED: escalation_pb2.DELIVERY_STATE_REFUSED,
    }
    record = escalation_pb2.RulingRecord(
        ruling_id=command.command_id,
        ruling=runner_pb.SteerRequest.FromString(command.payload).ruling,
        ruled_by=task_pb2.Actor(identity=command.identity, role=command.role),
        delivery=deliveries[command.state],
        refusal=str(command.refusal) if command.refusal else "",
    )
    record.ruled_at.FromMilliseconds(command.stored_wall_ms)
    return record


def hold_view(reader: Connection, escalation: escalation_pb2.Escalation) -> HoldView:
    """A hold as far as a ruling is concerned: one that was refused does not stand in the way of the next."""
    record = shown_escalation(reader, escalation).ruling
    ruling = None
    if record.ruling_id and record.delivery != escalation_pb2.DELIVERY_STATE_REFUSED:
        ruling = KnownRuling(
            ruling_id=record.ruling_id,
            ruled_by=record.ruled_by.identity,
            ruled_wall_ms=record.ruled_at.ToMilliseconds(),
            decision=decision_name(record.ruling.decision),
        )
    return HoldView(
        escalation_id=escalation.escalation_id,
        task_id=escalation.task_id,
        state=announce.hold_state(escalation),
        options=[option.key for option in escalation.options],
        cancel_cause=escalation.cancel_cause,
        ruling=ruling,
    )
