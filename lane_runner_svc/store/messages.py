"""The tasks' durable inboxes, and the outbox to the supervisor, as rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from lane_runner_svc.core.holds import Actor
from lane_runner_svc.store.tasks import Reader
from lanewarden.store import Row, UnitOfWork

ROWS_AT_A_TIME: Final = 10
SEQUENCE_MAX: Final = 2**63 - 1
WAITING = "state IN ('PENDING', 'IN_FLIGHT')"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredMessage:
    """A message to a worker. ``body`` is empty for a RULING, which lives with its hold; ``traceparent`` is the trace of
    whoever sent it, empty if there is none.
    """

    message_id: str
    task_id: str
    sequence: int
    kind: str
    escalation_id: str | None
    body: str
    state: str
    sent_by: Actor
    sent_wall_ms: int
    traceparent: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    """A mark in the outbox: this entity has changed and the supervisor does not know."""

    sequence: int
    kind: str
    entity_id: str
    traceparent: str


def _from_row(row: Row) -> StoredMessage:
    return StoredMessage(
        message_id=row["message_id"],
        task_id=row["task_id"],
        sequence=row["sequence"],
        kind=row["kind"],
        escalation_id=row["escalation_id"],
        body=row["body"],
        state=row["state"],
        sent_by=Actor(identity=row["sent_by"], role=row["sent_role"]),
        sent_wall_ms=row["sent_wall_ms"],
        traceparent=row["traceparent"],
    )


def insert(
    uow: UnitOfWork,
    *,
    message_id: str,
    task_id: str,
    kind: str,
    body: str,
    sent_by: Actor,
    wall_ms: int,
    traceparent: str,
    escalation_id: str | None = None,
    state: str = "PENDING",
) -> StoredMessage | None:
    """Put a message at the end of a task's inbox; None, and nothing is stored, where the id is another message's."""
    row = uow.one(
        "INSERT INTO messages (message_id, task_id, sequence, kind, escalation_id, body, state, sent_by, sent_role,"
        " sent_wall_ms, traceparent) VALUES (?, ?, (SELECT coalesce(max(sequence), 0) + 1 FROM messages WHERE task_id = ?),"
        " ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (message_id) DO NOTHING RETURNING *",
        (
            *(message_id, task_id, task_id, kind, escalation_id, body, state),
            *(sent_by.identity, sent_by.role, wall_ms, traceparent),
        ),
    )
    return None if row is None else _from_row(row)


def load(reader: Reader, message_id: str) -> StoredMessage | None:
    """The message, or None."""
    row = reader.one("SELECT * FROM messages WHERE message_id = ?", (message_id,))
    return None if row is None else _from_row(row)


def waiting(reader: Reader, task_id: str, rows_max: int = 100) -> list[StoredMessage]:
    """Messages that no worker has acknowledged, rulings first, then in the order they were sent."""
    rows = reader.query(
        f"SELECT * FROM messages WHERE task_id = ? AND {WAITING}"  # noqa: S608
        " ORDER BY kind <> 'RULING', sequence LIMIT ?",
        (task_id, rows_max),
    )
    return [_from_row(row) for row in rows]


def count_waiting(reader: Reader, task_id: str) -> int:
    """How many messages no worker has acknowledged."""
    row = reader.one(f"SELECT count(*) FROM messages WHERE task_id = ? AND {WAITING}", (task_id,))  # noqa: S608
    assert row is not None
    return int(row[0])


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingInputs:
    """The inputs of a task that no worker has acknowledged. ``last`` is the sequence of the last, 0 without any."""

    count: int
    oldest_wall_ms: int | None
    last: int


def waiting_inputs(reader: Reader, task_id: str, *, through: int = SEQUENCE_MAX) -> WaitingInputs:
    """Those whose sequence is at most ``through``."""
    row = reader.one(
        f"SELECT count(*), min(sent_wall_ms), max(sequence) FROM messages WHERE task_id = ? AND {WAITING}"  # noqa: S608
        " AND kind = 'INPUT' AND sequence <= ?",
        (task_id, through),
    )
    assert row is not None
    return WaitingInputs(count=row[0], oldest_wall_ms=row[1], last=row[2] or 0)


def of_task(reader: Reader, task_id: str) -> Iterator[StoredMessage]:
    """A task's messages, newest first, read a few at a time: each may be large."""
    sql = "SELECT * FROM messages WHERE task_id = ? AND sequence < ? ORDER BY sequence DESC LIMIT ?"
    sequence = SEQUENCE_MAX
    while rows := reader.query(sql, (task_id, sequence, ROWS_AT_A_TIME)):
        yield from map(_from_row, rows)
        sequence = rows[-1]["sequence"]


def set_state(uow: UnitOfWork, message_id: str, state: str) -> None:
    """Move one message."""
    uow.execute("UPDATE messages SET state = ? WHERE message_id = ?", (state, message_id))


def end_waiting(uow: UnitOfWork, task_id: str, state: str) -> None:
    """Move every message that no worker has acknowledged."""
    uow.execute(f"UPDATE messages SET state = ? WHERE task_id = ? AND {WAITING}", (state, task_id))  # noqa: S608


def park_waiting(uow: UnitOfWork, task_id: str) -> None:
    """Keep every input and instruction that no worker has acknowledged; a ruling belongs to its hold, which has ended."""
    uow.execute(
        f"UPDATE messages SET state = iif(kind = 'RULING', 'UNDELIVERED', 'PARKED') WHERE task_id = ? AND {WAITING}",  # noqa: S608
        (task_id,),
    )


def unpark(uow: UnitOfWork, task_id: str) -> None:
    """Make what was kept for a task wait for its next worker."""
    uow.execute("UPDATE messages SET state = 'PENDING' WHERE task_id = ? AND state = 'PARKED'", (task_id,))


def return_in_flight(uow: UnitOfWork, task_id: str) -> None:
    """Make what a dead attempt had not acknowledged wait for the next one."""
    uow.execute("UPDATE messages SET state = 'PENDING' WHERE task_id = ? AND state = 'IN_FLIGHT'", (task_id,))


def mark(uow: UnitOfWork, changes: Sequence[tuple[str, str]], traceparent: str) -> None:
    """Note in the outbox, in this order, that entities have changed: the kind and the id of each."""
    values = ", ".join("(?, ?, ?)" for _ in changes)
    uow.execute(
        f"INSERT INTO outbox (kind, entity_id, traceparent) VALUES {values}",  # noqa: S608
        [value for kind, entity_id in changes for value in (kind, entity_id, traceparent)],
    )


def due(reader: Reader, *, after: int, rows_max: int) -> list[Due]:
    """The oldest marks beyond ``after``."""
    rows = reader.query("SELECT * FROM outbox WHERE sequence > ? ORDER BY sequence LIMIT ?", (after, rows_max))
    return [
        Due(
            sequence=row["sequence"],
            kind=row["kind"],
            entity_id=row["entity_id"],
            traceparent=row["traceparent"],
        )
        for row in rows
    ]


def follows(reader: Reader, taken: int) -> bool:
    """Whether the marks that are kept go on from ``taken``: nothing between was forgotten, nothing was made up."""
    row = reader.one("SELECT seq FROM sqlite_sequence WHERE name = 'outbox'")
    last = int(row[0]) if row else 0
    first = due(reader, after=0, rows_max=1)
    oldest = first[0].sequence if first else last + 1
    return oldest - 1 <= taken <= last


def restart(uow: UnitOfWork, taken: int) -> None:
    """Number the marks anew from ``taken`` and mark everything there is, ended tasks and closed holds included."""
    untold = {row[0] for row in uow.query("SELECT entity_id FROM outbox WHERE kind = 'new_escalation'")}
    uow.execute("DELETE FROM outbox")
    uow.execute("DELETE FROM sqlite_sequence WHERE name = 'outbox'")
    uow.execute("INSERT INTO sqlite_sequence (name, seq) VALUES ('outbox', ?)", (taken,))
    everything = "INSERT INTO outbox (kind, entity_id, traceparent) SELECT {} ORDER BY position"
    uow.execute(everything.format("'task', task_id, '' FROM tasks"))
    uow.execute(everything.format("'escalation', escalation_id, '' FROM holds"))
    for escalation_id in sorted(untold):
        uow.execute(
            "UPDATE outbox SET kind = 'new_escalation' WHERE kind = 'escalation' AND entity_id = ?", (escalation_id,)
        )


def forget(uow: UnitOfWork, through: int) -> None:
    """Drop the marks that the supervisor has taken."""
    uow.execute("DELETE FROM outbox WHERE sequence <= ?", (through,))
