"""What is known of one runner's tasks, to be compared with what it has, and what it has forgotten."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from lanewarden.store import Connection, UnitOfWork
from supervisor_svc.core.inventory import Item
from supervisor_svc.store.views import UNFINISHED

_IDS_AT_A_TIME: Final = 500
_OPEN: Final = "hold_state = 'OPEN' AND NOT forgotten"
_RANGE: Final = "runner_id = ? AND task_id > ? AND (? = '' OR task_id <= ?)"


def known(
    reader: Connection, runner_id: str, *, after: str, through: str, listed: Sequence[str], rows_max: int
) -> tuple[dict[str, Item], str]:
    """The runner's tasks within a range of ids that go on or have open holds, and the end of the range: ``through``, or the
    last task where more than ``rows_max`` go on. With them whatever is known of the ``listed`` tasks up to there.
    """
    sql = f"SELECT task_id, version FROM tasks WHERE {UNFINISHED} AND {_RANGE} ORDER BY task_id LIMIT ?"  # noqa: S608
    rows = reader.query(sql, (runner_id, after, through, through, rows_max))
    versions: dict[str, tuple[int | None, bool]] = {str(task_id): (version, True) for task_id, version in rows}
    if len(rows) == rows_max:
        through = str(rows[-1][0])
    others = [each for each in listed if each not in versions and (not through or each <= through)]
    for start in range(0, len(others), _IDS_AT_A_TIME):
        versions |= _finished(reader, runner_id, others[start : start + _IDS_AT_A_TIME])
    holds: dict[str, set[str]] = {}
    sql = f"SELECT task_id, escalation_id FROM escalations WHERE {_OPEN} AND {_RANGE}"  # noqa: S608
    for task_id, escalation_id in reader.query(sql, (runner_id, after, through, through)):
        holds.setdefault(str(task_id), set()).add(str(escalation_id))
        versions.setdefault(str(task_id), (None, False))
    return {
        task_id: Item(
            task_id=task_id,
            version=version,
            open_holds=frozenset(holds.get(task_id, ())),
            unfinished=unfinished,
        )
        for task_id, (version, unfinished) in versions.items()
    }, through


def _finished(reader: Connection, runner_id: str, task_ids: Sequence[str]) -> dict[str, tuple[int | None, bool]]:
    """Versions of tasks that are known as ended. One that counts as forgotten is not known: its runner has it again."""
    marks = ", ".join("?" * len(task_ids))
    sql = f"SELECT task_id, version FROM tasks WHERE NOT forgotten AND runner_id = ? AND task_id IN ({marks})"  # noqa: S608
    return {str(task_id): (version, False) for task_id, version in reader.query(sql, (runner_id, *task_ids))}


def forget_task(uow: UnitOfWork, task_id: str, payload: bytes) -> None:
    """Note that the task's runner does not have it any more; a report of it undoes that."""
    uow.execute("UPDATE tasks SET forgotten = 1, payload = ? WHERE task_id = ?", (payload, task_id))


def forget_escalation(uow: UnitOfWork, escalation_id: str, payload: bytes) -> None:
    """The same of an escalation. Where its hold stands was its runner's word and stays."""
    uow.execute("UPDATE escalations SET forgotten = 1, payload = ? WHERE escalation_id = ?", (payload, escalation_id))


def open_escalations(reader: Connection, task_id: str) -> list[str]:
    """The open holds of a task, by escalation id."""
    sql = f"SELECT escalation_id FROM escalations WHERE {_OPEN} AND task_id = ? ORDER BY position"  # noqa: S608
    return [str(row[0]) for row in reader.query(sql, (task_id,))]
