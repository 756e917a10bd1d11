"""A row that cannot be read (S12, S15): what is wrong with one task is its own end, and nobody else's."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

from lane_runner_svc import emitters
from lane_runner_svc.core.states import State
from tests.sim.sim_stage import SimStage as Stage
from tests.sim.stories import play
from tests.sim.test_stories_verdicts import HOUR, running
from tests.stories.programs import done, never_ends


async def unreadable(stage: Stage) -> AsyncIterator[str]:
    """Two tasks of which nobody can read any more what they were asked to do, one running and one queued, before a third."""
    runs, bad, good = [
        await stage.submit(name, program)
        for name, program in (("runs", never_ends), ("bad", never_ends), ("good", done))
    ]
    await running(stage, runs)
    assert stage.runner.store is not None
    await stage.runner.store.write(
        lambda uow: uow.execute("UPDATE tasks SET spec = x'ff', version = version + 1 WHERE name <> 'good'"),
        emitter=emitters.SUBMIT,
    )
    await stage.crash("runner")
    yield "unreadable, and the runner is started again"
    await stage.until(lambda: stage.task(runs).worker_alive, "the worker that runs is adopted")
    await stage.ask("CancelTask", task_id=runs)
    await stage.state(runs, State.CANCELED)
    await stage.until(lambda: stage.task(good).terminal, "the one behind it runs", seconds=HOUR)
    assert stage.task(good).state is State.SUCCEEDED
    await stage.until(lambda: stage.task(bad).terminal, "the other ends", seconds=HOUR)
    ended = stage.task(bad)
    assert (ended.state, ended.launch_failures, ended.attempt) == (State.FAILED, 5, 5)
    assert "launch failed 5 times" in ended.summary
    await stage.agreed()
    shown = {each.task_id: each.spec.name for each in (await stage.ask("ListTasks")).tasks}
    assert shown == {runs: "runs", bad: "bad", good: "good"}
    yield "each has its own end"


def test_s12_s15_a_task_that_cannot_be_read_ends_by_itself_and_stops_no_other(directory: Path) -> None:
    """The worker is adopted and can be canceled, the queued one FAILS within its budget of launches, the next one in the
    lane runs, and both services go on showing all three.
    """
    play(unreadable, directory)
