"""What was written to a store by the minute, kept in the store itself for a day."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from lanewarden.ledger.windows import Key, busiest
from lanewarden.store.unit import Connection, UnitOfWork

KEYS_MAX: Final = 64
"""The busiest of a minute are kept; the others are summed as ``other`` under their emitters."""
MINUTES_KEPT: Final = 24 * 60


def put(uow: UnitOfWork, minutes: Mapping[int, Mapping[Key, int]], *, now_minute: int) -> None:
    """Add what was counted in minutes of the Unix epoch. Forget those that are older than a day, or in the future, since
    somebody has set the clock back.
    """
    for minute, counts in minutes.items():
        for key, rows in busiest(counts, KEYS_MAX).items():
            uow.execute(
                "INSERT INTO write_minutes VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET rows = rows + excluded.rows",
                (minute, *key, rows),
            )
    oldest = now_minute - MINUTES_KEPT
    uow.execute("DELETE FROM write_minutes WHERE minute < ? OR minute > ?", (oldest, now_minute))


def total(reader: Connection, *, after_minute: int, rows_max: int) -> dict[Key, int]:
    """What was counted in the minutes after one, by key, most rows first."""
    found = reader.query(
        "SELECT entity_kind, entity_id, emitter, origin, sum(rows) AS rows FROM write_minutes WHERE minute > ?"
        " GROUP BY 1, 2, 3, 4 ORDER BY sum(rows) DESC LIMIT ?",
        (after_minute, rows_max),
    )
    return {(row["entity_kind"], row["entity_id"], row["emitter"], row["origin"]): row["rows"] for row in found}
