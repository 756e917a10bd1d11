"""The database that the demo migrates: a shop's orders, the same on every machine."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from random import Random
from typing import Final

ORDERS: Final = 3_000
_CUSTOMERS: Final = ("Ada", "Blaise", "Chandra", "Dorothy", "Emmy", "Fei", "Grace", "Hedy", "Ida", "Jocelyn")
_TOWNS: Final = (
    "Arles",
    "Bergen",
    "Cadiz",
    "Delft",
    "Essen",
    "Fano",
    "Genoa",
    "Havre",
    "Izmir",
    "Jena",
    "Kiel",
    "Lyon",
)
_ITEMS: Final = ("kettle", "lamp", "chair", "clock", "basket", "teapot")


def create(path: Path) -> None:
    """Make the database: one table of orders that repeats each customer's name."""
    chance = Random(11)  # noqa: S311 - the same orders every time, not a secret
    rows = [
        (
            number,
            f"{chance.choice(_CUSTOMERS)} of {chance.choice(_TOWNS)}",
            chance.choice(_ITEMS),
            chance.randint(1, 9),
            chance.randint(199, 19_999),
        )
        for number in range(1, ORDERS + 1)
    ]
    database = sqlite3.connect(path)
    with database:
        database.execute(
            "CREATE TABLE orders (order_id INTEGER PRIMARY KEY, customer_name TEXT NOT NULL, item TEXT NOT NULL,"
            " quantity INTEGER NOT NULL, price_cents INTEGER NOT NULL)"
        )
        database.executemany("INSERT INTO orders VALUES (?, ?, ?, ?, ?)", rows)
    database.close()


def tables(path: Path) -> list[tuple[str, int, str]]:
    """Name, number of rows and columns of every table, by name."""
    database = sqlite3.connect(path)
    names = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")]
    found = []
    for name in names:
        (rows,) = database.execute(f"SELECT count(*) FROM {name}").fetchone()  # noqa: S608 - our own names
        columns = ", ".join(column[1] for column in database.execute(f"PRAGMA table_info({name})"))
        found.append((name, rows, columns))
    database.close()
    return found
