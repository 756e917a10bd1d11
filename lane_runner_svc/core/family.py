"""What a task tells its parent; pure."""

from __future__ import annotations

from lane_runner_svc.core.states import State
from lane_runner_svc.core.task import Task

ERROR_MARK = "ERROR: "
"""What every report of a child that did not succeed begins with."""


def report(child: Task) -> str:
    """The end of a child in words for its parent's worker; never empty, and marked when it is no success."""
    mark = "" if child.state is State.SUCCEEDED else ERROR_MARK
    text = f"{mark}child task {child.task_id} ({child.name}) {child.state.name}: {child.summary}"
    return f"{text}\n{child.diagnosis}" if child.state is State.SETTLED and child.diagnosis else text


def report_id(child: Task) -> str:
    """The id of that message: another for each end of a child, for it may be retried or reopened."""
    return f"{child.task_id}.{child.epoch}.{child.version}"
