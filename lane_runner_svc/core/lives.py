"""A task's further lives: retry, reopen, and a change of owner; pure."""

from __future__ import annotations

from lane_runner_svc.core.holds import Actor
from lane_runner_svc.core.states import Event, State, after
from lane_runner_svc.core.task import HookState, PauseCause, Task
from lanewarden.records import replace


def retry(task: Task) -> Task:
    """Another attempt in the same epoch: a FAILED task is queued with fresh budgets, a delayed one starts now.

    A task that succeeded but whose on_success command failed gets fresh tries of that, numbered on. A held task stays held:
    what it waits for is a ruling. A task that waits or runs already is what was asked for.

    Raises:
        IllegalTransitionError: the task has ended in another way.
    """
    if task.state is State.SUCCEEDED and task.hook_state is HookState.FAILED:
        return replace(task, hook_state=HookState.PENDING, hook_not_before_ms=0)
    if not task.terminal:
        return replace(task, not_before_ms=0)
    return replace(_fresh(task), state=after(task.state, Event.RETRIED))


def reopen(task: Task, *, rests: bool = False) -> Task:
    """The next epoch: nothing of the last one counts any more but its record. ``rests``: a session that no input waits for.

    Raises:
        IllegalTransitionError: the task has not ended.
    """
    state = after(task.state, Event.REOPENED_IDLE if rests else Event.REOPENED)
    reopened = replace(_fresh(task), state=state, epoch=task.epoch + 1, attempt=0)
    return replace(
        reopened,
        fruitless_ms=(),
        progress=None,
        progress_note="",
        relaunches=0,
        woken=False,
        exit_code=None,
        exit_signal=None,
        summary="",
        summary_author=None,
        hook_state=HookState.NONE,
        hook_tries=0,
        hook_not_before_ms=0,
        hook_summary="",
    )


def _fresh(task: Task) -> Task:
    return replace(
        task,
        not_before_ms=0,
        launch_failures=0,
        premature_exits=0,
        cancel_cause=None,
        outcome=None,
        outcome_summary="",
        finished_wall_ms=None,
    )


def take_over(task: Task, by: Actor) -> Task:
    """The task in other hands: nothing new is launched, everything else stays as it is."""
    return replace(task, owner=by.identity, owner_role=by.role, pauses=task.pauses | {PauseCause.TAKEOVER})
