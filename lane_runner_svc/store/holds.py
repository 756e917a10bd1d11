"""Escalations with their holds and rulings, and reviewed gates, as rows."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import fields
from typing import Any, Final

from lane_runner_svc.core.completion import GateDecision
from lane_runner_svc.core.holds import Actor, Decision, Hold, HoldState, Ruling
from lane_runner_svc.store.tasks import Reader
from lanewarden.errors import Reason, refuse
from lanewarden.records import made
from lanewarden.store import Row, UnitOfWork

ROWS_AT_A_TIME: Final = 50
_READ_IN: Final = ("options", "state", "expired", "ruling", "acked_by")
_AS_STORED: Final = tuple(field.name for field in fields(Hold) if field.name not in _READ_IN)
_UNCLOSED = "state IN ('OPEN', 'RELEASED')"  # word for word the condition of the index holds_unclosed
OPEN = f"{_UNCLOSED} AND state = 'OPEN'"  # the first half lets SQLite see that the index holds them all


def _from_row(row: Row) -> Hold:
    values: dict[str, Any] = {name: row[name] for name in _AS_STORED}
    values["options"] = _options(row["options"])
    values["state"] = HoldState[row["state"]]
    values["expired"] = bool(row["expired"])
    values["ruling"] = None if row["ruling_id"] is None else _ruling(row)
    values["acked_by"] = None if row["acked_by"] is None else Actor(identity=row["acked_by"], role=row["acked_role"])
    return made(Hold, values)


def _ruling(row: Row) -> Ruling:
    return Ruling(
        ruling_id=row["ruling_id"],
        escalation_id=row["escalation_id"],
        decision=Decision[row["decision"]],
        instructions=row["instructions"],
        option_key=row["option_key"],
        ratifies=tuple(json.loads(row["ratifies"])),
        ruled_by=Actor(identity=row["ruled_by"], role=row["ruled_role"]),
        ruled_wall_ms=row["ruled_wall_ms"],
    )


def _options(stored: str) -> tuple[tuple[str, str], ...]:
    # Most questions offer none.
    return () if stored == "[]" else tuple((key, text) for key, text in json.loads(stored))


def load(reader: Reader, escalation_id: str) -> Hold:
    """The escalation.

    Raises:
        Refusal: ESCALATION_UNKNOWN.
    """
    row = reader.one("SELECT * FROM holds WHERE escalation_id = ?", (escalation_id,))
    if row is None:
        raise refuse(
            Reason.ESCALATION_UNKNOWN,
            f"no escalation {escalation_id!r} here; `lanewarden inbox` lists the open ones",
            escalation_id=escalation_id,
        )
    return _from_row(row)


def of_task(reader: Reader, task_id: str) -> list[Hold]:
    """Every escalation of a task, oldest first."""
    rows = reader.query("SELECT * FROM holds WHERE task_id = ? ORDER BY position", (task_id,))
    return [_from_row(row) for row in rows]


def blocking(reader: Reader, task_id: str) -> list[Hold]:
    """The holds of a task that are not closed, oldest first."""
    rows = reader.query(
        f"SELECT * FROM holds WHERE task_id = ? AND {_UNCLOSED} ORDER BY position",  # noqa: S608
        (task_id,),
    )
    return [_from_row(row) for row in rows]


def open_ids(reader: Reader, task_id: str) -> list[str]:
    """The escalations of a task that wait for a ruling, oldest first."""
    rows = reader.query(
        f"SELECT escalation_id FROM holds WHERE task_id = ? AND {OPEN} ORDER BY position",  # noqa: S608
        (task_id,),
    )
    return [str(row[0]) for row in rows]


def count_blocking(reader: Reader, task_id: str) -> int:
    """How many holds of a task are not closed."""
    row = reader.one(f"SELECT count(*) FROM holds WHERE task_id = ? AND {_UNCLOSED}", (task_id,))  # noqa: S608
    assert row is not None
    return int(row[0])


def count_open(reader: Reader, task_id: str) -> int:
    """How many holds of a task wait for a ruling."""
    row = reader.one(f"SELECT count(*) FROM holds WHERE task_id = ? AND {OPEN}", (task_id,))  # noqa: S608
    assert row is not None
    return int(row[0])


def next_sequence(uow: UnitOfWork, task_id: str, epoch: int, attempt: int) -> int:
    """The number of the attempt's next escalation, from 1."""
    row = uow.one(
        "SELECT coalesce(max(sequence), 0) FROM holds WHERE task_id = ? AND epoch = ? AND attempt = ?",
        (task_id, epoch, attempt),
    )
    assert row is not None
    return int(row[0]) + 1


def insert(uow: UnitOfWork, hold: Hold) -> None:
    """Store a new escalation; SQLite gives it the next position, for none is ever deleted."""
    uow.execute(
        "INSERT INTO holds (escalation_id, task_id, epoch, attempt, sequence, question, options, state, opened_wall_ms,"
        " opened_ms, key, deadline_ms, next_reminder_ms, approvers_told, owed_by, timer_ms,"
        " cancel_cause, acks, ack_note) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, '', 0, '')",
        (
            hold.escalation_id,
            hold.task_id,
            hold.epoch,
            hold.attempt,
            hold.sequence,
            hold.question,
            json.dumps(hold.options),
            hold.state.value,
            hold.opened_wall_ms,
            hold.opened_ms,
            hold.key,
            hold.deadline_ms,
            hold.next_reminder_ms,
            hold.approvers_told,
            hold.owed_by,
            hold.timer_ms,
        ),
    )


def update(uow: UnitOfWork, hold: Hold) -> None:
    """Store what may change of an escalation."""
    ruling = hold.ruling
    uow.execute(
        "UPDATE holds SET state = ?, closed_wall_ms = ?, cancel_cause = ?, acks = ?, acked_by = ?, acked_role = ?,"
        " acked_wall_ms = ?, expected_by_wall_ms = ?, ack_note = ?, ruling_id = ?, decision = ?, instructions = ?,"
        " option_key = ?, ratifies = ?, ruled_by = ?, ruled_role = ?, ruled_wall_ms = ?, deadline_ms = ?, expired = ?,"
        " reminders = ?, reminder_step = ?, next_reminder_ms = ?, approvers_told = ?, owed_by = ?, timer_ms = ?"
        " WHERE escalation_id = ?",
        (
            hold.state.value,
            hold.closed_wall_ms,
            hold.cancel_cause,
            hold.acks,
            hold.acked_by.identity if hold.acked_by else None,
            hold.acked_by.role if hold.acked_by else None,
            hold.acked_wall_ms,
            hold.expected_by_wall_ms,
            hold.ack_note,
            ruling.ruling_id if ruling else None,
            ruling.decision.value if ruling else None,
            ruling.instructions if ruling else None,
            ruling.option_key if ruling else None,
            json.dumps(ruling.ratifies) if ruling else None,
            ruling.ruled_by.identity if ruling else None,
            ruling.ruled_by.role if ruling else None,
            ruling.ruled_wall_ms if ruling else None,
            hold.deadline_ms,
            hold.expired,
            hold.reminders,
            hold.reminder_step,
            hold.next_reminder_ms,
            hold.approvers_told,
            hold.owed_by,
            hold.timer_ms,
            hold.escalation_id,
        ),
    )


def due_timers(reader: Reader, now_ms: int, rows_max: int) -> list[Hold]:
    """Open holds whose timer is due, longest overdue first."""
    rows = reader.query(
        "SELECT * FROM holds WHERE state = 'OPEN' AND timer_ms <= ? ORDER BY timer_ms LIMIT ?", (now_ms, rows_max)
    )
    return [_from_row(row) for row in rows]


def next_timer_ms(reader: Reader) -> int | None:
    """When the next timer of an open hold is due, in steady milliseconds."""
    row = reader.one("SELECT min(timer_ms) FROM holds WHERE state = 'OPEN' AND timer_ms IS NOT NULL")
    return None if row is None else row[0]


def count_expired(reader: Reader, task_id: str) -> int:
    """How many open holds of a task have passed their deadline."""
    row = reader.one("SELECT count(*) FROM holds WHERE task_id = ? AND state = 'OPEN' AND expired", (task_id,))
    assert row is not None
    return int(row[0])


def page(reader: Reader, *, states: Iterable[str], task_id: str, after: int | None) -> Iterator[tuple[int, Hold]]:
    """Escalations in ``states`` with their positions, oldest first, read a few at a time: each may be large."""
    wanted = list(states)
    where, values = [f"state IN ({', '.join('?' * len(wanted))})"], list[object](wanted)
    if task_id:
        where.append("task_id = ?")
        values.append(task_id)
    sql = f"SELECT * FROM holds WHERE {' AND '.join(where)} AND position > ? ORDER BY position LIMIT ?"  # noqa: S608
    position = after or 0
    while rows := reader.query(sql, (*values, position, ROWS_AT_A_TIME)):
        for row in rows:
            position = row["position"]
            yield position, _from_row(row)


def gate_decisions(reader: Reader, task_id: str, epoch: int) -> dict[str, Row]:
    """The latest decision on each reviewed gate of a task's epoch."""
    rows = reader.query("SELECT * FROM gates WHERE task_id = ? AND epoch = ?", (task_id, epoch))
    return {row["gate"]: row for row in rows}


def record_gate(
    uow: UnitOfWork, task_id: str, epoch: int, gate: str, decision: GateDecision, by: Actor, wall_ms: int, note: str
) -> None:
    """Store the decision of a review in place of an earlier one."""
    uow.execute(
        "INSERT INTO gates (task_id, epoch, gate, decision, decided_by, decided_role, decided_wall_ms, note)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (task_id, epoch, gate) DO UPDATE SET decision = excluded.decision,"
        " decided_by = excluded.decided_by, decided_role = excluded.decided_role,"
        " decided_wall_ms = excluded.decided_wall_ms, note = excluded.note",
        (task_id, epoch, gate, decision.value, by.identity, by.role, wall_ms, note),
    )
