"""Short reads on connections that cannot write."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from lanewarden.store.engine import RawConnection, connect_reader
from lanewarden.store.health import closed
from lanewarden.store.unit import Connection

T = TypeVar("T")

READERS_IDLE_MAX = 8


class Readers:
    """Lends each read a connection of its own; keeps a few open for the next."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._idle: list[RawConnection] = []
        self._closed = False

    def read(self, work: Callable[[Connection], T]) -> T:
        """Run ``work`` on one snapshot; a long one keeps the log from being reused, so keep it short."""
        raw = self._borrow()
        try:
            return _on_snapshot(raw, work)
        finally:
            self._give_back(raw)

    def close(self) -> None:
        """Close the idle connections; those still lent close when they come back."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for raw in idle:
            raw.close()

    def _borrow(self) -> RawConnection:
        with self._lock:
            if self._closed:
                raise closed()
            if self._idle:
                return self._idle.pop()
        return connect_reader(self._path)

    def _give_back(self, raw: RawConnection) -> None:
        with self._lock:
            if not self._closed and len(self._idle) < READERS_IDLE_MAX:
                self._idle.append(raw)
                return
        raw.close()


def _on_snapshot(raw: RawConnection, work: Callable[[Connection], T]) -> T:
    connection = Connection(raw)
    raw.execute("BEGIN")
    try:
        return work(connection)
    finally:
        connection.end()
        if raw.in_transaction:
            raw.execute("ROLLBACK")
