"""One-shot requests: raised once, outstanding, and discharged by whoever acts on them; pure.

Rules about this file: a signal is discharged exactly once, in the transaction of the act, whichever act it was (I10).
Whether the act went well is another fact, and so is whether the same may be asked for again.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from lane_runner_svc.core.holds import Actor


class SignalKind(enum.Enum):
    """What is asked for; the names are those of ``lanewarden.v1.SignalKind``."""

    REDUCE_CONTEXT = "REDUCE_CONTEXT"
    WRAP_UP = "WRAP_UP"
    PAUSE = "PAUSE"
    CANCEL = "CANCEL"
    STOP = "STOP"


@dataclass(frozen=True, slots=True, kw_only=True)
class Signal:
    """A request that is not discharged. ``attempt`` is 0 where it is about the task and not about one launch of it."""

    signal_id: str
    task_id: str
    epoch: int
    attempt: int
    kind: SignalKind
    cause: str
    raised_by: Actor
    raised_wall_ms: int
