"""Units of work about time: what is due on open holds, and a deadline that is moved."""

from __future__ import annotations

from typing import Final

from lane_runner_svc.core import timers
from lane_runner_svc.core.holds import Hold
from lane_runner_svc.core.task import PauseCause, Task
from lane_runner_svc.store import holds, tasks
from lane_runner_svc.work.session import Session
from lanewarden import rulings
from lanewarden.records import replace

BATCH_MAX: Final = 100


def fire_due(session: Session) -> int:
    """Fire what is due, oldest first; returns on how many holds. Each firing commits with what it tells, so that a crash
    repeats all of it or nothing.
    """
    due = holds.due_timers(session.uow, session.now.steady_ms, BATCH_MAX)
    for hold in due:
        session.about(hold.task_id)
        task = tasks.load(session.uow, hold.task_id)
        fired = session.save_hold(timers.fire(hold, task.patience, session.now.steady_ms))
        if fired.expired and not hold.expired:
            session.save(task, replace(task, pauses=task.pauses | {PauseCause.HOLD_DEADLINE}))
    return len(due)


def extend_hold(session: Session, escalation_id: str, *, deadline_ms: int) -> Hold:
    """Give an open hold ``deadline_ms`` from now, and its task back to the lane if the old deadline had passed.

    Raises:
        Refusal: ESCALATION_UNKNOWN, HOLD_NOT_OPEN.
    """
    hold = holds.load(session.uow, escalation_id)
    if not hold.open:
        raise rulings.not_open(escalation_id, state=hold.state.name, cause=hold.cancel_cause)
    task = tasks.load(session.uow, hold.task_id)
    extended = timers.extend(hold, task.patience, deadline_ms=session.now.steady_ms + deadline_ms)
    session.save_hold(extended)
    unpark(session, task)
    return extended


def unpark(session: Session, task: Task) -> Task:
    """Clear the park once no open hold of the task is past its deadline; every other pause stays."""
    if PauseCause.HOLD_DEADLINE not in task.pauses or holds.count_expired(session.uow, task.task_id):
        return task
    return session.save(task, replace(task, pauses=task.pauses - {PauseCause.HOLD_DEADLINE}))
