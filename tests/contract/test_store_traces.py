"""What telemetry is told of the store: each unit of work, each commit, and who kept whom waiting."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from sqlite_utils import Database, Migrations

from lanewarden.clock import Clock as ClockLike
from lanewarden.clock import SystemClock
from lanewarden.ledger import WriteLedger
from lanewarden.store import Emitter, Entity, Store, UnitOfWork
from lanewarden.store.witness import HOLDS_MAX, Witness, _Hold
from lanewarden.telemetry import TRACEPARENT, within
from lanewarden.telemetry.span_names import COMMIT, UNIT
from tests.heard import Heard
from tests.ledger_checks import FakeClock

MIGRATIONS = Migrations("tests")
OPERATOR = f"00-{'a' * 32}-{'b' * 16}-01"
SLOW, VICTIM, LATE, FIRST = (Emitter(f"tests.{name}") for name in ("slow", "victim", "late", "first"))
HELD_SECONDS = 20


@MIGRATIONS()
def notes(database: Database) -> None:
    database.execute("CREATE TABLE note (body TEXT NOT NULL UNIQUE) STRICT")


def add(body: str) -> Callable[[UnitOfWork], None]:
    """A unit that adds a note."""
    return lambda uow: uow.execute("INSERT INTO note VALUES (?)", (body,)) and None


def opened(directory: Path, heard: Heard, *, threaded: bool = True, clock: ClockLike | None = None) -> Store:
    return Store.open(
        directory / "t.sqlite3",
        migrations=MIGRATIONS,
        ledger=WriteLedger(clock or SystemClock()),
        threaded=threaded,
        telemetry=heard,
    )


class Clock:
    """Time that stands still until it is moved."""

    def __init__(self) -> None:
        self.ns = 1_800_000_000 * 10**9

    def __call__(self) -> int:
        self.ns += 1
        return self.ns


@pytest.mark.parametrize("threaded", [True, False], ids=["threaded", "threadless"])
async def test_each_unit_is_a_span_and_so_is_its_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, threaded: bool
) -> None:
    """Who wrote, for whom, about what, how much; in the caller's trace, and the work is told which that is. A unit that is
    undone says why, and nothing that it had to tell is told.
    """
    heard = Heard()
    monkeypatch.setattr("time.time_ns", Clock())  # a slow disk would be named
    store = opened(tmp_path, heard, threaded=threaded)
    seen: list[str] = []

    def work(uow: UnitOfWork) -> None:
        seen.append(uow.traceparent)
        add("one")(uow)
        uow.tell("lanewarden.tests.moved", {"to": "DONE"}, about={"task.id": "t1"})

    def undone(uow: UnitOfWork) -> None:
        uow.tell("lanewarden.tests.moved", counted=True)
        raise ValueError("a text that no span may hold")

    with within(OPERATOR):
        await store.write(work, emitter=VICTIM, entity=Entity("task", "t1"), origin="far.away")
        with pytest.raises(ValueError, match="a text"):
            await store.write(undone, emitter=LATE)
    store.close()
    unit, failed = heard.told(UNIT)
    assert (unit.parent, unit.context[:35], unit.context) == (OPERATOR, OPERATOR[:35], seen[0])
    about = {key.removeprefix("lanewarden."): value for key, value in unit.attributes.items()}
    assert about.pop("waited_seconds") > 0
    assert about.pop("held_seconds") > 0
    writes = {"emitter": "tests.victim", "origin": "far.away"}
    assert about == {**writes, "entity.kind": "task", "task.id": "t1", "rows": 1}
    commit, _ = heard.told(COMMIT)
    assert (commit.parent, commit.attributes["lanewarden.rows"]) == (unit.context, 1)
    (told,) = heard.told("lanewarden.tests.moved")
    assert told.parent == unit.context
    said = writes | {"task.id": "t1", "to": "DONE"}
    assert told.attributes == {f"lanewarden.{key}": value for key, value in said.items()}
    assert (failed.error, failed.attributes["error.type"]) == ("ValueError", "ValueError")
    assert heard.counts == []
    assert "a text" not in repr(heard.spans)


async def hold_for_long(store: Store, clock: Clock) -> None:
    """One unit holds the store for twenty seconds. One is in its group before it, one comes meanwhile; each group gathers
    while the unit before it has the store.
    """
    loop = asyncio.get_running_loop()

    def gate(body: str) -> tuple[asyncio.Event, threading.Event, Callable[[UnitOfWork], None]]:
        """A unit that says when it has begun, and goes on when it is told to."""
        begun, told = asyncio.Event(), threading.Event()

        def work(uow: UnitOfWork) -> None:
            add(body)(uow)
            loop.call_soon_threadsafe(begun.set)
            assert told.wait(10)
            if body == "slow":
                clock.ns += HELD_SECONDS * 10**9

        return begun, told, work

    first_begun, first_told, first = gate("first")
    slow_begun, slow_told, slow = gate("slow")
    with within(OPERATOR):
        writes = [asyncio.ensure_future(store.write(first, emitter=FIRST))]
        await first_begun.wait()
        writes.append(asyncio.ensure_future(store.write(add("victim"), emitter=VICTIM)))
        writes.append(asyncio.ensure_future(store.write(slow, emitter=SLOW)))
        await asyncio.sleep(0)  # each has begun, and so is in the queue
        first_told.set()
        await slow_begun.wait()
        writes.append(asyncio.ensure_future(store.write(add("late"), emitter=LATE)))
        await asyncio.sleep(0)
        slow_told.set()
        await asyncio.gather(*writes)


async def blame(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """W05, as a check: whoever waits says for whom, and whoever held says that it held."""
    heard, clock = Heard(), Clock()
    monkeypatch.setattr("time.time_ns", clock)
    store = opened(directory, heard)
    try:
        await hold_for_long(store, clock)
    finally:
        store.close()
    holder = heard.unit(SLOW.name)
    assert holder.attributes["lanewarden.held_seconds"] == pytest.approx(HELD_SECONDS)
    assert "lanewarden.waited_for" not in holder.attributes, "nobody but itself kept it waiting"
    for emitter in (VICTIM, LATE):
        victim = heard.unit(emitter.name)
        assert victim.attributes["lanewarden.waited_seconds"] == pytest.approx(HELD_SECONDS)
        assert victim.attributes["lanewarden.held_seconds"] == pytest.approx(0, abs=1e-3)
        assert victim.attributes["lanewarden.waited_for"] == SLOW.name
        assert victim.links == (holder.context,), "the holder's own span is one step away"


async def test_w05_the_trace_names_the_holder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A unit that holds the store for twenty seconds is named by all that waited for it, before and behind it."""
    await blame(tmp_path, monkeypatch)


def forgets_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody is remembered who held the store."""
    monkeypatch.setattr(Witness, "_note_holds", lambda *given: None)


def blames_the_waiter(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one who waits is named."""
    monkeypatch.setattr(
        Witness, "_holder", lambda witness, unit, ended_ns: _Hold(unit.emitter.name, 0, 0, unit.traceparent)
    )


def sees_its_own_turn_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wait ends when a unit's turn comes; what its group waits for then is not seen."""
    kept = Witness._holder
    monkeypatch.setattr(Witness, "_holder", lambda witness, unit, ended_ns: kept(witness, unit, unit.begun_ns))


@pytest.mark.parametrize("mutant", [forgets_holds, blames_the_waiter, sees_its_own_turn_only])
async def test_w05_mutants(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mutant: Callable[[pytest.MonkeyPatch], None]
) -> None:
    """A store whose witness does that is found out."""
    mutant(monkeypatch)
    with pytest.raises((AssertionError, KeyError)):
        await blame(tmp_path, monkeypatch)


def storms_are_told(directory: Path) -> None:
    """W01, as a check: a unit says which finding it belongs to while that lasts; what else is written then says nothing."""
    heard, clock = Heard(), FakeClock()
    store = opened(directory, heard, threaded=False, clock=clock)

    def write(emitter: Emitter, task_id: str) -> str:
        store.write_now(add(f"{emitter.name} {clock.now_ms}"), emitter=emitter, entity=Entity("task", task_id))
        return str(heard.told(UNIT)[-1].attributes.get("lanewarden.finding.kind", ""))

    try:
        storm = []
        for _ in range(300):
            clock.advance(0.01)
            storm.append(write(SLOW, "t1"))
        quiet = write(FIRST, "t2")
        clock.advance(60)
        over = write(LATE, "t1")
    finally:
        store.close()
    assert (storm[0], storm[-1]) == ("", "ENTITY_RATE")
    assert (quiet, over) == ("", "")


def test_w01_a_unit_of_a_storm_says_so(tmp_path: Path) -> None:
    """By what the ledger has found of its entity or its emitter."""
    storms_are_told(tmp_path)


def finds_none(_ledger: WriteLedger, _kind: str, _entity_id: str, _emitter: str) -> str:
    """Nothing is ever a storm."""
    return ""


def calls_all_a_storm(ledger: WriteLedger, _kind: str, _entity_id: str, _emitter: str) -> str:
    """While there is one, everything belongs to it."""
    return next(iter(ledger._storms.values()), "")


def never_forgets(ledger: WriteLedger, kind: str, entity_id: str, _emitter: str) -> str:
    """What was one, stays one."""
    names = {each.entity_id: each.kind.value for each, _, _ in ledger.findings()}
    return names.get(entity_id, "")


@pytest.mark.parametrize("mutant", [finds_none, calls_all_a_storm, never_forgets])
def test_w01_mutants(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mutant: Callable[..., str]) -> None:
    """A ledger that says that of its storms is found out."""
    monkeypatch.setattr(WriteLedger, "storm_of", mutant)
    with pytest.raises(AssertionError):
        storms_are_told(tmp_path)


async def test_a_group_is_one_commit_linked_with_its_units(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Below the first of them, and linked with the others: nobody's trace is without the commit that it waited for."""
    heard, clock = Heard(), Clock()
    monkeypatch.setattr("time.time_ns", clock)
    store = opened(tmp_path, heard)
    await hold_for_long(store, clock)
    store.close()
    commit = next(each for each in heard.told(COMMIT) if each.parent == heard.unit(VICTIM.name).context)
    assert commit.links == (heard.unit(SLOW.name).context,)
    assert commit.attributes["lanewarden.units"] == 2


def test_a_background_unit_is_a_trace_of_its_own(tmp_path: Path) -> None:
    """Without a caller's trace a unit begins one, so that what it stores can be continued; the current one is left."""
    heard = Heard()
    store = opened(tmp_path, heard, threaded=False)
    with within(""):
        for body in ("one", "two"):
            store.write_now(add(body), emitter=FIRST)
            assert TRACEPARENT.get() == ""
    store.close()
    one, two = heard.told(UNIT)
    assert one.parent == two.parent == ""
    assert one.context[:35] != two.context[:35]


def test_what_is_remembered_of_holds_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many units hold the store for long."""
    heard, clock = Heard(), Clock()
    monkeypatch.setattr("time.time_ns", clock)
    store = opened(tmp_path, heard, threaded=False)

    def slow(uow: UnitOfWork) -> None:
        clock.ns += 10**9

    for _ in range(2 * HOLDS_MAX):
        store.write_now(slow, emitter=SLOW)
    witness = store._commits._witness
    store.close()
    assert witness is not None
    assert len(witness._holds) == HOLDS_MAX
