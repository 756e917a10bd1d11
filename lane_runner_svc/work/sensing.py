"""The unit of work that turns a reading of a sensor into progress."""

from __future__ import annotations

from lane_runner_svc.core.sensing import Source, steps
from lane_runner_svc.core.states import State
from lane_runner_svc.store import tasks
from lane_runner_svc.work.session import AttemptRef, Session
from lane_runner_svc.work.tasks import PROGRESS_MAX
from lanewarden.records import replace


def sense(session: Session, *, ref: AttemptRef, source: Source, reading: int) -> bool:
    """Raise the task's progress by the steps that the attempt has made since the last reading, which is stored with it: so a
    restart counts each once. False, and nothing is stored, while the task waits for a ruling, or when the attempt is over.
    """
    task = tasks.load(session.uow, ref.task_id)
    attempt = tasks.load_attempt(session.uow, ref.task_id, ref.epoch, ref.attempt)
    latest = (task.epoch, task.attempt) == (ref.epoch, ref.attempt)
    if attempt is None or not latest or task.state is not State.RUNNING:
        return False
    if attempt.sensed == reading:
        return True
    tasks.set_attempt(session.uow, ref.task_id, ref.epoch, ref.attempt, sensed=reading)
    if made := steps(source, attempt.sensed, reading):
        session.save(task, replace(task, progress=min(PROGRESS_MAX, (task.progress or 0) + made)))
    return True
