"""The tables that every store has, whoever owns it."""

from __future__ import annotations

from sqlite_utils import Database, Migrations

BASE_MIGRATIONS = Migrations("lanewarden")


@BASE_MIGRATIONS()
def base(database: Database) -> None:
    """Small facts about the store itself, and the answers already given to requests."""
    database.execute("CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT")
    database.execute(
        """
        CREATE TABLE request_log (
            request_id TEXT PRIMARY KEY,
            method TEXT NOT NULL,
            digest BLOB NOT NULL,
            response BLOB NOT NULL,
            created_ms INTEGER NOT NULL
        ) STRICT
        """
    )
    database.execute("CREATE INDEX request_log_by_age ON request_log (created_ms)")


@BASE_MIGRATIONS()
def write_minutes(database: Database) -> None:
    """What was written, by the minute of the Unix epoch in which it was counted."""
    database.execute(
        """
        CREATE TABLE write_minutes (
            minute INTEGER NOT NULL,
            entity_kind TEXT NOT NULL,
            entity_id TEXT NOT NULL,
            emitter TEXT NOT NULL,
            origin TEXT NOT NULL,
            rows INTEGER NOT NULL,
            PRIMARY KEY (minute, entity_kind, entity_id, emitter, origin)
        ) STRICT, WITHOUT ROWID
        """
    )
