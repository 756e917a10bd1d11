"""A worker that asks once, applies the ruling once, and stops at each step until the test lets it go on.

Run with the directory in which the test and it meet. A step is met once: the next attempt walks through. What the ruling
does is one row in a database of the worker's own, keyed by the ruling's id, as the README tells worker authors to do.
"""

from __future__ import annotations

import os
import sqlite3
import sys
from pathlib import Path

from lanewarden.worker import Worker


def step(meeting: Path, name: str) -> None:
    """Say that the step is reached, then wait until the test opens the gate, unless an earlier attempt was here."""
    reached = meeting / f"{name}.reached"
    if reached.exists():
        return
    draft = meeting / f".{name}.{os.getpid()}"
    draft.write_text(str(os.getpid()))
    draft.rename(reached)
    with (meeting / f"{name}.gate").open() as gate:  # a FIFO: blocks until the test opens its end
        gate.read()


def apply(meeting: Path, ruling_id: str) -> None:
    with sqlite3.connect(meeting / "work.sqlite3") as work:
        work.execute("CREATE TABLE IF NOT EXISTS applied (ruling_id TEXT PRIMARY KEY)")
        work.execute("INSERT OR IGNORE INTO applied VALUES (?)", (ruling_id,))


def main(meeting: Path) -> None:
    with Worker.from_environment() as worker:
        step(meeting, "before_escalation")
        holds = worker.assignment().holds
        escalation_id = holds[0].escalation_id if holds else worker.escalate("May I?", expects_reply=True).escalation_id
        step(meeting, "held")
        ruling = worker.await_ruling(escalation_id)
        step(meeting, "delivered")
        apply(meeting, ruling.ruling_id)
        worker.acknowledge(ruling)
        worker.complete("done as ruled")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
