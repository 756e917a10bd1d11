"""Workers that die for ever, launches that always fail, limits of use, lost replies (P08, P09, P10, S11, S12) as stories."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from itertools import pairwise
from pathlib import Path
from random import Random

from lane_runner_svc.core import budget
from lane_runner_svc.core.states import State
from lane_runner_svc.core.task import PauseCause
from lane_runner_svc.process import ExitRecord
from lanewarden.v1 import task_pb2
from lanewarden.v1 import worker_service_pb2 as pb
from tests.sim.sim_stage import SimStage as Stage
from tests.sim.stories import play, survives
from tests.sim.virtual import VirtualClock
from tests.stories.programs import Worker, done, never_ends

SEEDS = 3
HOUR = 3600.0
LIMIT_MS = 120_000
WAIT_SECONDS = 2 * LIMIT_MS / 1000
JUMP_SECONDS = 0.1


async def dies_at_once(worker: Worker) -> int:
    """Killed before its first word, whenever it is started."""
    worker.stage.kill_worker(worker.task_id)
    await asyncio.Event().wait()
    raise AssertionError("unreachable")


async def jumps(clock: VirtualClock, random: Random) -> None:
    """Somebody sets the wall clock, by an hour at most, ten times a second."""
    while True:
        clock.skew_ms = random.randrange(-3_600_000, 3_600_001)
        await asyncio.sleep(JUMP_SECONDS)


def starts(stage: Stage, task_id: str) -> list[int]:
    """When each worker process of the task was started, in milliseconds of virtual time."""
    words = [each.split(" ", 1) for each in stage.events]
    return [int(float(at) * 1000) for at, what in words if task_id in what and what.endswith("started")]


async def story_p08(stage: Stage) -> AsyncIterator[str]:
    """A poison task whose budget is seven premature exits, under a wall clock that jumps, and a runner that is started
    again every few minutes.
    """
    stage.beside(jumps(stage.runner.clock, stage.stream("wall")))
    task_id = await stage.submit("poison", dies_at_once, premature_exits_max=7)
    yield "submitted"
    for _ in range(4):
        await stage.sleep(stage.stream("crash").uniform(60, 300))
        await stage.crash("runner")
    yield "the runner was started again and again"
    ended = await stage.until(
        lambda: stage.task(task_id) if stage.task(task_id).terminal else None, "the budget ends", seconds=HOUR
    )
    assert (ended.state, ended.attempt, ended.premature_exits) == (State.FAILED, 8, 8)
    assert "was killed by SIGKILL" in ended.summary
    at_ms = starts(stage, task_id)
    assert len(at_ms) == 8
    for earlier, later in zip(at_ms, at_ms[budget.LAUNCHES_MAX :], strict=False):
        # A launch is claimed a moment before its process starts.
        assert later - earlier >= budget.WINDOW_MS - 1_000, "more than five launches in ten minutes"
    await stage.sleep(2 * budget.WINDOW_MS / 1000)
    assert len(starts(stage, task_id)) == 8, "something has refilled the budget"


def test_p08_no_jump_of_the_wall_clock_refills_a_budget(directory: Path) -> None:
    """± 1 h, ten jumps a second, restarts in between: as many launches as the budget has, five in ten minutes at most."""
    for seed in range(SEEDS):
        play(story_p08, directory / str(seed), seed=seed)


async def meets_its_limit(worker: Worker) -> int:
    """Names the end of its limit when it is started for the first and second time, and exits with 75; then is done."""
    if len(worker.stage.launches(worker.task_id)) <= 2:
        request = pb.ReportProgressRequest()
        request.retry_at.FromMilliseconds(worker.stage.runner.clock.wall_ms() + LIMIT_MS)
        await worker.call("ReportProgress", request)
        return 75
    return 0


async def story_p09(stage: Stage) -> AsyncIterator[str]:
    """A worker that meets its limit of use twice, with no budget to spend; nobody nudges it."""
    task_id = await stage.submit("limited", meets_its_limit, premature_exits_max=0, launch_failures_max=2)
    for number in (1, 2):

        def met(number: int = number) -> bool:
            limited = stage.task(task_id).pauses == {PauseCause.USAGE_LIMIT}
            return limited and len(stage.launches(task_id)) == number

        await stage.until(met, f"limit {number} is met", seconds=WAIT_SECONDS)
        yield f"limit {number} is met"
    ended = await stage.until(
        lambda: stage.task(task_id) if stage.task(task_id).terminal else None, "it ends", seconds=WAIT_SECONDS
    )
    assert (ended.state, ended.premature_exits) == (State.SUCCEEDED, 0)
    at_ms = starts(stage, task_id)
    assert len(at_ms) == 3
    for earlier, later in pairwise(at_ms):
        assert LIMIT_MS <= later - earlier <= LIMIT_MS + 10_000, "the limit was not kept"


def test_p09_a_limit_of_use_is_waited_for_through_every_death(directory: Path) -> None:
    """Three launches, as far apart as was said, no budget spent; the same with either service dying at any of its steps."""
    survives(story_p09, directory)


async def story_p10(stage: Stage) -> AsyncIterator[str]:
    """Submit, pause, retry and cancel while four replies in five are lost, and the supervisor is started again."""
    faults = stage.network.faults
    faults.lose_response = 0.8
    submitted = stage.beside(stage.submit("once", never_ends))
    await stage.sleep(5)
    await stage.crash("supervisor")
    task_id = await submitted
    yield "submitted"
    await stage.until(lambda: stage.task(task_id).worker_alive, "it runs")
    stage.kill_worker(task_id)
    await stage.until(lambda: stage.task(task_id).premature_exits == 1, "its death is known")
    await stage.ask("RetryTask", task_id=task_id)
    await stage.until(lambda: stage.task(task_id).worker_alive, "it runs again")
    yield "retried"
    assert (stage.task(task_id).attempt, stage.task(task_id).premature_exits) == (2, 1), "charged more than once"
    assert len(stage.launches(task_id)) == 2, "one request has started two processes"
    await stage.ask("CancelTask", task_id=task_id)
    faults.lose_response = 0.0
    await stage.state(task_id, State.CANCELED)
    listed = (await stage.ask("ListTasks")).tasks
    assert [each.task_id for each in listed] == [task_id], "one submission has become two tasks"
    assert listed[0].state == task_pb2.TASK_STATE_CANCELED


def test_p10_a_lost_reply_costs_nothing_when_the_request_is_repeated(directory: Path) -> None:
    """The same success, one process for each launch, the budget charged once, over a restart of the supervisor."""
    for seed in range(SEEDS):
        play(story_p10, directory / str(seed), seed=seed)


def tell_thrice(stage: Stage) -> None:
    """From here on the runner hears of every end three times at once."""
    heard = stage.kernel.listener
    assert heard is not None

    def listener(record: ExitRecord) -> None:
        for _ in range(3):
            heard(record)

    stage.kernel.listener = listener


async def story_s11(stage: Stage) -> AsyncIterator[str]:
    """Every end of a worker is told three times at the same instant, before its state lands."""
    task_id = await stage.submit("dies", never_ends, premature_exits_max=1)
    tell_thrice(stage)
    for attempt in (1, 2):

        def runs(attempt: int = attempt) -> bool:
            return stage.task(task_id).attempt == attempt and stage.task(task_id).worker_alive

        await stage.until(runs, f"attempt {attempt} runs")
        stage.kill_worker(task_id)
        await stage.until(lambda: not stage.task(task_id).worker_alive, "the end is known")
        yield f"attempt {attempt} was killed"
    ended = await stage.state(task_id, State.FAILED)
    assert (ended.attempt, ended.premature_exits, len(stage.launches(task_id))) == (2, 2, 2)


def test_s11_an_end_that_is_told_three_times_at_once_is_charged_once(directory: Path) -> None:
    """One event, one charge, one relaunch for each death."""
    play(story_s11, directory)


async def story_s12(stage: Stage) -> AsyncIterator[str]:
    """A launch that always fails."""
    stage.kernel.launch_failure = 1.0
    task_id = await stage.submit("broken", done, launch_failures_max=4)
    ended = await stage.until(
        lambda: stage.task(task_id) if stage.task(task_id).terminal else None, "the budget ends", seconds=HOUR
    )
    yield "the budget has ended"
    assert (ended.state, ended.attempt, ended.launch_failures) == (State.FAILED, 4, 4)
    assert "no such program" in ended.summary
    assert stage.launches(task_id) == []


def test_s12_a_launch_that_always_fails_ends_through_every_death(directory: Path) -> None:
    """Four claims, then FAILED with the cause, nothing launched; the same with either service dying at any of its steps."""
    survives(story_s12, directory)
