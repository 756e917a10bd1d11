"""Notifications as rows: one per sink, stored with the change that they tell of, kept until they are delivered."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Final

from lanewarden.store import Connection, Row, UnitOfWork


@dataclass(frozen=True, slots=True, kw_only=True)
class Notification:
    """One thing that people are told through one sink. ``payload`` is JSON, the same at each try.

    ``next_try_ms`` is None once it is finished: delivered, or given up with its ``failure``. ``changed_ms`` is when it was
    stored or last tried. ``traceparent`` is the trace of the change that it tells of.
    """

    sink: str
    key: str
    escalation_id: str
    kind: str
    addressee: str
    payload: str
    changed_ms: int
    next_try_ms: int | None
    tries: int = 0
    delivered_wall_ms: int | None = None
    failure: str = ""
    traceparent: str = ""
    position: int = 0


_COLUMNS = tuple(field.name for field in fields(Notification))
_GIVEN = _COLUMNS[:-1]
_INSERT = (
    f"INSERT INTO notifications ({', '.join(_GIVEN)}) VALUES ({', '.join('?' * len(_GIVEN))})"  # noqa: S608
    " ON CONFLICT (sink, key) DO NOTHING"
)
_SELECT = f"SELECT {', '.join(_COLUMNS)} FROM notifications AS this"  # noqa: S608 - the columns are the dataclass's own
# What happened to an escalation is told in its order: nothing overtakes what still waits.
_FIRST: Final = (
    "sink = ? AND next_try_ms IS NOT NULL AND NOT EXISTS (SELECT 1 FROM notifications AS other"
    " WHERE other.escalation_id = this.escalation_id AND other.sink = this.sink AND other.position < this.position"
    " AND other.next_try_ms IS NOT NULL)"
)


def _from_row(row: Row) -> Notification:
    values: dict[str, Any] = dict(zip(_COLUMNS, row, strict=True))
    return Notification(**values)


def insert(uow: UnitOfWork, notification: Notification) -> bool:
    """Store a notification; False when its sink has one of that key."""
    return uow.execute(_INSERT, [getattr(notification, name) for name in _GIVEN]).rowcount == 1


def due(reader: Connection, sink: str, now_ms: int, rows_max: int) -> list[Notification]:
    """What a sink may be sent now, at most one of each escalation: what has failed least comes first, then by age."""
    sql = f"{_SELECT} WHERE {_FIRST} AND next_try_ms <= ? ORDER BY tries, position LIMIT ?"
    return [_from_row(row) for row in reader.query(sql, (sink, now_ms, rows_max))]


def next_due_ms(reader: Connection, sink: str) -> int | None:
    """When a sink may be sent something, in steady time; None when nothing waits for it."""
    row = reader.one(f"SELECT min(next_try_ms) FROM notifications AS this WHERE {_FIRST}", (sink,))  # noqa: S608
    return None if row is None or row[0] is None else int(row[0])


def record(
    uow: UnitOfWork,
    notification: Notification,
    *,
    failure: str,
    next_try_ms: int | None,
    delivered_wall_ms: int | None,
    now_ms: int,
) -> None:
    """Record what one more try came to."""
    uow.execute(
        "UPDATE notifications SET tries = tries + 1, failure = ?, next_try_ms = ?, delivered_wall_ms = ?, changed_ms = ?"
        " WHERE position = ? AND next_try_ms IS NOT NULL",
        (failure, next_try_ms, delivered_wall_ms, now_ms, notification.position),
    )


def page(reader: Connection, *, escalation_id: str, rows_max: int, before: int | None) -> list[Notification]:
    """Notifications, newest first; about one escalation if it is named."""
    where, values = ["1"], list[object]()
    if escalation_id:
        where.append("escalation_id = ?")
        values.append(escalation_id)
    if before is not None:
        where.append("position < ?")
        values.append(before)
    sql = f"{_SELECT} WHERE {' AND '.join(where)} ORDER BY position DESC LIMIT ?"
    return [_from_row(row) for row in reader.query(sql, (*values, rows_max))]


def prune(uow: UnitOfWork, older_than_ms: int, rows_max: int, sinks: Sequence[str]) -> int:
    """Forget at most ``rows_max`` notifications that were finished before ``older_than_ms``, or that have waited since then
    for a sink which is not among ``sinks``; what waits for one of these is never forgotten.
    """
    return uow.execute(
        "DELETE FROM notifications WHERE position IN (SELECT position FROM notifications WHERE changed_ms < ?"
        " AND (next_try_ms IS NULL OR sink NOT IN (SELECT value FROM json_each(?))) ORDER BY changed_ms LIMIT ?)",
        (older_than_ms, json.dumps(list(sinks)), rows_max),
    ).rowcount
