"""What a supervisor makes of tasks, over real gRPC and a real store: in ExplainTask, ListTasks, GetTask and WatchTasks."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from lanewarden.errors import Reason
from lanewarden.v1 import incident_pb2, task_pb2
from lanewarden.v1 import operator_service_pb2 as pb
from lanewarden.v1 import supervisor_service_pb2 as supervisor_pb
from tests.integration.supervisor_kit import PATIENCE_SECONDS, World, refused, task, world

RUNNING: dict[str, Any] = {"state": task_pb2.TASK_STATE_RUNNING, "worker_alive": True, "attempt": 1, "epoch": 1}


async def report(w: World, sequence: int, told: task_pb2.Task) -> None:
    """Let the runner report a task, and answer with it when it is asked."""
    w.runner.tasks[told.task_id] = told
    assert await w.side.report(supervisor_pb.ReportItem(sequence=sequence, task=told)) == sequence


async def verdicts(w: World, task_id: str) -> set[str]:
    """The verdicts on a task in everything that a supervisor answers with."""
    explained = await w.operator.ExplainTask(pb.ExplainTaskRequest(task_id=task_id))
    listed = (await w.operator.ListTasks(pb.OperatorServiceListTasksRequest())).tasks
    one = (await w.operator.GetTask(pb.OperatorServiceGetTaskRequest(task_id=task_id))).task
    found = [explained.verdict, explained.task.verdict, one.verdict]
    found += [each.verdict for each in listed if each.task_id == task_id]
    async with asyncio.timeout(PATIENCE_SECONDS):
        async for watched in w.operator.WatchTasks(pb.OperatorServiceWatchTasksRequest(task_id=task_id)):
            found.append(watched.task.verdict)
            break
    assert len(found) == 5
    return {task_pb2.Verdict.Name(each).removeprefix("VERDICT_") for each in found}


@pytest.mark.parametrize(
    ("told", "verdict", "arm"),
    [
        ({**RUNNING}, "UNKNOWN", "report"),
        ({**RUNNING, "progress": 0}, "HEALTHY", "report"),
        ({**RUNNING, "worker_alive": False}, "EXITED", "relaunch"),
        ({**RUNNING, "worker_alive": False, "relaunches": 2}, "EXITED", "settle"),
        ({**RUNNING, "worker_alive": False, "pauses": [task_pb2.PAUSE_CAUSE_TAKEOVER]}, "EXITED", "held"),
        ({**RUNNING, "worker_alive": False, "incidents": [{"key": "t2/1/exited", "epoch": 1}]}, "EXITED", "filed"),
        ({**RUNNING, "worker_alive": False, "incidents": [{"key": "t2/0/exited", "epoch": 0}]}, "EXITED", "relaunch"),
        ({"state": task_pb2.TASK_STATE_QUEUED}, "QUEUED", "report"),
        ({"state": task_pb2.TASK_STATE_HELD, "open_holds": ["e2"]}, "HELD", "held"),
        ({"state": task_pb2.TASK_STATE_IDLE}, "HEALTHY", "report"),
        ({"state": task_pb2.TASK_STATE_SETTLED}, "HEALTHY", "terminal"),
    ],
)
async def test_every_answer_has_the_same_verdict(tmp_path: Path, told: dict[str, Any], verdict: str, arm: str) -> None:
    """As the task was reported, so it is judged, whichever way one asks; and ExplainTask names the arm that follows."""
    incidents = [incident_pb2.Incident(**each) for each in told.get("incidents", [])]
    async with world(tmp_path) as w:
        await report(w, 3, task("t2", **{**told, "incidents": incidents}))
        assert await verdicts(w, "t2") == {verdict}
        assert (await w.operator.ExplainTask(pb.ExplainTaskRequest(task_id="t2"))).arm == arm


async def test_explain_tells_facts_with_their_authors(tmp_path: Path) -> None:
    """Whose word each fact is, which earlier arm does not match and why, and the settings that decided."""
    async with world(tmp_path, relaunches_max=3) as w:
        mishap = {"summary": "attempt 1: killed by SIGKILL", "summary_author": task_pb2.AUTHOR_RUNNER}
        await report(w, 3, task("t2", **{**RUNNING, "worker_alive": False, "relaunches": 3, **mishap}))
        explained = await w.operator.ExplainTask(pb.ExplainTaskRequest(task_id="t2"))
        facts = {each.name: (each.value, task_pb2.Author.Name(each.author)) for each in explained.facts}
        assert facts["relaunches"] == ("3 of 3", "AUTHOR_RUNNER")
        assert facts["said"] == ("attempt 1: killed by SIGKILL", "AUTHOR_RUNNER")
        assert facts["runner"][1] == "AUTHOR_SUPERVISOR"
        assert explained.because == "its worker is gone, and it has not ended"
        assert [each.arm for each in explained.passed] == ["terminal", "report", "held", "filed", "wake", "relaunch"]
        assert explained.passed[-1].because == "3 of 3 relaunches of epoch 1 are spent"
        assert (explained.action, explained.config_version) == ("settle it and file an incident", 1)


async def test_a_runner_that_is_lost_makes_its_tasks_unreachable(tmp_path: Path) -> None:
    """Once its lease has expired: in every answer, also of the task that was held, while the rest is as last heard."""
    settings = {"lease_ttl_seconds": 0.3, "lease_renew_seconds": 0.1, "lease_grace_seconds": 0.1}
    async with world(tmp_path, **settings, forward_seconds=1.0) as w:
        await report(w, 3, task("t2", **RUNNING))
        await w.stop_runner()
        async with asyncio.timeout(PATIENCE_SECONDS):
            async for watched in w.operator.WatchTasks(pb.OperatorServiceWatchTasksRequest(task_id="t2")):
                if watched.task.verdict == task_pb2.VERDICT_UNREACHABLE:
                    break
        assert await verdicts(w, "t2") == {"UNREACHABLE"}
        assert await verdicts(w, "t1") == {"UNREACHABLE"}
        assert (await w.operator.ExplainTask(pb.ExplainTaskRequest(task_id="t1"))).arm == "report"


async def test_explain_knows_no_task_of_nobody(tmp_path: Path) -> None:
    """An id that nobody has reported is refused as unknown."""
    async with world(tmp_path) as w:
        refusal = await refused(w.operator.ExplainTask(pb.ExplainTaskRequest(task_id="t9")))
        assert refusal.reason is Reason.TASK_UNKNOWN
