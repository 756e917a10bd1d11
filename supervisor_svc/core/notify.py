"""What people are told about an escalation, what a notification is called, and when a failed one is tried again; pure.

Everything follows from two states of an escalation, the one that was stored and the one that is taken now. So a report that
comes twice has no news the second time, and the same news has the same key wherever and however often it is found.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final

TRIES_MAX: Final = 50
"""With the delays below, well over an hour of a sink that answers nothing."""
BACKOFF_FIRST_SECONDS: Final = 1.0
BACKOFF_MIN_SECONDS: Final = 0.05
BACKOFF_MAX_SECONDS: Final = 300.0

_RULED: Final = frozenset({"RELEASED", "ACKNOWLEDGED"})


class Kind(enum.Enum):
    """What happened; the value is the word that notifications use."""

    OPENED = "opened"
    NOTICE = "notice"
    APPROVER = "approver"
    REMINDER = "reminder"
    EXPIRED = "expired"
    RULED = "ruled"
    CANCELED = "canceled"


@dataclass(frozen=True, slots=True, kw_only=True)
class EscalationFacts:
    """An escalation as far as there may be news of it; ``hold_state`` NONE is a notice."""

    hold_state: str
    reminders: int = 0
    expired: bool = False
    deadline_ms: int | None = None
    owed_by: str = ""


def news(before: EscalationFacts | None, after: EscalationFacts, *, retold: bool = False) -> tuple[Kind, ...]:
    """What people have to be told, in this order.

    ``before`` is None where nothing was stored. ``retold`` says that the runner did not announce the escalation as new: a
    supervisor that lost its past is told everything again, and of that only open holds are news.
    """
    if after.hold_state == "OPEN":
        return _of_open(before, after)
    if before is None:
        return (Kind.NOTICE,) if after.hold_state == "NONE" and not retold else ()
    if after.hold_state == "CANCELED":
        return (Kind.CANCELED,) if before.hold_state != "CANCELED" else ()
    return (Kind.RULED,) if before.hold_state == "OPEN" and after.hold_state in _RULED else ()


def _of_open(before: EscalationFacts | None, after: EscalationFacts) -> tuple[Kind, ...]:
    kinds = []
    if before is None:
        kinds.append(Kind.OPENED)
    else:
        if after.owed_by and after.owed_by != before.owed_by:
            kinds.append(Kind.APPROVER)
        if after.reminders > before.reminders:
            kinds.append(Kind.REMINDER)
    # A deadline that was extended may pass again before the next report.
    if after.expired and (before is None or not before.expired or before.deadline_ms != after.deadline_ms):
        kinds.append(Kind.EXPIRED)
    return tuple(kinds)


def key(escalation_id: str, kind: Kind, facts: EscalationFacts) -> str:
    """The name of a notification, made of nothing but what it is about. Printable ASCII, so that it fits into a header."""
    match kind:
        case Kind.REMINDER:
            which = str(facts.reminders)
        case Kind.EXPIRED:
            which = str(facts.deadline_ms or 1)
        case Kind.APPROVER:
            which = facts.owed_by
        case _:
            which = "1"
    return _ascii(f"{escalation_id}/{kind.value}/{which}")


def _ascii(text: str) -> str:
    """``text`` with whatever is not a visible ASCII character as %XX."""
    encoded = text.encode("utf-8", "surrogatepass")
    return "".join(chr(byte) if 0x20 < byte < 0x7F and byte != ord("%") else f"%{byte:02X}" for byte in encoded)


def backoff_seconds(failures: int, jitter: float) -> float:
    """The delay after the ``failures``-th failure in a row: full jitter below a bound that doubles from 1 s to 5 min.

    ``jitter`` is a number in [0, 1) drawn by the caller.
    """
    bound = min(BACKOFF_MAX_SECONDS, BACKOFF_FIRST_SECONDS * 2.0 ** min(failures - 1, 16))
    return max(BACKOFF_MIN_SECONDS, bound * jitter)
