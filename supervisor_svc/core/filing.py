"""How an incident is filed once; pure.

The claim, at the runner, decides which supervisor files. What is left is that a create may have worked although nobody was
told so: the answer was lost, or its supervisor died. So the moment before a create is stored, and after it nothing is
created again until the tracker has had time to show what it has and has been asked.

What this does *not* give: a tracker that neither finds an item by its key nor refuses the same key twice can be told twice.
"""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass
from typing import Final

from lanewarden.errors import Reason
from lanewarden.records import replace

GATHER_MS: Final = 60_000
"""How long an incident waits for others with the same cause before it is filed with them."""
MEMBERS_MAX: Final = 200
"""The most tasks that one incident lists; the next one of that cause begins another."""
RETRY_FIRST_SECONDS: Final = 1.0
RETRY_MAX_SECONDS: Final = 3_600.0
"""A tracker that is down costs some forty tries a day, and gets the incident within the hour in which it is back."""
OF_RUNNER: Final = frozenset(
    each.name for each in (Reason.SUPERVISION_FENCED, Reason.RUNNER_UNREACHABLE, Reason.DEADLINE_PASSED)
)
"""Failures that are over as soon as this supervisor may act at the runner again, by the names of their reasons."""
_VARIES = re.compile(r"\b(?=[0-9a-f-]*\d)[0-9a-f-]{8,}\b|\d+", re.IGNORECASE)


class Stage(enum.Enum):
    """How far a filing has come here; the runner keeps what everybody must know."""

    OPEN = "OPEN"
    FILED = "FILED"
    RECORDED = "RECORDED"
    LOST = "LOST"


@dataclass(frozen=True, slots=True, kw_only=True)
class Filing:
    """A claim that this supervisor holds. ``*_ms`` are steady time.

    ``leader_key`` names the incident that is filed for all of its cause; its own key if that is itself.
    ``unsure_since_ms`` is set while the tracker may have an item that nobody here knows of. ``traceparent`` is the trace of
    the claim.
    """

    key: str
    task_id: str
    runner_id: str
    epoch: int
    kind: str
    cause: str
    claim_generation: int
    summary: str
    diagnosis: str
    claimed_wall_ms: int
    due_ms: int
    leader_key: str
    stage: Stage = Stage.OPEN
    unsure_since_ms: int | None = None
    tries: int = 0
    external_id: str = ""
    url: str = ""
    failure: str = ""
    traceparent: str = ""


def cause_of(kind: str, diagnosis: str) -> str:
    """What makes two incidents one: the kind and the diagnosis, whatever numbers and ids it names."""
    return f"{kind}: {_VARIES.sub('#', diagnosis)}"


def claimed_again(filing: Filing, *, claim_generation: int, now_ms: int) -> Filing:
    """The filing of a claim that somebody else held before: they may have created the item as they died."""
    return replace(filing, claim_generation=claim_generation, unsure_since_ms=now_ms)


def may_create_at_ms(filing: Filing, lag_ms: int) -> int:
    """When a look at the tracker that finds nothing means that there is nothing, in steady time."""
    return 0 if filing.unsure_since_ms is None else filing.unsure_since_ms + lag_ms


def retry_seconds(tries: int, jitter: float) -> float:
    """The delay after the ``tries``-th failure: between half and all of a bound that doubles from 1 s to 1 h.

    ``jitter`` is a number in [0, 1) drawn by the caller.
    """
    bound = min(RETRY_MAX_SECONDS, RETRY_FIRST_SECONDS * 2.0 ** min(max(tries, 1) - 1, 16))
    return bound * (1 + jitter) / 2
