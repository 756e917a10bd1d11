"""One move of a task by the table, and what a terminal state brings with it; pure."""

from __future__ import annotations

from lane_runner_svc.core import limits
from lane_runner_svc.core.states import TERMINAL, Event, State, after
from lane_runner_svc.core.task import Author, Effect, HookState, Now, PauseCause, Step, Task, clipped
from lanewarden.records import replace


def move(task: Task, event: Event, now: Now, *, summary: str = "", author: Author = Author.RUNNER) -> Step:
    """The task after ``event``. A terminal state gets its summary and author here, and ends what is open.

    Raises:
        IllegalTransitionError: the table has no such pair.
    """
    state = after(task.state, event)
    moved = replace(task, state=state)
    if summary:
        moved = replace(moved, summary=clipped(summary), summary_author=author)
    if state not in TERMINAL:
        return Step(task=moved)
    assert moved.summary, "a terminal task has a summary"
    # Its holds are closed with it, so no deadline parks it: a reopened task would wait for a ruling that nobody owes.
    pauses = moved.pauses - {PauseCause.HOLD_DEADLINE}
    moved = replace(moved, finished_wall_ms=now.wall_ms, not_before_ms=0, pauses=pauses, relaunch_cause=None)
    moved = limits.lift(moved)
    if state is State.SUCCEEDED and moved.on_success:
        moved = replace(moved, hook_state=HookState.PENDING)
    if moved.over:
        moved = moved.with_supervisor
    messages = Effect.PARK_MESSAGES if state is State.SETTLED else Effect.END_MESSAGES
    parent = (Effect.TELL_PARENT,) if moved.parent_task_id else ()
    return Step(task=moved, effects=(Effect.CANCEL_HOLDS, messages, *parent))
