"""What was written to a store by the minute, kept in the store itself for a day."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final

from lanewarden.ledger.windows import Key, busiest, other
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


def total(reader: Connection, *, after_minute: int, rows_max: int, entity_id: str = "") -> Counter[Key]:
    """What was counted in the minutes after one, of one entity if it is named: the busiest ``rows_max`` by their keys, and
    the others as ``other`` under their emitters.
    """
    wanted = " FROM write_minutes WHERE minute > :after AND (:entity = '' OR entity_id = :entity)"
    asked = {"after": after_minute, "entity": entity_id, "rows_max": rows_max}
    found: Counter[Key] = Counter()
    for row in reader.query(
        f"SELECT entity_kind, entity_id, emitter, origin, sum(rows) AS rows{wanted}"
        " GROUP BY 1, 2, 3, 4 ORDER BY sum(rows) DESC LIMIT :rows_max",
        asked,
    ):
        found[row["entity_kind"], row["entity_id"], row["emitter"], row["origin"]] = row["rows"]
    rest = Counter(
        {
            row["emitter"]: row["rows"]
            for row in reader.query(f"SELECT emitter, sum(rows) AS rows{wanted} GROUP BY 1", asked)
        }
    )
    for key, rows in found.items():
        rest[key[2]] -= rows
    return found + Counter({other(("", "", emitter, "")): rows for emitter, rows in rest.items()})
