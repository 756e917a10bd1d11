"""How many rows there are, without ever reading more than a bound of them."""

from __future__ import annotations

from typing import Final

from lanewarden.store.unit import Connection

COUNTED_MAX: Final = 100_000
"""The most rows that are counted; where there are more, these are what is told."""


def count(reader: Connection, rows: str) -> int:
    """How many rows a SELECT finds, up to the most that is counted."""
    row = reader.one(f"SELECT count(*) FROM ({rows} LIMIT {COUNTED_MAX})")  # noqa: S608 - a constant of the caller's
    assert row is not None
    return int(row[0])


def count_by(reader: Connection, rows: str) -> dict[str, int]:
    """How often each value of a SELECT's column ``value`` is among its rows, up to the most that is counted."""
    sql = f"SELECT value, count(*) FROM ({rows} LIMIT {COUNTED_MAX}) GROUP BY value"  # noqa: S608 - see above
    return {str(row[0]): int(row[1]) for row in reader.query(sql)}
