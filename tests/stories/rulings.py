"""Stories of rulings: two at once, bad ones, late ones, and such as are received again (H06 to H10, H12, H18)."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator

from lane_runner_svc.core.holds import HoldState
from lane_runner_svc.core.states import State
from lanewarden.auth import Role
from lanewarden.errors import Reason, Refusal
from lanewarden.v1 import escalation_pb2, message_pb2
from lanewarden.v1 import worker_service_pb2 as pb
from tests.stories.programs import Worker, asks_and_leaves, asks_and_waits
from tests.stories.stage import PATIENCE_SECONDS, Stage, Story

MINUTE = 60.0


def at_the_same_instant(outcomes: Counter[str]) -> Story:
    """Ann rules through the supervisor, Bob at the runner, and the deadline passes: all within a few milliseconds."""

    async def two_rulings_and_a_deadline(stage: Stage) -> AsyncIterator[str]:
        random = stage.stream("instants")
        task_id = await stage.submit("asker", asks_and_waits, hold_deadline={"seconds": 60})
        (escalation_id,) = await stage.open_holds(task_id)
        yield "asked"
        hold = stage.hold(escalation_id)
        assert hold.deadline_ms is not None
        await stage.sleep((hold.deadline_ms - stage.runner_ms()) / 1000 - 0.01)
        said = {"ann": "APPROVE", "bob": "REJECT"}

        async def person(name: str, *, runner: bool) -> str | Refusal:
            """The id of his ruling, once it is the one, or why it is not. One that the supervisor could only store for the
            runner is asked about again.
            """
            await stage.sleep(random.uniform(0.0, 0.015))
            ruling_id, ruling = stage.fresh_id(), stage.ruling(escalation_id, said[name])
            async with asyncio.timeout(PATIENCE_SECONDS):
                while True:
                    try:
                        answer = await stage.ask("Steer", by=name, runner=runner, request_id=ruling_id, ruling=ruling)
                    except Refusal as refusal:
                        return refusal
                    if runner or answer.delivery != escalation_pb2.DELIVERY_STATE_STORED:
                        return ruling_id
                    await stage.pause()

        told = await asyncio.gather(person("ann", runner=False), person("bob", runner=True))
        yield "ruled by both"
        await stage.state(task_id, State.SUCCEEDED)
        hold = stage.hold(escalation_id)
        assert hold.ruling is not None
        winners = {name for name, each in zip(said, told, strict=True) if each == hold.ruling.ruling_id}
        refused = [each for each in told if isinstance(each, Refusal)]
        assert len(winners) == 1, "exactly one of the two has won, and knows it"
        (winner,) = winners
        assert (hold.ruling.ruled_by.identity, hold.ruling.decision.name) == (winner, said[winner])
        (refusal,) = refused
        assert refusal.reason is Reason.ALREADY_RULED
        facts = {key: refusal.metadata[key] for key in ("ruled_by", "decision", "ruling_id")}
        assert facts == {"ruled_by": winner, "decision": said[winner], "ruling_id": hold.ruling.ruling_id}
        assert refusal.metadata["ruled_at"]
        assert stage.task(task_id).pauses == frozenset(), "the deadline has parked a task that was ruled on"
        alerts = len(await stage.news(escalation_id, "expired"))
        assert alerts <= int(hold.expired), "an alert is about a hold that was open at its deadline"
        assert not stage.calm or alerts == int(hold.expired), "a hold was open at its deadline, and nobody was told"
        outcomes[winner] += 1
        outcomes["expired first" if hold.expired else "ruled first"] += 1

    return two_rulings_and_a_deadline


async def ruled_in_vain(stage: Stage) -> AsyncIterator[str]:
    ruled = await stage.submit("ruled", asks_and_leaves)
    (released,) = await stage.open_holds(ruled)
    await stage.rule(released, "REJECT", by="bob")
    await stage.state(ruled, State.SUCCEEDED)
    dropped = await stage.submit("dropped", asks_and_leaves)
    (canceled,) = await stage.open_holds(dropped)
    await stage.ask("CancelTask", task_id=dropped, cause="not needed")
    await stage.state(dropped, State.CANCELED)
    open_task = await stage.submit("open", asks_and_leaves)
    (other,) = await stage.open_holds(open_task)
    await stage.state(open_task, State.HELD)
    yield "set up"
    for runner in (False, True):
        refusal = await stage.refused(Reason.ALREADY_RULED, "Steer", runner=runner, ruling=stage.ruling(released))
        assert (refusal.metadata["ruled_by"], refusal.metadata["decision"]) == ("bob", "REJECT")
        refusal = await stage.refused(Reason.HOLD_NOT_OPEN, "Steer", runner=runner, ruling=stage.ruling(canceled))
        assert refusal.metadata["state"] == "CANCELED"
        for unknown in ("t99999999.1.1.1", f"{open_task}.1.1.2"):
            await stage.refused(Reason.ESCALATION_UNKNOWN, "Steer", runner=runner, ruling=stage.ruling(unknown))
        refusal = await stage.refused(
            Reason.RULING_INVALID, "Steer", runner=runner, task_id=ruled, ruling=stage.ruling(other)
        )
        assert refusal.metadata["rule"] == "wrong_task"
        yield f"refused by the {'runner' if runner else 'supervisor'}"
    await stage.ask("ReopenTask", task_id=dropped)
    (fresh,) = await stage.open_holds(dropped)
    await stage.state(dropped, State.HELD)
    yield "reopened"
    for runner in (False, True):
        await stage.refused(Reason.HOLD_NOT_OPEN, "Steer", runner=runner, ruling=stage.ruling(canceled))
    assert stage.hold(fresh).epoch == 2
    assert (stage.hold(fresh).open, stage.hold(other).open) == (True, True)
    yield "refused for an older epoch"


async def ruled_badly(stage: Stage) -> AsyncIterator[str]:
    async def worker(worker: Worker) -> int:
        if worker.reason == "ruling":
            return await asks_and_leaves(worker)
        await worker.escalate(
            "which way?", options=[{"key": "left", "text": "left"}, {"key": "right", "text": "right"}]
        )
        return 0

    task_id = await stage.submit("asker", worker)
    (escalation_id,) = await stage.open_holds(task_id)
    held = await stage.state(task_id, State.HELD)
    yield "held"
    bad = {
        "no_decision": stage.ruling(escalation_id, "UNSPECIFIED"),
        "empty_instructions": stage.ruling(escalation_id, instructions="  "),
        "no_option": stage.ruling(escalation_id, "CHOOSE"),
        "option_not_offered": stage.ruling(escalation_id, "CHOOSE", option_key="up"),
        "gate_unknown": stage.ruling(escalation_id, ratifies=["review"]),
    }
    for runner in (False, True):
        for rule, ruling in bad.items():
            refusal = await stage.refused(Reason.RULING_INVALID, "Steer", runner=runner, ruling=ruling)
            assert refusal.metadata["rule"] == rule
        for role in (Role.WORKER, Role.VIEWER, Role.RUNNER):
            await stage.refused(
                Reason.ROLE_NOT_ALLOWED, "Steer", runner=runner, role=role, ruling=stage.ruling(escalation_id)
            )
        yield f"refused by the {'runner' if runner else 'supervisor'}"
    assert stage.task(task_id) == held
    await stage.rule(escalation_id, "CHOOSE", option_key="left")
    await stage.state(task_id, State.SUCCEEDED)
    yield "ruled well"


async def supervisor_dies_over_a_question(stage: Stage) -> AsyncIterator[str]:
    task_id = await stage.submit("asker", asks_and_leaves)
    (escalation_id,) = await stage.open_holds(task_id)
    await stage.state(task_id, State.HELD)
    before = await stage.inbox(escalation_id)
    yield "held"
    await stage.crash("supervisor")
    await stage.sleep(10.0)
    after = await stage.inbox(escalation_id)
    assert (after.escalation_id, after.opened_at) == (escalation_id, before.opened_at), "the same id and the same age"
    yield "restarted"
    ruling, request_id = stage.ruling(escalation_id), stage.fresh_id()
    for _ in range(2):
        await stage.ask("Steer", request_id=request_id, ruling=ruling)
    yield "ruled"
    await stage.state(task_id, State.SUCCEEDED)
    assert len(stage.launches(task_id)) == 2
    refusal = await stage.refused(Reason.ALREADY_RULED, "Steer", by="bob", ruling=ruling)
    assert refusal.metadata["ruling_id"] == request_id
    yield "done"


async def killed_between_receive_and_acknowledge(stage: Stage) -> AsyncIterator[str]:
    received: list[tuple[int, str]] = []
    taken: list[bool] = []

    async def worker(worker: Worker) -> int:
        if worker.reason != "ruling":
            return await asks_and_leaves(worker)
        message = await worker.first_message()
        received.append((worker.attempt, message.message_id))
        if len(received) == 1:
            await asyncio.Event().wait()
        taken.extend([await worker.take(message), await worker.take(message)])
        return 0

    task_id = await stage.submit("asker", worker)
    (escalation_id,) = await stage.open_holds(task_id)
    await stage.state(task_id, State.HELD)
    yield "held"
    answer = await stage.rule(escalation_id)
    await stage.until(lambda: received, "a worker has received the ruling")
    assert stage.hold(escalation_id).state is HoldState.RELEASED
    yield "received"
    stage.kill_worker(task_id)
    await stage.state(task_id, State.SUCCEEDED)
    yield "killed"
    first, second = received
    assert second[0] > first[0]
    assert first[1] == second[1] == answer.message_id, "the next attempt gets the same message again"
    assert taken == [True, False], "acknowledging twice has one effect"
    assert stage.hold(escalation_id).state is HoldState.ACKNOWLEDGED
    assert len(stage.launches(task_id)) == 3
    yield "done"


async def one_of_two_ruled(stage: Stage) -> AsyncIterator[str]:
    async def worker(worker: Worker) -> int:
        if worker.reason != "ruling":
            await worker.escalate("first?")
            await worker.escalate("second?")
            return 0
        while (await worker.call("GetAssignment", pb.GetAssignmentRequest())).holds:
            await worker.take(await worker.first_message())
        return 0

    task_id = await stage.submit("asker", worker)
    first, second = await stage.open_holds(task_id, 2)
    await stage.state(task_id, State.HELD)
    yield "held by two"
    await stage.rule(first)
    await stage.until(lambda: stage.hold(first).state is HoldState.RELEASED, "the first is released")
    yield "one ruled"
    await stage.sleep(10 * MINUTE)
    await stage.agreed()
    shown = (await stage.ask("GetTask", task_id=task_id)).task
    assert list(shown.open_holds) == [second], "the state says what it is held by"
    assert stage.task(task_id).state is State.HELD
    assert len(stage.launches(task_id)) == 1
    await stage.rule(second)
    yield "both ruled"
    await stage.state(task_id, State.SUCCEEDED)
    assert len(stage.launches(task_id)) == 2
    yield "done"


async def a_late_ruling_in_a_reused_lane(stage: Stage) -> AsyncIterator[str]:
    heard: dict[str, escalation_pb2.Ruling] = {}

    def heard_by(worker: Worker, message: message_pb2.Message) -> None:
        assert worker.task_id not in heard, "a task has heard two rulings"
        heard[worker.task_id] = message.ruling.ruling

    async def leaver(worker: Worker) -> int:
        if worker.reason != "ruling":
            return await asks_and_leaves(worker)
        message = await worker.first_message()
        heard_by(worker, message)
        await worker.take(message)
        return 0

    async def waiter(worker: Worker) -> int:
        message = await worker.await_ruling(await worker.escalate())
        heard_by(worker, message)
        await worker.take(message)
        return 0

    task_a = await stage.submit("a", leaver)
    (hold_a,) = await stage.open_holds(task_a)
    await stage.state(task_a, State.HELD)
    task_b = await stage.submit("b", waiter)
    (hold_b,) = await stage.open_holds(task_b)
    yield "the lane is B's"
    await stage.rule(hold_a, instructions="this is for a")
    await stage.until(lambda: stage.task(task_a).state is State.QUEUED, "A waits for its lane")
    yield "A ruled late"
    await stage.sleep(MINUTE)
    assert stage.hold(hold_b).open, "the ruling on A's hold has released B's"
    assert stage.task(task_b).state is State.HELD
    assert heard == {}
    await stage.rule(hold_b, instructions="this is for b")
    yield "B ruled"
    await stage.state(task_b, State.SUCCEEDED)
    await stage.state(task_a, State.SUCCEEDED)
    assert {task: said.instructions for task, said in heard.items()} == {
        task_a: "this is for a",
        task_b: "this is for b",
    }
    yield "done"
