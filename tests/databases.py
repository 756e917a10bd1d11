"""Databases as the first start of a service makes them."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path

from sqlite_utils import Migrations

from lanewarden.clock import SystemClock
from lanewarden.ledger import WriteLedger
from lanewarden.store import Store


def empty_database(path: Path, migrations: Migrations) -> Path:
    """The path, with an empty database of that schema where there was none: a copy costs a tenth of the migrations."""
    if not path.exists():
        path.write_bytes(_empty(migrations))
    return path


@cache
def _empty(migrations: Migrations) -> bytes:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "empty.sqlite3"
        Store.open(path, migrations=migrations, ledger=WriteLedger(SystemClock()), threaded=False).close()
        return path.read_bytes()
