"""Commands that were accepted here and have to reach their runner: stored before they are answered."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Final

from lanewarden.errors import Reason, Refusal
from lanewarden.store import Connection, Row, UnitOfWork

ACKNOWLEDGE: Final = "ACKNOWLEDGE"
STEER: Final = "STEER"
STORED: Final = "STORED"
DELIVERED: Final = "DELIVERED"
REFUSED: Final = "REFUSED"


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One command. ``command_id`` is the operator's request_id and the runner's; ``payload`` is the request to the runner.

    ``escalation_id`` is None for an instruction. ``refusal`` is the runner's final no.
    """

    command_id: str
    kind: str
    runner_id: str
    escalation_id: str | None
    task_id: str
    payload: bytes
    identity: str
    role: str
    stored_ms: int
    stored_wall_ms: int
    traceparent: str
    state: str = STORED
    refusal: Refusal | None = None
    position: int = 0


_COLUMNS = tuple(field.name for field in fields(Command))
_SELECT = f"SELECT {', '.join(_COLUMNS)} FROM outbox"  # noqa: S608 - the columns are the dataclass's own
_RULINGS = "kind = 'STEER' AND escalation_id = ?"


def _from_row(row: Row) -> Command:
    values: dict[str, Any] = dict(zip(_COLUMNS, row, strict=True))
    values["payload"] = bytes(values["payload"])
    values["refusal"] = None if values["refusal"] is None else _refusal(values["refusal"])
    return Command(**values)


def _refusal(text: str) -> Refusal:
    facts = json.loads(text)
    return Refusal(Reason[facts["reason"]], facts["message"], facts["metadata"])


def insert(uow: UnitOfWork, command: Command) -> None:
    """Put a command at the end of its runner's queue."""
    names = [name for name in _COLUMNS if name not in ("position", "refusal")]
    uow.execute(
        f"INSERT INTO outbox (position, {', '.join(names)}) VALUES"  # noqa: S608
        f" ((SELECT coalesce(max(position), 0) + 1 FROM outbox), {', '.join('?' * len(names))})",
        [getattr(command, name) for name in names],
    )


def find(reader: Connection, command_id: str) -> Command | None:
    """The command, or None."""
    row = reader.one(f"{_SELECT} WHERE command_id = ?", (command_id,))
    return None if row is None else _from_row(row)


def waiting(reader: Connection, runner_id: str, *, after: int, rows_max: int) -> list[Command]:
    """What a runner has not had yet, oldest first."""
    sql = f"{_SELECT} WHERE state = 'STORED' AND runner_id = ? AND position > ? ORDER BY position LIMIT ?"
    return [_from_row(row) for row in reader.query(sql, (runner_id, after, rows_max))]


def oldest_of_tasks(reader: Connection, runner_id: str, *, without: Sequence[str], rows_max: int) -> list[Command]:
    """Of what a runner has not had yet, each task's oldest; the oldest first. The ids in ``without`` are passed over."""
    waiting = f"state = 'STORED' AND runner_id = ? AND command_id NOT IN ({', '.join('?' * len(without))})"
    oldest = f"SELECT min(position) FROM outbox WHERE {waiting} GROUP BY task_id ORDER BY 1 LIMIT ?"  # noqa: S608
    rows = reader.query(f"{_SELECT} WHERE position IN ({oldest}) ORDER BY position", (runner_id, *without, rows_max))
    return [_from_row(row) for row in rows]


def waiting_counts(reader: Connection) -> dict[str, int]:
    """How many commands each runner has not had yet."""
    sql = "SELECT runner_id, count(*) FROM outbox WHERE state = 'STORED' GROUP BY runner_id"
    return {str(runner_id): int(number) for runner_id, number in reader.query(sql)}


def runners_waited_for(reader: Connection) -> list[str]:
    """The runners that have not had everything yet."""
    rows = reader.query("SELECT DISTINCT runner_id FROM outbox WHERE state = 'STORED' ORDER BY runner_id")
    return [str(row[0]) for row in rows]


def latest_ruling(reader: Connection, escalation_id: str) -> Command | None:
    """The ruling given here on an escalation: the one that stands, otherwise the last that was refused; or None."""
    sql = f"{_SELECT} WHERE {_RULINGS} ORDER BY state = 'REFUSED', position DESC LIMIT 1"
    row = reader.one(sql, (escalation_id,))
    return None if row is None else _from_row(row)


def settle(uow: UnitOfWork, command_id: str, refusal: Refusal | None) -> bool:
    """Record what became of a stored command; False when that is recorded already."""
    facts = None
    if refusal is not None:
        facts = json.dumps(
            {"reason": refusal.reason.name, "message": refusal.message, "metadata": dict(refusal.metadata)}
        )
    settled = uow.execute(
        "UPDATE outbox SET state = ?, refusal = ? WHERE command_id = ? AND state = 'STORED'",
        (DELIVERED if refusal is None else REFUSED, facts, command_id),
    )
    return settled.rowcount == 1


def prune(uow: UnitOfWork, older_than_ms: int, rows_max: int) -> int:
    """Forget at most ``rows_max`` finished commands stored before ``older_than_ms``; what waits is never forgotten."""
    return uow.execute(
        "DELETE FROM outbox WHERE rowid IN"
        " (SELECT rowid FROM outbox WHERE state <> 'STORED' AND stored_ms < ? ORDER BY stored_ms LIMIT ?)",
        (older_than_ms, rows_max),
    ).rowcount
