"""DESIGN section 8 once more, as plain sentences of code, to judge ``classify`` and ``choose`` by.

Written from the text and not from the code: it shares no helper and no table with either.
"""

from __future__ import annotations

from supervisor_svc.core.supervision import SupervisionConfig
from supervisor_svc.core.view import View


def verdict(view: View, now_ms: int, config: SupervisionConfig) -> str:
    """The table of verdicts, row by row."""
    state = view.state.name
    if state in ("SUCCEEDED", "FAILED", "CANCELED", "SETTLED"):
        return "HEALTHY"  # "works, rests, or is over"
    if not view.reachable:
        return "UNREACHABLE"  # "runner lease expired"
    if len(view.open_holds) > 0 or state == "HELD":
        return "HELD"
    if state == "QUEUED" or state == "STARTING":
        return "QUEUED"

    # A runner that was out of hearing has had time to tell what happened meanwhile.
    informed = False
    if view.heard_ms is not None:
        informed = now_ms - view.heard_ms >= config.catch_up_ms

    if state == "IDLE":
        # "PARKED: input not ingested for 120 s"; a paused task launches nothing, so it can take nothing.
        if view.session and view.input_ms is not None and len(view.pauses) == 0:
            waited = informed and now_ms - view.input_ms >= config.parked_ms
            return "PARKED" if waited else "HEALTHY"
        return "HEALTHY"

    if not view.worker_alive:
        return "EXITED"  # "worker gone, task not terminal"
    return verdict_on_live(view, now_ms, config, informed)


def verdict_on_live(view: View, now_ms: int, config: SupervisionConfig, informed: bool) -> str:
    """A worker runs."""
    if view.storm is not None and view.sensor:
        progressed = view.progressed_ms is not None and view.progressed_ms >= view.storm.since_ms
        if not progressed:
            return "CHURNING"  # "writes or activity, no progress", needs a sensor
    if view.children_open > 0:
        return "HEALTHY"  # "a parent waiting on a child is healthy"
    silent = False  # "a worker that has no such sensor: never called stale"
    if view.sensor:
        if view.progressed_ms is not None:
            # "no progress for max(900 s, task's own heartbeat)"; a hold in between is not silence
            bound_ms = max(config.stale_ms, view.heartbeat_ms)
            moved_ms = max(view.progressed_ms, view.running_ms)
        else:
            # "first progress has its own budget"
            bound_ms = max(config.first_progress_ms, view.heartbeat_ms)
            moved_ms = view.running_ms
        silent = informed and now_ms - moved_ms >= bound_ms
        if view.progressed_ms is not None and not silent:
            return "HEALTHY"  # live and progressing
    # A round should take the input that it was launched for.
    launched_for = view.session and view.input_ms is not None and view.input_ms < view.running_ms
    if launched_for and len(view.pauses) == 0 and informed and now_ms - view.running_ms >= config.parked_ms:
        return "PARKED"
    if silent:
        return "STALE"
    return "HEALTHY" if view.sensor else "UNKNOWN"


def action(view: View, verdict_name: str, config: SupervisionConfig) -> str:
    """The table of arms, row by row: "first match wins, and the order is the point"."""
    # 1 terminal: task terminal (SETTLED included): nothing
    if view.state.name in ("SUCCEEDED", "FAILED", "CANCELED", "SETTLED"):
        return "NOTHING"
    # 2 report: live and progressing, or queued, or unreachable: show it; touch nothing. Unknown is not dead (I13).
    if verdict_name in ("HEALTHY", "UNKNOWN", "QUEUED", "UNREACHABLE"):
        return "SHOW"
    # 3 held: hold open: never stale, never relaunched. While the set of pauses is not empty nothing is launched either,
    # and a takeover completes nothing and deletes nothing.
    if verdict_name == "HELD" or view.state.name == "HELD" or len(view.open_holds) > 0 or len(view.pauses) > 0:
        return "REMIND"
    # 4 filed: an incident is claimed for this epoch: nothing, whatever the caps say now
    if view.incident:
        return "NOTHING"
    # 5 wake: PARKED, not yet woken in this epoch
    if verdict_name == "PARKED" and not view.woken:
        return "WAKE"
    # 6 relaunch: unhealthy and retries < cap
    if view.relaunches < config.relaunches_max:
        return "RELAUNCH"
    # 7 settle: otherwise
    return "SETTLE"
