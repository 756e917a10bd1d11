"""The link between the two services on the simulator: calls that vanish while heartbeats pass, partitions, lost pasts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from lane_runner_svc.core.states import State
from lanewarden.errors import Reason, refuse
from lanewarden.v1 import operator_service_pb2 as pb
from supervisor_svc.work import reach
from tests.sim.sim_stage import SimStage as Stage
from tests.sim.stories import play, survives
from tests.stories.programs import Worker

RENEW_SECONDS = 100.0
"""On the stage."""
NOTICED_SECONDS_MAX = 5.0
"""Two seconds for the call that comes to nothing, and the rest for whoever died meanwhile to come back."""


async def asks_once(worker: Worker) -> int:
    """Asks and leaves; the next attempt takes the ruling."""
    if worker.reason == "ruling":
        await worker.take(await worker.first_message())
    else:
        await worker.escalate()
    return 0


async def runner_of(stage: Stage) -> pb.Runner:
    (found,) = (await stage.ask("ListRunners")).runners
    return found  # type: ignore[no-any-return]


async def degraded(stage: Stage, wanted: bool, seconds: float) -> None:
    """Wait until the runner is shown as degraded, or as not."""
    deadline = stage.loop.time() + seconds
    while (await runner_of(stage)).HasField("degraded_since") is not wanted:
        assert stage.loop.time() < deadline, f"in {seconds} s it was not shown that degraded is {wanted}"
        await stage.sleep(0.5)


def stored(stage: Stage) -> list[str]:
    """The states of everything that was accepted for the runner, oldest first."""
    return [row[0] for row in stage.rows("supervisor", "SELECT state FROM outbox ORDER BY position")]


async def calls_vanish(stage: Stage) -> AsyncIterator[str]:
    first = await stage.submit("first", asks_once)
    (hold_1,) = await stage.open_holds(first)
    await stage.state(first, State.HELD)
    second = await stage.submit("second", asks_once)
    (hold_2,) = await stage.open_holds(second)
    await stage.state(second, State.HELD)
    stage.network.faults.black_holes.add(("supervisor", "runner"))
    await stage.ask("Acknowledge", escalation_id=hold_1, note="soon")
    await stage.rule(hold_1)
    await degraded(stage, True, NOTICED_SECONDS_MAX)
    await stage.rule(hold_2)
    yield "three commands wait"
    await stage.until(lambda: set(stored(stage)) == {"DELIVERED"}, "all are delivered", 6 * RENEW_SECONDS)
    yield "they came with renewals"
    for task_id, deeds in ((first, ["Acknowledge", "Steer ruling APPROVE"]), (second, ["Steer ruling APPROVE"])):
        await stage.state(task_id, State.SUCCEEDED)
        assert [each for each in stage.audit(task_id) if "Submit" not in each] == [f"ann {deed}: OK" for deed in deeds]
        assert len(stage.launches(task_id)) == 2
    assert stage.hold(hold_1).acks == 1
    assert (await runner_of(stage)).state == pb.RUNNER_STATE_LIVE
    stage.network.faults.black_holes.clear()
    await degraded(stage, False, 3 * RENEW_SECONDS)
    yield "healed"


def test_p19_commands_travel_with_renewals_while_calls_vanish(directory: Path) -> None:
    """Noticed within seconds of the first call and shown as degraded; every command has one effect, in order, and is known
    to be delivered; the runner stays live; and when calls pass again, that is seen. Whoever dies meanwhile.
    """
    survives(calls_vanish, directory, every_point=30)


async def answers_vanish(stage: Stage) -> AsyncIterator[str]:
    task_id = await stage.submit("asker", asks_once)
    (hold,) = await stage.open_holds(task_id)
    await stage.state(task_id, State.HELD)
    stage.network.faults.lose_response = 0.5
    for _ in range(4):
        await stage.ask("Acknowledge", escalation_id=hold, note="soon")
    await stage.rule(hold)
    await stage.until(lambda: stored(stage) == ["DELIVERED"] * 5, "all are delivered", 20 * RENEW_SECONDS)
    stage.network.faults.stop()
    yield "delivered"
    await stage.state(task_id, State.SUCCEEDED)
    assert stage.hold(hold).acks == 4
    assert sum("Acknowledge: OK" in each for each in stage.audit(task_id)) == 4


@pytest.mark.parametrize("seed", range(10))
def test_p19_a_call_and_a_renewal_that_cross_have_one_effect(seed: int, directory: Path) -> None:
    """Half of all answers are lost, so commands go both ways at once: each is carried out once."""
    play(answers_vanish, directory, seed=seed)


def test_p19_finds_a_command_that_is_carried_out_twice(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: a request that comes a second time has its effect a second time, which is found."""
    monkeypatch.setattr("lane_runner_svc.runner.once", lambda uow, *, respond, **rest: respond())

    def find() -> None:
        for seed in range(10):
            play(answers_vanish, directory / str(seed), seed=seed)

    with pytest.raises(AssertionError):
        find()


def test_p19_finds_commands_that_do_not_travel(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: nothing notices that calls fail, so nothing travels with renewals; the commands never arrive."""
    monkeypatch.setattr(reach.Reach, "failing", lambda self, runner_id: False)
    with pytest.raises(AssertionError, match="it did not come true that all are delivered"):
        play(calls_vanish, directory)


async def nothing_is_wrong(stage: Stage) -> AsyncIterator[str]:
    task_id = await stage.submit("asker", asks_once)
    (hold,) = await stage.open_holds(task_id)
    refusal = refuse(Reason.HOLD_NOT_OPEN, "")
    await stage.rule(hold)
    await stage.state(task_id, State.SUCCEEDED)
    await stage.refused(refusal.reason, "Acknowledge", escalation_id=hold)
    await stage.sleep(3 * RENEW_SECONDS)
    shown = await runner_of(stage)
    assert not shown.HasField("degraded_since")
    assert shown.commands_waiting == 0
    assert round(shown.clock_lead.ToMilliseconds() / 1000) == -3600, "the supervisor's wall clock is an hour ahead"
    yield "done"


def test_p19_a_refusal_of_the_runner_is_no_sign_of_trouble(directory: Path) -> None:
    """The control: where calls are answered, if only by a no, nothing is shown as degraded."""
    play(nothing_is_wrong, directory)


async def cut_off(stage: Stage) -> AsyncIterator[str]:
    gate = asyncio.Event()

    async def worker(worker: Worker) -> int:
        if worker.reason == "ruling":
            await worker.take(await worker.first_message())
            return 0
        await gate.wait()
        return await asks_once(worker)

    tasks = [await stage.submit(f"t{number}", worker) for number in range(3)]
    await stage.until(lambda: stage.task(tasks[0]).state is State.RUNNING, "a worker runs")
    before = len(stage.told())
    stage.network.faults.cut.add(frozenset(("runner", "supervisor")))
    gate.set()
    yield "cut"
    await stage.until(lambda: all(stage.task(each).state is State.HELD for each in tasks), "work goes on", 600.0)
    await stage.sleep(400.0)
    assert (await runner_of(stage)).state == pb.RUNNER_STATE_UNREACHABLE
    shown = (await stage.ask("ListTasks")).tasks
    assert len(shown) == 3
    assert all(each.runner_unreachable for each in shown)
    stage.network.faults.cut.clear()
    yield "healed"
    await stage.agreed()
    assert (await runner_of(stage)).state == pb.RUNNER_STATE_LIVE
    opened = [each for each in stage.told() if each.kind == "opened"]
    assert len(opened) == len({each.escalation_id for each in opened}) == 3 + before
    for task_id in tasks:
        (hold,) = await stage.open_holds(task_id)
        await stage.rule(hold)
        await stage.state(task_id, State.SUCCEEDED)
    yield "done"


def test_p13_after_a_long_partition_everything_is_known_once(directory: Path) -> None:
    """Longer than the lease: UNREACHABLE, the workers go on; after it every report is there, each question is told of once,
    and the two stores agree.
    """
    survives(cut_off, directory, every_point=30)
