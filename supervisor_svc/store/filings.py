"""Claimed incidents as rows, from the claim until the runner has what came of it."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, Final

from lanewarden.store import Connection, Row, UnitOfWork
from lanewarden.telemetry import Value, span_names
from supervisor_svc.core.filing import OF_RUNNER, Filing, Stage

_COLUMNS = tuple(field.name for field in fields(Filing))
_SELECT = f"SELECT {', '.join(_COLUMNS)} FROM filings"  # noqa: S608 - the columns are the dataclass's own
_PUT = (
    f"INSERT INTO filings ({', '.join(_COLUMNS)}) VALUES ({', '.join('?' * len(_COLUMNS))})"  # noqa: S608
    f" ON CONFLICT (key) DO UPDATE SET {', '.join(f'{name} = excluded.{name}' for name in _COLUMNS[1:])}"
)
_WAITS: Final = "stage IN ('OPEN', 'FILED')"
# What leads a group is filed for all of it; what has a result of its own goes back to its runner by itself.
_ACTS: Final = f"{_WAITS} AND (stage = 'FILED' OR leader_key = key)"


def _from_row(row: Row) -> Filing:
    values: dict[str, Any] = dict(zip(_COLUMNS, row, strict=True))
    values["stage"] = Stage(values["stage"])
    return Filing(**values)


def put(uow: UnitOfWork, filing: Filing, *, was: Stage | None = None) -> None:
    """Store a filing, new or changed; telemetry is told when it ``was`` in another stage."""
    if was is not filing.stage:
        moved = {"to": filing.stage.value} | ({} if was is None else {"from": was.value})
        about: dict[str, Value] = {"incident.id": filing.key, "task.id": filing.task_id, "epoch": filing.epoch}
        uow.tell(span_names.FILING_TRANSITION, moved, about=about)
    values = [getattr(filing, name) for name in _COLUMNS]
    values[_COLUMNS.index("stage")] = filing.stage.value
    uow.execute(_PUT, values)


def find(reader: Connection, key: str) -> Filing | None:
    """The filing of an incident, or None."""
    row = reader.one(f"{_SELECT} WHERE key = ?", (key,))
    return None if row is None else _from_row(row)


def gathering(reader: Connection, cause: str, now_ms: int) -> Filing | None:
    """The filing that waits for others of its cause, if one still does: it has not been tried yet."""
    sql = f"{_SELECT} WHERE cause = ? AND stage = 'OPEN' AND leader_key = key AND tries = 0"
    sql += " AND unsure_since_ms IS NULL AND due_ms > ?"
    row = reader.one(f"{sql} ORDER BY position DESC LIMIT 1", (cause, now_ms))
    return None if row is None else _from_row(row)


def group(reader: Connection, leader_key: str) -> list[Filing]:
    """The open filings that one item is made for, the one that leads first."""
    sql = f"{_SELECT} WHERE leader_key = ? AND stage = 'OPEN' ORDER BY key <> leader_key, position"
    return [_from_row(row) for row in reader.query(sql, (leader_key,))]


def members(reader: Connection, filing: Filing) -> list[Filing]:
    """The filings that share an item with this one, itself included."""
    sql = f"{_SELECT} WHERE leader_key = ? AND external_id = ? ORDER BY position"
    return [_from_row(row) for row in reader.query(sql, (filing.leader_key, filing.external_id))]


def due(reader: Connection, now_ms: int, rows_max: int) -> list[Filing]:
    """What is to be done now, the longest overdue first."""
    sql = f"{_SELECT} WHERE {_ACTS} AND due_ms <= ? ORDER BY due_ms, position LIMIT ?"
    return [_from_row(row) for row in reader.query(sql, (now_ms, rows_max))]


def waiting_for(reader: Connection, runner_id: str) -> list[Filing]:
    """What waits for nothing but its runner, the oldest first."""
    marks = ", ".join("?" * len(OF_RUNNER))
    sql = f"{_SELECT} WHERE {_ACTS} AND runner_id = ? AND failure IN ({marks}) ORDER BY position"
    return [_from_row(row) for row in reader.query(sql, (runner_id, *sorted(OF_RUNNER)))]


def next_due_ms(reader: Connection) -> int | None:
    """When there is something to do, in steady time; None when nothing waits."""
    row = reader.one(f"SELECT min(due_ms) FROM filings WHERE {_ACTS}")  # noqa: S608
    return None if row is None or row[0] is None else int(row[0])


def prune(uow: UnitOfWork, older_than_ms: int, rows_max: int) -> int:
    """Forget at most ``rows_max`` filings that had their last step before ``older_than_ms``, oldest first; never one whose
    incident is known here and not resolved, nor one of a group that is not done with.
    """
    return uow.execute(
        "DELETE FROM filings WHERE position IN (SELECT position FROM filings AS this"
        " WHERE stage IN ('RECORDED', 'LOST') AND due_ms < ?"
        " AND NOT EXISTS (SELECT 1 FROM incidents WHERE incidents.key = this.key AND resolved = 0)"
        " AND NOT EXISTS (SELECT 1 FROM filings AS other"
        " WHERE other.leader_key = this.leader_key AND other.stage IN ('OPEN', 'FILED'))"
        " ORDER BY due_ms LIMIT ?)",
        (older_than_ms, rows_max),
    ).rowcount
