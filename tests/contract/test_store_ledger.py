"""The ledger of a real store: what is counted under whom, who is named, what is kept, and how large it may get."""

from __future__ import annotations

import asyncio
import random
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from lanewarden.errors import Reason, refuse
from lanewarden.ledger import FindingKind, WriteLedger
from lanewarden.ledger.windows import MINUTE_MS
from lanewarden.roll_up import WAITING_MAX, RollUp
from lanewarden.store import Entity, Store, UnitOfWork, minutes
from tests.ledger_checks import MIGRATIONS, ORIGIN, ROLL_UP, STORM, TASK, VITAL, FakeClock, keeps_its_size, note

DEADLINE_SECONDS = 20
LEDGER_BYTES_MAX = 64 * 1024 * 1024
FILE_BYTES_MAX = 1024 * 1024


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def ledger(clock: FakeClock) -> WriteLedger:
    return WriteLedger(clock)


@pytest.fixture
def store(tmp_path: Path, ledger: WriteLedger) -> Iterator[Store]:
    """A store that runs every unit at once."""
    opened = Store.open(tmp_path / "t.sqlite3", migrations=MIGRATIONS, ledger=ledger, threaded=False)
    with closing(opened):
        yield opened


async def refuse_all(*_: object, **__: object) -> None:
    """A store without room."""
    raise refuse(Reason.STORE_FULL, "the disk is full")


def kept(store: Store) -> list[tuple[int, str, str, int]]:
    """What is stored of minutes."""
    rows = store.read(lambda c: c.query("SELECT minute, entity_id, emitter, rows FROM write_minutes ORDER BY minute"))
    return [(row["minute"], row["entity_id"], row["emitter"], row["rows"]) for row in rows]


def test_w01_a_storm_that_keeps_its_size_is_found(store: Store, ledger: WriteLedger, clock: FakeClock) -> None:
    """A planted component whose table never grows, since each row replaces the last: its changes are counted as any."""
    for _ in range(80):
        store.write_now(keeps_its_size, emitter=STORM, entity=TASK, origin=ORIGIN)
        clock.advance(0.1)
    assert store.read(lambda c: c.query("SELECT count(*) AS n FROM note"))[0]["n"] == 1
    [(found, _, ended_ms)] = ledger.findings()
    assert (found.kind, found.entity_id, ended_ms) == (FindingKind.ENTITY_RATE, "t1", None)
    assert (found.shares[0].emitter, found.shares[0].origin) == (STORM.name, ORIGIN)
    assert found.rows_per_second == pytest.approx(40, rel=0.05)
    assert store.unattributed_rows() == 0


@pytest.mark.parametrize("seed", range(3))
def test_w03_units_that_turn_lose_no_row(store: Store, ledger: WriteLedger, seed: int) -> None:
    """Whatever a unit turns to, in between rows, triggers and nothing at all, and whether it is undone: the sums agree."""
    draw = random.Random(seed)
    start, expected = ledger.attributed_rows, dict.fromkeys(("", "t1", "t2", "t3"), 0)

    def work(uow: UnitOfWork) -> None:
        about = "t1"
        for _ in range(draw.randrange(6)):
            if draw.random() < 0.5:
                about = draw.choice(["t2", "t3"])
                uow.about(Entity("task", about))
            else:
                note(uow)
                written[about] = written.get(about, 0) + 2
        if draw.random() < 0.2:
            raise ValueError

    for _ in range(200):
        written: dict[str, int] = {}
        try:
            store.write_now(work, emitter=STORM, entity=TASK)
        except ValueError:
            continue
        for about, rows in written.items():
            expected[about] += rows
    found = dict.fromkeys(expected, 0)
    for rate in ledger.rates(10):
        if rate.emitter == STORM.name:
            found[rate.entity_id] += rate.rows
    assert found == expected
    assert ledger.attributed_rows - start == sum(expected.values())
    assert (store.unattributed_rows(), ledger.discarded_rows > 0) == (0, True)


async def test_w05_the_holder_of_the_store_is_named_and_nothing_that_waits_is_lost(
    tmp_path: Path, ledger: WriteLedger, clock: FakeClock
) -> None:
    """A unit has the store for 20 s. While it has, it is named and those that wait are not; then they are all written."""
    entered, leave = threading.Event(), threading.Event()

    def hold(uow: UnitOfWork) -> None:
        note(uow)
        entered.set()
        assert leave.wait(DEADLINE_SECONDS)

    with closing(Store.open(tmp_path / "t.sqlite3", migrations=MIGRATIONS, ledger=ledger)) as store:
        holder = asyncio.ensure_future(store.write(hold, emitter=STORM, entity=TASK, origin=ORIGIN))
        assert await asyncio.to_thread(entered.wait, DEADLINE_SECONDS)
        waiting = [asyncio.ensure_future(store.write(note, emitter=VITAL)) for _ in range(20)]
        await asyncio.sleep(0)  # each has put its unit into the queue
        clock.advance(20)
        [(found, began_ms, ended_ms)] = ledger.findings()
        assert (found.kind, found.entity_id, found.held_ms) == (FindingKind.STORE_HELD, "t1", 20_000)
        assert [(each.emitter, each.origin) for each in found.shares] == [(STORM.name, ORIGIN)]
        assert (began_ms, ended_ms) == (20_000, None)
        assert store.read(lambda c: c.query("SELECT count(*) AS n FROM note"))[0]["n"] == 0  # readers wait for nobody
        leave.set()
        await asyncio.gather(holder, *waiting)
        assert store.read(lambda c: c.query("SELECT count(*) AS n FROM note"))[0]["n"] == 21
        [(found, _, ended_ms)] = ledger.findings()
        assert (found.held_ms, ended_ms is not None) == (20_000, True)


async def test_minutes_are_kept_for_a_day(store: Store, ledger: WriteLedger, clock: FakeClock) -> None:
    """Each minute in which something was written, with who wrote; a day later it is gone, and so is what is in the future
    because somebody has set the clock back.
    """
    roll_up = RollUp(store, ledger, ROLL_UP)
    first = clock.now_ms // MINUTE_MS
    for _ in range(3):
        store.write_now(note, emitter=STORM, entity=TASK)
        clock.advance(60)
        await roll_up.store()
    assert [each for each in kept(store) if each[2] == STORM.name] == [
        (first + n, "t1", STORM.name, 2) for n in range(3)
    ]
    clock.advance((minutes.MINUTES_KEPT + 10) * 60)
    store.write_now(note, emitter=VITAL)
    clock.advance(60)
    await roll_up.store()
    assert {each[2] for each in kept(store)} >= {VITAL.name}
    assert not [each for each in kept(store) if each[2] == STORM.name]
    before = clock.now_ms // MINUTE_MS - 5
    late = {before: {("", "", "x.y", ""): 1}}
    store.write_now(lambda uow: minutes.put(uow, late, now_minute=before + 1), emitter=VITAL)
    assert {each[0] for each in kept(store)} == {before}


async def test_a_day_is_summed_with_the_rest_under_its_emitters(
    store: Store, ledger: WriteLedger, clock: FakeClock
) -> None:
    """Of what is stored the busiest keep their keys; no emitter loses a row; an entity that is not busy is found."""
    roll_up = RollUp(store, ledger, ROLL_UP)
    for minute in range(3):
        for n in range(10):
            ledger.record("task", f"t{n}", STORM.name, ORIGIN, 10 * n + minute)
        clock.advance(60)
        await roll_up.store()
    after = clock.now_ms // MINUTE_MS - 60

    def total(**asked: Any) -> dict[str, int]:
        found = store.read(lambda c: minutes.total(c, after_minute=after, **asked))
        return {entity_id: rows for (_, entity_id, emitter, _), rows in found.items() if emitter == STORM.name}

    assert total(rows_max=100) == {f"t{n}": 30 * n + 3 for n in range(10)}
    assert total(rows_max=2) == {"t9": 273, "t8": 243, "": sum(30 * n + 3 for n in range(8))}
    assert total(rows_max=2, entity_id="t0") == {"t0": 3}
    assert total(rows_max=2, entity_id="t99") == {}


async def test_minutes_wait_while_the_disk_is_full(
    store: Store, ledger: WriteLedger, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are stored once there is room, each as the minute that it was; of those that wait the oldest are given up."""
    roll_up = RollUp(store, ledger, ROLL_UP)
    first = clock.now_ms // MINUTE_MS
    with monkeypatch.context() as full:
        full.setattr(store, "write", refuse_all)
        for _ in range(WAITING_MAX + 3):
            ledger.record("task", "t1", STORM.name, "", 1)
            clock.advance(60)
            await roll_up.store()
    assert kept(store) == []
    await roll_up.store()
    assert [each[0] - first for each in kept(store) if each[2] == STORM.name] == list(range(3, WAITING_MAX + 3))


@pytest.mark.parametrize(
    "share",
    [pytest.param(0.01, id="some"), pytest.param(1.0, id="all", marks=[pytest.mark.long, pytest.mark.timeout(600)])],
)
async def test_an_hour_of_a_hundred_thousand_entities_and_fifty_emitters_is_bounded(
    store: Store, ledger: WriteLedger, clock: FakeClock, share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every pair of them once: less than 64 MiB of memory, exact totals, a table that ceases to grow, and a small file."""
    monkeypatch.setattr(minutes, "MINUTES_KEPT", 20)
    roll_up = RollUp(store, ledger, ROLL_UP)
    steps, pairs = 3_600, round(5_000_000 * share)
    emitters = [f"tests.planted.emitter_{n}" for n in range(50)]
    start, written, sizes = ledger.attributed_rows, 0, []
    for step in range(steps):
        until = pairs * (step + 1) // steps
        ledger.record_all([(("task", f"t{n // 50}", emitters[n % 50], ""), 1 + n % 3) for n in range(written, until)])
        written = until
        clock.advance(1)
        if (step + 1) % 60 == 0:
            await roll_up.store()
            sizes.append(len(kept(store)))
    expected = sum(1 + n % 3 for n in range(pairs))
    assert sum(rows for emitter, rows in ledger.emitters().items() if emitter in set(emitters)) == expected
    assert ledger.attributed_rows - start >= expected
    assert max(sizes) <= 22 * (minutes.KEYS_MAX + len(emitters) + 2)
    assert max(sizes[-20:]) <= max(sizes[:30])
    assert file_bytes(store) < FILE_BYTES_MAX
    assert deep_bytes([ledger, roll_up]) < LEDGER_BYTES_MAX


def file_bytes(store: Store) -> int:
    """How large the database is, with what is still in its log."""
    sql = "SELECT page_count * page_size AS bytes FROM pragma_page_count, pragma_page_size"
    return int(store.read(lambda c: c.query(sql))[0]["bytes"])


def deep_bytes(what: object) -> int:
    """The memory of an object and of everything it holds, each once; not of the store and the code that it refers to."""
    seen: set[int] = set()
    total, stack = 0, [what]
    while stack:
        each = stack.pop()
        if id(each) in seen or callable(each) or isinstance(each, Store):
            continue
        seen.add(id(each))
        total += sys.getsizeof(each)
        if isinstance(each, Mapping):
            stack += [*each.keys(), *each.values()]
        elif not isinstance(each, str | bytes | int | float) and isinstance(each, Iterable):
            stack += list(each)
        for names in [vars(kind).get("__slots__", ()) for kind in type(each).__mro__]:
            stack += [getattr(each, name) for name in names if hasattr(each, name)]
        stack += list(getattr(each, "__dict__", {}).values())
    return total
