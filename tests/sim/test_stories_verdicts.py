"""What the supervisor makes of a task that is silent (H03, S10), asked over its own RPC on virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from lane_runner_svc.core.states import State
from lanewarden.v1 import worker_service_pb2 as pb
from lanewarden.v1.operator_service_pb2 import RUNNER_STATE_LIVE
from supervisor_svc.loop.supervise import Supervise
from tests.sim.sim_stage import Death
from tests.sim.sim_stage import SimStage as Stage
from tests.sim.stories import play
from tests.stories.programs import Worker, never_ends
from tests.stories.sight import SERVICES

HOUR = 3600.0
STALE_SECONDS = 900.0
LATEST_SECONDS = 150.0
"""How much later a verdict may come after a death: the runner is heard again at its next renewal, and listened to first."""


@pytest.fixture(autouse=True)
def nobody_acts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Verdicts are read here, for as long as they last; what is done about them is in test_stories_supervision."""

    async def only_watches(self: Supervise) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(Supervise, "run", only_watches)


async def steps_once(worker: Worker) -> int:
    """Makes one step and nothing more."""
    await worker.call("ReportProgress", pb.ReportProgressRequest(note="copied 1 of 9"))
    return await never_ends(worker)


async def running(stage: Stage, task_id: str) -> None:
    """Wait until the worker runs and the supervisor knows."""
    await stage.until(lambda: stage.task(task_id).worker_alive, "its worker runs")
    await stage.agreed()


async def seconds_until(stage: Stage, seconds: float, since_ms: int) -> None:
    """Sleep until so long after a time of the supervisor's clock."""
    await stage.sleep(since_ms / 1000 + seconds - stage.supervisor.clock.steady_ms() / 1000)


async def silent_with_a_sensor(stage: Stage) -> AsyncIterator[str]:
    task_id = await stage.submit("copier", steps_once)
    await running(stage, task_id)
    await stage.until(lambda: stage.task(task_id).progress, "it has made a step")
    await stage.agreed()
    moved_ms = stage.progressed_ms(task_id)
    launches = stage.launches(task_id)
    assert await stage.verdict(task_id) == "HEALTHY"
    yield "stepped"
    await seconds_until(stage, 500.0, moved_ms)
    # What people and supervisors say to it is not progress.
    await stage.ask("Steer", task_id=task_id, instruction={"text": "hurry up"})
    await stage.ask("PauseTask", task_id=task_id)
    await stage.ask("ResumeTask", task_id=task_id)
    await stage.agreed()
    yield "touched"
    await seconds_until(stage, STALE_SECONDS - 1, moved_ms)
    assert await stage.verdict(task_id) == "HEALTHY", "at 899 s it is not stale"
    yield "899 s"
    await seconds_until(stage, STALE_SECONDS, moved_ms)
    if stage.calm:
        assert stage.progressed_ms(task_id) == moved_ms
        assert await stage.verdict(task_id) == "STALE", "at 900 s it is"
    else:
        await stage.sleep(LATEST_SECONDS)
        assert await stage.verdict(task_id) == "STALE", "a death may delay it, no more"
    explained = await stage.explain(task_id)
    assert explained.because.startswith("no progress for 9" if stage.calm else "no progress for ")
    assert explained.arm == "relaunch"
    assert [each.arm for each in explained.passed] == ["terminal", "report", "held", "filed", "wake"]
    assert ("progress", "1 copied 1 of 9") in [(each.name, each.value) for each in explained.facts]
    yield "900 s"
    assert stage.launches(task_id) == launches, "a verdict is read, and nothing is done"
    assert stage.task(task_id).state is State.RUNNING


def test_h03_the_same_silence_without_a_hold_is_stale_at_its_bound(directory: Path) -> None:
    """A worker that has made one step: healthy at 899 s, stale at 900 s, whatever was said to it meanwhile. A service that
    dies on the way delays that by the time it takes to be heard again, and loses nothing of the count.
    """
    calm = play(silent_with_a_sensor, directory / "calm")
    for service in SERVICES:
        for step in range(len(calm.steps)):
            play(silent_with_a_sensor, directory / f"{service}{step}", Death(service=service, step=step))


async def silent_without_a_sensor(stage: Stage) -> AsyncIterator[str]:
    task_id = await stage.submit("script", never_ends)
    await running(stage, task_id)
    yield "running"
    for hours in (0.25, 1.0, 4.0):
        await stage.sleep(hours * HOUR)
        assert await stage.verdict(task_id) == "UNKNOWN"
        yield f"{hours} h more"
    explained = await stage.explain(task_id)
    assert explained.arm == "report"
    assert ("progress", "UNKNOWN: no sensor") in [(each.name, each.value) for each in explained.facts]


def test_s10_a_worker_without_a_sensor_is_unknown_and_not_stale(directory: Path) -> None:
    """Five hours of silence of a worker that has never reported progress: UNKNOWN at every look."""
    play(silent_without_a_sensor, directory / "silent")


async def writes_lines(stage: Stage) -> AsyncIterator[str]:
    """Nobody reports anything; the program writes a line now and then, and then no more."""
    task_id = await stage.submit("script", never_ends, progress_from={"output_lines": True})
    await running(stage, task_id)
    for line in range(1, 4):
        stage.kernel.write(task_id, 1)
        await stage.until(lambda line=line: stage.task(task_id).progress == line, "each line is one step")
        await stage.sleep(600.0)
        assert await stage.verdict(task_id) == "HEALTHY", f"after line {line}"
        yield f"{line} lines"
    wrote_ms = stage.progressed_ms(task_id)
    await seconds_until(stage, STALE_SECONDS - 1, wrote_ms)
    assert await stage.verdict(task_id) == "HEALTHY"
    yield "899 s without a line"
    await stage.sleep(LATEST_SECONDS)
    assert await stage.verdict(task_id) == "STALE"
    assert stage.task(task_id).progress == 3
    yield "stale"


def test_s09_s10_lines_of_output_are_progress_where_the_task_says_so(directory: Path) -> None:
    """A line every ten minutes is healthy at every look; then 900 s without one are stale. Whoever dies on the way, each
    line counts once.
    """
    calm = play(writes_lines, directory / "calm")
    for service in SERVICES:
        for step in range(len(calm.steps) - 1):
            play(writes_lines, directory / f"{service}{step}", Death(service=service, step=step))


async def steady(stage: Stage) -> AsyncIterator[str]:
    async def worker(worker: Worker) -> int:
        while True:
            await worker.call("ReportProgress", pb.ReportProgressRequest())
            await asyncio.sleep(59.0)

    task_id = await stage.submit("copier", worker)
    await running(stage, task_id)
    await stage.until(lambda: stage.task(task_id).progress, "it has made a step")
    for minute in range(25):
        await stage.sleep(60.0)
        assert await stage.verdict(task_id) == "HEALTHY", f"in minute {minute}"
    yield "25 minutes later"


def test_s09_steady_progress_is_healthy_at_every_look(directory: Path) -> None:
    """25 minutes of a step a minute, asked every minute."""
    play(steady, directory / "steady")


async def unheard(stage: Stage) -> AsyncIterator[str]:
    task_id = await stage.submit("copier", steps_once)
    await running(stage, task_id)
    await stage.until(lambda: stage.task(task_id).progress, "it has made a step")
    await stage.agreed()
    stage.network.faults.cut.add(frozenset(("runner", "supervisor")))
    yield "cut off"
    await stage.sleep(HOUR)
    assert await stage.verdict(task_id) == "UNREACHABLE", "an hour of which nothing is known is not an hour of silence"
    stage.network.faults.cut.clear()
    while (await stage.ask("ListRunners")).runners[0].state != RUNNER_STATE_LIVE:
        await stage.sleep(1.0)
    assert await stage.verdict(task_id) == "HEALTHY", "a runner that is back is listened to first"
    await stage.sleep(LATEST_SECONDS)
    assert await stage.verdict(task_id) == "STALE", "it has had the time to tell of a step"
    yield "healed"


def test_s10_silence_of_a_runner_is_not_that_of_its_worker(directory: Path) -> None:
    """An hour out of reach: unreachable, then healthy until the runner has had time to tell, and stale only after that."""
    play(unheard, directory / "unheard")
