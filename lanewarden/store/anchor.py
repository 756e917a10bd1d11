"""The steady clock across restarts and reboots.

``CLOCK_BOOTTIME`` starts again with every boot. An anchor, kept in the store, maps it onto one scale that
goes on: the same anchor for the whole of a boot, and after a reboot one that starts where the scale had come
to, or at the wall clock if that is further on.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from lanewarden.clock import SystemClock, boot_id, boottime_ms
from lanewarden.records import replace
from lanewarden.store.names import Emitter
from lanewarden.store.store import Store
from lanewarden.store.unit import Connection, UnitOfWork

CEILING_EMITTER = Emitter("store.clock.reserve", exempt=True)
# How far ahead of the clock the ceiling is kept: at most one row change in this time, and at most this much
# is skipped by a reboot that takes no time at all.
RESERVE_MS = 10_000

_KEY = "clock"


@dataclass(frozen=True, slots=True, kw_only=True)
class Anchor:
    """The mapping of one boot, and a value that no stored steady time has passed."""

    boot_id: str
    anchor_ms: int
    ceiling_ms: int


def next_anchor(stored: Anchor | None, *, boot_id: str, boottime_ms: int, wall_ms: int) -> Anchor:
    """Return the anchor of this start: ``anchor_ms + boottime_ms`` never goes back between starts."""
    if stored is None:
        return Anchor(boot_id=boot_id, anchor_ms=wall_ms - boottime_ms, ceiling_ms=wall_ms + RESERVE_MS)
    last_seen_ms = stored.ceiling_ms - RESERVE_MS
    # An equal id with less time than before is another boot all the same: a restored machine, or no id at
    # all.
    if stored.boot_id == boot_id and stored.anchor_ms + boottime_ms >= last_seen_ms:
        return stored
    steady_ms = max(wall_ms, stored.ceiling_ms)
    return Anchor(boot_id=boot_id, anchor_ms=steady_ms - boottime_ms, ceiling_ms=steady_ms + RESERVE_MS)


def restore_clock(store: Store, *, emitter: Emitter) -> SystemClock:
    """Return the steady clock that belongs to this store, going on from where it was before the restart.

    From here on the store keeps the ceiling ahead of the clock: in the same transaction as any other change,
    never by a write of its own. Call once, at the start.
    """
    stored = store.read(_load)
    anchor = next_anchor(stored, boot_id=boot_id(), boottime_ms=boottime_ms(), wall_ms=SystemClock().wall_ms())
    if anchor != stored:
        store.write_now(lambda uow: _save(uow, anchor), emitter=emitter)
    clock = SystemClock(anchor_ms=anchor.anchor_ms)
    store.with_each_group(CEILING_EMITTER, lambda uow: raise_ceiling(uow, clock.steady_ms()))
    return clock


def raise_ceiling(uow: UnitOfWork, steady_ms: int) -> None:
    """Keep the stored ceiling above ``steady_ms``; changes nothing while it is."""
    anchor = _load(uow)
    if anchor is not None and steady_ms >= anchor.ceiling_ms:
        _save(uow, replace(anchor, ceiling_ms=steady_ms + RESERVE_MS))


def _load(connection: Connection) -> Anchor | None:
    row = connection.one("SELECT value FROM meta WHERE key = ?", (_KEY,))
    return None if row is None else Anchor(**json.loads(row["value"]))


def _save(uow: UnitOfWork, anchor: Anchor) -> None:
    uow.execute(
        "INSERT INTO meta (key, value) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value",
        (_KEY, json.dumps(asdict(anchor))),
    )
