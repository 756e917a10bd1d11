"""R04: a database that is not sound is refused, named and kept as it is; never replaced by an empty one."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlite_utils import Database, Migrations

from lanewarden.clock import SystemClock
from lanewarden.errors import Reason, Refusal
from lanewarden.ledger import WriteLedger
from lanewarden.store import Emitter, Store, StoreUnusable, UnitOfWork, engine, opening
from tests.contract.test_store_units import EMIT, MIGRATIONS, add, bodies

PAGE_BYTES = 4096


def open_at(path: Path, **options: object) -> Store:
    options = {"migrations": MIGRATIONS, "ledger": WriteLedger(SystemClock()), "threaded": False} | options
    return Store.open(path, **options)  # type: ignore[arg-type]


def snapshot(directory: Path) -> dict[str, bytes]:
    """The bytes of every file, without what holds no data: the shared-memory index and an empty log."""
    content = {file.name: file.read_bytes() for file in directory.iterdir()}
    return {name: data for name, data in content.items() if not name.endswith("-shm") and (data or name[-4:] != "-wal")}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A closed database with a few hundred notes."""
    path = tmp_path / "state" / "tests.sqlite3"
    path.parent.mkdir()
    store = open_at(path)
    store.write_now(lambda uow: [add(f"note {n} " + "x" * 200)(uow) for n in range(300)], emitter=EMIT)
    store.close()
    return path


def refused(path: Path, *words: str, migrations: Migrations = MIGRATIONS) -> None:
    """Opening is refused in one line with these words, twice, and no byte has changed."""
    before = snapshot(path.parent)
    for _ in range(2):
        with pytest.raises(StoreUnusable) as error:
            open_at(path, migrations=migrations)
        message = str(error.value)
        assert "\n" not in message
        for word in (path.name, *words):
            assert word in message
    assert snapshot(path.parent) == before


def test_new_database_is_created_whole(tmp_path: Path) -> None:
    """A first start leaves one complete database and nothing beside it."""
    path = tmp_path / "tests.sqlite3"
    (tmp_path / "tests.sqlite3.new").write_bytes(b"left by a crash at the first start")
    open_at(path).close()
    assert [file.name for file in tmp_path.iterdir()] == ["tests.sqlite3"]
    assert bodies(open_at(path)) == []


def test_crash_at_the_first_start_does_not_wedge_the_second(tmp_path: Path) -> None:
    """A migration that fails leaves no file under the database's name, so the next start begins anew."""
    path = tmp_path / "tests.sqlite3"
    broken = Migrations("tests")

    @broken()
    def notes(database: Database) -> None:
        database.execute("CREATE TABLE half (id INTEGER)")
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        open_at(path, migrations=broken)
    assert not path.exists()
    assert bodies(open_at(path)) == []


@pytest.mark.parametrize("page", [0, 1, 3, 8])
def test_r04_corrupt_page(path: Path, page: int) -> None:
    """A page of garbage anywhere is found at the start, not when somebody reads that row."""
    content = bytearray(path.read_bytes())
    content[page * PAGE_BYTES : (page + 1) * PAGE_BYTES] = b"\xa5" * PAGE_BYTES
    path.write_bytes(content)
    refused(path, "damaged", "restore it from a backup")


def test_r04_truncated(path: Path) -> None:
    """A database that lost its tail is refused."""
    os.truncate(path, 5 * PAGE_BYTES)
    refused(path, "damaged")


def test_r04_zero_length(path: Path) -> None:
    """A database that became empty is damage, not a first start."""
    os.truncate(path, 0)
    refused(path, "empty", "backup")


@pytest.mark.parametrize("content", [b"not a database at all" * 500, bytes(8192), b"x"])
def test_r04_not_a_database(path: Path, content: bytes) -> None:
    """A file of something else is refused and kept."""
    path.write_bytes(content)
    refused(path, "not a database", "restore")


def test_r04_foreign_database(path: Path) -> None:
    """A sound database of another program is refused, not migrated."""
    path.unlink()
    stranger = engine.connect_writer(path)
    stranger.execute("CREATE TABLE theirs (id INTEGER)")
    stranger.close()
    refused(path, "not a database that this service wrote")


def test_r04_missing_with_log(path: Path) -> None:
    """A database that is gone while its log is still there is not a first start."""
    path.unlink()
    path.with_name(path.name + "-wal").write_bytes(b"committed work")
    refused(path, "missing")
    assert not path.exists()


def test_r04_newer_schema(path: Path) -> None:
    """A migration that this build does not know is named, and nothing is touched."""
    newer = Migrations("tests")
    newer()(_named("notes"))
    newer()(_named("from_the_future"))
    open_at(path, migrations=newer).close()
    refused(path, "newer schema", "tests/from_the_future")


def test_r04_other_services_database(path: Path) -> None:
    """One service does not open the other's database."""
    refused(path, "tests/notes", migrations=Migrations("another_service"))


def test_r04_older_schema_is_brought_up(path: Path) -> None:
    """A known older schema is migrated, with the data kept and every row attributed."""
    ledger = WriteLedger(SystemClock())
    newer = Migrations("tests")
    newer()(_named("notes"))

    @newer()
    def shout(database: Database) -> None:
        database.execute("UPDATE note SET body = upper(body)")

    store = open_at(path, migrations=newer, ledger=ledger)
    assert bodies(store)[0].startswith("NOTE 0")
    assert ledger.emitters()["store.migrate"] >= 300
    assert store.unattributed_rows() == 0
    store.close()


def test_r04_read_only_file(path: Path) -> None:
    """A file without write permission is refused at the start, even where root could write it."""
    path.chmod(0o400)
    refused(path, "read-only", "permission")


def test_r04_read_only_directory(path: Path) -> None:
    """A directory without write permission is refused at the start: the log could not be written."""
    before = snapshot(path.parent)
    path.parent.chmod(0o500)
    with pytest.raises(StoreUnusable, match="state is read-only"):
        open_at(path)
    path.parent.chmod(0o700)
    assert snapshot(path.parent) == before


_KILLED = """
import os, signal, sys
from pathlib import Path
from tests.contract.test_store_open import open_at
from tests.contract.test_store_units import EMIT, add
store = open_at(Path(sys.argv[1]))
store.write_now(add("in the log"), emitter=EMIT)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_r04_refusal_leaves_the_log_of_a_killed_process(path: Path) -> None:
    """A refused open neither replays nor drops the log; the right build still finds what was committed."""
    subprocess.run([sys.executable, "-c", _KILLED, str(path)], timeout=60, check=False)
    assert path.with_name(path.name + "-wal").stat().st_size
    refused(path, "tests/notes", migrations=Migrations("another_service"))
    store = open_at(path)
    assert bodies(store)[-1] == "in the log"
    store.close()


def _named(name: str):  # type: ignore[no-untyped-def]
    def migration(database: Database) -> None: ...

    migration.__name__ = name
    return migration


# Disk full


def fill(uow: UnitOfWork) -> None:
    uow.execute("INSERT INTO note (body) VALUES (hex(randomblob(200000)))")


@pytest.mark.parametrize("threaded", [True, False])
async def test_r04_disk_full_and_recovered(tmp_path: Path, threaded: bool) -> None:
    """A full disk refuses what does not fit, keeps what is there readable, and is over without a restart."""
    store = open_at(tmp_path / "tests.sqlite3", threaded=threaded)
    await store.write(add("kept"), emitter=EMIT)
    pages = store._connection.execute("PRAGMA page_count").fetchone()[0]
    store._connection.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(Refusal) as full:
        await store.write(fill, emitter=EMIT)
    assert (full.value.reason, store.full, store.failed) == (Reason.STORE_FULL, True, False)
    await store.write(lambda uow: uow.query("SELECT 1"), emitter=EMIT)
    assert store.full  # a unit that changes nothing proves nothing
    assert bodies(store) == ["kept"]
    store._connection.execute("PRAGMA max_page_count = 100000")
    await store.write(fill, emitter=EMIT)
    assert not store.full
    assert (len(bodies(store)), store.unattributed_rows()) == (2, 0)
    store.close()


def occupy(ballast: Path) -> None:
    with ballast.open("wb", buffering=0) as file:
        while file.write(bytes(PAGE_BYTES)):
            pass


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of one megabyte."""
    mountpoint = tmp_path / "disk"
    mountpoint.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m,mode=0700", "tmpfs", str(mountpoint)]
    try:
        mounted = subprocess.run(mount, capture_output=True, check=False, timeout=30).returncode == 0
    except OSError:
        mounted = False
    if not mounted:
        pytest.skip("mounting a small tmpfs is not permitted here")
    yield mountpoint
    subprocess.run(["umount", "-l", str(mountpoint)], check=True, timeout=30)


def test_r04_really_full_disk(tiny_disk: Path) -> None:
    """On a disk with no byte left: refusals, no failure, reads go on, and space alone brings it back."""
    store = open_at(tiny_disk / "tests.sqlite3", threaded=True)
    store.write_now(add("kept"), emitter=EMIT)
    ballast = tiny_disk / "ballast"
    with pytest.raises(OSError, match="No space"):
        occupy(ballast)
    reasons = []
    for n in range(20):
        try:
            store.write_now(add(f"{n}" + "x" * 5_000), emitter=EMIT)
        except Refusal as refusal:
            reasons.append(refusal.reason)
    assert set(reasons) == {Reason.STORE_FULL}
    assert (store.full, store.failed) == (True, False)
    assert "kept" in bodies(store)
    ballast.unlink()
    store.write_now(add("after"), emitter=EMIT)
    assert not store.full
    assert store.unattributed_rows() == 0
    store.close()
    again = open_at(tiny_disk / "tests.sqlite3")
    assert {"kept", "after"} <= set(bodies(again))
    again.close()


# IO errors

_IO_ERROR = """
import resource, sys
from pathlib import Path
from lanewarden.errors import Reason, Refusal
from tests.contract.test_store_open import open_at
from tests.contract.test_store_units import EMIT, add

path = Path(sys.argv[1])
stops = []
store = open_at(path, on_failure=lambda: stops.append(1), threaded=True)
store.write_now(add("kept"), emitter=EMIT)
log_bytes = path.with_name(path.name + "-wal").stat().st_size
resource.setrlimit(resource.RLIMIT_FSIZE, (log_bytes, resource.RLIM_INFINITY))
reasons = []
for attempt in range(3):
    try:
        store.write_now(add("x" * 100_000), emitter=EMIT)
    except Refusal as refusal:
        reasons.append(refusal.reason)
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
assert reasons == [Reason.STORE_FAILED] * 3, reasons
assert store.failed and stops == [1], stops
try:
    store.read(lambda c: c.query("SELECT 1"))
except Refusal as refusal:
    assert refusal.reason is Reason.STORE_FAILED
else:
    raise AssertionError("read after a failure")
"""


def test_io_error_stops_the_store_and_the_next_open_checks(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a real IO error nothing is tried again in this process; the next open checks the file first."""
    marker = path.with_name(path.name + ".check")
    done = subprocess.run([sys.executable, "-c", _IO_ERROR, str(path)], capture_output=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr.decode()
    assert marker.exists()
    store = open_at(path)
    assert bodies(store)[-1] == "kept"
    store.close()
    assert not marker.exists()
    # With small files no longer checked at every start, only the marker makes it look.
    monkeypatch.setattr(opening, "CHECK_ALWAYS_BYTES_MAX", 0)
    content = bytearray(path.read_bytes())
    content[8 * PAGE_BYTES : 9 * PAGE_BYTES] = b"\xa5" * PAGE_BYTES
    path.write_bytes(content)
    open_at(path).close()
    marker.touch()
    refused(path, "damaged")


_SPOIL = """
import sys
with open(sys.argv[1], "r+b") as file:
    for page in range(8, 20):
        file.seek(page * 4096)
        file.write(b"\\xa5" * 4096)
"""


def test_damage_found_by_a_read_fails_the_store(path: Path) -> None:
    """A read that meets damage stops the store as a write would, once, and leaves the marker."""
    stops: list[int] = []
    store = open_at(path, on_failure=lambda: stops.append(1), threaded=True)
    # From another process: opening the live file here would drop SQLite's locks.
    subprocess.run([sys.executable, "-c", _SPOIL, str(path)], check=True, timeout=60)
    for _ in range(2):
        with pytest.raises(Refusal) as failed:
            store.read(lambda c: c.query("SELECT * FROM note"))
        assert failed.value.reason is Reason.STORE_FAILED
    with pytest.raises(Refusal) as failed:
        store.write_now(add("a"), emitter=Emitter("tests.store.late"))
    assert failed.value.reason is Reason.STORE_FAILED
    assert (store.failed, stops) == (True, [1])
    assert path.with_name(path.name + ".check").exists()
    store.close()
    refused(path, "damaged")
