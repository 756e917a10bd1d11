"""Units of work about the on_success command: started when nothing blocks, at least once, within a budget."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from lane_runner_svc.core import budget
from lane_runner_svc.core.completion import named
from lane_runner_svc.core.states import State
from lane_runner_svc.core.task import HookState, Task, clipped
from lane_runner_svc.store import tasks
from lane_runner_svc.work.attempts import blockers
from lane_runner_svc.work.session import AttemptRef, Session
from lanewarden.records import replace

TRIES_MAX: Final = 5
"""Tries until the command has failed, and again after each RetryTask. They are numbered on: each has its own directory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HookRun:
    """One try of a task's on_success command."""

    task: Task
    number: int
    idempotency_key: str


def idempotency_key(task: Task) -> str:
    """The same at each try; another for each epoch, which is another success."""
    return f"{task.task_id}.{task.epoch}"


def start(session: Session, task_id: str) -> HookRun | None:
    """Count a try before it is started; None when there is nothing to run, or something blocks after all (I1)."""
    task = tasks.load(session.uow, task_id)
    if task.state is not State.SUCCEEDED or task.hook_state is not HookState.PENDING:
        return None
    if task.hook_running or task.pauses:
        return None
    if blocked := blockers(session.uow, task):
        session.save(task, replace(task, hook_state=HookState.FAILED, hook_summary=f"blocked: {named(blocked)}"))
        return None
    started = session.save(task, replace(task, hook_running=True, hook_tries=task.hook_tries + 1))
    return HookRun(task=started, number=started.hook_tries, idempotency_key=idempotency_key(started))


def end(session: Session, ref: AttemptRef, *, done: bool, interrupted: bool = False, detail: str) -> Task:
    """What a try came to; ``ref.attempt`` is its number. A second report of the same end, or one of an earlier try or
    epoch, changes nothing. A try that the runner cut short because it goes down says nothing about the command.
    """
    task = tasks.load(session.uow, ref.task_id)
    if not task.hook_running or (task.epoch, task.hook_tries) != (ref.epoch, ref.attempt):
        return task
    ended = replace(task, hook_running=False, hook_summary=clipped(f"try {ref.attempt} {detail}"))
    if done:
        return session.save(task, replace(ended, hook_state=HookState.DONE))
    if interrupted:
        return session.save(task, ended)
    number = ref.attempt
    if number % TRIES_MAX == 0:
        return session.save(task, replace(ended, hook_state=HookState.FAILED))
    delay_ms = budget.backoff_ms(number % TRIES_MAX, session.random.random())
    return session.save(task, replace(ended, hook_not_before_ms=session.now.steady_ms + delay_ms))
