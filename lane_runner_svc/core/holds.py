"""Holds and the rulings that release them; pure."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass

from lanewarden import rulings
from lanewarden.records import replace


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


@dataclass(frozen=True, kw_only=True)
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
    opened_ms: int = 0
    key: str = ""
    deadline_ms: int | None = None
    expired: bool = False
    reminders: int = 0
    reminder_step: int = 0
    next_reminder_ms: int | None = None
    approvers_told: int = 0
    owed_by: str = ""
    timer_ms: int | None = None
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
    rulings.check_shape(
        escalation_id=ruling.escalation_id,
        decision=ruling.decision.name,
        instructions=ruling.instructions,
        option_key=ruling.option_key,
        options=options,
        ratifies=ruling.ratifies,
        gates=gates,
        task_id=task_id,
        named_task_id=named_task_id,
    )


def release(hold: Hold, ruling: Ruling) -> Hold:
    """The hold, released by ``ruling``: the only way out of OPEN but a cancel (I3).

    Raises:
        Refusal: ALREADY_RULED with who ruled what when, or HOLD_NOT_OPEN.
    """
    if hold.ruling is not None:
        first = hold.ruling
        raise rulings.already_ruled(
            hold.escalation_id,
            ruling_id=first.ruling_id,
            ruled_by=first.ruled_by.identity,
            ruled_wall_ms=first.ruled_wall_ms,
            decision=first.decision.name,
        )
    if not hold.open:
        raise rulings.not_open(hold.escalation_id, state=hold.state.name, cause=hold.cancel_cause)
    return replace(hold, state=HoldState.RELEASED, ruling=ruling)


def stamp(hold: Hold, *, by: Actor, wall_ms: int, expected_by_wall_ms: int | None, note: str) -> Hold:
    """The hold with one more ack; as open as before.

    Raises:
        Refusal: HOLD_NOT_OPEN.
    """
    if not hold.open:
        raise rulings.not_open(hold.escalation_id, state=hold.state.name, cause=hold.cancel_cause)
    return replace(
        hold,
        acks=hold.acks + 1,
        acked_by=by,
        acked_wall_ms=wall_ms,
        expected_by_wall_ms=expected_by_wall_ms,
        ack_note=note,
    )
