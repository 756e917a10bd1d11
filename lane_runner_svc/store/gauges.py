"""How much there is of what people watch. Short reads of indexes, none of which grows with what has ended."""

from __future__ import annotations

from lanewarden.store import Connection
from lanewarden.store.counting import count, count_by

# Word for word the conditions of the indexes tasks_unfinished and holds_unclosed.
_UNFINISHED = "state NOT IN ('SUCCEEDED', 'FAILED', 'CANCELED', 'SETTLED')"
_OPEN = "state IN ('OPEN', 'RELEASED') AND state = 'OPEN'"


def tasks_by_state(reader: Connection) -> dict[str, int]:
    """Tasks that have not ended, by state."""
    return count_by(reader, f"SELECT state AS value FROM tasks WHERE {_UNFINISHED}")  # noqa: S608


def holds_open(reader: Connection) -> int:
    """Holds that wait for a ruling."""
    return count(reader, f"SELECT 1 FROM holds WHERE {_OPEN}")  # noqa: S608


def oldest_hold_ms(reader: Connection) -> int | None:
    """When the oldest hold that waits for a ruling was opened, in steady time."""
    # Left alone SQLite would walk through the table in the order of its positions, past everything that is closed.
    oldest = f"SELECT min(position) FROM holds INDEXED BY holds_unclosed WHERE {_OPEN}"  # noqa: S608
    row = reader.one(f"SELECT opened_ms FROM holds WHERE position = ({oldest})")  # noqa: S608
    return None if row is None else int(row[0])


def outbox_waiting(reader: Connection) -> int:
    """What no supervisor has taken yet."""
    return count(reader, "SELECT 1 FROM outbox")
