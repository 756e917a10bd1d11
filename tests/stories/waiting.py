"""Stories of people who answer late, early, often, or not at all (H01 to H05)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from lane_runner_svc.core.holds import HoldState
from lane_runner_svc.core.states import State
from lanewarden.v1 import task_pb2
from tests.stories.programs import Worker, asks_and_leaves, asks_and_waits, done
from tests.stories.stage import Stage

MINUTE = 60.0
HOUR = 3600.0
REMINDER_MS = 15 * 60 * 1000


async def asked_and_left(stage: Stage) -> AsyncIterator[str]:
    task_id = await stage.submit("asker", asks_and_leaves)
    yield "submitted"
    await stage.until(lambda: stage.holds(task_id) and not stage.task(task_id).worker_alive, "it has asked and left")
    asked_ms = stage.holds(task_id)[0].opened_wall_ms
    assert not stage.calm or stage.runner_ms() + stage.wall_ahead_ms - asked_ms <= 1_000, "HELD comes within a second"
    (escalation_id,) = await stage.open_holds(task_id)
    held = await stage.state(task_id, State.HELD)
    assert (held.premature_exits, len(stage.launches(task_id))) == (0, 1)
    yield "held"
    await stage.sleep(20 * MINUTE)
    assert stage.task(task_id) == held, "a held task costs nothing: no relaunch, no budget, no clock"
    yield "waited"
    await stage.rule(escalation_id)
    yield "ruled"
    await stage.state(task_id, State.SUCCEEDED)
    assert len(stage.launches(task_id)) == 2, "the answer starts exactly one attempt"
    assert stage.hold(escalation_id).state is HoldState.ACKNOWLEDGED
    alive = {State.QUEUED, State.STARTING, State.RUNNING, State.HELD}
    assert {State.HELD} <= stage.states[task_id] <= alive | {State.SUCCEEDED}
    yield "done"


async def waited_on_the_stream(stage: Stage) -> AsyncIterator[str]:
    taken: list[bool] = []

    async def worker(worker: Worker) -> int:
        message = await worker.await_ruling(await worker.escalate())
        taken.extend([await worker.take(message), await worker.take(message)])
        return 0

    task_id = await stage.submit("asker", worker)
    yield "submitted"
    (escalation_id,) = await stage.open_holds(task_id)
    await stage.until(lambda: stage.task(task_id).worker_alive, "its worker waits")
    assert stage.task(task_id).state is State.HELD
    yield "waiting"
    await stage.rule(escalation_id)
    yield "ruled"
    await stage.state(task_id, State.SUCCEEDED)
    assert len(stage.launches(task_id)) == 1, "a worker that waits is not launched again"
    assert taken == [True, False], "acknowledged once"
    yield "done"


async def silence(stage: Stage, *, hours: int, reminders: int) -> AsyncIterator[str]:
    approvers = [{"identity": "ann"}, {"identity": "bob", "after": {"seconds": 3600}}]
    task_id = await stage.submit("asker", asks_and_leaves, approvers=approvers, hold_deadline={"seconds": 90_000})
    (escalation_id,) = await stage.open_holds(task_id)
    held = await stage.state(task_id, State.HELD)
    yield "held"
    opened_ms = stage.hold(escalation_id).opened_ms
    await stage.sleep(30 * MINUTE)
    yield "half an hour later"
    await stage.sleep((opened_ms - stage.runner_ms()) / 1000 + hours * HOUR)
    yield "silence"
    await stage.agreed()
    await stage.sleep(5.0)
    assert stage.task(task_id) == held, "silence has written to the task"
    assert len(stage.launches(task_id)) == 1, "silence has started something"
    hold = stage.hold(escalation_id)
    assert (hold.reminders, hold.owed_by, hold.expired) == (reminders, "bob", False)
    assert len(await stage.news(escalation_id, "opened")) == 1
    told = await stage.news(escalation_id, "reminder")
    assert [each.addressee for each in told] == ["ann", "ann", *["bob"] * (reminders - 2)]
    assert [each.addressee for each in await stage.news(escalation_id, "approver")] == ["bob"]
    assert len(await stage.news(escalation_id)) == 1 + reminders + 1, "nothing else was told, no alert above all"
    assert (await stage.inbox(escalation_id)).reminders == reminders
    assert await stage.verdict(task_id) == "HELD"
    yield "counted"


def a_day_of_silence(stage: Stage) -> AsyncIterator[str]:
    return silence(stage, hours=24, reminders=9)


def hours_of_silence(stage: Stage) -> AsyncIterator[str]:
    return silence(stage, hours=2, reminders=3)


async def acknowledged_three_times(stage: Stage) -> AsyncIterator[str]:
    task_id = await stage.submit("asker", asks_and_leaves, hold_deadline={"seconds": 7_200})
    (escalation_id,) = await stage.open_holds(task_id)
    held = await stage.state(task_id, State.HELD)
    deadline_ms = stage.hold(escalation_id).deadline_ms
    yield "held"
    for number, person in enumerate(["ann", "bob", "cyd"], start=1):
        await stage.sleep(20 * MINUTE)
        expected_ms = stage.runner_ms() + stage.wall_ahead_ms + 600_000
        promise = {"seconds": expected_ms // 1000}
        await stage.ask("Acknowledge", by=person, escalation_id=escalation_id, note="looking", expected_by=promise)
        await stage.until(lambda number=number: stage.hold(escalation_id).acks == number, "the hold is stamped")
        yield f"acked by {person}"
        hold = stage.hold(escalation_id)
        assert (hold.state, hold.acks, hold.ruling) == (HoldState.OPEN, number, None)
        assert hold.deadline_ms == deadline_ms, "an ack has moved the deadline"
        assert hold.acked_wall_ms is not None
        assert hold.next_reminder_ms is not None
        restarted_ms = hold.next_reminder_ms - REMINDER_MS
        apart_ms = hold.acked_wall_ms - stage.wall_ahead_ms - restarted_ms
        assert 0 <= apart_ms <= stage.clocks_apart_ms_max, "an ack restarts reminders"
        await stage.agreed()
        shown = await stage.inbox(escalation_id)
        assert (shown.ack.acked_by.identity, shown.ack.note) == (person, "looking")
        assert shown.ack.expected_by.seconds == expected_ms // 1000
        assert shown.opened_at.ToMilliseconds() == hold.opened_wall_ms
    await stage.ask("Steer", task_id=task_id, instruction={"text": "approved, go on"})
    yield "instructed"
    await stage.sleep(MINUTE)
    assert stage.task(task_id) == held, "acks and an instruction have moved a held task"
    assert len(stage.launches(task_id)) == 1
    await stage.rule(escalation_id)
    await stage.state(task_id, State.SUCCEEDED)
    yield "ruled"


async def answered_before_the_wait(stage: Stage) -> AsyncIterator[str]:
    may_wait, waits_ms = asyncio.Event(), list[int]()

    async def worker(worker: Worker) -> int:
        escalation_id = await worker.escalate()
        await may_wait.wait()
        since_ms = stage.runner_ms()
        message = await worker.await_ruling(escalation_id)
        waits_ms.append(stage.runner_ms() - since_ms)
        assert await worker.take(message)
        return 0

    task_id = await stage.submit("asker", worker)
    (escalation_id,) = await stage.open_holds(task_id)
    yield "asked"
    await stage.rule(escalation_id)
    await stage.until(lambda: stage.hold(escalation_id).state is HoldState.RELEASED, "the hold is released")
    yield "answered"
    may_wait.set()
    await stage.state(task_id, State.SUCCEEDED)
    assert len(waits_ms) == 1
    assert not stage.calm or waits_ms[0] < 10, "the answer was there, and the wait was not over at once"
    yield "waited"


async def answered_at_once(stage: Stage) -> AsyncIterator[str]:
    task_id = await stage.submit("asker", asks_and_waits)
    (hold,) = await stage.at_commit(lambda: stage.holds(task_id))
    yield "asked"
    answer = await stage.ask("Steer", runner=True, ruling=stage.ruling(hold.escalation_id))
    assert answer.task.state == task_pb2.TASK_STATE_RUNNING
    yield "answered"
    await stage.state(task_id, State.SUCCEEDED)
    assert len(stage.launches(task_id)) == 1
    yield "done"


async def nothing_asked(stage: Stage) -> AsyncIterator[str]:
    task_id = await stage.submit("plain", done)
    yield "submitted"
    await stage.state(task_id, State.SUCCEEDED)
    assert len(stage.launches(task_id)) == 1
    yield "done"
