"""Claims on incidents as rows."""

from __future__ import annotations

import json
from typing import Final

from lane_runner_svc.core.incidents import Incident, IncidentState
from lane_runner_svc.store.tasks import Reader
from lanewarden.errors import Reason, refuse
from lanewarden.store import Row, UnitOfWork

SHOWN_MAX: Final = 20
"""Incidents shown with a task, the latest."""


def _from_row(row: Row) -> Incident:
    return Incident(
        key=row["key"],
        task_id=row["task_id"],
        epoch=row["epoch"],
        kind=row["kind"],
        state=IncidentState(row["state"]),
        holder=row["holder"],
        claim_generation=row["claim_generation"],
        claimed_wall_ms=row["claimed_wall_ms"],
        external_id=row["external_id"],
        url=row["url"],
        tries=row["tries"],
        failure=row["failure"],
        follows=row["follows"],
        also_task_ids=tuple(json.loads(row["also_task_ids"])),
    )


def load(reader: Reader, task_id: str, key: str) -> Incident:
    """The task's incident of that key.

    Raises:
        Refusal: INCIDENT_UNKNOWN.
    """
    row = reader.one("SELECT * FROM incidents WHERE key = ? AND task_id = ?", (key, task_id))
    if row is None:
        raise refuse(
            Reason.INCIDENT_UNKNOWN,
            f"task {task_id} has no incident {key!r}; the task shows those of its epoch",
            task_id=task_id,
            key=key,
        )
    return _from_row(row)


def unresolved(reader: Reader, task_id: str, epoch: int) -> Incident | None:
    """The one incident of an epoch that is not resolved, or None."""
    row = reader.one(
        "SELECT * FROM incidents WHERE task_id = ? AND epoch = ? AND state <> 'RESOLVED'", (task_id, epoch)
    )
    return None if row is None else _from_row(row)


def of_epoch(reader: Reader, task_id: str, epoch: int) -> list[Incident]:
    """The latest incidents of an epoch, oldest first."""
    rows = reader.query(
        "SELECT * FROM incidents WHERE task_id = ? AND epoch = ? ORDER BY position DESC LIMIT ?",
        (task_id, epoch, SHOWN_MAX),
    )
    return [_from_row(row) for row in reversed(rows)]


def occurrences(reader: Reader, task_id: str, epoch: int, kind: str) -> int:
    """How many incidents of that kind the epoch has had."""
    row = reader.one(
        "SELECT count(*) FROM incidents WHERE task_id = ? AND epoch = ? AND kind = ?", (task_id, epoch, kind)
    )
    assert row is not None
    return int(row[0])


def latest_key(reader: Reader, task_id: str, kind: str) -> str:
    """The task's latest incident of that kind in any epoch, by key; empty when there is none."""
    row = reader.one(
        "SELECT key FROM incidents WHERE task_id = ? AND kind = ? ORDER BY position DESC LIMIT 1", (task_id, kind)
    )
    return "" if row is None else str(row[0])


def insert(uow: UnitOfWork, incident: Incident) -> None:
    """Store a new incident."""
    uow.execute(
        "INSERT INTO incidents (key, task_id, epoch, kind, state, holder, claim_generation, claimed_wall_ms,"
        " external_id, url, tries, failure, follows, also_task_ids)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            incident.key,
            incident.task_id,
            incident.epoch,
            incident.kind,
            incident.state.value,
            incident.holder,
            incident.claim_generation,
            incident.claimed_wall_ms,
            incident.external_id,
            incident.url,
            incident.tries,
            incident.failure,
            incident.follows,
            json.dumps(incident.also_task_ids),
        ),
    )


def update(uow: UnitOfWork, incident: Incident) -> None:
    """Store what may change of an incident."""
    uow.execute(
        "UPDATE incidents SET state = ?, holder = ?, claim_generation = ?, external_id = ?, url = ?, tries = ?,"
        " failure = ?, also_task_ids = ? WHERE key = ?",
        (
            incident.state.value,
            incident.holder,
            incident.claim_generation,
            incident.external_id,
            incident.url,
            incident.tries,
            incident.failure,
            json.dumps(incident.also_task_ids),
            incident.key,
        ),
    )
