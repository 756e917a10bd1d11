"""Commands that a supervisor forwards, and who may give them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from lanewarden.auth import Role
from lanewarden.errors import Reason, refuse
from lanewarden.v1 import operator_service_pb2 as pb
from lanewarden.v1 import task_pb2
from supervisor_svc.bootstrap import OPERATOR, SUPERVISOR
from tests.integration.supervisor_kit import PATIENCE_SECONDS, fresh, refused, ruling, world
from tests.ports import free_port

SPEC = task_pb2.TaskSpec(argv=["true"], lane="a")
COMMANDS: list[tuple[str, Any, str]] = [
    ("SendInput", pb.OperatorServiceSendInputRequest(task_id="t1", text="more"), "SendInput"),
    ("CancelTask", pb.OperatorServiceCancelTaskRequest(task_id="t1", cause="enough"), "CancelTask"),
    ("PauseTask", pb.OperatorServicePauseTaskRequest(task_id="t1"), "PauseTask"),
    ("ResumeTask", pb.OperatorServiceResumeTaskRequest(task_id="t1"), "ResumeTask"),
    (
        "RecordGate",
        pb.OperatorServiceRecordGateRequest(task_id="t1", gate="review", decision=task_pb2.GATE_DECISION_WAIVED),
        "RecordGate review WAIVED",
    ),
]


def with_id(request: Any) -> Any:
    copied = type(request)()
    copied.CopyFrom(request)
    copied.request_id = fresh()
    return copied


@pytest.mark.parametrize(("rpc", "request_", "action"), COMMANDS)
async def test_a_command_reaches_the_owner_in_the_callers_name(
    tmp_path: Path, rpc: str, request_: Any, action: str
) -> None:
    """Same request_id, the operator's name, one effect for a repeat, one audit entry."""
    async with world(tmp_path) as w:
        asked = with_id(request_)
        for _ in range(2):
            await getattr(w.operator, rpc)(asked)
        (effect,) = w.runner.effects
        assert (effect.request_id, effect.task_id, effect.on_behalf_of.role) == (asked.request_id, "t1", "operator")
        assert await w.audit() == [(action, "OK")]


@pytest.mark.parametrize(("rpc", "request_", "action"), COMMANDS)
async def test_a_command_to_a_runner_that_is_away_is_not_stored(
    tmp_path: Path, rpc: str, request_: Any, action: str
) -> None:
    """RUNNER_UNREACHABLE says which runner and that nothing is stored; nothing happens later."""
    async with world(tmp_path, runner_up=False) as w:
        refusal = await refused(getattr(w.operator, rpc)(with_id(request_)))
        assert refusal.reason is Reason.RUNNER_UNREACHABLE
        assert dict(refusal.metadata) == {"runner": "r1", "stored": "false"}
        assert await w.audit() == [(action, "RUNNER_UNREACHABLE")]
        await w.start_runner()
        stored = ruling()
        await w.operator.Steer(stored)
        await w.runner.until_effects(1)
        assert [each.request_id for each in w.runner.requests] == [stored.request_id]


async def test_a_command_for_an_unknown_task_is_refused(tmp_path: Path) -> None:
    """A task that nobody has reported is TASK_UNKNOWN, for commands and for reads."""
    async with world(tmp_path) as w:
        cancel = pb.OperatorServiceCancelTaskRequest(request_id=fresh(), task_id="t9")
        assert (await refused(w.operator.CancelTask(cancel))).reason is Reason.TASK_UNKNOWN
        get = pb.OperatorServiceGetTaskRequest(task_id="t9")
        assert (await refused(w.operator.GetTask(get))).reason is Reason.TASK_UNKNOWN
        assert await w.audit() == [("CancelTask", "TASK_UNKNOWN")]


async def test_a_refusal_of_a_forwarded_command_passes_through(tmp_path: Path) -> None:
    """Reason, sentence and facts are the runner's own."""
    async with world(tmp_path) as w:
        w.runner.refusals = [refuse(Reason.TASK_TERMINAL, "it is over", state="FAILED", event="CANCELED")]
        refusal = await refused(w.operator.CancelTask(with_id(COMMANDS[1][1])))
        assert (refusal.reason, refusal.message) == (Reason.TASK_TERMINAL, "it is over")
        assert refusal.metadata["state"] == "FAILED"
        assert await w.audit() == [("CancelTask", "TASK_TERMINAL")]


async def test_a_task_comes_from_its_runner_or_as_last_heard_of(tmp_path: Path) -> None:
    """The owner answers while it can; otherwise the last report is shown and said to be that."""
    async with world(tmp_path) as w:
        asked = pb.OperatorServiceGetTaskRequest(task_id="t1")
        fresh_task = await w.operator.GetTask(asked)
        assert (fresh_task.task.version, len(fresh_task.messages)) == (2, 1)
        assert not fresh_task.task.runner_unreachable
        await w.stop_runner()
        old = await w.operator.GetTask(asked)
        assert (old.task.version, old.task.runner_unreachable) == (1, True)
        assert old.task.last_seen.seconds > 0


async def test_submit_is_known_at_once_and_a_repeat_goes_to_the_same_runner(tmp_path: Path) -> None:
    """One task for one request_id, even when another runner would be chosen now; the task is found right away."""
    async with world(tmp_path) as w:
        request = pb.OperatorServiceSubmitTaskRequest(request_id=fresh(), spec=SPEC)
        submitted = (await w.operator.SubmitTask(request)).task
        elsewhere = {"runner_id": "r0", "incarnation": fresh(), "address": f"127.0.0.1:{free_port()}"}
        await w.side.register(**elsewhere)
        again = (await w.operator.SubmitTask(request)).task
        assert again.task_id == submitted.task_id
        assert len(w.runner.effects) == 1
        listed = (await w.operator.ListTasks(pb.OperatorServiceListTasksRequest(runner_id="r1"))).tasks
        assert submitted.task_id in {each.task_id for each in listed}
        changed = pb.OperatorServiceSubmitTaskRequest(request_id=request.request_id, spec=SPEC, runner_id="r0")
        assert (await refused(w.operator.SubmitTask(changed))).reason is Reason.REQUEST_ID_REUSED


async def test_a_child_goes_to_the_runner_of_its_parent(tmp_path: Path) -> None:
    """Wherever there is more room: a parent is told by its own runner."""
    async with world(tmp_path) as w:
        parent = (await w.operator.SubmitTask(pb.OperatorServiceSubmitTaskRequest(request_id=fresh(), spec=SPEC))).task
        await w.side.register(runner_id="r0", incarnation=fresh(), address=f"127.0.0.1:{free_port()}")
        child = task_pb2.TaskSpec(argv=["x"], parent_task_id=parent.task_id)
        await w.operator.SubmitTask(pb.OperatorServiceSubmitTaskRequest(request_id=fresh(), spec=child))
        assert [request.spec.parent_task_id for request in w.runner.requests][-1] == parent.task_id
        child.parent_task_id = "tnobody"
        orphan = pb.OperatorServiceSubmitTaskRequest(request_id=fresh(), spec=child)
        assert (await refused(w.operator.SubmitTask(orphan))).reason is Reason.TASK_UNKNOWN


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"runner_id": "r9"}, Reason.RUNNER_UNKNOWN),
        ({"spec": task_pb2.TaskSpec(argv=["x"], lane="z")}, Reason.LANE_UNKNOWN),
    ],
)
async def test_submit_that_nobody_can_take(tmp_path: Path, fields: dict[str, Any], reason: Reason) -> None:
    """Unknown runners and lanes are refused here, with an audit entry, and reach no runner."""
    async with world(tmp_path) as w:
        request = pb.OperatorServiceSubmitTaskRequest(**{"request_id": fresh(), "spec": SPEC, **fields})
        assert (await refused(w.operator.SubmitTask(request))).reason is reason
        assert w.runner.requests == []
        assert await w.audit() == [("SubmitTask", reason.name)]


async def test_reads_that_the_runner_answers(tmp_path: Path) -> None:
    """CheckCompletion and TailLog are the runner's own words; without the runner they say so."""
    async with world(tmp_path) as w:
        check = pb.OperatorServiceCheckCompletionRequest(task_id="t1")
        answer = await w.operator.CheckCompletion(check)
        assert [each.name for each in answer.blockers] == ["e1"]
        tail = pb.OperatorServiceTailLogRequest(task_id="t1")
        assert [each.piece.data async for each in w.operator.TailLog(tail)] == [b"one", b"two"]
        await w.stop_runner()
        assert (await refused(w.operator.CheckCompletion(check))).reason is Reason.RUNNER_UNREACHABLE
        assert (await refused(anext(w.operator.TailLog(tail)))).reason is Reason.RUNNER_UNREACHABLE
        assert await w.audit() == []


async def test_watching_tasks_shows_commands_at_once(tmp_path: Path) -> None:
    """What a forwarded command came to is seen by watchers without waiting for the runner's report."""
    async with world(tmp_path) as w:
        stream = w.operator.WatchTasks(pb.OperatorServiceWatchTasksRequest())
        async with asyncio.timeout(PATIENCE_SECONDS):
            assert (await anext(stream)).task.state == task_pb2.TASK_STATE_HELD
            await w.operator.CancelTask(with_id(COMMANDS[1][1]))
            while (await anext(stream)).task.state != task_pb2.TASK_STATE_CANCELED:
                pass
        await stream.aclose()


async def test_roles(tmp_path: Path) -> None:
    """Nobody without a credential, no command from a viewer, no lease for an operator; and none of it reaches a runner."""
    async with world(tmp_path) as w:
        nobody, viewer = w.stub(OPERATOR, None), w.stub(OPERATOR, Role.VIEWER)
        runner = w.stub(OPERATOR, Role.RUNNER)
        listing = pb.ListEscalationsRequest()
        assert (await refused(nobody.ListEscalations(listing))).reason is Reason.CREDENTIAL_INVALID
        assert len((await viewer.ListEscalations(listing)).escalations) == 1
        for stub in (viewer, runner):
            assert (await refused(stub.Steer(ruling()))).reason is Reason.ROLE_NOT_ALLOWED
        w.side.stub = w.stub(SUPERVISOR, Role.OPERATOR)
        assert (await refused(w.side.keep_alive())).reason is Reason.ROLE_NOT_ALLOWED
        assert w.runner.requests == []


async def test_audit_pages_and_names_the_trace(tmp_path: Path) -> None:
    """Entries are listed in order, a page at a time, by task, with who and which trace."""
    async with world(tmp_path) as w:
        trace_id = "a" * 32
        request = ruling()
        await w.operator.Steer(request, traceparent=f"00-{trace_id}-{'b' * 16}-01")
        await w.operator.PauseTask(with_id(COMMANDS[2][1]))
        first = await w.operator.ListAudit(pb.ListAuditRequest(task_id="t1", page_size=2))
        second = await w.operator.ListAudit(pb.ListAuditRequest(page_size=2, page_token=first.next_page_token))
        entries = [*first.entries, *second.entries]
        assert [each.sequence for each in entries] == [1, 2, 3]
        assert [each.outcome for each in entries] == ["STORED", "OK", "OK"]
        assert {each.trace_id for each in first.entries} == {trace_id}
        assert (entries[0].escalation_id, entries[0].request_id) == ("e1", request.request_id)
        assert (entries[0].actor.role, second.next_page_token) == ("operator", "")
