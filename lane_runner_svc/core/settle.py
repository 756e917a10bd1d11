"""What a supervisor may do to a task by itself: wake it, relaunch it, settle it; pure.

Rules about this file: what people have in hand is left alone (an open hold, a pause, a cancel under way, a worker that has
said Complete); each action is counted with its intent, before anything is done about it, so that a crash cannot make it
happen twice; and no text that a worker or the runner wrote is lost to one of a supervisor's.
"""

from __future__ import annotations

from collections.abc import Sequence

from lane_runner_svc.core.moves import move
from lane_runner_svc.core.states import Event, State, after
from lane_runner_svc.core.task import Author, Effect, Now, Step, Task, clipped, ended, ending
from lanewarden.errors import Reason, refuse
from lanewarden.records import replace


def wake(task: Task, *, inputs: int, open_holds: Sequence[str], now: Now) -> Step:
    """The task with its one wake of the epoch spent: a session that rests is queued, a delay before a launch is over.
    ``inputs`` counts those that no worker has taken.

    Raises:
        Refusal: TASK_TERMINAL or TASK_SETTLED; ILLEGAL_TRANSITION for what is to be left alone, or when nothing waits;
            LIMIT_REACHED in an epoch that has had its wake.
    """
    _leave_alone(task, open_holds, Event.WOKEN)
    if task.woken:
        raise refuse(
            Reason.LIMIT_REACHED,
            f"task {task.task_id} was woken in epoch {task.epoch} already; once is all there is",
            task_id=task.task_id,
            epoch=task.epoch,
        )
    if not inputs:
        raise _out_of_place(task, Event.WOKEN, "has no input that waits for a worker")
    woken = replace(task, woken=True, not_before_ms=0)
    return move(woken, Event.WOKEN, now) if task.state is State.IDLE else Step(task=woken)


def relaunch(task: Task, *, attempt: int, cause: str, relaunches_max: int, open_holds: Sequence[str], now: Now) -> Step:
    """The task with one more relaunch spent, and its worker to be stopped; without one, its delay is over.

    Raises:
        Refusal: TASK_TERMINAL or TASK_SETTLED; ATTEMPT_STALE for another attempt than the latest; LIMIT_REACHED;
            ILLEGAL_TRANSITION for what is to be left alone, and while a relaunch of this attempt is under way.
        IllegalTransitionError: a session at rest has no attempt to replace.
    """
    if task.terminal:
        raise ended(task)
    if attempt != task.attempt:
        raise refuse(
            Reason.ATTEMPT_STALE,
            f"attempt {attempt} of task {task.task_id} is over, the latest is {task.attempt}; look at the task again",
            task_id=task.task_id,
            attempt=attempt,
            current_attempt=task.attempt,
        )
    _leave_alone(task, open_holds, Event.RELAUNCHED)
    if task.relaunch_cause is not None:
        raise _out_of_place(task, Event.RELAUNCHED, f"is being relaunched already after attempt {attempt}")
    after(task.state, Event.RELAUNCHED)
    if task.relaunches >= relaunches_max:
        raise refuse(
            Reason.LIMIT_REACHED,
            f"task {task.task_id} was relaunched {task.relaunches} times in epoch {task.epoch}, of {relaunches_max} allowed",
            task_id=task.task_id,
            relaunches=task.relaunches,
            relaunches_max=relaunches_max,
        )
    asked = replace(
        task, relaunches=task.relaunches + 1, relaunch_cause=clipped(cause) or "relaunched by the supervisor"
    )
    if task.worker_alive or task.state is State.STARTING:
        return Step(task=asked, effects=(Effect.STOP_WORKER,))
    return relaunched(asked, now)


def relaunched(task: Task, now: Now) -> Step:
    """The task in the queue, no worker alive. What the runner last said of it stays: a diagnosis will need that."""
    summary = "" if task.summary else f"attempt {task.attempt} was relaunched: {task.relaunch_cause}"
    return move(replace(task, not_before_ms=0), Event.RELAUNCHED, now, summary=summary, author=Author.SUPERVISOR)


def settle(task: Task, *, summary: str, diagnosis: str, open_holds: Sequence[str], now: Now) -> Step:
    """The task given up, at once or when its worker has been stopped. The first settle of an epoch is the only one.

    Raises:
        Refusal: TASK_TERMINAL when it has ended in another way or is being canceled; ILLEGAL_TRANSITION for what is to be
            left alone.
    """
    if task.state is State.SETTLED or task.settle_summary is not None:
        return Step(task=task)
    _leave_alone(task, open_holds, Event.SETTLED)
    after(task.state, Event.SETTLED)
    asked = replace(task, settle_summary=clipped(summary), settle_diagnosis=clipped(diagnosis))
    if task.worker_alive or task.state is State.STARTING:
        return Step(task=asked, effects=(Effect.STOP_WORKER,))
    return settled(asked, now)


def settled(task: Task, now: Now) -> Step:
    """The end of a settle, no worker alive."""
    diagnosed = replace(task, diagnosis=task.settle_diagnosis, settle_summary=None, settle_diagnosis="")
    return move(diagnosed, Event.SETTLED, now, summary=task.settle_summary or "", author=Author.SUPERVISOR)


def _leave_alone(task: Task, open_holds: Sequence[str], event: Event) -> None:
    if task.terminal:
        raise ended(task)
    if task.stopping:
        raise ending(task)
    if open_holds:
        raise _out_of_place(task, event, f"waits for a ruling on {', '.join(open_holds)}", holds=",".join(open_holds))
    if task.pauses:
        causes = ",".join(sorted(cause.value for cause in task.pauses))
        raise _out_of_place(task, event, f"is paused ({causes})", pauses=causes)
    if task.outcome is not None:
        raise _out_of_place(task, event, "has its worker's word in Complete, and ends with the worker")


def _out_of_place(task: Task, event: Event, why: str, **facts: str) -> Exception:
    return refuse(
        Reason.ILLEGAL_TRANSITION,
        f"task {task.task_id} {why}; {event.name} is not for it now",
        task_id=task.task_id,
        state=task.state.name,
        event=event.name,
        **facts,
    )
