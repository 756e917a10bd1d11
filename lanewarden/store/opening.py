"""Opening a database file: refuse what is not sound, never start empty over something that was there.

Until every check has passed the file is only looked at, through a connection that cannot write.
"""

from __future__ import annotations

import os
from pathlib import Path

from sqlite_utils import Database, Migrations

from lanewarden.ledger import WriteLedger
from lanewarden.store import engine
from lanewarden.store.directory import is_writable
from lanewarden.store.engine import DatabaseError, RawConnection, Trouble
from lanewarden.store.faults import StoreUnusable
from lanewarden.store.health import check_marker
from lanewarden.store.names import Emitter
from lanewarden.store.schema import BASE_MIGRATIONS

MIGRATE_EMITTER = Emitter("store.migrate", exempt=True)
# Up to this size a full check at every start costs well under a second; beyond it only after a failure.
CHECK_ALWAYS_BYTES_MAX = 64 * 1024 * 1024

_HAS_MIGRATIONS = "SELECT count(*) FROM sqlite_schema WHERE name = '_sqlite_migrations'"
_APPLIED = "SELECT migration_set, name FROM _sqlite_migrations"
_RESTORE = "restore it from a backup, or move it away to start anew; it was left as it is"


def open_writer(path: Path, migrations: Migrations, ledger: WriteLedger) -> RawConnection:
    """Return the writing connection to a sound database with this build's schema, created if there was none.

    Raises :class:`StoreUnusable`, with the file unchanged, when it is damaged, read-only, from a newer build,
    or not ours.
    """
    sets = (BASE_MIGRATIONS, migrations)
    try:
        if not _exists(path):
            _create(path, sets, ledger)
        _check(path, sets)
        connection = engine.connect_writer(path)
        try:
            _migrate(connection, sets, ledger)
        except BaseException:
            connection.close()
            raise
    except OSError as error:
        raise StoreUnusable(f"{path} cannot be opened: {error.strerror}") from error
    except DatabaseError as error:
        raise StoreUnusable(_unsound(path, error)) from error
    check_marker(path).unlink(missing_ok=True)
    connection.row_factory = engine.Row
    return connection


def _exists(path: Path) -> bool:
    log = _beside(path, "-wal")
    if not path.exists():
        if log.exists() and log.stat().st_size:
            raise StoreUnusable(f"{path} is missing but its log {log.name} is there; {_RESTORE}")
        return False
    if not path.is_file():
        raise StoreUnusable(f"{path} is not a file; choose another path")
    if not path.stat().st_size:
        raise StoreUnusable(f"{path} is empty, so what it held is lost; {_RESTORE}")
    for needed in (path, path.parent, log):
        if needed.exists() and not is_writable(needed):
            raise StoreUnusable(f"{needed} is read-only; give the service's user write permission")
    return True


def _create(path: Path, sets: tuple[Migrations, ...], ledger: WriteLedger) -> None:
    # Built beside and renamed whole: a crash in between leaves nothing that looks like a damaged database.
    new = _beside(path, ".new")
    for leftover in (new, _beside(new, "-wal"), _beside(new, "-shm"), _beside(new, "-journal")):
        leftover.unlink(missing_ok=True)
    connection = engine.connect_writer(new)
    try:
        _migrate(connection, sets, ledger)
    finally:
        connection.close()
    new.rename(path)
    sync_directory(path.parent)


def _check(path: Path, sets: tuple[Migrations, ...]) -> None:
    connection = engine.connect_reader(path)
    try:
        tables = connection.execute(_HAS_MIGRATIONS).fetchone()[0]
        applied = set(map(tuple, connection.execute(_APPLIED))) if tables else set()
        if not any(name == BASE_MIGRATIONS.name for name, _ in applied):
            raise StoreUnusable(f"{path} is not a database that this service wrote; choose another path, or {_RESTORE}")
        known = {(one.name, name) for one in sets for name in _all_of(one)}
        if unknown := sorted(applied - known):
            raise StoreUnusable(
                f"{path} has a newer schema ({'/'.join(unknown[0])}) than this build knows;"
                " start the build that wrote it, or restore a backup of before; it was left as it is"
            )
        if check_marker(path).exists() or path.stat().st_size <= CHECK_ALWAYS_BYTES_MAX:
            finding = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
            if finding != "ok":
                raise StoreUnusable(f"{path} is damaged ({' '.join(finding.split())}); {_RESTORE}")
    finally:
        connection.close()


def _all_of(migrations: Migrations) -> set[str]:
    """Return the names of every migration in the set: those that an empty database still needs."""
    empty = Database(memory=True, execute_plugins=False)
    try:
        return {migration.name for migration in migrations.pending(empty)}
    finally:
        empty.close()


def _migrate(connection: RawConnection, sets: tuple[Migrations, ...], ledger: WriteLedger) -> None:
    before = connection.total_changes
    database = Database(connection, recursive_triggers=False, execute_plugins=False)
    for one in sets:
        if one.pending(database):
            one.apply(database)
    if rows := connection.total_changes - before:
        ledger.record("", "", MIGRATE_EMITTER.name, "", rows)


def _unsound(path: Path, error: DatabaseError) -> str:
    if engine.is_damage(error):
        return f"{path} is damaged or not a database ({error}); {_RESTORE}"
    match engine.trouble(error):
        case Trouble.FULL:
            return f"{path} needs disk space to open; free some and start again"
        case Trouble.BUSY:
            return f"{path} is locked by another process; end that and start again"
        case _:
            return f"{path} cannot be opened ({error}); check the disk; the file was left as it is"


def _beside(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


def sync_directory(path: Path) -> None:
    """Make a rename inside the directory survive a power cut."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
