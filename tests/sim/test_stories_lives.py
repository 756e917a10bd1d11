"""Pauses, takeovers, cancels, gates and deadlines (H06, H13 to H17) as stories, with every service dying in between."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.sim.stories import play, survives
from tests.stories import gates, lives, rulings
from tests.stories.catalog import STORIES
from tests.stories.stage import Story

SEEDS = 200


def test_h06_two_rulings_and_a_deadline_at_the_same_instant(directory: Path) -> None:
    """200 seeds: one ruling wins, the other learns who, what and when; and the deadline came before it or not at all. One of
    the two services may die in between.
    """
    outcomes: Counter[str] = Counter()
    for seed in range(SEEDS):
        play(rulings.at_the_same_instant(outcomes), directory / str(seed), seed=seed)
    assert sum(outcomes.values()) == 2 * SEEDS
    assert min(outcomes[each] for each in ("ann", "bob", "expired first", "ruled first")) > SEEDS // 20, outcomes
    survives(rulings.at_the_same_instant(Counter()), directory / "deaths")


def test_h13_pause_takeover_retry_and_restart_keep_the_hold(directory: Path) -> None:
    """Still HELD by the same escalation, the worktree byte-identical, nothing completed, and the audit names the old owner
    and the new one.
    """
    survives(lives.taken_over, directory)


def test_h13_a_takeover_holds_the_on_success_command_back(directory: Path) -> None:
    """TakeOver launches nothing new: neither an attempt nor the command that follows a success, until it is given back."""
    survives(lives.taken_over_while_it_works, directory)


def test_h14_cancel_ends_a_task_in_every_state(directory: Path) -> None:
    """Queued, held, parked, delayed: at once; running: when its worker is stopped. Its timers and holds are closed with the
    cause, a late answer starts nothing, a second cancel has the same result; and a reopened task is not parked by the
    deadline of its last life.
    """
    survives(lives.canceled_everywhere, directory)


def test_h15_a_gate_blocks_until_it_is_reviewed_well(directory: Path) -> None:
    """Never reviewed blocks; REVISE after APPROVED blocks; a ruling ratifies the gates it names and no other; a worker
    cannot review; a waiver passes and stays visible; a reopened task is reviewed anew.
    """
    survives(gates.gated, directory)


def test_h16_pauses_are_apart_and_nothing_starts_in_one(directory: Path) -> None:
    """An operator's pause and the park of a deadline: clearing one leaves the other; while one is there, neither ruling,
    instruction, input, retry, timer nor restart starts anything; and it survives every restart.
    """
    survives(gates.paused_twice, directory)


def test_h17_a_deadline_parks_and_alerts_and_decides_nothing(directory: Path) -> None:
    """Parked, still open, one alert, never approved nor done; ExtendHold un-parks; a ruling after it works. A timer whose
    process dies just before or after it has acted, acts once.
    """
    played = survives(gates.deadline_passed, directory)
    timers = [point for point in played.points["runner"] if "hold.timer" in point]
    assert len(timers) >= 4, "no death can have come between a timer and what it does"


@pytest.mark.long
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize(
    "story", [story for each in STORIES.values() for story in each], ids=lambda story: story.__name__
)
def test_every_story_with_a_death_at_every_commit(directory: Path, story: Story, seed: int) -> None:
    """Just before and just after every single commit of either service, under other seeds than the default suite's."""
    survives(story, directory, every_point=1, seed=seed)
