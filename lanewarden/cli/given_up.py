"""What people see of a task that a supervisor has given up, and of its incident."""

from __future__ import annotations

from lanewarden.v1 import incident_pb2, task_pb2
from lanewarden.worker_messages import enum_word


def fields(task: task_pb2.Task) -> list[tuple[str, str]]:
    """Why a supervisor has given it up, where that is filed, and what there is to do; nothing of any other task."""
    if task.state != task_pb2.TASK_STATE_SETTLED:
        return []
    incident = next((each for each in task.incidents if each.epoch == task.epoch), None)
    return [
        ("diagnosis", task.diagnosis),
        ("incident", f"{incident.key}, {filing(incident)}" if incident else "not yet claimed"),
        ("tracker", place(incident) if incident else ""),
        (
            "to go on",
            f"`lanewarden reopen {task.task_id}` starts its next epoch; input that it has not taken is delivered",
        ),
    ]


def filing(incident: incident_pb2.Incident) -> str:
    """How far its filing has come, and how many further tasks it is about."""
    word = enum_word(incident_pb2.IncidentState, incident.state).replace("_", " ")
    return word if not incident.also_task_ids else f"{word}, with {len(incident.also_task_ids)} more"


def place(incident: incident_pb2.Incident) -> str:
    """Where it is filed, or why it is not."""
    if incident.external_id:
        return incident.url or incident.external_id
    return f"filing failed: {incident.failure}" if incident.failure else "not yet filed"
