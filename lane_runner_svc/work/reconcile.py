"""Unit of work: mark again what the supervisor was found not to know, so that the ordinary reports carry it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lane_runner_svc.store import inventory
from lane_runner_svc.store.inventory import Page
from lane_runner_svc.work.session import Session


@dataclass(frozen=True, slots=True, kw_only=True)
class Missing:
    """What a supervisor has of this runner and this runner does not: tasks, and escalations of others."""

    task_ids: tuple[str, ...] = ()
    escalation_ids: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.task_ids or self.escalation_ids)

    def __add__(self, other: Missing) -> Missing:
        return Missing(
            task_ids=self.task_ids + other.task_ids, escalation_ids=self.escalation_ids + other.escalation_ids
        )


def mark_again(session: Session, page: Page, found: Mapping[str, Sequence[str]]) -> Missing:
    """Mark tasks and all of their escalations; what of them is not here.

    ``found`` has the holds that the supervisor takes for open and this runner has not listed, by task. What was on its way
    when the page was read, or has changed since, is reported anyway and was only not there yet.
    """
    listed = {item.task_id: item.version for item in page.items}
    missing_tasks: list[str] = []
    missing_escalations: list[str] = []
    for task_id, open_there in found.items():
        known = inventory.version(session.uow, task_id)
        if known is None:
            missing_tasks.append(task_id)
            continue
        escalation_ids = inventory.escalation_ids(session.uow, task_id)
        missing_escalations += [each for each in open_there if each not in escalation_ids]
        version, unfinished = known
        changed = listed[task_id] != version if task_id in listed else unfinished
        if changed or task_id in page.marked:
            continue
        session.touch_task(task_id, claims=False)
        for escalation_id in escalation_ids:
            session.touch_hold(escalation_id)
    return Missing(task_ids=tuple(missing_tasks), escalation_ids=tuple(missing_escalations))
