#!/usr/bin/env python3
"""Asks before it does something that cannot be undone, waits for the ruling, and acts on it, however often it is killed."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from lanewarden.worker import Ruling, Worker

BACKUPS = Path("old-backups.txt")


def main() -> None:
    """Ask, wait, act, complete; an attempt may find any of it done already."""
    with Worker.from_environment() as worker:
        given = worker.assignment()
        kept = Path(f"ruling-{given.epoch}.json")  # a task that is reopened has another epoch, and asks again
        if not kept.exists():
            # An earlier attempt may have asked: then its question is the one that waits.
            keep(kept, ask(worker, given.holds[0].escalation_id if given.holds else ""))
        ruling = Ruling(**json.loads(kept.read_text()))
        done = act(ruling)
        worker.acknowledge(ruling)  # from here on it is not delivered again; said twice, it counts once
        worker.complete(done)


def ask(worker: Worker, escalation_id: str) -> Ruling:
    """The ruling, after minutes or weeks. Instead of waiting the worker could exit: that is a hold as well."""
    if not escalation_id:
        question = f"May I remove {len(BACKUPS.read_text().splitlines())} old backups?"
        options = {"delete": "remove them", "keep": "leave them"}
        escalation_id = worker.escalate(question, options=options, key="old-backups").escalation_id
    return worker.await_ruling(escalation_id)


def keep(path: Path, ruling: Ruling) -> None:
    """Write the ruling down before acting on it, whole or not at all."""
    draft = path.with_suffix(".draft")
    draft.write_text(json.dumps(asdict(ruling)))
    draft.replace(path)


def act(ruling: Ruling) -> str:
    """Do what was decided; a second time changes nothing."""
    if ruling.option_key != "delete":
        return f"kept: {ruling.instructions}"
    BACKUPS.unlink(missing_ok=True)
    return "removed, as ruled"


if __name__ == "__main__":
    main()
