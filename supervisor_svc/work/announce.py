"""Units of work about what people are told: stored with the change that they are told of, once for each sink."""

from __future__ import annotations

import json
from typing import Any

from google.protobuf.json_format import MessageToDict

from lanewarden.v1 import escalation_pb2
from lanewarden.walltime import rfc3339
from supervisor_svc.core.notify import EscalationFacts, Kind, key, news
from supervisor_svc.store import notifications
from supervisor_svc.store.notifications import Notification
from supervisor_svc.work.session import Session, told


def tell(
    session: Session,
    before: escalation_pb2.Escalation | None,
    after: escalation_pb2.Escalation,
    *,
    retold: bool,
) -> None:
    """Store one notification per sink for everything that is new about an escalation."""
    if not session.sinks:
        return
    facts = facts_of(after)
    for kind in news(None if before is None else facts_of(before), facts, retold=retold):
        name = key(after.escalation_id, kind, facts)
        payload = json.dumps(_payload(session, name, kind, after))
        for sink in session.sinks:
            notification = Notification(
                sink=sink,
                key=name,
                escalation_id=after.escalation_id,
                kind=kind.value,
                addressee=after.owed_by,
                payload=payload,
                changed_ms=session.steady_ms,
                next_try_ms=session.steady_ms,
                traceparent=session.uow.traceparent,
            )
            if notifications.insert(session.uow, notification):
                session.touch(told(sink))


def _payload(session: Session, name: str, kind: Kind, escalation: escalation_pb2.Escalation) -> dict[str, Any]:
    """What a sink sends: the escalation in the contract's own JSON, and what is new about it."""
    return {
        "key": name,
        "kind": kind.value,
        "at": rfc3339(session.wall_ms),
        "to": escalation.owed_by,
        "escalation": MessageToDict(escalation, preserving_proto_field_name=True),
    }


def facts_of(escalation: escalation_pb2.Escalation) -> EscalationFacts:
    """An escalation as far as there may be news of it."""
    deadline = escalation.deadline_at.ToMilliseconds() if escalation.HasField("deadline_at") else None
    return EscalationFacts(
        hold_state=hold_state(escalation),
        reminders=escalation.reminders,
        expired=escalation.expired,
        deadline_ms=deadline,
        owed_by=escalation.owed_by,
    )


def hold_state(escalation: escalation_pb2.Escalation) -> str:
    """The state of its hold by name; NONE for a notice."""
    name = escalation_pb2.HoldState.Name(escalation.hold_state).removeprefix("HOLD_STATE_")
    return "NONE" if name == "UNSPECIFIED" else name
