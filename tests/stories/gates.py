"""Stories of what keeps a task from going on: blockers, gates, pauses and deadlines (H11, H15 to H17)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from lane_runner_svc.core.holds import HoldState
from lane_runner_svc.core.states import TERMINAL, State
from lane_runner_svc.core.task import HookState, PauseCause
from lanewarden.auth import Role
from lanewarden.errors import Reason, Refusal
from lanewarden.v1 import task_pb2
from tests.stories.programs import Worker, asks_and_leaves, done, never_ends
from tests.stories.stage import Stage

MINUTE = 60.0
OPERATOR, DEADLINE = PauseCause.OPERATOR, PauseCause.HOLD_DEADLINE


async def completed_too_early(stage: Stage) -> AsyncIterator[str]:
    refusals: list[str] = []

    async def try_to_complete(worker: Worker) -> bool:
        try:
            await worker.complete()
        except Refusal as refusal:
            refusals.append(refusal.metadata["blockers"])  # of COMPLETION_BLOCKED, no other reason has any
            return False
        return True

    async def worker(worker: Worker) -> int:
        if worker.reason == "ruling":
            await worker.take(await worker.first_message())
            while not await try_to_complete(worker):
                await worker.rest()
            return 0
        await worker.escalate()
        assert not await try_to_complete(worker)
        (stage.directory / "done").touch()
        return 0

    async def merge() -> int:
        assert stage.task(task_id).state is State.SUCCEEDED
        assert not [hold for hold in stage.holds(task_id) if hold.blocks]
        await asyncio.sleep(0.1)
        return 0

    stage.on_success(merge)
    task_id = await stage.submit("asker", worker, gates=["review"], followed=True)
    (escalation_id,) = await stage.open_holds(task_id)
    await stage.state(task_id, State.HELD)
    assert refusals == [f"hold:{escalation_id},gate:review"], "every blocker is named"
    yield "refused and left"
    checked = await stage.ask("CheckCompletion", task_id=task_id)
    assert [(each.kind, each.name) for each in checked.blockers] == [("hold", escalation_id), ("gate", "review")]
    await stage.rule(escalation_id)
    await stage.until(lambda: refusals[-1] == "gate:review", "only the gate blocks")
    assert stage.hooks(task_id) == [], "the command of a task that has not succeeded was run"
    yield "ruled"
    await stage.ask("RecordGate", task_id=task_id, gate="review", decision="GATE_DECISION_APPROVED")
    yield "approved"
    await stage.until(lambda: stage.task(task_id).hook_state is HookState.DONE, "the command has run")
    assert stage.task(task_id).state is State.SUCCEEDED
    assert set(stage.hooks(task_id)) == {f"{task_id}.1"}, "at least once, under one key"
    assert not stage.calm or len(stage.hooks(task_id)) == 1
    yield "succeeded"


async def gated(stage: Stage) -> AsyncIterator[str]:
    silent = await stage.submit("silent", done, gates=["review"])
    failed = await stage.state(silent, State.FAILED)
    assert "gate review: never reviewed" in failed.summary, "missing evidence is not success"
    yield "never reviewed"
    own_gate: list[Reason] = []

    async def worker(worker: Worker) -> int:
        if worker.epoch > 1:
            return await never_ends(worker)
        message = await worker.await_ruling(await worker.escalate())
        await worker.take(message)
        refusal = await stage.refused(
            Reason.ROLE_NOT_ALLOWED,
            "RecordGate",
            by="worker",
            role=Role.WORKER,
            runner=True,
            **review("two", "APPROVED"),
        )
        own_gate.append(refusal.reason)
        while True:
            try:
                await worker.complete()
            except Refusal:
                await worker.rest()
            else:
                return 0

    def review(gate: str, decision: str) -> dict[str, str]:
        return {"task_id": task_id, "gate": gate, "decision": f"GATE_DECISION_{decision}"}

    async def blockers() -> list[str]:
        return [each.name for each in (await stage.ask("CheckCompletion", task_id=task_id)).blockers]

    task_id = await stage.submit("gated", worker, gates=["one", "two"])
    (escalation_id,) = await stage.open_holds(task_id)
    assert await blockers() == [escalation_id, "one", "two"]
    yield "asked"
    await stage.rule(escalation_id, ratifies=["one"])
    await stage.until(lambda: own_gate, "the ruling is taken, and the worker has tried its own gate")
    assert await blockers() == ["two"], "a ruling ratifies the gates that it names"
    yield "one ratified"
    # The other gate is kept shut meanwhile: the worker tries to complete all the time.
    await stage.ask("RecordGate", **review("one", "REVISE"))
    for decision, blocked in (("APPROVED", []), ("REVISE", ["two"])):
        await stage.ask("RecordGate", **review("two", decision))
        assert await blockers() == ["one", *blocked]
        yield f"two {decision}"
    await stage.sleep(MINUTE)
    assert stage.task(task_id).state is State.RUNNING, "REVISE after APPROVED blocks"
    await stage.ask("RecordGate", by="bob", **review("two", "WAIVED"))
    await stage.ask("RecordGate", **review("one", "APPROVED"))
    yield "waived"
    await stage.state(task_id, State.SUCCEEDED)
    assert "bob RecordGate two WAIVED: OK" in stage.audit(task_id), "a waiver is visible in the audit"
    shown = (await stage.ask("GetTask", task_id=task_id)).task.gates
    assert {gate.gate: gate.decided_by.identity for gate in shown} == {"one": "ann", "two": "bob"}
    await stage.ask("ReopenTask", task_id=task_id)
    assert await blockers() == ["one", "two"], "a review is of one life of the task"
    yield "reopened"


async def paused_twice(stage: Stage) -> AsyncIterator[str]:
    task_id = await stage.submit("asker", asks_and_leaves, hold_deadline={"seconds": 60})
    (escalation_id,) = await stage.open_holds(task_id)
    await stage.state(task_id, State.HELD)
    await stage.ask("PauseTask", task_id=task_id)
    yield "paused"
    await stage.until(lambda: stage.task(task_id).pauses == {OPERATOR, DEADLINE}, "the deadline parks it as well")
    yield "parked"
    await stage.refused(Reason.REQUEST_INVALID, "ResumeTask", task_id=task_id, cause=task_pb2.PAUSE_CAUSE_HOLD_DEADLINE)
    await stage.ask("ResumeTask", task_id=task_id)
    assert stage.task(task_id).pauses == {DEADLINE}, "clearing one cause leaves the other"
    yield "resumed"
    await stage.ask("PauseTask", task_id=task_id)
    await stage.ask("ExtendHold", escalation_id=escalation_id, deadline={"seconds": 600})
    assert stage.task(task_id).pauses == {OPERATOR}, "clearing one cause leaves the other"
    yield "extended"
    await stage.ask("SendInput", task_id=task_id, text="more")
    await stage.ask("Steer", task_id=task_id, instruction={"text": "quickly"})
    await stage.rule(escalation_id)
    await stage.until(lambda: stage.task(task_id).state is State.QUEUED, "it is ruled on")
    await stage.ask("RetryTask", task_id=task_id)
    yield "answered, told and retried"
    await stage.sleep(30 * MINUTE)
    assert stage.task(task_id).pauses == {OPERATOR}
    assert len(stage.launches(task_id)) == 1, "a paused task was started"
    yield "still paused"
    await stage.ask("ResumeTask", task_id=task_id)
    await stage.state(task_id, State.SUCCEEDED)
    assert len(stage.launches(task_id)) == 2
    yield "done"


async def deadline_passed(stage: Stage) -> AsyncIterator[str]:
    task_id = await stage.submit("asker", asks_and_leaves, hold_deadline={"seconds": 60}, followed=True)
    (escalation_id,) = await stage.open_holds(task_id)
    yield "held"

    async def expired(alerts: int) -> None:
        await stage.until(lambda: stage.task(task_id).pauses == {DEADLINE}, "it is parked", seconds=5 * MINUTE)
        await stage.agreed()
        await stage.sleep(10 * MINUTE)
        hold = stage.hold(escalation_id)
        assert (hold.state, hold.expired, hold.ruling) == (HoldState.OPEN, True, None), "a deadline decides nothing"
        assert stage.task(task_id).state is State.HELD
        assert len(stage.launches(task_id)) == 1
        assert len(await stage.news(escalation_id, "expired")) == alerts, "one alert for each deadline that passed"
        assert not stage.states[task_id] & TERMINAL

    await expired(1)
    yield "parked"
    shown = await stage.inbox(escalation_id)
    assert shown.expired
    await stage.ask("ExtendHold", by="bob", escalation_id=escalation_id, deadline={"seconds": 120})
    assert stage.task(task_id).pauses == frozenset()
    hold = stage.hold(escalation_id)
    assert (hold.open, hold.expired) == (True, False)
    yield "extended"
    await expired(2)
    yield "parked again"
    await stage.rule(escalation_id)
    yield "ruled"
    await stage.state(task_id, State.SUCCEEDED)
    await stage.until(lambda: stage.hooks(task_id), "what follows a success follows")
    assert stage.task(task_id).pauses == frozenset()
    assert len(stage.launches(task_id)) == 2
    yield "done"
