"""The main job under seeded faults. A failure prints its seed; ``simulate(seed, directory)`` runs it again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from lane_runner_svc import emitters
from lane_runner_svc.core.happenings import HoldReleased
from lane_runner_svc.core.holds import HoldState, Ruling
from lane_runner_svc.core.states import State
from lane_runner_svc.core.task import Task
from lane_runner_svc.store import holds, tasks
from lane_runner_svc.store.messages import StoredMessage
from lane_runner_svc.work import inbox
from lane_runner_svc.work.session import Session
from tests.sim.planted import answer_before_the_commit
from tests.sim.world import InvariantBrokenError, World, simulate

SEEDS = 100
SEEDS_PER_TEST = 10
SEEDS_LONG = 2_000
KEPT_SEEDS: dict[int, str] = {}
"""Seeds that once found a bug, and which: they stay, whatever SEEDS is."""


def run(seed: int, directory: Path) -> World:
    place = directory / str(seed)
    place.mkdir(parents=True)
    return simulate(seed, place)


@pytest.mark.parametrize("first", range(0, SEEDS, SEEDS_PER_TEST))
def test_main_job_under_faults(first: int, directory: Path) -> None:
    """Safety after every commit, and in the end every task SUCCEEDED with one application of one ruling."""
    worlds = [run(seed, directory) for seed in range(first, first + SEEDS_PER_TEST)]
    assert all(world.truth.accepted_escalations for world in worlds)
    assert sum(world.runner.starts + world.supervisor.starts for world in worlds) > 3 * SEEDS_PER_TEST, (
        "nothing crashed"
    )


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_main_job_under_faults_many_seeds(directory: Path) -> None:
    """The same over many more seeds."""
    for seed in range(SEEDS, SEEDS_LONG):
        run(seed, directory)


@pytest.mark.parametrize("seed", sorted(KEPT_SEEDS))
def test_seed_that_found_a_bug(seed: int, directory: Path) -> None:
    """A seed that once failed never fails again."""
    run(seed, directory)


@pytest.mark.parametrize("seed", [1, 17])
def test_same_seed_same_events(seed: int, directory: Path) -> None:
    """A failure can be run again: the seed decides everything."""
    first, second = run(seed, directory / "a"), run(seed, directory / "b")
    assert first.events == second.events
    assert len(first.events) > 100


def find(directory: Path) -> InvariantBrokenError | None:
    """The first breach within the seeds of the default suite."""
    for seed in range(SEEDS):
        try:
            run(seed, directory)
        except InvariantBrokenError as broken:
            return broken
    return None


def test_finds_a_hold_that_is_lost_between_commit_and_answer(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: the answer goes out before the commit, so a crash in between loses an accepted hold (I2)."""
    answer_before_the_commit(monkeypatch, emitters.ESCALATE)
    broken = find(directory)
    assert broken is not None
    assert str(broken).startswith("I2: accepted escalations are gone")


def test_finds_a_ruling_that_is_applied_twice(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: a second ruling on a hold replaces the first and is delivered too (I3; I1 when the task had ended)."""

    def rule_again(session: Session, ruling: Ruling, *, named_task_id: str) -> tuple[StoredMessage, Task]:
        hold = holds.load(session.uow, ruling.escalation_id)
        task = tasks.load(session.uow, hold.task_id)
        session.save_hold(replace(hold, state=HoldState.RELEASED, ruling=ruling))
        message = inbox._send(session, task, ruling.ruling_id, "RULING", "", ruling.ruled_by, hold.escalation_id)
        moved = session.happen(task, HoldReleased(open_holds=0)) if task.state is State.HELD else task
        return message, moved

    monkeypatch.setattr(inbox, "rule", rule_again)
    broken = find(directory)
    assert broken is not None
    assert str(broken).startswith(("I1", "I3"))


def test_finds_a_question_that_is_asked_twice(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: a request that is sent again has its effect again (I2)."""

    def every_time(uow: object, *, respond: Callable[[], bytes], **rest: object) -> bytes:
        return respond()

    monkeypatch.setattr("lane_runner_svc.runner.once", every_time)
    broken = find(directory)
    assert broken is not None
    assert str(broken).startswith("I2")


def test_finds_a_supervisor_that_is_not_told_everything_again(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: the runner believes whatever number a supervisor without a past gives it (P13)."""
    monkeypatch.setattr("lane_runner_svc.store.messages.follows", lambda reader, taken: True)
    broken = find(directory)
    assert broken is not None
    assert str(broken).startswith("I12")
