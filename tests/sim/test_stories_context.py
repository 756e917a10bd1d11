"""A worker under context pressure as a story, with every service dying in between (C09, I10)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from lane_runner_svc.core.states import State
from lane_runner_svc.store import contexts
from lanewarden.v1 import context_pb2
from lanewarden.v1 import worker_service_pb2 as pb
from tests.sim.sim_stage import SimStage as Stage
from tests.sim.stories import survives
from tests.stories.programs import Worker

K = 1000


async def pressed(stage: Stage) -> AsyncIterator[str]:
    """It writes one checkpoint, fails at the next, is rebuilt from the first, and goes on until its budget is spent."""
    told: list[str] = []

    async def turn(worker: Worker, tokens: int) -> pb.NextDirectiveResponse:
        request = pb.NextDirectiveRequest(usage=pb.ContextUsage(tokens=tokens))
        said: pb.NextDirectiveResponse = await worker.call("NextDirective", request)
        told.append(pb.Directive.Name(said.directive).removeprefix("DIRECTIVE_"))
        return said

    async def report(worker: Worker, said: pb.NextDirectiveResponse, *, done: bool = True, **more: Any) -> None:
        outcome = pb.DIRECTIVE_OUTCOME_DONE if done else pb.DIRECTIVE_OUTCOME_FAILED
        request = pb.ReportDirectiveRequest(directive_id=said.directive_id, outcome=outcome, **more)
        assert (await worker.call("ReportDirective", request)).reported_now

    async def program(worker: Worker) -> int:
        await report(worker, await turn(worker, 21 * K), content="so far")
        await report(worker, await turn(worker, 35 * K), done=False, failure=context_pb2.CHECKPOINT_FAILURE_AUTH)
        rebuild = await turn(worker, 35 * K)
        assert rebuild.checkpoint.content == "so far"
        await asyncio.sleep(1)
        await report(worker, rebuild, inserted_tokens=2 * K)
        await report(worker, await turn(worker, 35 * K))
        for _ in range(3):
            await turn(worker, 35 * K)
        await worker.complete()
        return 0

    context = context_pb2.ContextSpec(rungs=[20 * K, 30 * K], window_tokens=200 * K, reductions_max=1)
    task_id = await stage.submit("pressed", program, context=context)
    await stage.until(lambda: "REBUILD" in told, "it is rebuilt")
    yield "rebuilt"
    await stage.state(task_id, State.SUCCEEDED)
    # A repeat of a request whose answer was lost gets that answer, so what the worker hears is always the same.
    assert told == ["CHECKPOINT", "CHECKPOINT", "REBUILD", "WRAP_UP", "CONTINUE", "CONTINUE", "CONTINUE"]
    kept = stage.read(lambda reader: contexts.load(reader, task_id, 1))
    assert (kept.reductions, kept.cycle) == (1, 2)
    rows = stage.read(
        lambda reader: reader.query("SELECT kind, discharged_how FROM signals WHERE task_id = ?", (task_id,))
    )
    assert [row["kind"] for row in rows] == ["REDUCE_CONTEXT", "REDUCE_CONTEXT", "WRAP_UP"]
    assert all(row["discharged_how"] for row in rows)
    yield "ended"


def test_c09_a_cycle_survives_every_death(directory: Path) -> None:
    """The rungs, the signal and the budget are what they were, with either service dying after each step and at its commits:
    one reduction, told once.
    """
    survives(pressed, directory)


@pytest.mark.long
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("seed", [1, 2])
def test_c09_a_cycle_with_a_death_at_every_commit(directory: Path, seed: int) -> None:
    """Just before and just after every single commit of either service, under other seeds than the default suite's."""
    survives(pressed, directory, every_point=1, seed=seed)
