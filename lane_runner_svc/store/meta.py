"""Facts about the store itself."""

from __future__ import annotations

from lane_runner_svc.store.tasks import Reader
from lanewarden.store import UnitOfWork

_STORE_ID = "store_id"
_TOLD = "told"


def ensure_store_id(uow: UnitOfWork, fresh: str) -> None:
    """Give a new store its id."""
    uow.execute(
        "INSERT INTO meta (key, value) VALUES (?, ?) ON CONFLICT (key) DO NOTHING",
        (_STORE_ID, fresh),
    )


def store_id(reader: Reader) -> str:
    """The id the store got when it was made; another store's reports begin at 1 again."""
    row = reader.one("SELECT value FROM meta WHERE key = ?", (_STORE_ID,))
    assert row is not None, "bootstrap gives every store its id"
    return str(row[0])


def told(reader: Reader) -> str:
    """For which supervisor the marks in the outbox are numbered; empty before the first."""
    row = reader.one("SELECT value FROM meta WHERE key = ?", (_TOLD,))
    return "" if row is None else str(row[0])


def set_told(uow: UnitOfWork, supervisor: str) -> None:
    """Remember it."""
    uow.execute(
        "INSERT INTO meta (key, value) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value",
        (_TOLD, supervisor),
    )
