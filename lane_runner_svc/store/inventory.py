"""What this runner has of its tasks, to be compared with what its supervisor knows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from lane_runner_svc.store.tasks import UNFINISHED, Reader

_RANGE: Final = "task_id > ? AND (? = '' OR task_id <= ?)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """An unfinished task with its open holds, by escalation id."""

    task_id: str
    version: int
    open_holds: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """Every unfinished task whose id is beyond ``after`` and not beyond ``through``, at one moment; by id.

    ``through`` is empty on the last page. ``marked`` are the tasks within the range that the outbox held a mark of.
    """

    items: tuple[Item, ...]
    after: str
    through: str
    marked: frozenset[str]


def page(reader: Reader, *, after: str, rows_max: int) -> Page:
    """The page that begins after an id."""
    sql = f"SELECT task_id, version FROM tasks WHERE task_id > ? AND {UNFINISHED} ORDER BY task_id LIMIT ?"  # noqa: S608
    rows = reader.query(sql, (after, rows_max))
    through = str(rows[-1][0]) if len(rows) == rows_max else ""
    holds: dict[str, list[str]] = {}
    # The first half of the condition lets SQLite see that the index holds_unclosed holds them all.
    open_holds = f"state IN ('OPEN', 'RELEASED') AND state = 'OPEN' AND {_RANGE} ORDER BY position"
    sql = f"SELECT task_id, escalation_id FROM holds WHERE {open_holds}"  # noqa: S608
    for task_id, escalation_id in reader.query(sql, (after, through, through)):
        holds.setdefault(task_id, []).append(escalation_id)
    return Page(
        items=tuple(
            Item(task_id=task_id, version=version, open_holds=tuple(holds.get(task_id, ())))
            for task_id, version in rows
        ),
        after=after,
        through=through,
        marked=_marked(reader, after, through),
    )


def _marked(reader: Reader, after: str, through: str) -> frozenset[str]:
    marks = (
        "SELECT coalesce(h.task_id, o.entity_id) AS task_id FROM outbox o"
        " LEFT JOIN holds h ON o.kind <> 'task' AND h.escalation_id = o.entity_id"
    )
    rows = reader.query(f"SELECT DISTINCT task_id FROM ({marks}) WHERE {_RANGE}", (after, through, through))  # noqa: S608
    return frozenset(str(row[0]) for row in rows)


def version(reader: Reader, task_id: str) -> tuple[int, bool] | None:
    """A task's version and whether it is unfinished; None when this store does not have it."""
    row = reader.one(f"SELECT version, {UNFINISHED} FROM tasks WHERE task_id = ?", (task_id,))  # noqa: S608
    return None if row is None else (int(row[0]), bool(row[1]))


def escalation_ids(reader: Reader, task_id: str) -> list[str]:
    """Every escalation of a task, oldest first."""
    rows = reader.query("SELECT escalation_id FROM holds WHERE task_id = ? ORDER BY position", (task_id,))
    return [str(row[0]) for row in rows]
