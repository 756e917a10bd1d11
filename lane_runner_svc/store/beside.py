"""What is shown with a task and stored in other tables, read at one stroke: it is shown with every answer and report."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final

from lane_runner_svc.core.incidents import Incident
from lane_runner_svc.core.signals import Signal
from lane_runner_svc.core.task import Task
from lane_runner_svc.store import holds, incidents, messages, signals, tasks
from lane_runner_svc.store.tasks import Reader

_SELECT: Final = (
    "SELECT (SELECT json_group_array(escalation_id) FROM"  # noqa: S608
    f" (SELECT escalation_id FROM holds WHERE task_id = :task_id AND {holds.OPEN} ORDER BY position)),"
    f" (SELECT min(sent_wall_ms) FROM messages WHERE task_id = :task_id AND {messages.WAITING} AND kind = 'INPUT'),"
    f" (SELECT count(*) FROM tasks WHERE parent_task_id = :task_id AND parent_task_id <> '' AND {tasks.UNFINISHED}),"
    " EXISTS (SELECT 1 FROM incidents WHERE task_id = :task_id AND epoch = :epoch),"
    f" EXISTS (SELECT 1 FROM signals WHERE task_id = :task_id AND {signals.OUTSTANDING})"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Beside:
    """``open_holds``: ids of the escalations that wait for a ruling, oldest first, as are the incidents of its epoch and its
    outstanding signals. ``oldest_input_wall_ms``: when the first input was sent that no worker has acknowledged.
    """

    open_holds: list[str]
    oldest_input_wall_ms: int | None
    children_open: int
    incidents: list[Incident]
    signals: list[Signal]


def load(reader: Reader, task: Task) -> Beside:
    """What is shown with the task."""
    row = reader.one(_SELECT, {"task_id": task.task_id, "epoch": task.epoch})
    assert row is not None
    return Beside(
        open_holds=json.loads(row[0]),
        oldest_input_wall_ms=row[1],
        children_open=row[2],
        incidents=incidents.of_epoch(reader, task.task_id, task.epoch) if row[3] else [],
        signals=signals.outstanding(reader, task.task_id) if row[4] else [],
    )
