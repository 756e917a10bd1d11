"""What must hold of the ledger's judgement, as functions: tests run them as they are, and against mutants."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlite_utils import Database, Migrations

from lanewarden.errors import Reason, Refusal
from lanewarden.ledger import Finding, FindingKind, Thresholds, WriteLedger
from lanewarden.roll_up import RollUp
from lanewarden.store import Emitter, Entity, Store, UnitOfWork
from lanewarden.store.anchor import CEILING_EMITTER
from supervisor_svc.core import storms
from supervisor_svc.core.view import Storm

STORM = Emitter("tests.planted.storm")
VITAL = Emitter("tests.planted.ruling", exempt=True)
ROLL_UP = Emitter("tests.planted.roll_up", exempt=True)
TASK = Entity("task", "t1")
ORIGIN = "supervisor.sweep"
MIGRATIONS = Migrations("tests-ledger")


@MIGRATIONS()
def notes(database: Database) -> None:
    database.execute("CREATE TABLE note (id INTEGER PRIMARY KEY, body TEXT NOT NULL) STRICT")
    database.execute("CREATE TABLE trail (note_id INTEGER NOT NULL) STRICT")
    database.execute(
        "CREATE TRIGGER note_trail AFTER INSERT ON note BEGIN INSERT INTO trail VALUES (new.id); END",
    )


class FakeClock:
    """Time that a test moves; both clocks together."""

    def __init__(self) -> None:
        self.now_ms = 1_800_000_000_000

    def wall_ms(self) -> int:
        return self.now_ms

    def steady_ms(self) -> int:
        return self.now_ms

    async def sleep(self, seconds: float) -> None:
        raise AssertionError("these tests do not sleep")

    def advance(self, seconds: float) -> None:
        self.now_ms += round(seconds * 1000)


class Writes:
    """A ledger, and somebody who writes at a rate."""

    def __init__(self, limits: Thresholds | None = None) -> None:
        self.clock = FakeClock()
        self.ledger = WriteLedger(self.clock, limits=limits)
        self.written = 0

    def at(self, rows_per_second: float, seconds: float, *, tasks: int = 1, emitter: str = STORM.name) -> None:
        """Write at a steady rate to so many tasks in turn, a row at a time."""
        end_ms = self.clock.now_ms + seconds * 1000
        start_ms = self.clock.now_ms
        for n in range(round(rows_per_second * seconds)):
            self.clock.now_ms = start_ms + round(n * 1000 / rows_per_second)
            self.ledger.record("task", f"t{self.written % tasks + 1}", emitter, ORIGIN, 1)
            self.written += 1
        self.clock.now_ms = round(end_ms)

    def found(self) -> list[Finding]:
        """What lasts now."""
        return [each for each, _, ended_ms in self.ledger.findings() if ended_ms is None]

    def kinds(self) -> list[FindingKind]:
        return [each.kind for each in self.found()]


def a_burst_is_no_storm() -> None:
    """A thousand rows at once, and again some seconds later, are none: a rate has to be sustained."""
    writes = Writes()
    for _ in range(3):
        writes.ledger.record("task", "t1", STORM.name, "", 1_000)
        writes.clock.advance(0.2)
        assert not writes.found()
        writes.clock.advance(4)


def a_storm_is_over_when_it_is_over() -> None:
    """Three seconds after the last row, though the window of ten still has them all; it is remembered as over."""
    writes = Writes()
    writes.at(300, 6)
    assert writes.kinds() == [FindingKind.ENTITY_RATE]
    writes.clock.advance(3.1)
    assert not writes.found()
    [(over, began_ms, ended_ms)] = writes.ledger.findings()
    assert (over.entity_id, ended_ms) == ("t1", 0)
    assert 9_000 <= began_ms <= 9_200


def a_storm_that_wavers_is_one() -> None:
    """It stays while it is at more than half of what is too much, so it does not come and go."""
    writes = Writes()
    writes.at(25, 10)
    for _ in range(20):
        writes.at(15, 2)
        assert writes.kinds() == [FindingKind.ENTITY_RATE]
        writes.at(22, 2)
    [(_, began_ms, _)] = writes.ledger.findings()
    assert began_ms >= 89_000


def a_spread_storm_names_its_emitter() -> None:
    """Over more tasks than there is room for, each with less than is too much; somebody else's writes are not blamed."""
    writes = Writes()
    for second in range(10):
        writes.at(300, 1, tasks=500)
        writes.ledger.record("task", f"t{second}", "tests.planted.innocent", "", 9)
    [found] = writes.found()
    assert (found.kind, found.entity_id) == (FindingKind.TOTAL_RATE, "")
    assert [(each.emitter, each.origin) for each in found.shares] == [(STORM.name, ORIGIN)]
    assert found.entities >= 500


def more_keys_than_there_is_room_for() -> None:
    """Whatever is folded away, each emitter has all of its rows, and the busiest keep their names."""
    ledger = WriteLedger(FakeClock(), entities_max=10)
    for n in range(100):
        ledger.record("task", "hot", STORM.name, "", 5)
        ledger.record("task", f"t{n}", f"tests.planted.quiet_{n % 3}", "", 1)
    rates = ledger.rates(10)
    assert (rates[0].entity_id, rates[0].rows) == ("hot", 500)
    sums: dict[str, int] = {}
    for each in rates:
        sums[each.emitter] = sums.get(each.emitter, 0) + each.rows
    assert sums == ledger.emitters() == {STORM.name: 500} | {f"tests.planted.quiet_{n}": 34 - (n > 0) for n in range(3)}


@contextmanager
def stored(ledger: WriteLedger) -> Iterator[Store]:
    """A store on that ledger, which runs every unit of work at once."""
    with tempfile.TemporaryDirectory(prefix="lw-ledger-") as directory:
        store = Store.open(Path(directory) / "t.sqlite3", migrations=MIGRATIONS, ledger=ledger, threaded=False)
        try:
            yield store
        finally:
            store.close()


def note(uow: UnitOfWork) -> None:
    """Two rows: its own and its trigger's."""
    uow.execute("INSERT INTO note (body) VALUES ('x')")


def keeps_its_size(uow: UnitOfWork) -> None:
    """A row that replaces the last one: four changes or so, and the table stays as large as it is."""
    note(uow)
    uow.execute("DELETE FROM note WHERE id < (SELECT max(id) FROM note)")
    uow.execute("DELETE FROM trail WHERE rowid < (SELECT max(rowid) FROM trail)")


def throttled(call: Callable[[], object]) -> Refusal | None:
    """The refusal, if the call was throttled."""
    try:
        call()
    except Refusal as refusal:
        return refusal if refusal.reason is Reason.WRITE_THROTTLED else None
    return None


def the_ceiling_stops_one_emitter_on_one_task() -> None:
    """Whoever writes too much to a task is refused with who, how fast, the ceiling and when to try again; nothing is stored;
    what is exempt, another emitter, another task go on; and once it has come down it may write again.
    """
    writes = Writes(Thresholds(ceiling_rows_per_second=50))
    with stored(writes.ledger) as store:

        def write(emitter: Emitter, entity: Entity = TASK) -> None:
            store.write_now(note, emitter=emitter, entity=entity)

        def flood(emitter: str, rows_per_second: int, seconds: int) -> None:
            for _ in range(seconds * 10):
                writes.ledger.record("task", "t1", emitter, ORIGIN, rows_per_second // 10)
                writes.clock.advance(0.1)

        flood(STORM.name, 40, 20)
        write(STORM)
        flood(STORM.name, 100, 10)
        refusal = throttled(lambda: write(STORM))
        assert refusal is not None, "a hundred a second are more than fifty"
        facts = dict(refusal.metadata)
        assert (facts["emitter"], facts["entity_id"], facts["ceiling_rows_per_second"]) == (STORM.name, "t1", "50")
        assert float(facts["rows_per_second"]) > 50
        before = store.read(lambda c: c.query("SELECT count(*) AS n FROM note"))[0]["n"]
        assert throttled(lambda: write(STORM))
        flood(VITAL.name, 1_000, 2)
        write(VITAL)  # whatever it has written, it is never held up (W04)
        write(Emitter("tests.planted.other"))
        write(STORM, Entity("task", "t2"))
        assert throttled(lambda: write(STORM))
        assert store.read(lambda c: c.query("SELECT count(*) AS n FROM note"))[0]["n"] == before + 3
        writes.clock.advance(float(facts["retry_after_seconds"]))
        write(STORM)


def what_is_throttled_is_found() -> None:
    """A storm that the ceiling turns into bursts, none of which lasts long enough to be one, is a finding all the same."""
    writes = Writes()
    for second in range(9):
        for _ in range(20):
            if not throttled(lambda: writes.ledger.check("task", "t1", STORM.name)):
                writes.ledger.record("task", "t1", STORM.name, ORIGIN, 600)
            writes.clock.advance(0.05)
        [found] = writes.found()
        assert (found.kind, found.entity_id, found.shares[0].emitter) == (FindingKind.ENTITY_RATE, "t1", STORM.name)
        assert writes.ledger.attributed_rows == 12_000, second


def a_unit_counts_what_it_turned_to() -> None:
    """Rows of a unit that finds out what it is about are that task's, triggers included; nothing is lost in between."""
    writes = Writes()
    with stored(writes.ledger) as store:

        def work(uow: UnitOfWork) -> None:
            note(uow)
            uow.about(Entity("task", "t2"))
            note(uow)
            note(uow)
            uow.about(Entity("task", "t3"))

        before = writes.ledger.attributed_rows
        store.write_now(work, emitter=STORM, entity=TASK, origin=ORIGIN)
        rates = [each for each in writes.ledger.rates(10) if each.emitter == STORM.name]
        assert {(each.entity_id, each.rows, each.origin) for each in rates} == {("t1", 2, ORIGIN), ("t2", 4, ORIGIN)}
        assert writes.ledger.attributed_rows - before == 6
        assert store.unattributed_rows() == 0


async def one_change_is_rolled_up_once() -> None:
    """The service watches its own output: after one external change its writes about writing end (W06), and what the change
    was is kept.
    """
    writes = Writes()
    with stored(writes.ledger) as store:
        store.with_each_group(CEILING_EMITTER, note)  # as the clock keeps its ceiling ahead, and more often
        roll_up = RollUp(store, writes.ledger, ROLL_UP)
        store.write_now(note, emitter=STORM, entity=TASK)
        for minutes in range(240):
            writes.clock.advance(60)
            await roll_up.store()
            if minutes == 2:
                settled = writes.ledger.attributed_rows
        assert writes.ledger.attributed_rows == settled
        kept = store.read(lambda c: c.query("SELECT rows FROM write_minutes WHERE emitter = ?", (STORM.name,)))
        assert [row["rows"] for row in kept] == [2]


async def a_stop_keeps_the_last_minute() -> None:
    """What was written in the minute that is not over is stored once, as that minute; a start within it adds to it.
    A stop after nothing was written writes nothing, nor does a second one.
    """
    writes = Writes()
    with stored(writes.ledger) as store:
        roll_up = RollUp(store, writes.ledger, ROLL_UP)
        for seconds in (0, 1, 17, 45):  # in each of the windows
            writes.clock.advance(seconds)
            store.write_now(note, emitter=STORM, entity=TASK)
        await roll_up.finish()
        sql = "SELECT minute, rows FROM write_minutes WHERE emitter = ? ORDER BY minute"
        kept = [tuple(row) for row in store.read(lambda c: c.query(sql, (STORM.name,)))]
        minute = writes.clock.now_ms // 60_000
        assert kept == [(minute - 1, 6), (minute, 2)]
        written = writes.ledger.attributed_rows
        await roll_up.finish()
        await RollUp(store, WriteLedger(writes.clock), ROLL_UP).finish()
        assert writes.ledger.attributed_rows == written
        again = WriteLedger(writes.clock)
        again.record("task", "t1", STORM.name, "", 5)
        await RollUp(store, again, ROLL_UP).finish()
        now = [tuple(row) for row in store.read(lambda c: c.query(sql, (STORM.name,)))]
        assert now == [kept[0], (minute, 7)]


def a_storm_is_that_of_its_attempt_and_without_progress() -> None:
    """What an earlier attempt was written to is not held against the next, nor is a storm in which there is progress."""
    told = Storm(emitter="x.y", rows_per_second=300, since_ms=10_000)

    def since(**known: int | None) -> int | None:
        values: dict[str, int | None] = {"progressed_ms": None, "running_ms": 0, "now_ms": 30_000, **known}
        found = storms.against(told, **values)  # type: ignore[arg-type]
        return found.since_ms if found else None

    assert since() == 10_000
    assert since(progressed_ms=9_000) == 10_000
    assert since(running_ms=28_000) is None
    assert since(running_ms=20_000) == 20_000
    assert since(progressed_ms=26_000) is None
    assert since(progressed_ms=12_000) == 12_001
