"""H01 to H18 on real processes, with kill -9 of either service at every step in between."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import nullcontext
from pathlib import Path

import pytest

from tests.integration.real_stage import SERVICE, RealStage
from tests.stories.catalog import STORIES
from tests.stories.programs import asks_and_waits
from tests.stories.sight import SERVICES
from tests.stories.stage import Stage, Story

ALL = [(id_, story) for id_, stories in STORIES.items() for story in stories]
IDS = [f"{id_}-{story.__name__}" for id_, story in ALL]


async def play(
    story: Story, directory: Path, kill: Callable[[int], str | None], *, through: str = SERVICE
) -> RealStage:
    """Play a story on real processes and stop them; raises what it raises, with the end of the log added to it."""
    stage = RealStage(directory, kill, through=through)
    try:
        await stage.play(story)
    except BaseException as error:
        error.add_note("\n".join([*stage.events[-40:], *stage.said()]))
        raise
    finally:
        await stage.close()
    return stage


@pytest.mark.parametrize(("number", "story"), list(enumerate(story for _, story in ALL)), ids=IDS)
async def test_a_service_is_killed_on_the_way(tmp_path: Path, number: int, story: Story) -> None:
    """One service is killed after one step; which one, and after which step, changes from story to story."""
    step, service = number % 3, SERVICES[number // 3 % 2]
    asked: list[int] = []

    def kill(after: int) -> str | None:
        asked.append(after)
        return service if after == step else None

    stage = await play(story, tmp_path, kill)
    assert step in asked, "the story is over before its kill"
    assert service in stage.kills


async def ruled_and_killed(stage: Stage) -> AsyncIterator[str]:
    task_id = await stage.submit("asker", asks_and_waits)
    (hold,) = await stage.at_commit(lambda: stage.holds(task_id))
    await stage.ask("Steer", runner=True, ruling=stage.ruling(hold.escalation_id))
    yield "ruled"
    await stage.ask("GetTask", task_id=task_id)  # its runner is back
    assert not stage.hold(hold.escalation_id).open, "an answered ruling is lost"


@pytest.mark.parametrize("lost", [True, False], ids=["planted", "control"])
async def test_a_ruling_that_is_answered_before_it_is_stored_is_found(tmp_path: Path, lost: bool) -> None:
    """A runner that answers a ruling before it commits it is found out by a kill in between; the real one is not."""
    through = "tests.integration.forgetful_service" if lost else SERVICE
    found = pytest.raises(AssertionError, match="an answered ruling is lost") if lost else nullcontext()
    with found:
        await play(ruled_and_killed, tmp_path, {0: "runner"}.get, through=through)


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("first", [0, 1], ids=SERVICES)
@pytest.mark.parametrize("story", [story for _, story in ALL], ids=IDS)
async def test_a_service_is_killed_after_every_step(tmp_path: Path, story: Story, first: int) -> None:
    """A kill after each step of one run, of the runner and the supervisor in turn."""
    stage = await play(story, tmp_path, lambda step: SERVICES[(first + step) % 2])
    assert len(stage.kills) >= len(stage.steps)


@pytest.mark.long
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("service", SERVICES)
@pytest.mark.parametrize("story", [story for _, story in ALL], ids=IDS)
async def test_one_service_is_killed_after_one_step(tmp_path: Path, story: Story, service: str) -> None:
    """Each service after each step, one kill a run: the story holds every time."""
    step, steps = 0, 1
    while step < steps:
        place = tmp_path / str(step)
        stage = await play(story, place, {step: service}.get)
        steps = len(stage.steps)
        shutil.rmtree(place)
        step += 1
