"""Stories played on the simulator, and played again with a service dying after each step and at each commit.

:func:`play` runs a story once. :func:`deaths` are all the ways in which one service can lose everything but its file in
between: after each step, and just before and just after each commit. The story must hold in every one of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import TypeVar

from tests.sim.sim_stage import Death, Played, SimStage
from tests.sim.virtual import VirtualLoop
from tests.stories.sight import SERVICES

S = TypeVar("S", bound=SimStage)
EVERY_POINT = 25
"""In the default suite one in twenty-five of the commit points: just before some commits and just after others."""


def play(
    story: Callable[[S], AsyncIterator[str]],
    directory: Path,
    death: Death | None = None,
    *,
    seed: int = 0,
    make: Callable[[Path, VirtualLoop, Death | None, int], S] = SimStage,  # type: ignore[assignment]
) -> Played:
    """Run a story once; raises what it raises, with the death and the end of the log added to it."""
    loop = VirtualLoop()
    loop.set_exception_handler(lambda _loop, _context: None)
    directory.mkdir(parents=True, exist_ok=True)
    stage = make(directory, loop, death, seed)
    try:
        loop.run_until_complete(stage.play(story))
    except BaseException as error:
        error.add_note(f"{story.__name__}: {death or 'nobody dies'}, seed {seed}")
        error.add_note("\n".join(stage.events[-40:]))
        raise
    finally:
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(asyncio.sleep(0))
        with contextlib.suppress(BaseException):
            loop.run_until_complete(loop.shutdown_asyncgens())
        stage.close()
        loop.close()
    return stage.played


def deaths(played: Played, *, every_point: int) -> Iterator[Death]:
    """Each service after each step, and at each ``every_point``-th of its commit points, as a run without a death had
    them. At every commit of a timer, which acts when nobody looks, always; and never where old rows are forgotten, which no
    story is about.
    """
    for service in SERVICES:
        for step in range(len(played.steps)):
            yield Death(service=service, step=step)
        telling = [number for number, point in enumerate(played.points[service]) if "prune" not in point]
        for place, number in enumerate(telling):
            if place % every_point == 0 or "timer" in played.points[service][number]:
                yield Death(service=service, point=number)


def survives(
    story: Callable[[S], AsyncIterator[str]],
    directory: Path,
    *,
    every_point: int = EVERY_POINT,
    seed: int = 0,
    make: Callable[[Path, VirtualLoop, Death | None, int], S] = SimStage,  # type: ignore[assignment]
) -> Played:
    """Play a story once without a death, and once with each of its deaths; what the run without one came to."""
    played = play(story, directory / "calm", seed=seed, make=make)
    for number, death in enumerate(deaths(played, every_point=every_point)):
        place = directory / str(number)
        assert play(story, place, death, seed=seed, make=make).died, f"{death}: it did not"
        shutil.rmtree(place)
    return played
