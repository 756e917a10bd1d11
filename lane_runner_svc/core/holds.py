"""Holds and the rulings that release them; pure."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass, replace

from lanewarden.errors import Reason, Refusal, refuse


class HoldState(enum.Enum):
    """Where a hold stands; NONE is an escalation that is only a notice."""

    NONE = "NONE"
    OPEN = "OPEN"
    RELEASED = "RELEASED"
    ACKNOWLEDGED = "ACKNOWLEDGED"
    CANCELED = "CANCELED"


class Decision(enum.Enum):
    """What a ruling says; the names are those of ``lanewarden.v1.Decision``."""

    UNSPECIFIED = "UNSPECIFIED"
    APPROVE = "APPROVE"
    REJECT = "REJECT"
    REVISE = "REVISE"
    CHOOSE = "CHOOSE"


CLOSED = frozenset({HoldState.NONE, HoldState.ACKNOWLEDGED, HoldState.CANCELED})


@dataclass(frozen=True, slots=True, kw_only=True)
class Actor:
    """Who did something, from the authenticated channel."""

    identity: str
    role: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Ruling:
    """An answer to one escalation. ``ruling_id`` is also the id of the message that brings it to the worker."""

    ruling_id: str
    escalation_id: str
    decision: Decision
    instructions: str
    option_key: str
    ratifies: tuple[str, ...]
    ruled_by: Actor
    ruled_wall_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """The durable fact that a task waits for a ruling (or, with NONE, that its worker gave notice)."""

    escalation_id: str
    task_id: str
    epoch: int
    attempt: int
    sequence: int
    question: str
    options: tuple[tuple[str, str], ...]
    state: HoldState
    opened_wall_ms: int
    ruling: Ruling | None = None
    closed_wall_ms: int | None = None
    cancel_cause: str = ""
    acks: int = 0
    acked_by: Actor | None = None
    acked_wall_ms: int | None = None
    expected_by_wall_ms: int | None = None
    ack_note: str = ""

    @property
    def open(self) -> bool:
        """A ruling is owed."""
        return self.state is HoldState.OPEN

    @property
    def blocks(self) -> bool:
        """Not closed: the task may not complete (I1)."""
        return self.state not in CLOSED


def escalation_id(task_id: str, epoch: int, attempt: int, sequence: int) -> str:
    """The identity of an escalation; ours, so that no worker can make two questions one."""
    return f"{task_id}.{epoch}.{attempt}.{sequence}"


def check_ruling(
    ruling: Ruling, *, options: Sequence[str], gates: Sequence[str], task_id: str, named_task_id: str
) -> None:
    """Refuse a ruling that is not one, whatever it rules on.

    Raises:
        Refusal: RULING_INVALID, with the broken rule in ``metadata["rule"]``.
    """

    def broken(rule: str, message: str) -> Refusal:
        return refuse(Reason.RULING_INVALID, message, rule=rule, escalation_id=ruling.escalation_id)

    if ruling.decision is Decision.UNSPECIFIED:
        raise broken("no_decision", "a ruling needs a decision: approve, reject, revise or choose")
    if not ruling.instructions.strip():
        raise broken("empty_instructions", "a ruling needs instructions: say in words what the worker is to do")
    if named_task_id and named_task_id != task_id:
        raise broken("wrong_task", f"escalation {ruling.escalation_id} belongs to task {task_id}, not {named_task_id}")
    offered = ", ".join(options) or "none"
    if ruling.decision is Decision.CHOOSE and not ruling.option_key:
        raise broken("no_option", f"choose needs an option; offered: {offered}")
    if ruling.option_key and ruling.option_key not in options:
        raise broken("option_not_offered", f"option {ruling.option_key!r} was not offered; offered: {offered}")
    unknown = [gate for gate in ruling.ratifies if gate not in gates]
    if unknown:
        raise broken("gate_unknown", f"the task has no gate {unknown[0]!r}; it has: {', '.join(gates) or 'none'}")


def release(hold: Hold, ruling: Ruling) -> Hold:
    """The hold, released by ``ruling``: the only way out of OPEN but a cancel (I3).

    Raises:
        Refusal: ALREADY_RULED with who ruled what when, or HOLD_NOT_OPEN.
    """
    if hold.ruling is not None:
        first = hold.ruling
        raise refuse(
            Reason.ALREADY_RULED,
            f"{first.ruled_by.identity} has already ruled {first.decision.name} on {hold.escalation_id}",
            escalation_id=hold.escalation_id,
            ruling_id=first.ruling_id,
            ruled_by=first.ruled_by.identity,
            ruled_at=first.ruled_wall_ms,
            decision=first.decision.name,
        )
    if not hold.open:
        what = "is a notice and owes no ruling" if hold.state is HoldState.NONE else f"is {hold.state.name}"
        raise refuse(
            Reason.HOLD_NOT_OPEN,
            f"escalation {hold.escalation_id} {what}",
            escalation_id=hold.escalation_id,
            state=hold.state.name,
            cause=hold.cancel_cause or None,
        )
    return replace(hold, state=HoldState.RELEASED, ruling=ruling)


def stamp(hold: Hold, *, by: Actor, wall_ms: int, expected_by_wall_ms: int | None, note: str) -> Hold:
    """The hold with one more ack; as open as before.

    Raises:
        Refusal: HOLD_NOT_OPEN.
    """
    if not hold.open:
        raise refuse(
            Reason.HOLD_NOT_OPEN,
            f"escalation {hold.escalation_id} is {hold.state.name}: nobody waits for a ruling",
            escalation_id=hold.escalation_id,
            state=hold.state.name,
        )
    return replace(
        hold,
        acks=hold.acks + 1,
        acked_by=by,
        acked_wall_ms=wall_ms,
        expected_by_wall_ms=expected_by_wall_ms,
        ack_note=note,
    )
