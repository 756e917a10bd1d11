"""Which storms speak against a task; pure. A ledger knows who writes to a task, and nothing of what the task is doing."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from supervisor_svc.core.view import Storm

LASTS_MS_MIN: Final = 5_000
"""For how long an attempt must have written, so that a storm of the last one is not held against the next."""
EXCUSED_MS: Final = 300_000
"""For how long progress within a storm speaks for the task."""


def against(storm: Storm, *, progressed_ms: int | None, running_ms: int, now_ms: int) -> Storm | None:
    """The storm as far as it is that of the attempt that runs since ``running_ms``; None while that is too short to tell.

    A task that makes progress while it is written to is excused; one that has made none for five minutes since is not, and
    its storm counts from there.
    """
    since_ms = max(storm.since_ms, running_ms)
    if progressed_ms is not None and progressed_ms >= since_ms and now_ms - progressed_ms >= EXCUSED_MS:
        since_ms = progressed_ms + 1
    if now_ms - since_ms < LASTS_MS_MIN:
        return None
    return replace(storm, since_ms=since_ms)
