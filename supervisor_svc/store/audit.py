"""Who did what, and what came of it. Rows are only ever added; triggers see to that."""

from __future__ import annotations

from dataclasses import dataclass, fields

from lanewarden.store import Connection, UnitOfWork


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One entry; ``sequence`` is given by :func:`append`."""

    wall_ms: int
    identity: str
    role: str
    action: str
    task_id: str
    escalation_id: str
    request_id: str
    trace_id: str
    outcome: str
    sequence: int = 0


_COLUMNS = tuple(field.name for field in fields(Entry))
_GIVEN = _COLUMNS[:-1]
_SAME = ("request_id", "action", "outcome", "identity", "role")
_APPEND = (
    f"INSERT INTO audit ({', '.join(_GIVEN)}) SELECT {', '.join(f':{name}' for name in _GIVEN)}"  # noqa: S608
    f" WHERE NOT EXISTS (SELECT 1 FROM audit WHERE {' AND '.join(f'{name} = :{name}' for name in _SAME)})"
)


def append(uow: UnitOfWork, entry: Entry) -> None:
    """Add an entry, unless the same request has come to the same before: a repeat does nothing and adds nothing."""
    uow.execute(_APPEND, {name: getattr(entry, name) for name in _GIVEN})


def page(reader: Connection, *, task_id: str, rows_max: int, after: int | None) -> list[Entry]:
    """Entries, oldest first; about one task if it is named."""
    about = "AND task_id = ?" if task_id else ""
    rows = reader.query(
        f"SELECT {', '.join(_COLUMNS)} FROM audit WHERE sequence > ? {about} ORDER BY sequence LIMIT ?",  # noqa: S608
        [after or 0, *([task_id] if task_id else []), rows_max],
    )
    return [Entry(**dict(zip(_COLUMNS, row, strict=True))) for row in rows]
