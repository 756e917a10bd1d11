"""What the write ledger costs: durable units of work of 64 callers into one store, with the ledger and without."""

from __future__ import annotations

import asyncio
import contextlib
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from sqlite_utils import Database, Migrations

from lanewarden.clock import SystemClock
from lanewarden.ledger import WriteLedger
from lanewarden.store import Emitter, Entity, Store, UnitOfWork
from tests.bench.figures import Figure

ROUNDS: Final = 15
CALLERS: Final = 64
UNITS: Final = 300
TARGET: Final = "≥ 0.95"
EMITTERS: Final = tuple(Emitter(f"bench.ledger.site_{n}") for n in range(8))
MIGRATIONS: Final = Migrations("bench")


@MIGRATIONS()
def rows(database: Database) -> None:
    database.execute("CREATE TABLE row (id INTEGER PRIMARY KEY, body TEXT NOT NULL) STRICT")


class NoLedger(WriteLedger):
    """Counts what the store itself needs, the sum that is compared with SQLite's counter, and nothing else."""

    def record_all(self, written: object, moved: object = ()) -> None:
        self._attributed_rows += sum(rows for _, rows in written)  # type: ignore[attr-defined]

    def turn(self, key: object) -> None:
        pass

    def check(self, entity_kind: str, entity_id: str, emitter: str) -> None:
        pass


async def run(rounds: int | None, directory: Path) -> list[Figure]:
    """The one figure."""
    kinds: dict[str, Callable[[], WriteLedger]] = {
        "with": lambda: WriteLedger(SystemClock()),
        "without": lambda: NoLedger(SystemClock()),
    }
    found: dict[str, list[float]] = {name: [] for name in kinds}
    with contextlib.ExitStack() as stack:
        stores = {}
        for name, ledger in kinds.items():
            store = Store.open(directory / f"{name}.sqlite3", migrations=MIGRATIONS, ledger=ledger())
            stores[name] = stack.enter_context(contextlib.closing(store))
        for round_ in range((rounds or ROUNDS) + 1):
            for name in sorted(stores, reverse=round_ % 2 == 1):  # each is as often the first as the second
                found[name].append(await _rate(stores[name]))
    with_, without = found["with"][1:], found["without"][1:]
    return [
        Figure(
            bench="ledger",
            what=f"durable units of work of {CALLERS} callers, counted by the write ledger",
            measured=statistics.median(with_),
            unit="/s",
            reference="the same, not counted",
            reference_measured=statistics.median(without),
            ratio=statistics.median(a / b for a, b in zip(with_, without, strict=True)),
            target=TARGET,
        )
    ]


async def _rate(store: Store) -> float:
    start = time.perf_counter()
    await asyncio.gather(*(_write(store, caller) for caller in range(CALLERS)))
    return CALLERS * UNITS / (time.perf_counter() - start)


async def _write(store: Store, caller: int) -> None:
    """One unit after the other, each a row about the caller's own task."""
    task, emitter = Entity("task", f"t{caller}"), EMITTERS[caller % len(EMITTERS)]
    for n in range(UNITS):
        await store.write(partial(_insert, n), emitter=emitter, entity=task, origin="bench.caller")


def _insert(n: int, uow: UnitOfWork) -> None:
    uow.execute("INSERT INTO row (body) VALUES (?)", (f"body {n}",))
