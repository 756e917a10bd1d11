"""The right of a supervisor to act at a real runner by itself, for tests that stand in for the supervisor."""

from __future__ import annotations

import sqlite3
from contextlib import closing

from lane_runner_svc import emitters
from lane_runner_svc.store import supervision
from lane_runner_svc.store.schema import MIGRATIONS
from lane_runner_svc.store.supervision import Supervision
from lanewarden.clock import SystemClock
from lanewarden.ledger import WriteLedger
from lanewarden.store import Store
from tests.integration.pair import Pair, eventually


def supervise(pair: Pair) -> None:
    """See to it that somebody supervises the runner, which is started anew for that."""
    pair.runner.stop()
    database, ledger = pair.directory / "runner" / "runner.sqlite3", WriteLedger(SystemClock())
    with closing(Store.open(database, migrations=MIGRATIONS, ledger=ledger, threaded=False)) as store:
        known = store.read(supervision.load)
        granted = Supervision(generation=known.generation + 1, supervisor_id="s", supervisor_incarnation="i", live=True)
        if not known.live:
            store.write_now(lambda uow: supervision.put(uow, granted), emitter=emitters.START)
    pair.runner.start()


def generation(pair: Pair) -> int:
    """The generation that may act now, as soon as there is one."""
    file = pair.directory / "runner" / "runner.sqlite3"

    def look() -> int:
        with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as database:
            rows = database.execute("SELECT generation FROM supervision WHERE live").fetchall()
        return int(rows[0][0]) if rows else 0

    return eventually(look, "somebody supervises the runner")
