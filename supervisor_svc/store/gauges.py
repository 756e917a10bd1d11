"""How much there is of what people watch. Short reads of indexes, none of which grows with what has ended."""

from __future__ import annotations

from lanewarden.store import Connection
from lanewarden.store.counting import count, count_by
from supervisor_svc.store.views import UNFINISHED

_OPEN = "hold_state = 'OPEN' AND NOT forgotten"


def tasks_by_state(reader: Connection) -> dict[str, int]:
    """Tasks that are known not to have ended, by state."""
    return count_by(reader, f"SELECT state AS value FROM tasks WHERE {UNFINISHED}")  # noqa: S608


def holds_open(reader: Connection) -> int:
    """Escalations that wait for a ruling."""
    return count(reader, f"SELECT 1 FROM escalations WHERE {_OPEN}")  # noqa: S608


def oldest_hold_wall_ms(reader: Connection) -> int | None:
    """When the oldest escalation that waits for a ruling was heard of, by the wall clock."""
    row = reader.one(f"SELECT received_wall_ms FROM escalations WHERE {_OPEN} ORDER BY position LIMIT 1")  # noqa: S608
    return None if row is None else int(row[0])


def outbox_waiting(reader: Connection) -> int:
    """Commands that their runner has not had yet."""
    return count(reader, "SELECT 1 FROM outbox WHERE state = 'STORED'")
