"""What a supervisor can know of a hold before its runner has the final word; pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lanewarden import rulings


@dataclass(frozen=True, slots=True, kw_only=True)
class Actor:
    """Who did something, from the authenticated channel."""

    identity: str
    role: str


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownRuling:
    """A ruling that was accepted, here or at the runner."""

    ruling_id: str
    ruled_by: str
    ruled_wall_ms: int
    decision: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldView:
    """A hold as last reported, with a ruling that is still on its way to its runner."""

    escalation_id: str
    task_id: str
    state: str
    options: Sequence[str]
    cancel_cause: str
    ruling: KnownRuling | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ruling:
    """What an operator decided."""

    decision: str
    instructions: str
    option_key: str
    ratifies: Sequence[str]


def check_ruling(hold: HoldView, ruling: Ruling, *, gates: Sequence[str] | None, named_task_id: str) -> None:
    """Refuse a ruling that the runner could only refuse.

    Raises:
        Refusal: RULING_INVALID, ALREADY_RULED, HOLD_NOT_OPEN.
    """
    rulings.check_shape(
        escalation_id=hold.escalation_id,
        decision=ruling.decision,
        instructions=ruling.instructions,
        option_key=ruling.option_key,
        options=hold.options,
        ratifies=ruling.ratifies,
        gates=gates,
        task_id=hold.task_id,
        named_task_id=named_task_id,
    )
    if hold.ruling is not None:
        raise rulings.already_ruled(
            hold.escalation_id,
            ruling_id=hold.ruling.ruling_id,
            ruled_by=hold.ruling.ruled_by,
            ruled_wall_ms=hold.ruling.ruled_wall_ms,
            decision=hold.ruling.decision,
        )
    _check_open(hold)


def check_ack(hold: HoldView) -> None:
    """Refuse an ack that stamps nothing.

    Raises:
        Refusal: HOLD_NOT_OPEN.
    """
    if hold.ruling is not None:
        raise rulings.not_open(hold.escalation_id, state="RELEASED", cause=f"ruled by {hold.ruling.ruled_by}")
    _check_open(hold)


def _check_open(hold: HoldView) -> None:
    if hold.state != "OPEN":
        raise rulings.not_open(hold.escalation_id, state=hold.state, cause=hold.cancel_cause)
