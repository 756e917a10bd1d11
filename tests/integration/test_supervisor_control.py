"""Retry, reopen, takeover and a moved deadline through a supervisor: forwarded in the caller's name, and on the record."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from lanewarden.auth import Role
from lanewarden.errors import Reason, refuse
from lanewarden.server import Call
from lanewarden.v1 import escalation_pb2, task_pb2
from lanewarden.v1 import lane_runner_service_pb2 as runner_pb
from lanewarden.v1 import operator_service_pb2 as pb
from supervisor_svc.bootstrap import OPERATOR
from tests.integration.supervisor_kit import FakeRunner, World, escalation, fresh, refused, ruling, task, world

OWNER = task_pb2.Actor(identity="ada", role="operator")


class LongRunner(FakeRunner):
    """A runner that also answers the commands about a task's life."""

    async def ResumeTask(self, request: runner_pb.ResumeTaskRequest, call: Call) -> runner_pb.ResumeTaskResponse:
        return self._once(request, lambda: runner_pb.ResumeTaskResponse(task=task()))  # type: ignore[no-any-return]

    async def RetryTask(self, request: runner_pb.RetryTaskRequest, call: Call) -> runner_pb.RetryTaskResponse:
        queued = task(state=task_pb2.TASK_STATE_QUEUED, version=5)
        return self._once(request, lambda: runner_pb.RetryTaskResponse(task=queued))  # type: ignore[no-any-return]

    async def ReopenTask(self, request: runner_pb.ReopenTaskRequest, call: Call) -> runner_pb.ReopenTaskResponse:
        queued = task(state=task_pb2.TASK_STATE_QUEUED, version=6, epoch=2)
        return self._once(request, lambda: runner_pb.ReopenTaskResponse(task=queued))  # type: ignore[no-any-return]

    async def TakeOver(
        self, request: runner_pb.LaneRunnerServiceTakeOverRequest, call: Call
    ) -> runner_pb.LaneRunnerServiceTakeOverResponse:
        taken = task(version=7, pauses=[task_pb2.PAUSE_CAUSE_TAKEOVER], owner=request.on_behalf_of)
        answer = runner_pb.LaneRunnerServiceTakeOverResponse(task=taken, previous_owner=OWNER)
        return self._once(request, lambda: answer)  # type: ignore[no-any-return]

    async def ExtendHold(self, request: runner_pb.ExtendHoldRequest, call: Call) -> runner_pb.ExtendHoldResponse:
        extended = escalation(request.escalation_id)
        extended.deadline_at.FromSeconds(1_800_000_000)
        return self._once(request, lambda: runner_pb.ExtendHoldResponse(escalation=extended))  # type: ignore[no-any-return]


@asynccontextmanager
async def long_world(path: Path, *, runner_up: bool = True) -> AsyncIterator[World]:
    async with world(path, runner_up=False) as w:
        w.runner = LongRunner()
        if runner_up:
            await w.start_runner()
        yield w


def extend(escalation_id: str = "e1") -> pb.OperatorServiceExtendHoldRequest:
    request = pb.OperatorServiceExtendHoldRequest(escalation_id=escalation_id)
    request.deadline.FromSeconds(3600)
    return request


RESUME = pb.OperatorServiceResumeTaskRequest(task_id="t1", cause=task_pb2.PAUSE_CAUSE_TAKEOVER)
COMMANDS: list[tuple[str, Any, str, str]] = [
    ("ResumeTask", RESUME, "ResumeTask TAKEOVER", "ResumeTask TAKEOVER"),
    ("RetryTask", pb.OperatorServiceRetryTaskRequest(task_id="t1"), "RetryTask", "RetryTask"),
    ("ReopenTask", pb.OperatorServiceReopenTaskRequest(task_id="t1"), "ReopenTask", "ReopenTask"),
    ("TakeOver", pb.TakeOverRequest(task_id="t1", cause="mine now"), "TakeOver", "TakeOver from ada"),
    ("ExtendHold", extend(), "ExtendHold 3600 s", "ExtendHold 3600 s"),
]


def with_id(request: Any) -> Any:
    copied = type(request)()
    copied.CopyFrom(request)
    copied.request_id = fresh()
    return copied


@pytest.mark.parametrize(("rpc", "request_", "asked", "done"), COMMANDS)
async def test_a_command_reaches_the_owner_in_the_callers_name(
    tmp_path: Path, rpc: str, request_: Any, asked: str, done: str
) -> None:
    """Everything that was asked for, the same request_id, the operator's name, one effect and one entry for a repeat."""
    async with long_world(tmp_path) as w:
        request = with_id(request_)
        for _ in range(2):
            await getattr(w.operator, rpc)(request)
        (effect,) = w.runner.effects
        assert effect.on_behalf_of.role == "operator"
        assert effect.on_behalf_of.identity
        for field, value in request.ListFields():
            assert getattr(effect, field.name) == value
        (entry,) = (await w.operator.ListAudit(pb.ListAuditRequest(task_id="t1"))).entries
        assert (entry.action, entry.outcome, entry.request_id) == (done, "OK", request.request_id)
        assert entry.actor == effect.on_behalf_of
        assert entry.escalation_id == ("e1" if rpc == "ExtendHold" else "")


@pytest.mark.parametrize(("rpc", "request_", "asked", "done"), COMMANDS)
async def test_a_command_to_a_runner_that_is_away_is_not_stored(
    tmp_path: Path, rpc: str, request_: Any, asked: str, done: str
) -> None:
    """RUNNER_UNREACHABLE with stored=false, on the record; nothing happens when the runner is back."""
    async with long_world(tmp_path, runner_up=False) as w:
        refusal = await refused(getattr(w.operator, rpc)(with_id(request_)))
        assert refusal.reason is Reason.RUNNER_UNREACHABLE
        assert dict(refusal.metadata) == {"runner": "r1", "stored": "false"}
        assert await w.audit() == [(asked, "RUNNER_UNREACHABLE")]
        await w.start_runner()
        stored = ruling()
        await w.operator.Steer(stored)
        await w.runner.until_effects(1)
        assert [each.request_id for each in w.runner.requests] == [stored.request_id]


@pytest.mark.parametrize(("rpc", "request_", "asked", "done"), COMMANDS)
async def test_a_refusal_of_the_runner_passes_through(
    tmp_path: Path, rpc: str, request_: Any, asked: str, done: str
) -> None:
    """The runner's own reason, and an entry that claims nothing."""
    async with long_world(tmp_path) as w:
        w.runner.refusals = [refuse(Reason.ILLEGAL_TRANSITION, "not now", state="RUNNING")]
        assert (await refused(getattr(w.operator, rpc)(with_id(request_)))).message == "not now"
        assert await w.audit() == [(asked, "ILLEGAL_TRANSITION")]


async def test_h13_takeover_names_both_owners_and_is_seen_at_once(tmp_path: Path) -> None:
    """The answer and the audit name the old owner, the entry's actor is the new one, the task is shown as taken over."""
    async with long_world(tmp_path) as w:
        answer = await w.operator.TakeOver(with_id(COMMANDS[3][1]))
        assert answer.previous_owner == OWNER
        (entry,) = (await w.operator.ListAudit(pb.ListAuditRequest())).entries
        assert (entry.action, entry.actor) == ("TakeOver from ada", answer.task.owner)
        (shown,) = (await w.operator.ListTasks(pb.OperatorServiceListTasksRequest())).tasks
        assert list(shown.pauses) == [task_pb2.PAUSE_CAUSE_TAKEOVER]
        assert (shown.owner, shown.state) == (answer.task.owner, task_pb2.TASK_STATE_HELD)
        held = (await w.operator.GetEscalation(pb.GetEscalationRequest(escalation_id="e1"))).escalation
        assert held.hold_state == escalation_pb2.HOLD_STATE_OPEN


async def test_extending_answers_with_the_runners_word(tmp_path: Path) -> None:
    """The new deadline is in the answer; an escalation that nobody has reported is ESCALATION_UNKNOWN, on the record."""
    async with long_world(tmp_path) as w:
        answer = await w.operator.ExtendHold(with_id(extend()))
        assert answer.escalation.deadline_at.seconds == 1_800_000_000
        assert (await refused(w.operator.ExtendHold(with_id(extend("e9"))))).reason is Reason.ESCALATION_UNKNOWN
        assert await w.audit() == [("ExtendHold 3600 s", "OK"), ("ExtendHold 3600 s", "ESCALATION_UNKNOWN")]
        assert len(w.runner.requests) == 1


async def test_viewers_command_nothing(tmp_path: Path) -> None:
    """Every one of these is for operators."""
    async with long_world(tmp_path) as w:
        viewer = w.stub(OPERATOR, Role.VIEWER)
        for rpc, request, _, _ in COMMANDS:
            assert (await refused(getattr(viewer, rpc)(with_id(request)))).reason is Reason.ROLE_NOT_ALLOWED
        assert w.runner.requests == []
