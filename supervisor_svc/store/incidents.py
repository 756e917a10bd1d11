"""Incidents as their runners last reported them, in the order in which they were first heard of."""

from __future__ import annotations

from dataclasses import dataclass

from lanewarden.store import Connection, UnitOfWork


@dataclass(frozen=True, slots=True, kw_only=True)
class IncidentRow:
    """One incident. ``payload`` is the contract's own message, kept as it came."""

    position: int
    key: str
    task_id: str
    payload: bytes


def put(uow: UnitOfWork, key: str, task_id: str, *, resolved: bool, payload: bytes, now_ms: int) -> None:
    """Store an incident, new or changed; what is the same is not written."""
    uow.execute(
        "INSERT INTO incidents (key, task_id, resolved, payload, resolved_ms) VALUES (?, ?, ?, ?, ?)"
        " ON CONFLICT (key) DO UPDATE SET resolved = excluded.resolved, payload = excluded.payload,"
        " resolved_ms = coalesce(resolved_ms, excluded.resolved_ms) WHERE payload <> excluded.payload",
        (key, task_id, int(resolved), payload, now_ms if resolved else None),
    )


def find(reader: Connection, key: str) -> IncidentRow | None:
    """The incident, or None."""
    row = reader.one("SELECT position, key, task_id, payload FROM incidents WHERE key = ?", (key,))
    return None if row is None else IncidentRow(position=row[0], key=row[1], task_id=row[2], payload=bytes(row[3]))


def page(
    reader: Connection, *, task_id: str, with_resolved: bool, rows_max: int, before: int | None
) -> list[IncidentRow]:
    """Incidents, newest first; of one task if it is named."""
    where, values = ["1"], list[object]()
    if task_id:
        where.append("task_id = ?")
        values.append(task_id)
    if not with_resolved:
        where.append("resolved = 0")
    if before is not None:
        where.append("position < ?")
        values.append(before)
    sql = (
        f"SELECT position, key, task_id, payload FROM incidents WHERE {' AND '.join(where)}"  # noqa: S608
        " ORDER BY position DESC LIMIT ?"
    )
    rows = reader.query(sql, (*values, rows_max))
    return [IncidentRow(position=row[0], key=row[1], task_id=row[2], payload=bytes(row[3])) for row in rows]


def prune(uow: UnitOfWork, older_than_ms: int, rows_max: int) -> int:
    """Forget at most ``rows_max`` incidents that were resolved before ``older_than_ms``, oldest first; the others never."""
    return uow.execute(
        "DELETE FROM incidents WHERE position IN (SELECT position FROM incidents"
        " WHERE resolved = 1 AND (resolved_ms IS NULL OR resolved_ms < ?) ORDER BY resolved_ms LIMIT ?)",
        (older_than_ms, rows_max),
    ).rowcount
