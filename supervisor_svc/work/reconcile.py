"""Comparing what a runner has with what is known here, after each of its registrations."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from lanewarden.errors import Reason, invalid, refuse
from lanewarden.hub import Topic
from lanewarden.store import Connection
from lanewarden.v1 import escalation_pb2, task_pb2
from supervisor_svc.core.inventory import Finding, Item, compare
from supervisor_svc.store import inventory, runners, views
from supervisor_svc.work.presence import lease_expired
from supervisor_svc.work.session import Session

KNOWN_MAX: Final = 2_000
"""Unfinished tasks that are compared for one response."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """What a runner has within a range of task ids, ``after`` excluded and ``through`` included; empty ends are open."""

    runner_id: str
    incarnation: str
    generation: int
    items: Sequence[Item]
    after: str
    through: str


def check_page(page: Page) -> None:
    """Refuse a page that is not a range of ids in order.

    Raises:
        Refusal: REQUEST_INVALID.
    """
    ids = [item.task_id for item in page.items]
    if any(first >= second for first, second in pairwise(ids)):
        raise invalid(("items", "must be in the order of their task ids, each once"))
    if ids and (ids[0] <= page.after or (page.through and ids[-1] > page.through)):
        raise invalid(("items", "must lie after after_task_id and up to through_task_id"))


def check_holder(reader: Connection, page: Page) -> None:
    """Refuse whoever does not hold the runner's lease.

    Raises:
        Refusal: LEASE_UNKNOWN; LEASE_EXPIRED.
    """
    runner = runners.find(reader, page.runner_id)
    if runner is None:
        raise refuse(Reason.LEASE_UNKNOWN, f"runner {page.runner_id} has never registered here", runner=page.runner_id)
    if runner.lease_ended or (runner.incarnation, runner.generation) != (page.incarnation, page.generation):
        raise lease_expired(page.runner_id, runner.generation)


def look(reader: Connection, page: Page) -> tuple[list[Finding], str]:
    """What of a page is not known as it is, and the last id that was compared, or ``""`` for all of it.

    Raises:
        Refusal: LEASE_UNKNOWN; LEASE_EXPIRED.
    """
    check_holder(reader, page)
    listed = [item.task_id for item in page.items]
    known, through = inventory.known(
        reader, page.runner_id, after=page.after, through=page.through, listed=listed, rows_max=KNOWN_MAX
    )
    items = [item for item in page.items if not through or item.task_id <= through]
    return compare(items, known), "" if through == page.through else through


def forget(session: Session, page: Page, task_ids: Iterable[str], escalation_ids: Iterable[str]) -> None:
    """Note which tasks and escalations the runner does not have, though it had them: it has lost the store they were in.

    Raises:
        Refusal: LEASE_UNKNOWN; LEASE_EXPIRED.
    """
    check_holder(session.uow, page)
    for task_id in task_ids:
        _forget_task(session, page.runner_id, task_id)
        for escalation_id in inventory.open_escalations(session.uow, task_id):
            _forget_escalation(session, page.runner_id, escalation_id)
    for escalation_id in escalation_ids:
        _forget_escalation(session, page.runner_id, escalation_id)


def _forget_task(session: Session, runner_id: str, task_id: str) -> None:
    view = views.task(session.uow, task_id)
    if view is None or view.runner_id != runner_id:
        return
    task = task_pb2.Task.FromString(view.payload)
    task.runner_forgot = True
    inventory.forget_task(session.uow, task_id, task.SerializeToString())
    session.touch(Topic("task", task_id))


def _forget_escalation(session: Session, runner_id: str, escalation_id: str) -> None:
    view = views.escalation(session.uow, escalation_id)
    if view is None or view.runner_id != runner_id:
        return
    escalation = escalation_pb2.Escalation.FromString(view.payload)
    escalation.runner_forgot = True
    inventory.forget_escalation(session.uow, escalation_id, escalation.SerializeToString())
    session.touch(Topic("escalation", escalation_id))
