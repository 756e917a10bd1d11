"""A worker that moves customers' names out of ``orders`` into a table of their own, and asks before it drops the column.

Run by a lane runner as ``python -m lanewarden.demo.migration_worker DATABASE``. It may be killed at any point and started
again: each step is one transaction that leaves a mark in the database, and a ruling is applied once, by its id.
"""

from __future__ import annotations

import sqlite3
import sys
import time
from typing import Final

from lanewarden.worker import Ruling, Worker

BATCH: Final = 250
PAUSE_SECONDS: Final = 0.05
"""Between batches, so that a person can watch, and so that others get at the database."""
BUSY_SECONDS: Final = 10.0

QUESTION: Final = """\
customers is filled, and every order points to its customer.
orders.customer_name is not needed any more, but dropping it cannot be undone. What shall become of it?"""
OPTIONS: Final = {
    "keep": "leave the column where it is",
    "drop": "drop the column; the names stay in customers",
    "archive": "copy it to orders_customer_name, then drop it",
}


def main(path: str) -> None:
    """Migrate the database at ``path``."""
    database = sqlite3.connect(path, isolation_level=None, timeout=BUSY_SECONDS)
    with Worker.from_environment() as worker:
        started = worker.assignment()
        print(f"attempt {started.attempt}, started because: {started.reason}", flush=True)
        add_tables(database)
        backfill(database, worker)
        if not done(database, "ruled"):
            ruling = ask(worker)
            print(f"ruling {ruling.ruling_id}: {ruling.decision} {ruling.option_key}", flush=True)
            apply(database, ruling)
            worker.acknowledge(ruling)
        worker.complete(f"customers moved out of orders; customer_name: {detail(database, 'ruled')}")


def add_tables(database: sqlite3.Connection) -> None:
    """The new table, the new column, and the table of marks."""
    with transaction(database):
        database.execute("CREATE TABLE IF NOT EXISTS migration (step TEXT PRIMARY KEY, detail TEXT NOT NULL)")
        if done(database, "tables"):
            return
        database.execute("CREATE TABLE customers (customer_id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE)")
        database.execute("ALTER TABLE orders ADD COLUMN customer_id INTEGER REFERENCES customers")
        mark(database, "tables", "customers, orders.customer_id")


def backfill(database: sqlite3.Connection, worker: Worker) -> None:
    """Give every order its customer, a batch at a time; an order that has one is left alone."""
    (total,) = database.execute("SELECT count(*) FROM orders").fetchone()
    while not done(database, "backfill"):
        with transaction(database):
            rows = database.execute(
                "SELECT order_id, customer_name FROM orders WHERE customer_id IS NULL ORDER BY order_id LIMIT ?",
                (BATCH,),
            ).fetchall()
            database.executemany("INSERT OR IGNORE INTO customers (name) VALUES (?)", [(name,) for _, name in rows])
            database.executemany(
                "UPDATE orders SET customer_id = (SELECT customer_id FROM customers WHERE name = ?) WHERE order_id = ?",
                [(name, order_id) for order_id, name in rows],
            )
            (left,) = database.execute("SELECT count(*) FROM orders WHERE customer_id IS NULL").fetchone()
            if not left:
                mark(database, "backfill", f"{total} orders")
        worker.progress(total - left, note=f"{total - left} of {total} orders have their customer")
        time.sleep(PAUSE_SECONDS)


def ask(worker: Worker) -> Ruling:
    """Ask, unless an earlier attempt has: its question is still the one that waits for a ruling."""
    holds = worker.assignment().holds
    asked = holds[0] if holds else worker.escalate(QUESTION, options=OPTIONS)
    print(f"waiting for the ruling on {asked.escalation_id}", flush=True)
    return worker.await_ruling(asked.escalation_id)


def apply(database: sqlite3.Connection, ruling: Ruling) -> None:
    """Do what was decided, once: the mark, which names the ruling, is part of the same transaction."""
    with transaction(database):
        if done(database, "ruled"):
            return
        if ruling.option_key == "archive":
            database.execute(
                "CREATE TABLE orders_customer_name AS SELECT order_id, customer_name FROM orders ORDER BY order_id"
            )
        if ruling.option_key in ("archive", "drop"):
            database.execute("ALTER TABLE orders DROP COLUMN customer_name")
        mark(database, "ruled", f"{ruling.option_key or ruling.decision} by ruling {ruling.ruling_id}")


def done(database: sqlite3.Connection, step: str) -> bool:
    """Whether a step has left its mark."""
    return bool(detail(database, step))


def detail(database: sqlite3.Connection, step: str) -> str:
    """What a step's mark says; empty if there is none."""
    row = database.execute("SELECT detail FROM migration WHERE step = ?", (step,)).fetchone()
    return str(row[0]) if row else ""


def mark(database: sqlite3.Connection, step: str, text: str) -> None:
    """Say that a step is done."""
    database.execute("INSERT INTO migration VALUES (?, ?)", (step, text))


class transaction:  # noqa: N801 - used as a word
    """All of a block or nothing; BEGIN IMMEDIATE, because each one reads first and writes then."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database

    def __enter__(self) -> None:
        self._database.execute("BEGIN IMMEDIATE")

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        self._database.execute("ROLLBACK" if kind else "COMMIT")


if __name__ == "__main__":
    main(sys.argv[1])
