"""Limits of use that a worker meets: until when it is not started again; pure.

A worker says when its limit ends and exits with :data:`EXIT_CODE`. The pause that follows is one cause among others: it is
set at that exit, and cleared when its time has come, by ResumeTask, or with the end of the task.
"""

from __future__ import annotations

from typing import Final

from lane_runner_svc.core.task import Now, PauseCause, Task
from lanewarden.errors import invalid
from lanewarden.records import replace

EXIT_CODE: Final = 75
"""``EX_TEMPFAIL`` of sysexits.h: try again later."""
AHEAD_MS_MAX: Final = 30 * 24 * 3600 * 1000


def until_ms(retry_wall_ms: int, now: Now) -> int:
    """The steady time of a worker's ``retry_at``: converted once, so that no later jump of the wall clock moves it. A time
    that has passed is now.

    Raises:
        Refusal: REQUEST_INVALID when it is more than 30 days away.
    """
    ahead_ms = retry_wall_ms - now.wall_ms
    if ahead_ms > AHEAD_MS_MAX:
        raise invalid(("retry_at", "must be at most 30 days from now"))
    return now.steady_ms + max(0, ahead_ms)


def wait(task: Task, limited_until_ms: int) -> Task:
    """The task while its limit lasts."""
    return replace(task, pauses=task.pauses | {PauseCause.USAGE_LIMIT}, limited_until_ms=limited_until_ms)


def lift(task: Task) -> Task:
    """The task without its limit; every other pause stays."""
    return replace(task, pauses=task.pauses - {PauseCause.USAGE_LIMIT}, limited_until_ms=None)
