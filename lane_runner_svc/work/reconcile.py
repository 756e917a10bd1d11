"""Unit of work: mark again what the supervisor was found not to know, so that the ordinary reports carry it."""

from __future__ import annotations

from collections.abc import Iterable

from lane_runner_svc.store import inventory
from lane_runner_svc.store.inventory import Page
from lane_runner_svc.work.session import Session


def mark_again(session: Session, page: Page, task_ids: Iterable[str]) -> list[str]:
    """Mark the tasks and all of their escalations; the tasks that this runner does not have.

    What was on its way when the page was read, or has changed since, is reported anyway and was only not there yet.
    """
    listed = {item.task_id: item.version for item in page.items}
    missing = []
    for task_id in task_ids:
        found = inventory.version(session.uow, task_id)
        if found is None:
            missing.append(task_id)
            continue
        version, unfinished = found
        changed = listed[task_id] != version if task_id in listed else unfinished
        if changed or task_id in page.marked:
            continue
        session.touch_task(task_id, claims=False)
        for escalation_id in inventory.escalation_ids(session.uow, task_id):
            session.touch_hold(escalation_id)
    return missing
