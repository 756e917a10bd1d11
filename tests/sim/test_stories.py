"""Holds and rulings (H01 to H12, H18) as stories. Each is played once as it is, and again with the lane runner or the
supervisor dying after every step and at commit points; a failure names the death that led to it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from lane_runner_svc import emitters
from lane_runner_svc.core.holds import HoldState
from lane_runner_svc.core.states import State
from lane_runner_svc.core.task import HookState
from lane_runner_svc.process import LaunchSpec
from lanewarden.errors import Reason, Refusal
from lanewarden.server import Role
from lanewarden.v1 import escalation_pb2, message_pb2, task_pb2
from lanewarden.v1 import worker_service_pb2 as pb
from tests.sim.planted import answer_before_the_commit
from tests.sim.stories import Death, Stage, play, survives
from tests.sim.virtual import WALL_MS_AT_START
from tests.sim.workers import Worker, asks_and_leaves, asks_and_waits, done

MINUTE = 60.0
HOUR = 3600.0
REMINDER_MS = 15 * 60 * 1000


async def asked_and_left(stage: Stage) -> AsyncIterator[str]:
    task_id = await stage.submit("asker", asks_and_leaves)
    yield "submitted"
    await stage.until(lambda: stage.holds(task_id) and not stage.task(task_id).worker_alive, "it has asked and left")
    asked_ms = stage.holds(task_id)[0].opened_wall_ms
    assert stage.death is not None or stage.runner.clock.wall_ms() - asked_ms <= 1_000, "HELD comes within a second"
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
    assert stage.states[task_id] == {State.QUEUED, State.STARTING, State.RUNNING, State.HELD}
    yield "done"


def test_h01_a_question_outlives_its_worker_and_both_services(directory: Path) -> None:
    """Asked, exited with code 0 → HELD, at no cost, whatever restarts; the answer starts exactly one attempt, ruling first,
    and only that attempt's acknowledgement closes the hold.
    """
    survives(asked_and_left, directory)


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


def test_h02_a_waiting_worker_gets_the_ruling_on_its_stream(directory: Path) -> None:
    """The worker that waits in AwaitRuling gets the ruling there; no relaunch; acknowledged once, however often it is
    said.
    """
    survives(waited_on_the_stream, directory)


async def silence(stage: Stage, *, hours: int, reminders: int) -> AsyncIterator[str]:
    approvers = [{"identity": "ann"}, {"identity": "bob", "after": {"seconds": 3600}}]
    task_id = await stage.submit("asker", asks_and_leaves, approvers=approvers, hold_deadline={"seconds": 90_000})
    (escalation_id,) = await stage.open_holds(task_id)
    held = await stage.state(task_id, State.HELD)
    yield "held"
    opened_ms = stage.hold(escalation_id).opened_ms
    await stage.sleep(30 * MINUTE)
    yield "half an hour later"
    await stage.sleep((opened_ms - stage.runner.clock.steady_ms()) / 1000 + hours * HOUR)
    yield "silence"
    await stage.agreed()
    await stage.sleep(5.0)
    assert stage.task(task_id) == held, "silence has written to the task"
    assert len(stage.launches(task_id)) == 1, "silence has started something"
    hold = stage.hold(escalation_id)
    assert (hold.reminders, hold.owed_by, hold.expired) == (reminders, "bob", False)
    assert len(stage.told.of(escalation_id, "opened")) == 1
    told = stage.told.of(escalation_id, "reminder")
    assert [each.addressee for each in told] == ["ann", "ann", *["bob"] * (reminders - 2)]
    assert [each.addressee for each in stage.told.of(escalation_id, "approver")] == ["bob"]
    assert len(stage.told.news) == 1 + reminders + 1, "nothing else was told, no alert above all"
    assert (await stage.inbox(escalation_id)).reminders == reminders
    assert await stage.verdict(task_id) == "HELD"
    yield "counted"


def test_h03_a_day_of_silence_costs_reminders_and_nothing_else(directory: Path) -> None:
    """24 hours without an answer: one notice, reminders after 15 minutes, then at twice the time up to 4 hours, each naming
    who owes the answer, no alert, no relaunch, and not one write to the task.
    """
    play(a_day_of_silence, directory / "day")
    survives(hours_of_silence, directory)


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
        expected_ms = stage.supervisor.clock.wall_ms() + 600_000
        promise = {"seconds": expected_ms // 1000}
        await stage.ask("Acknowledge", by=person, escalation_id=escalation_id, note="looking", expected_by=promise)
        await stage.until(lambda number=number: stage.hold(escalation_id).acks == number, "the hold is stamped")
        yield f"acked by {person}"
        hold = stage.hold(escalation_id)
        assert (hold.state, hold.acks, hold.ruling) == (HoldState.OPEN, number, None)
        assert hold.deadline_ms == deadline_ms, "an ack has moved the deadline"
        assert hold.acked_wall_ms is not None
        assert hold.next_reminder_ms == hold.acked_wall_ms - WALL_MS_AT_START + REMINDER_MS, "an ack restarts reminders"
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


def test_h04_an_ack_or_an_instruction_releases_nothing(directory: Path) -> None:
    """Three acks and an instruction later: still held, the deadline where it was, the reminders begun anew; who acked, until
    when an answer is promised and since when the hold is open is in the inbox.
    """
    survives(acknowledged_three_times, directory)


async def answered_before_the_wait(stage: Stage) -> AsyncIterator[str]:
    may_wait, waits = asyncio.Event(), list[float]()

    async def worker(worker: Worker) -> int:
        escalation_id = await worker.escalate()
        await may_wait.wait()
        since = stage.loop.time()
        message = await worker.await_ruling(escalation_id)
        waits.append(stage.loop.time() - since)
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
    assert len(waits) == 1
    assert stage.death is not None or waits[0] < 0.01, "the answer was there, and the wait was not over at once"
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


def test_h05_an_answer_before_the_wait_is_not_lost(directory: Path) -> None:
    """Ruled before the worker waits, with a restart of either service between: the wait returns it at once, once."""
    survives(answered_before_the_wait, directory)


def test_h05_an_answer_in_the_moment_of_the_question_is_not_lost(directory: Path) -> None:
    """Ruled by whoever sees the very commit of the question, while its worker is about to hear of it: the same."""
    survives(answered_at_once, directory)


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


def test_h07_a_ruling_that_finds_no_open_hold_has_its_own_reason(directory: Path) -> None:
    """Released, canceled, unknown, of another task, of an older epoch: each is told so, finally, by the supervisor as by the
    runner, and nothing is changed.
    """
    survives(ruled_in_vain, directory)


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


def test_h08_what_is_no_ruling_is_refused_by_its_rule(directory: Path) -> None:
    """No decision, no words, no or another option, a gate that is not there, a role that may not: the hold stays open."""
    survives(ruled_badly, directory)


async def supervisor_dies_over_a_question(stage: Stage) -> AsyncIterator[str]:
    task_id = await stage.submit("asker", asks_and_leaves)
    (escalation_id,) = await stage.open_holds(task_id)
    await stage.state(task_id, State.HELD)
    before = await stage.inbox(escalation_id)
    yield "held"
    stage.crash("supervisor")
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


def test_h09_a_question_outlives_its_supervisor(directory: Path) -> None:
    """The supervisor is killed while a question is open: it comes back with the same id and age, and takes one ruling."""
    survives(supervisor_dies_over_a_question, directory)


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


def test_h10_a_ruling_comes_again_until_it_is_acknowledged(directory: Path) -> None:
    """The worker is killed between receiving and acknowledging: the next attempt gets the ruling again, and the effect of
    acknowledging it twice is one.
    """
    survives(killed_between_receive_and_acknowledge, directory)


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
                await asyncio.sleep(1.0)
            return 0
        await worker.escalate()
        assert not await try_to_complete(worker)
        (stage.directory / "done").touch()
        return 0

    async def merge(spec: LaunchSpec) -> int:
        assert stage.task(task_id).state is State.SUCCEEDED
        assert not [hold for hold in stage.holds(task_id) if hold.blocks]
        await asyncio.sleep(0.1)
        return 0

    stage.on_success(merge)
    task_id = await stage.submit("asker", worker, gates=["review"], on_success=["true"])
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
    keys = {spec.env["LANEWARDEN_IDEMPOTENCY_KEY"] for spec in stage.hooks(task_id)}
    assert keys == {f"{task_id}.1"}, "at least once, under one key"
    assert stage.death is not None or len(stage.hooks(task_id)) == 1
    yield "succeeded"


def test_h11_nothing_completes_over_a_hold_or_a_gate(directory: Path) -> None:
    """Complete, exit 0 and a done marker over an open hold: refused with every blocker, HELD, and on_success not run until
    the task has SUCCEEDED with everything closed; then it runs, under one key however often.
    """
    survives(completed_too_early, directory)


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


def test_h12_a_task_is_held_until_its_last_hold_is_ruled_on(directory: Path) -> None:
    """Two holds, one ruled: still HELD, by the other, and it is shown so; the second ruling starts one attempt with both."""
    survives(one_of_two_ruled, directory)


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


def test_h18_a_ruling_finds_the_task_that_asked(directory: Path) -> None:
    """A lane runs A, then B; the late ruling on A's hold never reaches B."""
    survives(a_late_ruling_in_a_reused_lane, directory)


def test_a_ruling_that_is_answered_before_it_is_stored_is_found(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted: nothing is amiss as long as nobody dies; a death right after the answer shows that the ruling was lost."""
    answer_before_the_commit(monkeypatch, emitters.RULE)
    steps = play(answered_at_once, directory / "calm").steps
    death = Death(service="runner", step=steps.index("answered"))
    with pytest.raises(AssertionError, match="did not come true that the task is SUCCEEDED"):
        play(answered_at_once, directory / "death", death)


async def nothing_asked(stage: Stage) -> AsyncIterator[str]:
    task_id = await stage.submit("plain", done)
    yield "submitted"
    await stage.state(task_id, State.SUCCEEDED)
    assert len(stage.launches(task_id)) == 1
    yield "done"


def test_a_task_without_a_question_runs_once(directory: Path) -> None:
    """The control: whatever dies, a worker is started once and its end is found."""
    survives(nothing_asked, directory)
