"""From what a runner reports and when it was received to what is judged; no decisions here."""

from __future__ import annotations

from typing import Final

from lanewarden.v1 import incident_pb2, task_pb2
from lanewarden.walltime import rfc3339
from lanewarden.worker_messages import enum_word
from supervisor_svc.core.leases import LeaseState
from supervisor_svc.core.observation import Observed, Reported, observe
from supervisor_svc.core.view import Author, State, Storm, Text, View
from supervisor_svc.store import views
from supervisor_svc.work.presence import Presence

_FILED: Final = frozenset({incident_pb2.INCIDENT_STATE_FILED, incident_pb2.INCIDENT_STATE_RESOLVED})


def observed(known: views.View | None, task: task_pb2.Task, now_ms: int) -> Observed:
    """What is known of a task once this report of it is here; ``known`` is what is stored of it."""
    if known is None or known.observed is None:
        return observe(None, _reported(task), now_ms)
    last = task_pb2.Task.FromString(known.payload)
    return observe((_reported(last), known.observed), _reported(task), now_ms)


def view(task: task_pb2.Task, known: Observed, presence: Presence, storm: Storm | None = None) -> View:
    """The task as it is judged now; ``storm`` is what speaks against it of what is written to it."""
    seen_wall_ms = presence.seen_wall_ms(task.runner_id)
    summary = _summary(task)
    return View(
        state=_state(task),
        epoch=task.epoch,
        attempt=task.attempt,
        session=task.spec.kind == task_pb2.TASK_KIND_SESSION,
        worker_alive=task.worker_alive,
        pauses=tuple(enum_word(task_pb2.PauseCause, each) for each in task.pauses),
        open_holds=tuple(task.open_holds),
        children_open=task.children_open,
        sensor=task.HasField("progress") or task.spec.HasField("progress_from"),
        progress=_progress(task),
        progressed_ms=known.progressed_ms,
        running_ms=known.running_ms,
        heartbeat_ms=task.spec.heartbeat.ToMilliseconds(),
        input_ms=known.input_ms,
        storm=storm,
        reachable=presence.state(task.runner_id) is not LeaseState.UNREACHABLE and not task.runner_forgot,
        heard_ms=presence.heard_ms(task.runner_id),
        last_seen="" if seen_wall_ms is None else rfc3339(seen_wall_ms),
        relaunches=task.relaunches,
        woken=task.woken,
        incident=next((each.key for each in task.incidents if each.epoch == task.epoch), ""),
        mishaps=tuple(dict.fromkeys(each for each in (known.cause, summary) if each)),
        note=task.progress_note,
    )


def unfiled(task: task_pb2.Task) -> bool:
    """Whether the task was given up, and no incident of its epoch is filed or resolved: whoever supervises it owes that."""
    of_epoch = [each for each in task.incidents if each.epoch == task.epoch]
    return task.state == task_pb2.TASK_STATE_SETTLED and not any(each.state in _FILED for each in of_epoch)


def _reported(task: task_pb2.Task) -> Reported:
    return Reported(
        epoch=task.epoch,
        attempt=task.attempt,
        running=_state(task) is State.RUNNING,
        progress=_progress(task),
        oldest_input=task.oldest_input_at.ToNanoseconds() if task.HasField("oldest_input_at") else None,
        of_round=task.input_of_round if task.HasField("input_of_round") else None,
        summary=_summary(task),
        pushes=task.relaunches + task.woken,
    )


def _state(task: task_pb2.Task) -> State:
    return State[task_pb2.TaskState.Name(task.state).removeprefix("TASK_STATE_")]


def _progress(task: task_pb2.Task) -> int | None:
    return task.progress if task.HasField("progress") else None


def _summary(task: task_pb2.Task) -> Text | None:
    if not task.summary or task.summary_author == task_pb2.AUTHOR_UNSPECIFIED:
        return None
    return Text(author=Author[task_pb2.Author.Name(task.summary_author).removeprefix("AUTHOR_")], text=task.summary)
