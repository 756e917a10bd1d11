"""When a task has to be looked at again although nothing is reported; pure.

A verdict changes with a report, with the runner's lease, and with time. Only the last is foreseen here, so that a sweep
costs what is due and not what is there.
"""

from __future__ import annotations

from supervisor_svc.core.supervision import SupervisionConfig
from supervisor_svc.core.verdict import silence_of, waiting_input
from supervisor_svc.core.view import View


def look_again_ms(view: View, now_ms: int, config: SupervisionConfig) -> int | None:
    """The first steady time after ``now_ms`` at which the verdict may be another by itself; None when it stays."""
    if view.terminal or not view.reachable:
        return None
    heard_ms = None if view.heard_ms is None else view.heard_ms + config.catch_up_ms
    if heard_ms is None:  # no silence counts before the runner has been heard, and that is an event
        return None
    times = [
        max(now_ms + silence.allowed_ms - silence.lasted_ms, heard_ms)
        for silence in (silence_of(view, now_ms, config), waiting_input(view, now_ms, config))
        if silence is not None
    ]
    return min((each for each in times if each > now_ms), default=None)
