"""What a supervisor does by itself, sessions and families, as stories, with every service dying in between."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from lane_runner_svc import emitters
from lane_runner_svc.core.states import State
from lane_runner_svc.core.task import Author
from lane_runner_svc.store import messages, supervision
from lane_runner_svc.store.supervision import Supervision
from lanewarden.errors import Reason, Refusal
from lanewarden.server import Role
from lanewarden.store import SimulatedCrash
from lanewarden.v1 import task_pb2
from tests.sim.sim_stage import SimStage as Stage
from tests.sim.stories import survives
from tests.stories.programs import Worker, never_ends
from tests.stories.stage import Story

SETTLING = {"summary": "given up: no progress", "diagnosis": "the worker has said nothing for 15 minutes"}


async def grant(stage: Stage, *, anew: bool = False) -> None:
    """A supervisor may act at the runner by itself; ``anew``: another start of it than before."""

    def put(uow: Any) -> None:
        known = supervision.load(uow)
        granted = Supervision(
            generation=known.generation + 1,
            supervisor_id="s",
            supervisor_incarnation=f"i{known.generation + 1}",
            live=True,
        )
        if anew or not known.live:
            supervision.put(uow, granted)

    while True:
        await stage.until(lambda: stage.runner.up, "the runner is up")
        assert stage.runner.store is not None
        with contextlib.suppress(SimulatedCrash):
            await stage.runner.store.write(put, emitter=emitters.START)
            return
        await stage.sleep(0.1)


async def act(stage: Stage, rpc: str, task_id: str, **more: Any) -> Any:
    """An automatic action under one request id, repeated under the present generation as long as it is fenced."""
    known = {"task_id": task_id, "epoch": stage.task(task_id).epoch, "request_id": stage.fresh_id(), **more}
    while True:
        known["supervision_generation"] = stage.read(supervision.load).generation
        try:
            return await stage.ask(rpc, by="supervisor", role=Role.SUPERVISOR, runner=True, **known)
        except Refusal as refusal:
            if refusal.reason is not Reason.SUPERVISION_FENCED:
                raise
        await stage.sleep(0.5)


async def settled(stage: Stage) -> AsyncIterator[str]:
    """S07: a stuck worker with input; whoever dies between the intent and the end, it ends settled and stays so."""
    task_id = await stage.submit("stuck", never_ends, on_success=["true"])
    await stage.until(lambda: stage.task(task_id).worker_alive, "its worker runs")
    await grant(stage)
    sent = (await stage.ask("SendInput", task_id=task_id, text="read this")).message.message_id
    yield "runs"
    await act(stage, "SettleTask", task_id, **SETTLING)
    yield "to be settled"
    task = await stage.state(task_id, State.SETTLED)
    assert (task.summary, task.diagnosis) == (SETTLING["summary"], SETTLING["diagnosis"])
    assert (task.summary_author, len(stage.launches(task_id))) == (Author.SUPERVISOR, 1)
    yield "settled"
    await act(stage, "SettleTask", task_id, **SETTLING)
    await stage.refused(Reason.TASK_SETTLED, "SendInput", task_id=task_id, text="and this")
    await stage.sleep(3600)
    now = stage.task(task_id)  # its version rises when its incident is claimed and filed
    assert replace(now, version=task.version) == task, "an hour has changed a settled task"
    assert not stage.hooks(task_id)
    waits = stage.read(lambda reader: messages.load(reader, sent))
    assert waits is not None
    assert waits.state == "PARKED"
    await stage.ask("ReopenTask", task_id=task_id)
    yield "reopened"
    await stage.until(lambda: stage.task(task_id).worker_alive, "it runs again")
    assert stage.task(task_id).epoch == 2
    await stage.ask("CancelTask", task_id=task_id)
    await stage.state(task_id, State.CANCELED)


async def relaunched(stage: Stage) -> AsyncIterator[str]:
    """P10: a stuck worker is relaunched; whoever dies, one worker follows, and the budget is charged once."""
    reasons = []

    async def stuck_once(worker: Worker) -> int:
        reasons.append(worker.reason)
        if len(reasons) == 1:
            return await never_ends(worker)
        await worker.complete("done by the second worker")
        return 0

    task_id = await stage.submit("stuck", stuck_once)
    await stage.until(lambda: stage.task(task_id).worker_alive, "its worker runs")
    await grant(stage)
    yield "runs"
    attempt = stage.task(task_id).attempt
    asked = {"request_id": stage.fresh_id(), "attempt": attempt, "cause": "no progress", "relaunches_max": 2}
    first = await act(stage, "RelaunchTask", task_id, **asked)
    yield "relaunched"
    await grant(stage, anew=True)
    assert await act(stage, "RelaunchTask", task_id, **asked) == first
    task = await stage.state(task_id, State.SUCCEEDED)
    assert (task.relaunches, task.premature_exits) == (1, 0)
    assert len(stage.launches(task_id)) == len(reasons) == 2, "one worker has followed"
    # A runner that dies between claim and launch has an attempt without a worker; the one after that is a retry.
    assert reasons[1] == ("relaunch" if task.attempt == attempt + 1 else "retry")
    yield "done"


async def takes_everything(worker: Worker, *, rounds: list[list[str]]) -> int:
    """A round of a session: takes each input that waits, and ends."""
    waiting = await worker.stored_messages()
    for message in waiting:
        await worker.take(message)
    await asyncio.sleep(1.0)
    rounds.append([message.input.text for message in waiting])
    return 0


async def session(stage: Stage) -> AsyncIterator[str]:
    """S13: input between rounds, during a claim and during a round: nothing is lost, and the session rests at the end."""
    rounds: list[list[str]] = []
    program = partial(takes_everything, rounds=rounds)
    task_id = await stage.submit("session", program, kind=task_pb2.TASK_KIND_SESSION)
    assert stage.task(task_id).state is State.IDLE
    yield "rests"
    texts = [f"input {number}" for number in range(4)]
    await stage.ask("SendInput", task_id=task_id, text=texts[0])
    await stage.until(lambda: stage.task(task_id).attempt >= 1, "the first round begins")
    for text in texts[1:]:
        await stage.ask("SendInput", task_id=task_id, text=text)
    yield "told more"
    await stage.state(task_id, State.IDLE)
    heard = [text for each in rounds for text in each]
    assert list(dict.fromkeys(heard)) == texts, "the inputs came in their order, and none was lost"
    launches = len(stage.launches(task_id))
    await stage.sleep(3600)
    assert len(stage.launches(task_id)) == launches, "a session at rest was launched"
    yield "rests again"
    await stage.ask("CancelTask", task_id=task_id)
    await stage.state(task_id, State.CANCELED)


async def family(stage: Stage) -> AsyncIterator[str]:
    """S14: a child that is settled tells its parent, once, in the transaction of its end."""
    rounds: list[list[str]] = []
    program = partial(takes_everything, rounds=rounds)
    parent = await stage.submit("parent", program, kind=task_pb2.TASK_KIND_SESSION)
    child = await stage.submit("child", never_ends, parent_task_id=parent)
    await stage.until(lambda: stage.task(child).worker_alive, "the child runs")
    await grant(stage)
    yield "waits"
    await act(stage, "SettleTask", child, **SETTLING)
    yield "to be settled"
    await stage.state(child, State.SETTLED)
    await stage.until(lambda: rounds and stage.task(parent).state is State.IDLE, "the parent has had its round")
    heard = {text for each in rounds for text in each}
    assert heard == {f"ERROR: child task {child} (child) SETTLED: {SETTLING['summary']}\n{SETTLING['diagnosis']}"}
    yield "told"


STORIES: list[Story] = [settled, relaunched, session, family]


@pytest.mark.parametrize(
    "story",
    [
        pytest.param(settled, id="s07_settled"),
        pytest.param(relaunched, id="p10_relaunched"),
        pytest.param(session, id="s13_session"),
        pytest.param(family, id="s14_family"),
    ],
)
def test_stories_of_actions_survive_every_death(directory: Path, story: Story) -> None:
    """Each story holds with either service dying after each step and at its commits."""
    survives(story, directory)


@pytest.mark.long
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_every_story_of_actions_with_a_death_at_every_commit(directory: Path, story: Story, seed: int) -> None:
    """Just before and just after every single commit of either service, under other seeds than the default suite's."""
    survives(story, directory, every_point=1, seed=seed)
