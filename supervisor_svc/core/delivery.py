"""What an answer of a runner means for a stored command, and when to try again; pure."""

from __future__ import annotations

import enum
from typing import Final

from lanewarden.errors import Code, Reason, Refusal

BACKOFF_FIRST_SECONDS: Final = 0.5
BACKOFF_MIN_SECONDS: Final = 0.05
BACKOFF_MAX_SECONDS: Final = 10.0


class Outcome(enum.Enum):
    """How far one try brought a command."""

    DELIVERED = "the runner has it"
    REFUSED = "the runner's final no"
    BUSY = "not now; other tasks of the runner may fare better"
    AWAY = "the runner cannot be reached"


# A credential that the runner does not accept is the services' affair: the operator's word waits until it is put right.
_AWAY: Final = frozenset({Code.UNAVAILABLE, Code.DEADLINE_EXCEEDED, Code.UNAUTHENTICATED})


def is_away(refusal: Refusal) -> bool:
    """Whether a refusal says nothing but that the runner cannot be reached."""
    return refusal.reason.code in _AWAY


def judge(refusal: Refusal, command_id: str) -> Outcome:
    """What a refusal means for the command it answers."""
    if refusal.reason is Reason.ALREADY_RULED and refusal.metadata.get("ruling_id") == command_id:
        return Outcome.DELIVERED  # by an earlier try whose answer was lost
    if is_away(refusal):
        return Outcome.AWAY
    return Outcome.BUSY if refusal.reason.code is Code.RESOURCE_EXHAUSTED else Outcome.REFUSED


def backoff_seconds(failures: int, jitter: float) -> float:
    """The delay after the ``failures``-th failure in a row: full jitter below a bound that doubles from 0.5 s to 10 s.

    ``jitter`` is a number in [0, 1) drawn by the caller. A runner that comes back is served at once all the same.
    """
    bound = min(BACKOFF_MAX_SECONDS, BACKOFF_FIRST_SECONDS * 2.0 ** min(failures - 1, 16))
    return max(BACKOFF_MIN_SECONDS, bound * jitter)
