"""Which storms speak against a task; pure. A ledger knows who writes to a task, and nothing of what the task is doing."""

from __future__ import annotations

from typing import Final

from lanewarden.records import replace
from supervisor_svc.core.view import Storm

LASTS_MS_MIN: Final = 5_000
"""For how long an attempt must have been written to without progress, so that a storm of the last one, or one in which there
is progress, is not held against it.
"""


def against(storm: Storm, *, progressed_ms: int | None, running_ms: int, now_ms: int) -> Storm | None:
    """The storm as far as it is one without progress, of the attempt that runs since ``running_ms``; None while that is too
    short to tell.
    """
    since_ms = max(storm.since_ms, running_ms)
    if progressed_ms is not None:
        since_ms = max(since_ms, progressed_ms + 1)
    return replace(storm, since_ms=since_ms) if now_ms - since_ms >= LASTS_MS_MIN else None
