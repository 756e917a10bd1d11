"""Escalations and tasks as their runners last reported them. The payload is the contract's own message, kept as it came."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from lanewarden.records import replace
from lanewarden.store import Connection, Row, UnitOfWork
from supervisor_svc.core.observation import Observed
from supervisor_svc.core.view import Author, Text

UNFINISHED: Final = "state NOT IN ('SUCCEEDED', 'FAILED', 'CANCELED', 'SETTLED') AND NOT forgotten"
"""Tasks that go on: neither ended, nor lost by their runner."""


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """One escalation or task. ``position`` orders them by when they were first heard of.

    ``observed`` is what is known beyond the last report of a task; None for an escalation, and for a task of which nothing
    has been heard since that is stored.
    """

    position: int
    runner_id: str
    payload: bytes
    observed: Observed | None = None


def _view(row: Row) -> View:
    return View(position=row["position"], runner_id=row["runner_id"], payload=bytes(row["payload"]))


def _task(row: Row) -> View:
    if row["running_ms"] is None:
        return _view(row)
    cause = Text(author=Author[row["cause_author"]], text=row["cause"]) if row["cause_author"] else None
    observed = Observed(
        running_ms=row["running_ms"], progressed_ms=row["progressed_ms"], input_ms=row["input_ms"], cause=cause
    )
    return replace(_view(row), observed=observed)


def put_escalation(
    uow: UnitOfWork,
    *,
    escalation_id: str,
    runner_id: str,
    task_id: str,
    hold_state: str,
    payload: bytes,
    wall_ms: int,
) -> None:
    """Store an escalation, new or changed; a changed one keeps its place."""
    uow.execute(
        "INSERT INTO escalations (escalation_id, position, runner_id, task_id, hold_state, payload, received_wall_ms)"
        " VALUES (?, (SELECT coalesce(max(position), 0) + 1 FROM escalations), ?, ?, ?, ?, ?)"
        " ON CONFLICT (escalation_id) DO UPDATE SET runner_id = excluded.runner_id, hold_state = excluded.hold_state,"
        " payload = excluded.payload, received_wall_ms = excluded.received_wall_ms, forgotten = 0",
        (escalation_id, runner_id, task_id, hold_state, payload, wall_ms),
    )


def put_task(
    uow: UnitOfWork,
    *,
    task_id: str,
    runner_id: str,
    state: str,
    version: int,
    payload: bytes,
    wall_ms: int,
    observed: Observed,
    unfiled: bool,
) -> None:
    """Store a task, new or changed; a changed one keeps its place. ``unfiled`` says that it is to be filed as given up."""
    cause = observed.cause
    uow.execute(
        "INSERT INTO tasks (task_id, position, runner_id, state, version, payload, received_wall_ms,"
        " running_ms, progressed_ms, input_ms, cause_author, cause, unfiled)"
        " VALUES (?, (SELECT coalesce(max(position), 0) + 1 FROM tasks), ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
        " ON CONFLICT (task_id) DO UPDATE SET runner_id = excluded.runner_id, state = excluded.state,"
        " version = excluded.version, payload = excluded.payload, received_wall_ms = excluded.received_wall_ms,"
        " running_ms = excluded.running_ms, progressed_ms = excluded.progressed_ms, input_ms = excluded.input_ms,"
        " cause_author = excluded.cause_author, cause = excluded.cause, unfiled = excluded.unfiled, forgotten = 0",
        (
            *(task_id, runner_id, state, version, payload, wall_ms),
            *(observed.running_ms, observed.progressed_ms, observed.input_ms),
            *((cause.author.value, cause.text) if cause else (None, None)),
            int(unfiled),
        ),
    )


def task_version(reader: Connection, task_id: str) -> int:
    """The version of the task as stored here; -1 when it is not."""
    row = reader.one("SELECT version FROM tasks WHERE task_id = ?", (task_id,))
    return -1 if row is None else int(row[0])


def escalation(reader: Connection, escalation_id: str) -> View | None:
    """One escalation, or None."""
    row = reader.one("SELECT * FROM escalations WHERE escalation_id = ?", (escalation_id,))
    return None if row is None else _view(row)


def task(reader: Connection, task_id: str) -> View | None:
    """One task, or None."""
    row = reader.one("SELECT * FROM tasks WHERE task_id = ?", (task_id,))
    return None if row is None else _task(row)


def escalations(
    reader: Connection, *, states: Sequence[str], task_id: str, rows_max: int, after: int | None, forgotten: bool = True
) -> list[View]:
    """Escalations in the given states, oldest first; of one task if it is named. With ``forgotten`` also those that their
    runner has lost, so that nobody waits for a ruling on them; the default.
    """
    where, values = [f"hold_state IN ({', '.join('?' * len(states))})"], list[object](states)
    if task_id:
        where.append("task_id = ?")
        values.append(task_id)
    if not forgotten:
        where.append("NOT forgotten")
    if after is not None:
        where.append("position > ?")
        values.append(after)
    sql = f"SELECT * FROM escalations WHERE {' AND '.join(where)} ORDER BY position LIMIT ?"  # noqa: S608
    return [_view(row) for row in reader.query(sql, (*values, rows_max))]


def tasks(
    reader: Connection, *, states: Sequence[str], runner_id: str, rows_max: int, before: int | None
) -> list[View]:
    """Tasks, newest first; empty ``states`` and ``runner_id`` mean all."""
    where, values = ["1"], list[object]()
    if states:
        where.append(f"state IN ({', '.join('?' * len(states))})")
        values += states
    if runner_id:
        where.append("runner_id = ?")
        values.append(runner_id)
    if before is not None:
        where.append("position < ?")
        values.append(before)
    sql = f"SELECT * FROM tasks WHERE {' AND '.join(where)} ORDER BY position DESC LIMIT ?"  # noqa: S608
    return [_task(row) for row in reader.query(sql, (*values, rows_max))]


def open_ids(reader: Connection, task_id: str) -> list[str]:
    """The escalations with an open hold, oldest first; of one task if it is named."""
    sql = (
        "SELECT escalation_id FROM escalations WHERE hold_state = 'OPEN' AND NOT forgotten AND ? IN ('', task_id)"
        " ORDER BY position"
    )
    return [str(row[0]) for row in reader.query(sql, (task_id,))]


def unfinished_ids(reader: Connection, runner_id: str = "") -> list[str]:
    """The tasks that have not ended, oldest first; of one runner if it is named."""
    sql = f"SELECT task_id FROM tasks WHERE {UNFINISHED} AND ? IN ('', runner_id) ORDER BY position"  # noqa: S608
    return [str(row[0]) for row in reader.query(sql, (runner_id,))]


def unfiled_ids(reader: Connection, runner_id: str = "") -> list[str]:
    """The tasks that were given up and are not filed as that yet, oldest first; of one runner if it is named."""
    sql = "SELECT task_id FROM tasks WHERE unfiled = 1 AND ? IN ('', runner_id) ORDER BY position"
    return [str(row[0]) for row in reader.query(sql, (runner_id,))]


def supervised_ids(reader: Connection, runner_id: str = "") -> list[str]:
    """The tasks that something may have to be done about: those that have not ended, and those that are to be filed; of one
    runner if it is named.
    """
    return [*unfinished_ids(reader, runner_id), *unfiled_ids(reader, runner_id)]


def unfinished_counts(reader: Connection) -> dict[str, int]:
    """Per runner, how many of its tasks have not ended."""
    sql = f"SELECT runner_id, count(*) FROM tasks WHERE {UNFINISHED} GROUP BY runner_id"  # noqa: S608
    return {str(runner_id): int(number) for runner_id, number in reader.query(sql)}
