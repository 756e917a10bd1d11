"""Between the core's words and the contract's messages; no decisions here.

Steady times are shown as wall times: they began as such, and part from it only if somebody sets the wall clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from google.protobuf.message import DecodeError

from lane_runner_svc.core.completion import Blocker
from lane_runner_svc.core.holds import Actor, Decision, Hold, HoldState, Ruling
from lane_runner_svc.core.incidents import Incident
from lane_runner_svc.core.signals import Signal
from lane_runner_svc.core.task import HookState, Kind, Task
from lane_runner_svc.store import beside, holds, messages, tasks
from lane_runner_svc.store.messages import StoredMessage
from lane_runner_svc.store.tasks import Reader
from lane_runner_svc.work.hooks import idempotency_key
from lanewarden.stamps import timestamp
from lanewarden.store import Row
from lanewarden.v1 import (
    audit_pb2,
    context_pb2,
    escalation_pb2,
    incident_pb2,
    lane_runner_service_pb2,
    message_pb2,
    task_pb2,
)

HOLD_STATES: Final[Mapping[HoldState, escalation_pb2.HoldState]] = {
    HoldState.NONE: escalation_pb2.HOLD_STATE_UNSPECIFIED,
    HoldState.OPEN: escalation_pb2.HOLD_STATE_OPEN,
    HoldState.RELEASED: escalation_pb2.HOLD_STATE_RELEASED,
    HoldState.ACKNOWLEDGED: escalation_pb2.HOLD_STATE_ACKNOWLEDGED,
    HoldState.CANCELED: escalation_pb2.HOLD_STATE_CANCELED,
}


def actor_message(actor: Actor | None) -> task_pb2.Actor | None:
    """Who did something."""
    return None if actor is None else task_pb2.Actor(identity=actor.identity, role=actor.role)


def task_message(reader: Reader, task: Task, runner_id: str) -> task_pb2.Task:
    """A task with what is shown beside it: its open holds, gates, worker, inputs, incidents."""
    attempt = tasks.load_attempt(reader, task.task_id, task.epoch, task.attempt) if task.worker_alive else None
    shown = beside.load(reader, task)
    message = task_pb2.Task(
        task_id=task.task_id,
        runner_id=runner_id,
        spec=_spec(task),
        state=f"TASK_STATE_{task.state.value}",
        epoch=task.epoch,
        attempt=task.attempt,
        pauses=[f"PAUSE_CAUSE_{cause.value}" for cause in sorted(task.pauses, key=str)],
        worker_alive=task.worker_alive,
        worker_pid=(attempt.pid or 0) if attempt else 0,
        progress_note=task.progress_note,
        premature_exits=task.premature_exits,
        launch_failures=task.launch_failures,
        not_before=timestamp(max(task.not_before_ms, task.limited_until_ms or 0) or None),
        summary=task.summary,
        summary_author=f"AUTHOR_{task.summary_author.value if task.summary_author else 'UNSPECIFIED'}",
        submitted_at=timestamp(task.submitted_wall_ms),
        finished_at=timestamp(task.finished_wall_ms),
        open_holds=shown.open_holds,
        version=task.version,
        owner=task_pb2.Actor(identity=task.owner, role=task.owner_role),
        on_success=_hook(task),
        diagnosis=task.diagnosis,
        relaunches=task.relaunches,
        woken=task.woken,
        incidents=map(incident_message, shown.incidents),
        oldest_input_at=timestamp(shown.oldest_input_wall_ms),
        children_open=shown.children_open,
        signals=map(signal_message, shown.signals),
    )
    if attempt is not None and task.kind is Kind.SESSION:
        of_round = messages.waiting_inputs(reader, task.task_id, through=attempt.inputs_through)
        message.input_of_round = of_round.count > 0
    if task.progress is not None:
        message.progress = task.progress
    if task.exit_code is not None:
        message.exit_code = task.exit_code
    if task.exit_signal is not None:
        message.exit_signal = task.exit_signal
    message.gates.extend(_gates(reader, task))
    return message


def _spec(task: Task) -> task_pb2.TaskSpec:
    """What it was asked to do. Where that cannot be read any more, what its row knows: one bad row hides no other."""
    try:
        return task_pb2.TaskSpec.FromString(task.spec)
    except DecodeError:
        return task_pb2.TaskSpec(name=task.name, lane=task.lane, argv=["(unreadable)"])


def _hook(task: Task) -> task_pb2.Hook | None:
    if task.hook_state is HookState.NONE:
        return None
    return task_pb2.Hook(
        state=f"HOOK_STATE_{task.hook_state.value}",
        tries=task.hook_tries,
        summary=task.hook_summary,
        idempotency_key=idempotency_key(task),
    )


def _gates(reader: Reader, task: Task) -> list[task_pb2.GateState]:
    if not task.gates:
        return []
    reviewed = holds.gate_decisions(reader, task.task_id, task.epoch)
    states = []
    for gate in task.gates:
        row = reviewed.get(gate)
        if row is None:
            states.append(task_pb2.GateState(gate=gate))
            continue
        states.append(
            task_pb2.GateState(
                gate=gate,
                decision=f"GATE_DECISION_{row['decision']}",
                decided_by=task_pb2.Actor(identity=row["decided_by"], role=row["decided_role"]),
                decided_at=timestamp(row["decided_wall_ms"]),
                note=row["note"],
            )
        )
    return states


def audit_message(row: Row) -> audit_pb2.AuditEntry:
    """An entry of the audit."""
    return audit_pb2.AuditEntry(
        sequence=row["sequence"],
        at=timestamp(row["wall_ms"]),
        actor=task_pb2.Actor(identity=row["identity"], role=row["role"]),
        action=row["action"],
        task_id=row["task_id"],
        escalation_id=row["escalation_id"],
        request_id=row["request_id"],
        trace_id=row["trace_id"],
        outcome=row["outcome"],
    )


def signal_message(signal: Signal) -> context_pb2.Signal:
    """A request that is not discharged."""
    return context_pb2.Signal(
        signal_id=signal.signal_id,
        kind=f"SIGNAL_KIND_{signal.kind.value}",
        epoch=signal.epoch,
        attempt=signal.attempt,
        cause=signal.cause,
        raised_by=f"{signal.raised_by.identity} ({signal.raised_by.role})",
        raised_at=timestamp(signal.raised_wall_ms),
    )


def incident_message(incident: Incident) -> incident_pb2.Incident:
    """An incident and how far its filing has come."""
    return incident_pb2.Incident(
        key=incident.key,
        task_id=incident.task_id,
        epoch=incident.epoch,
        kind=incident.kind,
        state=f"INCIDENT_STATE_{incident.state.value}",
        holder=incident.holder,
        claim_generation=incident.claim_generation,
        claimed_at=timestamp(incident.claimed_wall_ms),
        external_id=incident.external_id,
        url=incident.url,
        tries=incident.tries,
        failure=incident.failure,
        follows=incident.follows,
        also_task_ids=incident.also_task_ids,
    )


def blocker_message(blocker: Blocker) -> task_pb2.Blocker:
    """One thing that blocks completion."""
    return task_pb2.Blocker(kind=blocker.kind, name=blocker.name, detail=blocker.detail)


def evidence_message(row: Row) -> lane_runner_service_pb2.Evidence:
    """Something that an attempt said after it was over."""
    return lane_runner_service_pb2.Evidence(
        sequence=row["sequence"],
        at=timestamp(row["wall_ms"]),
        task_id=row["task_id"],
        epoch=row["epoch"],
        attempt=row["attempt"],
        method=row["method"],
        content=row["content"],
        reason=row["reason"],
    )


def hold_message(reader: Reader, hold: Hold, runner_id: str, *, task: Task | None = None) -> escalation_pb2.Escalation:
    """An escalation with its hold; ``task`` saves a read where the caller has it."""
    owner = task or tasks.load(reader, hold.task_id)
    message = escalation_pb2.Escalation(
        escalation_id=hold.escalation_id,
        runner_id=runner_id,
        task_id=hold.task_id,
        task_name=owner.name,
        lane=owner.lane,
        epoch=hold.epoch,
        attempt=hold.attempt,
        question=hold.question,
        options=[escalation_pb2.Option(key=key, text=text) for key, text in hold.options],
        expects_reply=hold.state is not HoldState.NONE,
        hold_state=HOLD_STATES[hold.state],
        acks=hold.acks,
        opened_at=timestamp(hold.opened_wall_ms),
        closed_at=timestamp(hold.closed_wall_ms),
        cancel_cause=hold.cancel_cause,
        deadline_at=timestamp(hold.deadline_ms),
        expired=hold.expired,
        reminders=hold.reminders,
        next_reminder_at=timestamp(hold.next_reminder_ms if hold.open else None),
        owed_by=hold.owed_by,
        key=hold.key,
        worker_alive=owner.worker_alive and (owner.epoch, owner.attempt) == (hold.epoch, hold.attempt),
    )
    if hold.acked_by:
        ack = message.ack
        ack.acked_by.CopyFrom(task_pb2.Actor(identity=hold.acked_by.identity, role=hold.acked_by.role))
        ack.acked_at.FromMilliseconds(hold.acked_wall_ms or 0)
        ack.note = hold.ack_note
        if hold.expected_by_wall_ms is not None:
            ack.expected_by.FromMilliseconds(hold.expected_by_wall_ms)
    if hold.ruling:
        delivered = messages.load(reader, hold.ruling.ruling_id)
        message.ruling.CopyFrom(ruling_message(hold.ruling, delivered.state if delivered else ""))
    return message


def ruling_message(ruling: Ruling, message_state: str) -> escalation_pb2.RulingRecord:
    """A ruling that was accepted, and how far it has come."""
    delivery = f"DELIVERY_STATE_{message_state}" if message_state else "DELIVERY_STATE_UNSPECIFIED"
    return escalation_pb2.RulingRecord(
        ruling_id=ruling.ruling_id,
        ruling=escalation_pb2.Ruling(
            escalation_id=ruling.escalation_id,
            decision=f"DECISION_{ruling.decision.value}",
            instructions=ruling.instructions,
            option_key=ruling.option_key,
            ratifies=ruling.ratifies,
        ),
        ruled_by=actor_message(ruling.ruled_by),
        ruled_at=timestamp(ruling.ruled_wall_ms),
        delivery=delivery,
    )


def ruling(message: escalation_pb2.Ruling, *, ruling_id: str, by: Actor, wall_ms: int) -> Ruling:
    """A ruling as the core judges it."""
    return Ruling(
        ruling_id=ruling_id,
        escalation_id=message.escalation_id,
        decision=_decision(message.decision),
        instructions=message.instructions,
        option_key=message.option_key,
        ratifies=tuple(message.ratifies),
        ruled_by=by,
        ruled_wall_ms=wall_ms,
    )


def _decision(value: escalation_pb2.Decision) -> Decision:
    """An unknown number, from a newer client, is no decision."""
    known = value in escalation_pb2.Decision.values()
    return Decision[escalation_pb2.Decision.Name(value).removeprefix("DECISION_")] if known else Decision.UNSPECIFIED


def stored_message(reader: Reader, stored: StoredMessage, *, ruling: Ruling | None = None) -> message_pb2.Message:
    """A message to a worker, with its body; ``ruling`` saves a read where the caller has it."""
    message = message_pb2.Message(
        message_id=stored.message_id,
        task_id=stored.task_id,
        sequence=stored.sequence,
        state=f"MESSAGE_STATE_{stored.state}",
        sent_by=actor_message(stored.sent_by),
        sent_at=timestamp(stored.sent_wall_ms),
    )
    if stored.escalation_id:
        released = ruling or holds.load(reader, stored.escalation_id).ruling
        assert released is not None, "a ruling message belongs to a ruled hold"
        message.ruling.CopyFrom(ruling_message(released, stored.state))
    elif stored.kind == "INSTRUCTION":
        message.instruction.text = stored.body
    else:
        message.input.text = stored.body
    return message
