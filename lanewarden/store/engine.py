"""SQLite itself: the one place where the module is chosen and connections are made.

Two SQLite libraries on one file in one process drop each other's POSIX locks. Everything therefore uses the
module that sqlite-utils picked, and nothing else in this package imports another.
"""

from __future__ import annotations

import enum
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

if TYPE_CHECKING:
    import sqlite3
else:
    from sqlite_utils.utils import sqlite3

RawConnection = sqlite3.Connection
Cursor = sqlite3.Cursor
Row = sqlite3.Row
DatabaseError = sqlite3.DatabaseError
IntegrityError = sqlite3.IntegrityError

BUSY_TIMEOUT_MS = 1_000
# Fewer, larger checkpoints: at the default of 1,000 pages they dominate the slowest small commits.
WAL_CHECKPOINT_PAGES = 4_000

_BUSY, _IOERR, _CORRUPT, _FULL, _NOTADB = 5, 10, 11, 13, 26
# The index of the log is memory that grows on disk too: that it cannot grow is a full disk, not a broken one.
_IOERR_SHMSIZE = 4874


class Trouble(enum.Enum):
    """What an error of SQLite means for the store as a whole."""

    NONE = enum.auto()
    BUSY = enum.auto()
    FULL = enum.auto()
    FAILED = enum.auto()


def trouble(error: BaseException) -> Trouble:
    """Tell an error that concerns the store from one that concerns a single statement."""
    if not isinstance(error, sqlite3.Error):
        return Trouble.NONE
    code = getattr(error, "sqlite_errorcode", 0)
    primary = code & 0xFF
    if primary == _FULL or code == _IOERR_SHMSIZE:
        return Trouble.FULL
    if primary in (_IOERR, _CORRUPT, _NOTADB):
        return Trouble.FAILED
    return Trouble.BUSY if primary == _BUSY else Trouble.NONE


def is_damage(error: DatabaseError) -> bool:
    """Whether the error says that the file's content is not a sound database."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in (_CORRUPT, _NOTADB)


def connect_writer(path: Path) -> RawConnection:
    """Open the connection that writes: WAL, every commit synced, explicit transactions only."""
    connection = _connect(f"file:{quote(str(path))}?mode=rwc")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute(f"PRAGMA wal_autocheckpoint = {WAL_CHECKPOINT_PAGES}")
    return connection


def connect_reader(path: Path) -> RawConnection:
    """Open a connection that cannot write; the file must exist."""
    connection = _connect(f"file:{quote(str(path))}?mode=ro")
    connection.execute("PRAGMA query_only = ON")
    connection.row_factory = Row
    return connection


def connect_copy(path: Path) -> RawConnection:
    """Open the target of a backup; the file must exist."""
    return _connect(f"file:{quote(str(path))}?mode=rw")


def _connect(uri: str) -> RawConnection:
    # The writer moves from the thread that opens it to its own; readers are lent to one thread at a time.
    return sqlite3.connect(
        uri, uri=True, isolation_level=None, check_same_thread=False, timeout=BUSY_TIMEOUT_MS / 1_000
    )
