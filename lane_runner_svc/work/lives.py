"""Units of work about a task's further lives: retry, reopen, take over."""

from __future__ import annotations

from collections.abc import Callable

from lane_runner_svc.core import lives
from lane_runner_svc.core.holds import Actor
from lane_runner_svc.core.states import Event, IllegalTransitionError
from lane_runner_svc.core.task import Kind, Task, ended, illegal
from lane_runner_svc.store import messages, tasks
from lane_runner_svc.work.session import Session
from lane_runner_svc.work.supervision import as_supervised
from lanewarden.errors import Reason, refuse


def retry(session: Session, task_id: str) -> Task:
    """Another attempt in the same epoch; a held task stays held.

    Raises:
        Refusal: TASK_UNKNOWN; TASK_TERMINAL or TASK_SETTLED unless it FAILED.
    """
    return _relive(session, task_id, lives.retry, cause="Retry")


def reopen(session: Session, task_id: str) -> Task:
    """The next epoch of a task that has ended; what was parked for it is delivered in it.

    Raises:
        Refusal: TASK_UNKNOWN; ILLEGAL_TRANSITION when it has not ended, or while its on_success command runs.
    """
    if tasks.load(session.uow, task_id).hook_running:
        raise refuse(
            Reason.ILLEGAL_TRANSITION,
            f"the on_success command of task {task_id} is running; reopen the task once that has ended",
            task_id=task_id,
            event=Event.REOPENED.name,
        )
    messages.unpark(session.uow, task_id)
    rests = not messages.waiting_inputs(session.uow, task_id).count
    life = lambda task: lives.reopen(task, rests=rests and task.kind is Kind.SESSION)  # noqa: E731
    return _relive(session, task_id, life, cause="Reopen")


def _relive(session: Session, task_id: str, life: Callable[[Task], Task], *, cause: str) -> Task:
    task = tasks.load(session.uow, task_id)
    try:
        again = session.save(task, as_supervised(session, life(task)), cause=cause)
    except IllegalTransitionError as error:
        raise illegal(task, error) from None
    if task.terminal:
        session.family_changed(again)
    return again


def take_over(session: Session, task_id: str, by: Actor, *, cause: str) -> tuple[Task, Actor]:
    """Make ``by`` the owner and launch nothing new; returns the task and who owned it before.

    Raises:
        Refusal: TASK_UNKNOWN, TASK_TERMINAL or TASK_SETTLED.
    """
    task = tasks.load(session.uow, task_id)
    if task.over:
        raise ended(task)
    before = Actor(identity=task.owner, role=task.owner_role)
    session.note = f"from {before.identity}" + (f": {cause}" if cause else "")
    return session.save(task, lives.take_over(task, by)), before
