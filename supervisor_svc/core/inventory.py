"""What of a runner's tasks is not here as the runner has it; pure."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


class Verdict(enum.Enum):
    """What is made of one task; the names are those of ``lanewarden.v1.InventoryVerdict``."""

    UNKNOWN = "UNKNOWN"
    DIFFERS = "DIFFERS"
    NOT_LISTED = "NOT_LISTED"


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """A task on one of the two sides, with its open holds by escalation id.

    ``version`` is None for a task of which only open holds are known.
    """

    task_id: str
    version: int | None
    open_holds: frozenset[str] = field(default=frozenset())
    unfinished: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A task that is not here as the runner has it. ``open_holds`` are open here and not at the runner."""

    task_id: str
    verdict: Verdict
    open_holds: frozenset[str] = field(default=frozenset())


def compare(listed: Sequence[Item], known: Mapping[str, Item]) -> list[Finding]:
    """What is to be reported again, in the order of the task ids; a task that is in step is not named.

    ``listed`` is every unfinished task that the runner has within a range of ids. ``known`` is, by id, every task of that
    runner within the range that goes on here or has open holds, and whatever else is known of the listed ones.
    """
    found = [finding for item in listed if (finding := _compare(item, known.get(item.task_id)))]
    ids = {item.task_id for item in listed}
    found += [
        Finding(task_id=view.task_id, verdict=Verdict.NOT_LISTED, open_holds=view.open_holds)
        for view in known.values()
        if view.task_id not in ids and (view.unfinished or view.open_holds)
    ]
    return sorted(found, key=lambda finding: finding.task_id)


def _compare(item: Item, view: Item | None) -> Finding | None:
    if item == view:
        return None
    if view is None:
        return Finding(task_id=item.task_id, verdict=Verdict.UNKNOWN)
    lacks = view.version is None or item.open_holds - view.open_holds
    verdict = Verdict.UNKNOWN if lacks else Verdict.DIFFERS
    return Finding(task_id=item.task_id, verdict=verdict, open_holds=view.open_holds - item.open_holds)
