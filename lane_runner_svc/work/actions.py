"""Units of work of a supervisor that acts by itself: wake, relaunch, settle. Each is fenced in its own transaction."""

from __future__ import annotations

from dataclasses import dataclass

from lane_runner_svc.core import settle as core
from lane_runner_svc.core.states import IllegalTransitionError
from lane_runner_svc.core.task import Task, illegal
from lane_runner_svc.store import holds, messages, tasks
from lane_runner_svc.work.session import Session
from lane_runner_svc.work.supervision import fence
from lanewarden.errors import Reason, invalid, refuse


@dataclass(frozen=True, slots=True, kw_only=True)
class Quote:
    """What an automatic action was decided about, and by what right: the supervision generation of whoever decided."""

    task_id: str
    epoch: int
    generation: int


def wake(session: Session, quote: Quote) -> Task:
    """Have a task look at its input, once per epoch; no budget is spent.

    Raises:
        Refusal: SUPERVISION_FENCED, TASK_UNKNOWN, TASK_TERMINAL or TASK_SETTLED, ILLEGAL_TRANSITION, LIMIT_REACHED.
    """
    task = quoted(session, quote)
    inputs = messages.waiting_inputs(session.uow, task.task_id).count
    step = core.wake(task, inputs=inputs, open_holds=holds.open_ids(session.uow, task.task_id), now=session.now)
    return session.take(task, step, cause="Wake")


def relaunch(session: Session, quote: Quote, *, attempt: int, cause: str, relaunches_max: int) -> Task:
    """Replace an attempt: its worker is stopped, and another attempt follows.

    Raises:
        Refusal: SUPERVISION_FENCED, TASK_UNKNOWN, TASK_TERMINAL or TASK_SETTLED, ATTEMPT_STALE, ILLEGAL_TRANSITION,
            LIMIT_REACHED.
    """
    task = quoted(session, quote)
    try:
        step = core.relaunch(
            task,
            attempt=attempt,
            cause=cause,
            relaunches_max=relaunches_max,
            open_holds=holds.open_ids(session.uow, task.task_id),
            now=session.now,
        )
    except IllegalTransitionError as error:
        raise illegal(task, error) from None
    session.note = f"attempt {attempt}" + (f": {cause}" if cause else "")
    return session.take(task, step, cause="Relaunch")


def settle(session: Session, quote: Quote, *, summary: str, diagnosis: str) -> Task:
    """Give a task up; a second time in the same epoch is answered like the first and changes nothing.

    Raises:
        Refusal: SUPERVISION_FENCED, TASK_UNKNOWN, TASK_TERMINAL, ILLEGAL_TRANSITION, REQUEST_INVALID for a blank summary.
    """
    if not summary.strip():
        raise invalid(("summary", "must not be blank"))
    task = quoted(session, quote)
    open_holds = holds.open_ids(session.uow, task.task_id)
    step = core.settle(task, summary=summary, diagnosis=diagnosis, open_holds=open_holds, now=session.now)
    return task if step.task is task else session.take(task, step, cause="Settle")


def quoted(session: Session, quote: Quote) -> Task:
    """The task, if the one who decided may act here and the decision is about the task's present life.

    Raises:
        Refusal: SUPERVISION_FENCED, TASK_UNKNOWN, ILLEGAL_TRANSITION for another epoch.
    """
    fence(session, quote.generation)
    task = tasks.load(session.uow, quote.task_id)
    check_epoch(task, quote.epoch)
    return task


def check_epoch(task: Task, epoch: int) -> None:
    """Refuse what was decided about another life of the task."""
    if task.epoch != epoch:
        raise refuse(
            Reason.ILLEGAL_TRANSITION,
            f"task {task.task_id} is in epoch {task.epoch}, and this was decided about epoch {epoch}; look at it again",
            task_id=task.task_id,
            state=task.state.name,
            epoch=epoch,
            current_epoch=task.epoch,
        )
