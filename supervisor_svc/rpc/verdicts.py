"""Tasks as a supervisor shows them: as last reported, with what it makes of them; and the way to a verdict."""

from __future__ import annotations

from typing import Final

from lanewarden.stamps import timestamp
from lanewarden.v1 import operator_service_pb2 as pb
from lanewarden.v1 import task_pb2
from supervisor_svc.core.explanation import explain
from supervisor_svc.core.leases import LeaseState
from supervisor_svc.core.verdict import Verdict, classify
from supervisor_svc.core.view import View
from supervisor_svc.store import views
from supervisor_svc.supervisor import Supervisor
from supervisor_svc.work import judging

VERDICTS: Final = {each: getattr(task_pb2, f"VERDICT_{each.value}") for each in Verdict}


def shown(supervisor: Supervisor, stored: views.View) -> task_pb2.Task:
    """A task as last reported, judged; said to be only what was last heard while its runner is not live."""
    task = task_pb2.Task.FromString(stored.payload)
    if supervisor.presence.state(task.runner_id) is not LeaseState.LIVE:
        mark(supervisor, task)
    return _judged(supervisor, task, _view(supervisor, stored, task))


def answered(supervisor: Supervisor, stored: views.View, task: task_pb2.Task) -> task_pb2.Task:
    """A task as its runner has just answered with it, judged."""
    observed = judging.observed(stored, task, supervisor.clock.steady_ms())
    storm = supervisor.storm_against(task, observed)
    return _judged(supervisor, task, judging.view(task, observed, supervisor.presence, storm))


def mark(supervisor: Supervisor, task: task_pb2.Task) -> None:
    """Say of a task that it is as last heard of, and when that was."""
    task.runner_unreachable = True
    if seen := timestamp(supervisor.presence.seen_wall_ms(task.runner_id)):
        task.last_seen.CopyFrom(seen)


def explanation(supervisor: Supervisor, stored: views.View) -> pb.ExplainTaskResponse:
    """The verdict on a task, what would be done about it, and why nothing else."""
    task = shown(supervisor, stored)
    explained = explain(_view(supervisor, stored, task), supervisor.clock.steady_ms(), supervisor.supervision)
    return pb.ExplainTaskResponse(
        verdict=VERDICTS[explained.judgement.verdict],
        because=explained.judgement.because,
        arm=explained.arm.name,
        action=explained.arm.action.value,
        passed=[pb.ArmPassed(arm=arm.name, because=because) for arm, because in explained.passed],
        facts=[
            pb.Fact(name=each.name, value=each.value, author=f"AUTHOR_{each.author.value}") for each in explained.facts
        ],
        config_version=explained.config_version,
        task=task,
    )


def _view(supervisor: Supervisor, stored: views.View, task: task_pb2.Task) -> View:
    """A stored task as it is judged. One that was stored before anything was observed is as of now."""
    observed = stored.observed or judging.observed(None, task, supervisor.clock.steady_ms())
    return judging.view(task, observed, supervisor.presence, supervisor.storm_against(task, observed))


def _judged(supervisor: Supervisor, task: task_pb2.Task, view: View) -> task_pb2.Task:
    task.verdict = VERDICTS[classify(view, supervisor.clock.steady_ms(), supervisor.supervision)]
    return task
