"""What of a runner's tasks is not here as the runner has it; pure."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field


class Finding(enum.Enum):
    """What is found about one task; the names are those of ``lanewarden.v1.InventoryVerdict``."""

    UNKNOWN = "UNKNOWN"
    DIFFERS = "DIFFERS"
    NOT_LISTED = "NOT_LISTED"


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """A task on one of the two sides, with its open holds by escalation id."""

    task_id: str
    version: int
    open_holds: frozenset[str] = field(default=frozenset())
    unfinished: bool = True


def compare(listed: Iterable[Item], known: Mapping[str, Item]) -> dict[str, Finding]:
    """What is to be reported again, by task id, in the order of the ids; a task that is in step is not named.

    ``listed`` is every unfinished task that the runner has within a range of ids. ``known`` is, by id, every unfinished task
    of that runner within the range here, and whatever else is known of the listed ones.
    """
    found = {}
    for item in listed:
        view = known.get(item.task_id)
        if view is None or item.open_holds - view.open_holds:
            found[item.task_id] = Finding.UNKNOWN
        elif view != item:
            found[item.task_id] = Finding.DIFFERS
    ids = {item.task_id for item in listed}
    for task_id, view in known.items():
        if task_id not in ids and view.unfinished:
            found[task_id] = Finding.NOT_LISTED
    return dict(sorted(found.items()))
