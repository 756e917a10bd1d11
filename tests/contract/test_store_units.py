"""Units of work: atomic, isolated from their neighbours in a group, on disk before anybody is told."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlite_utils import Database, Migrations

from lanewarden.clock import SystemClock
from lanewarden.errors import Reason, Refusal
from lanewarden.ledger import WriteLedger
from lanewarden.store import Emitter, Entity, IntegrityError, SimulatedCrash, Store, UnitOfWork, engine
from lanewarden.store import group as group_module
from lanewarden.store import writer as writer_module

EMIT = Emitter("tests.store.write")
OTHER_EMIT = Emitter("tests.store.other")
DEADLINE_SECONDS = 20

MIGRATIONS = Migrations("tests")


@MIGRATIONS()
def notes(database: Database) -> None:
    database.execute("CREATE TABLE note (id INTEGER PRIMARY KEY, body TEXT NOT NULL UNIQUE) STRICT")
    database.execute("CREATE TABLE trail (note_id INTEGER NOT NULL, body TEXT NOT NULL) STRICT")
    database.execute(
        "CREATE TRIGGER note_trail AFTER INSERT ON note BEGIN"
        " INSERT INTO trail VALUES (new.id, new.body), (new.id, new.body || '!'); END"
    )
    database.execute(
        "CREATE TRIGGER note_poison BEFORE INSERT ON note WHEN new.body = 'poison' BEGIN"
        " SELECT raise(ROLLBACK, 'poisoned'); END"
    )


OpenStore = Callable[..., Store]


@pytest.fixture
def open_store(tmp_path: Path) -> Iterator[OpenStore]:
    """Opens stores in ``tmp_path`` and closes them at the end."""
    opened: list[Store] = []

    def open_(**options: object) -> Store:
        options = {"migrations": MIGRATIONS, "ledger": WriteLedger(SystemClock())} | options
        store = Store.open(tmp_path / "tests.sqlite3", **options)  # type: ignore[arg-type]
        opened.append(store)
        return store

    yield open_
    for store in opened:
        store.close()


@pytest.fixture(params=[True, False], ids=["threaded", "threadless"])
def store(request: pytest.FixtureRequest, open_store: OpenStore) -> Store:
    return open_store(threaded=request.param)


def add(body: str) -> Callable[[UnitOfWork], int]:
    """A unit that adds one note and returns its id."""

    def work(uow: UnitOfWork) -> int:
        return int(uow.execute("INSERT INTO note (body) VALUES (?)", (body,)).lastrowid or 0)

    return work


def bodies(store: Store) -> list[str]:
    return [row["body"] for row in store.read(lambda c: c.query("SELECT body FROM note ORDER BY id"))]


class Gate:
    """Holds the writer inside a first unit, so that what is written meanwhile becomes one group."""

    def __init__(self, store: Store) -> None:
        self._entered, self._opened = threading.Event(), threading.Event()
        self._first = asyncio.ensure_future(store.write(self._wait, emitter=EMIT))

    def _wait(self, _: UnitOfWork) -> None:
        self._entered.set()
        assert self._opened.wait(DEADLINE_SECONDS)

    async def closed(self) -> None:
        assert await asyncio.to_thread(self._entered.wait, DEADLINE_SECONDS)

    async def open(self) -> None:
        self._opened.set()
        await self._first


async def grouped(store: Store, *works: Callable[[UnitOfWork], object], emitter: Emitter = EMIT) -> list[object]:
    """Write the units as one group and return each one's result or exception."""
    gate = Gate(store)
    await gate.closed()
    writes = [asyncio.ensure_future(store.write(work, emitter=emitter)) for work in works]
    await asyncio.sleep(0)  # each has put its unit into the queue
    await gate.open()
    return await asyncio.gather(*writes, return_exceptions=True)


async def test_result_and_rows_are_there(store: Store) -> None:
    """A finished write returns what its unit returned, and every later read sees its rows."""
    assert await store.write(add("a"), emitter=EMIT, entity=Entity("note", "1")) == 1
    assert store.write_now(add("b"), emitter=EMIT) == 2
    assert bodies(store) == ["a", "b"]
    assert store.read(lambda c: c.one("SELECT 1 FROM note WHERE body = 'c'")) is None


async def test_exception_undoes_the_unit(store: Store) -> None:
    """What a unit raises reaches its caller as it was raised, and nothing of the unit is kept."""
    await store.write(add("a"), emitter=EMIT)

    def half(uow: UnitOfWork) -> None:
        add("b")(uow)
        add("a")(uow)

    with pytest.raises(IntegrityError):
        await store.write(half, emitter=EMIT)
    with pytest.raises(IntegrityError):
        store.write_now(half, emitter=EMIT)
    assert bodies(store) == ["a"]


async def test_every_unit_names_its_emitter(store: Store) -> None:
    """There is no way to write without an emitter."""
    with pytest.raises(TypeError):
        await store.write(add("a"))  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        await store.write(add("a"), emitter="tests.store.write")  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        store.write_now(add("a"), emitter=None)  # type: ignore[arg-type]
    assert bodies(store) == []


@pytest.mark.parametrize("name", ["", "word", "Upper.case", "a..b", ".a.b", "a.b.", "a b.c", "a.b\n", "1a.b"])
def test_emitter_name_is_checked(name: str) -> None:
    """A name that is not lower-case words joined by dots never becomes an emitter."""
    with pytest.raises(ValueError, match="lower-case"):
        Emitter(name)


@pytest.mark.parametrize("sql", ["COMMIT", " rollback", "BEGIN", "SAVEPOINT x", "release unit", "END"])
def test_unit_cannot_touch_the_transaction(store: Store, sql: str) -> None:
    """A unit cannot commit or undo what it shares with others, by any of its methods."""
    for run in (UnitOfWork.execute, UnitOfWork.query, UnitOfWork.one):

        def work(uow: UnitOfWork, run: Callable[[UnitOfWork, str], object] = run) -> None:
            add("a")(uow)
            run(uow, sql)

        with pytest.raises(RuntimeError, match="transaction"):
            store.write_now(work, emitter=EMIT)
    assert bodies(store) == []


def test_unit_is_over_when_it_is_over(store: Store) -> None:
    """A unit of work that leaked writes nothing later, nor does a leaked reader read."""
    leaked = store.write_now(lambda uow: uow, emitter=EMIT)
    with pytest.raises(RuntimeError, match="over"):
        leaked.execute("INSERT INTO note (body) VALUES ('late')")
    with pytest.raises(RuntimeError, match="over"):
        store.write_now(lambda _: leaked.execute("INSERT INTO note (body) VALUES ('late')"), emitter=EMIT)
    assert bodies(store) == []
    with pytest.raises(RuntimeError, match="over"):
        store.read(lambda c: c).query("SELECT 1")


def test_unit_inside_a_unit_is_refused(store: Store) -> None:
    """A unit that waits for another would wait for ever; it is told so at once."""
    with pytest.raises(RuntimeError, match="cannot wait"):
        store.write_now(lambda _: store.write_now(add("a"), emitter=EMIT), emitter=EMIT)
    assert bodies(store) == []


async def test_escaping_stop_iteration_is_told(store: Store) -> None:
    """A StopIteration, which no future can carry, still reaches the caller as an error instead of nothing."""
    empty: Iterator[int] = iter(())
    with pytest.raises(RuntimeError, match="StopIteration"):
        async with asyncio.timeout(DEADLINE_SECONDS):
            await store.write(lambda _: next(empty), emitter=EMIT)


def test_reads_cannot_write(store: Store) -> None:
    """A read changes nothing, whatever it executes."""
    with pytest.raises(engine.DatabaseError):
        store.read(lambda c: c.query("INSERT INTO note (body) VALUES ('a')"))
    with pytest.raises(engine.DatabaseError):
        store.read(lambda c: (c.query("PRAGMA query_only = OFF") and []) or c.query("DELETE FROM meta"))
    assert bodies(store) == []


def test_writer_syncs_every_commit_and_checks_keys(store: Store) -> None:
    """The settings that durability and integrity rest on are those that the design names."""
    names = ("journal_mode", "synchronous", "foreign_keys", "wal_autocheckpoint")
    values = store.write_now(lambda uow: [uow.query(f"PRAGMA {name}")[0][0] for name in names], emitter=EMIT)
    assert values == ["wal", 2, 1, 4000]


def test_read_sees_one_snapshot(store: Store) -> None:
    """Two statements of one read see the same state, whatever commits in between."""

    def twice(connection: object) -> list[int]:
        counts = []
        for _ in range(2):
            counts.append(connection.one("SELECT count(*) AS n FROM note")["n"])  # type: ignore[attr-defined]
            store.write_now(add(f"note {len(counts)}"), emitter=EMIT)
        return counts

    assert store.read(twice) == [0, 0]
    assert len(bodies(store)) == 2


async def test_group_shares_one_commit_and_one_wakeup(open_store: OpenStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Units that wait together commit once, and their loop is woken once."""
    commits: list[tuple[str, tuple[str, ...]]] = []
    store = open_store(failpoints=lambda point, emitters: commits.append((point, emitters)))
    gate = Gate(store)
    await gate.closed()
    writes = [asyncio.ensure_future(store.write(add(str(n)), emitter=OTHER_EMIT)) for n in range(20)]
    await asyncio.sleep(0)
    loop = asyncio.get_running_loop()
    wakeups: list[object] = []
    wake = loop.call_soon_threadsafe

    def counted(*args: Any, **options: Any) -> asyncio.Handle:
        wakeups.append(args)
        return wake(*args, **options)

    monkeypatch.setattr(loop, "call_soon_threadsafe", counted)
    await gate.open()
    assert await asyncio.gather(*writes) == list(range(1, 21))
    assert commits[-1] == ("after_commit", ("tests.store.other",) * 20)
    assert len(commits) == 4
    assert len(wakeups) == 2  # the gate's group and the twenty's


async def test_failure_inside_a_group_is_its_own(open_store: OpenStore) -> None:
    """A unit that fails takes nothing with it: its neighbours before and after commit."""
    store = open_store()
    before, failed, after = await grouped(store, add("a"), lambda uow: (add("lost")(uow), add("a")(uow)), add("b"))
    assert isinstance(failed, IntegrityError)
    assert (before, bodies(store)) == (1, ["a", "b"])
    assert isinstance(after, int)


async def test_unit_that_ends_the_transaction_fails_its_group_loudly(open_store: OpenStore) -> None:
    """Where SQL rolls back the whole transaction, no neighbour is told that it was stored."""
    store = open_store()

    def poison_and_go_on(uow: UnitOfWork) -> None:
        with pytest.raises(IntegrityError):
            add("poison")(uow)
        add("outside of any transaction")(uow)

    neighbour, poisoned, later = await grouped(store, add("a"), add("poison"), add("b"))
    assert isinstance(poisoned, IntegrityError)
    for told in (neighbour, later):
        assert isinstance(told, RuntimeError)
        assert "tests.store.write" in str(told)
    with pytest.raises(RuntimeError):
        await store.write(poison_and_go_on, emitter=EMIT)
    assert bodies(store) == []
    await store.write(add("c"), emitter=EMIT)
    assert (bodies(store), store.unattributed_rows()) == (["c"], 0)


async def test_callback_runs_after_commit_before_the_caller(store: Store) -> None:
    """after_commit runs on the loop's thread, sees the committed row, and precedes the caller."""
    seen: list[object] = []

    def work(uow: UnitOfWork) -> None:
        add("a")(uow)
        uow.after_commit(lambda: seen.append((threading.current_thread(), bodies(store))))

    await store.write(work, emitter=EMIT)
    assert seen == [(threading.current_thread(), ["a"])]
    with pytest.raises(IntegrityError):
        await store.write(work, emitter=EMIT)
    assert len(seen) == 1


async def test_failing_callback_harms_nobody(open_store: OpenStore) -> None:
    """A callback that raises is reported to the loop; its caller and all others get their results."""
    store = open_store()
    reported: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context["exception"]))
    assert await grouped(store, lambda uow: uow.after_commit(lambda: 1 // 0), add("a")) == [None, 1]
    assert [type(error) for error in reported] == [ZeroDivisionError]


async def test_canceled_caller_does_not_take_the_unit_back(open_store: OpenStore) -> None:
    """A caller that goes away while it waits leaves a committed unit whose callbacks ran."""
    store = open_store()
    ran = asyncio.Event()

    def work(uow: UnitOfWork) -> None:
        add("a")(uow)
        uow.after_commit(ran.set)

    gate = Gate(store)
    await gate.closed()
    write = asyncio.ensure_future(store.write(work, emitter=EMIT))
    await asyncio.sleep(0)
    write.cancel()
    await gate.open()
    await asyncio.wait_for(ran.wait(), DEADLINE_SECONDS)
    assert write.cancelled()
    assert bodies(store) == ["a"]


async def test_queue_is_bounded(open_store: OpenStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the bound a write is refused at once, and those that wait are unharmed."""
    monkeypatch.setattr(writer_module, "QUEUE_UNITS_MAX", 3)
    store = open_store()
    gate = Gate(store)
    await gate.closed()
    writes = [asyncio.ensure_future(store.write(add(str(n)), emitter=EMIT)) for n in range(4)]
    await asyncio.sleep(0)
    with pytest.raises(Refusal) as refused:
        await writes[3]
    assert refused.value.reason is Reason.LIMIT_REACHED
    await gate.open()
    assert await asyncio.gather(*writes[:3]) == [1, 2, 3]


async def test_group_is_bounded(open_store: OpenStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """No group takes more units than its bound, so no caller waits for an endless transaction."""
    monkeypatch.setattr(writer_module, "GROUP_UNITS_MAX", 4)
    sizes: list[int] = []
    store = open_store(failpoints=lambda point, emitters: point == "after_commit" and sizes.append(len(emitters)))
    await grouped(store, *(add(str(n)) for n in range(10)))
    assert sizes == [1, 4, 4, 2]


async def test_close_writes_what_is_queued(open_store: OpenStore) -> None:
    """Closing loses no accepted write; afterwards everything is refused as shutting down."""
    store = open_store()
    gate = Gate(store)
    await gate.closed()
    writes = [asyncio.ensure_future(store.write(add(str(n)), emitter=EMIT)) for n in range(5)]
    await asyncio.sleep(0)
    closing = asyncio.create_task(asyncio.to_thread(store.close))
    await gate.open()
    await closing
    assert await asyncio.gather(*writes) == [1, 2, 3, 4, 5]
    for late in (
        lambda: store.write_now(add("late"), emitter=EMIT),
        lambda: bodies(store),
        lambda: store.backup(Path("unused")),
    ):
        with pytest.raises(Refusal) as refused:
            late()
        assert refused.value.reason is Reason.SHUTTING_DOWN
    with pytest.raises(Refusal):
        await store.write(add("late"), emitter=EMIT)
    assert bodies(open_store(threaded=False)) == ["0", "1", "2", "3", "4"]


def test_closed_threadless_store_refuses(open_store: OpenStore) -> None:
    """The threadless store refuses after close as the threaded one does; closing twice is harmless."""
    store = open_store(threaded=False)
    store.close()
    store.close()
    with pytest.raises(Refusal) as refused:
        store.write_now(add("late"), emitter=EMIT)
    assert refused.value.reason is Reason.SHUTTING_DOWN


def test_foreign_lock_is_waited_for_and_named(
    open_store: OpenStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stranger's write lock is waited out, or refuses the write in bounded time; nothing fails for good."""
    monkeypatch.setattr(engine, "BUSY_TIMEOUT_MS", 10)
    monkeypatch.setattr(group_module, "BEGIN_TRIES_MAX", 2)
    store = open_store()
    stranger = engine.connect_writer(tmp_path / "tests.sqlite3")
    stranger.execute("BEGIN IMMEDIATE")
    with pytest.raises(Refusal, match="another process") as refused:
        store.write_now(add("a"), emitter=EMIT)
    assert (refused.value.reason, store.failed) == (Reason.STORE_FAILED, False)
    monkeypatch.setattr(group_module, "BEGIN_TRIES_MAX", 1_000)
    release = threading.Timer(0.1, stranger.execute, ("ROLLBACK",))
    release.start()
    assert store.write_now(add("a"), emitter=EMIT) == 1
    release.join()
    stranger.close()


def test_backup_is_whole_and_never_overwrites(open_store: OpenStore, tmp_path: Path) -> None:
    """A backup is a complete database of one moment, opens like any other, and replaces no file."""
    store = open_store()
    for n in range(50):
        store.write_now(add(str(n)), emitter=EMIT)
    (tmp_path / "copies").mkdir()
    target = tmp_path / "copies" / "tests.sqlite3"
    (tmp_path / "copies" / "tests.sqlite3.part").write_bytes(b"left by a crash")
    store.backup(target)
    store.write_now(add("later"), emitter=EMIT)
    with pytest.raises(FileExistsError):
        store.backup(target)
    assert [file.name for file in target.parent.iterdir()] == ["tests.sqlite3"]
    copy = Store.open(target, migrations=MIGRATIONS, ledger=WriteLedger(SystemClock()), threaded=False)
    assert bodies(copy) == [str(n) for n in range(50)]
    copy.close()


@pytest.mark.parametrize("seed", range(5))
async def test_w03_ledger_equals_the_change_counter(open_store: OpenStore, seed: int) -> None:
    """Whatever SQL runs, triggers and rolled-back units included, every changed row has an emitter."""
    ledger = WriteLedger(SystemClock())
    store = open_store(ledger=ledger)
    start = ledger.attributed_rows
    draw = random.Random(seed)
    statements = [
        "INSERT INTO note (body) VALUES (abs(random() % 40))",
        "INSERT OR IGNORE INTO note (body) VALUES (abs(random() % 40))",
        "INSERT OR REPLACE INTO note (body) VALUES (abs(random() % 40))",
        "INSERT INTO note (body) SELECT body || 'x' FROM note LIMIT 5",
        "INSERT INTO note (body) VALUES (1) ON CONFLICT DO UPDATE SET body = body || '-'",
        "UPDATE note SET body = body || '.' WHERE id % 3 = 0",
        "UPDATE OR IGNORE note SET body = 7",
        "DELETE FROM note WHERE id % 5 = 0",
        "DELETE FROM trail",
        "SELECT * FROM note",
    ]
    # Seldom, since it takes its whole group down.
    poison = "INSERT INTO note (body) VALUES ('poison')"

    def unit(picks: list[str], fails: bool) -> Callable[[UnitOfWork], None]:
        def work(uow: UnitOfWork) -> None:
            for sql in picks:
                uow.execute(sql if draw.random() > 0.005 else poison)
            if fails:
                raise ValueError

        return work

    units = [unit(draw.choices(statements, k=4), draw.random() < 0.3) for _ in range(200)]
    results: list[object] = []
    while units:
        wave = [store.write(units.pop(), emitter=draw.choice([EMIT, OTHER_EMIT])) for _ in range(20)]
        results += await asyncio.gather(*wave, return_exceptions=True)
    assert {type(result) for result in results} >= {type(None), ValueError, IntegrityError}
    assert store.unattributed_rows() == 0
    assert store._connection.total_changes >= ledger.attributed_rows + ledger.discarded_rows - start > 0
    assert ledger.discarded_rows > 0
    assert sum(ledger.emitters().values()) == ledger.attributed_rows


def test_w03_write_outside_of_a_unit_is_noticed(open_store: OpenStore) -> None:
    """A row changed behind the ledger's back shows up as unattributed: the check can fail."""
    store = open_store(threaded=False)
    store._connection.execute("INSERT INTO note (body) VALUES ('stray')")
    store.write_now(lambda _: None, emitter=EMIT)
    assert store.unattributed_rows() == 3  # the row and its trigger's two


def test_rows_are_attributed_with_entity_and_origin(open_store: OpenStore) -> None:
    """The ledger is told kind, id, emitter and origin, and counts trigger rows to the unit behind them."""
    ledger = WriteLedger(SystemClock())
    store = open_store(ledger=ledger)
    assert ledger.emitters().keys() == {"store.migrate"}
    store.write_now(add("a"), emitter=EMIT, entity=Entity("note", "n1"), origin="supervisor.sweep")
    found = [rate for rate in ledger.rates(10) if rate.entity_kind == "note"]
    assert [(r.entity_id, r.emitter, r.origin, r.rows) for r in found] == [
        ("n1", "tests.store.write", "supervisor.sweep", 3)
    ]


@pytest.mark.parametrize("threaded", [True, False])
@pytest.mark.parametrize(("point", "kept"), [("before_commit", []), ("after_commit", ["a"])])
async def test_simulated_crash(open_store: OpenStore, point: str, kept: list[str], threaded: bool) -> None:
    """A crash before the commit keeps nothing, after it everything; either way no caller hears success."""
    ran: list[str] = []

    def crash(reached: str, emitters: tuple[str, ...]) -> None:
        if reached == point and emitters == ("tests.store.write",):
            raise SimulatedCrash(point)

    def work(uow: UnitOfWork) -> None:
        add("a")(uow)
        uow.after_commit(lambda: ran.append("callback"))

    store = open_store(failpoints=crash, threaded=threaded)
    with pytest.raises(SimulatedCrash):
        await store.write(work, emitter=EMIT)
    with pytest.raises(SimulatedCrash):
        await store.write(add("b"), emitter=OTHER_EMIT)
    with pytest.raises(SimulatedCrash):
        bodies(store)
    store.close()
    assert ran == []
    assert bodies(open_store()) == kept


_KILLED = """
import os, signal, sys
from pathlib import Path
from lanewarden.clock import SystemClock
from lanewarden.ledger import WriteLedger
from lanewarden.store import Store
from tests.contract.test_store_units import EMIT, MIGRATIONS, add

def kill(point, emitters):
    if point == sys.argv[2]:
        os.kill(os.getpid(), signal.SIGKILL)

store = Store.open(Path(sys.argv[1]), migrations=MIGRATIONS, ledger=WriteLedger(SystemClock()), failpoints=kill)
store.write_now(add("a"), emitter=EMIT)
print("told")
"""


@pytest.mark.parametrize(("point", "kept"), [("before_commit", []), ("after_commit", ["a"])])
def test_r05_real_kill_at_a_commit_point(open_store: OpenStore, tmp_path: Path, point: str, kept: list[str]) -> None:
    """A process killed before its commit has stored nothing, after it everything; the next open is sound."""
    died = subprocess.run(
        [sys.executable, "-c", _KILLED, str(tmp_path / "tests.sqlite3"), point],
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert (died.returncode, died.stdout) == (-9, b""), died.stderr
    assert bodies(open_store()) == kept
