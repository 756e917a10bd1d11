"""A notification in one line for people."""

from __future__ import annotations

import json
from typing import Any, Final

from google.protobuf.json_format import ParseDict

from lanewarden.v1.escalation_pb2 import Decision, Escalation
from lanewarden.walltime import rfc3339

TEXT_MAX: Final = 200
"""How much of a question or of instructions a line shows."""


def line(payload: str) -> str:
    """What a notification's JSON says, with nothing in it that a terminal would act on."""
    told: dict[str, Any] = json.loads(payload)
    escalation = ParseDict(told["escalation"], Escalation(), ignore_unknown_fields=True)
    name = f" ({escalation.task_name})" if escalation.task_name else ""
    text = f"{told['at']} {told['kind']} {escalation.escalation_id}{name}{_rest(told['kind'], escalation)}"
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text)


def _rest(kind: str, escalation: Escalation) -> str:
    match kind:
        case "ruled":
            record = escalation.ruling
            decision = Decision.Name(record.ruling.decision).removeprefix("DECISION_")
            return f": {decision} by {record.ruled_by.identity}: {_short(record.ruling.instructions)}"
        case "canceled":
            return f": {_short(escalation.cancel_cause)}"
    return "".join(f", {fact}" for fact in _standing(kind, escalation)) + f": {_short(escalation.question)}"


def _standing(kind: str, escalation: Escalation) -> list[str]:
    """Who owes what, since when and until when."""
    facts = [f"owed by {escalation.owed_by}"] if escalation.owed_by else []
    if kind == "reminder":
        facts.append(f"reminder {escalation.reminders}")
    if kind in ("reminder", "approver", "expired") and escalation.HasField("opened_at"):
        facts.append(f"open since {rfc3339(escalation.opened_at.ToMilliseconds())}")
    if escalation.HasField("deadline_at"):
        facts.append(f"deadline {rfc3339(escalation.deadline_at.ToMilliseconds())}")
    if escalation.HasField("ack"):
        facts.append(f"acked by {escalation.ack.acked_by.identity}")
        if escalation.ack.HasField("expected_by"):
            facts.append(f"expected by {rfc3339(escalation.ack.expected_by.ToMilliseconds())}")
    return facts


def _short(text: str) -> str:
    return text if len(text) <= TEXT_MAX else text[: TEXT_MAX - 1] + "…"
