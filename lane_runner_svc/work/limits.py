"""Units of work about limits of use: what a worker says of its own, and the end of one."""

from __future__ import annotations

from lane_runner_svc.core import limits
from lane_runner_svc.store import tasks
from lane_runner_svc.work.session import AttemptRef, Session


def say(session: Session, ref: AttemptRef, retry_wall_ms: int) -> None:
    """Store when the attempt's worker says its limit ends. It counts if the worker then exits with 75.

    Raises:
        Refusal: REQUEST_INVALID for a time that is more than 30 days away.
    """
    retry_ms = limits.until_ms(retry_wall_ms, session.now)
    tasks.set_attempt(session.uow, ref.task_id, ref.epoch, ref.attempt, retry_ms=retry_ms)


def lift_due(session: Session) -> int:
    """Clear the pause of every task whose limit has ended; returns of how many."""
    due = tasks.due_limits(session.uow, session.now.steady_ms)
    for task in due:
        session.about(task.task_id)
        session.save(task, limits.lift(task))
    return len(due)
