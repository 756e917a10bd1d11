"""For each guard of the launch budgets, the limits of use and the evidence, a mutant without it that a check must kill.

Each check passes on the build as it is (the control), and fails as soon as its guard is patched away.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lane_runner_svc.core import budget, happenings
from lane_runner_svc.core.states import State
from lane_runner_svc.core.task import Now, Task
from lane_runner_svc.runner import Runner
from lane_runner_svc.store import evidence, tasks
from lane_runner_svc.work import limits
from lane_runner_svc.work import session as session_module
from lane_runner_svc.work.session import Session
from lanewarden.store import UnitOfWork
from tests import budget_checks as checks
from tests.runner_kit import RunnerKit
from tests.unit.test_runner_mutants import Patch, failure

WALL_MS_AHEAD = 1_800_000_000_000 - 1_000
"""How far the wall clock of the kit is ahead of its steady clock, until somebody sets it."""


def saved_as(patch: Patch, change: Callable[[Task, Task], Task]) -> None:
    """Every stored task is what ``change`` makes of it before and after."""
    save = Session.save

    def mutant(session: Session, before: Task, after: Task, *, cause: str = "") -> Task:
        return save(session, before, change(before, after), cause=cause)

    patch.setattr(Session, "save", mutant)


def starts(before: Task, after: Task) -> bool:
    """Whether the worker is known to have started well."""
    return before.state is State.STARTING and after.state is State.RUNNING


def good_start_refills_the_budget(patch: Patch) -> None:
    """A worker that starts well has its premature exits forgiven."""
    saved_as(patch, lambda before, after: replace(after, premature_exits=0) if starts(before, after) else after)


def progress_refills_the_budget(patch: Patch) -> None:
    """A worker that makes progress has its premature exits forgiven."""
    saved_as(
        patch,
        lambda before, after: replace(after, premature_exits=0) if after.progress != before.progress else after,
    )


def good_start_refills_the_rate(patch: Patch) -> None:
    """A worker that starts well empties the rate."""
    saved_as(patch, lambda before, after: replace(after, fruitless_ms=()) if starts(before, after) else after)


def there_is_no_rate(patch: Patch) -> None:
    """Only the backoff is kept."""
    patch.setattr(budget, "window_opens_ms", lambda _fruitless_ms: 0)


def time_is_the_wall_clock(patch: Patch) -> None:
    """Budgets and limits are kept by the clock that people set."""
    session = Runner._session

    def mutant(runner: Runner, *given: Any) -> Session:
        made = session(runner, *given)
        return replace(made, now=replace(made.now, steady_ms=made.now.wall_ms - WALL_MS_AHEAD))

    patch.setattr(Runner, "_session", mutant)


def every_launch_counts(patch: Patch) -> None:
    """The rate is of all launches, those that a ruling starts too."""

    def mutant(before: Task, after: Task) -> Task:
        if after.attempt > before.attempt:
            return replace(after, fruitless_ms=budget.spent(after.fruitless_ms, after.claimed_ms))
        if after.state is State.QUEUED and before.state is State.HELD:
            return replace(after, not_before_ms=budget.window_opens_ms(after.fruitless_ms))
        return after

    saved_as(patch, mutant)


def limit_spends_budget(patch: Patch) -> None:
    """An exit at a limit of use is a premature exit."""
    limited = happenings._limited

    def mutant(task: Task, happening: Any, now: Now) -> Any:
        return limited(replace(task, premature_exits=task.premature_exits + 1), happening, now)

    patch.setattr(happenings, "_limited", mutant)


def limit_is_kept_by_the_wall_clock(patch: Patch) -> None:
    """The pause is cleared by the time that the worker named, whoever has set the clock since."""

    def mutant(session: Session) -> int:
        due = tasks.due_limits(session.uow, session.now.wall_ms - WALL_MS_AHEAD)
        for task in due:
            session.save(task, limits.limits.lift(task))
        return len(due)

    patch.setattr(limits, "lift_due", mutant)


def limit_is_not_counted(patch: Patch) -> None:
    """An exit at a limit of use counts for nothing."""
    relaunch = happenings._relaunch

    def mutant(task: Task, event: Any, now: Now, **said: Any) -> Any:
        step = relaunch(task, event, now, **said)
        limited = event is happenings.Event.EXITED_LIMITED
        return replace(step, task=replace(step.task, fruitless_ms=(), not_before_ms=0)) if limited else step

    patch.setattr(happenings, "_relaunch", mutant)


def any_exit_meets_the_limit(patch: Patch) -> None:
    """A worker that named a limit has met it, however it ends."""
    transition = happenings.transition

    def mutant(task: Task, happening: Any, now: Now) -> Any:
        if getattr(happening, "retry_ms", None) is not None:
            happening = replace(happening, exit=replace(happening.exit, code=75))
        return transition(task, happening, now)

    patch.setattr(session_module, "transition", mutant)


def evidence_is_a_change_of_the_task(patch: Patch) -> None:
    """A late word shows in the task that it is about."""
    keep = evidence.keep

    def mutant(uow: UnitOfWork, said: evidence.Said, wall_ms: int) -> None:
        keep(uow, said, wall_ms)
        uow.execute("UPDATE tasks SET progress_note = ? WHERE task_id = ?", (said.content, said.task_id))

    patch.setattr(evidence, "keep", mutant)


def late_words_are_only_refused(patch: Patch) -> None:
    """Nothing is kept."""
    patch.setattr(evidence, "wanted", lambda _reader, _said: False)


def evidence_has_no_bound(patch: Patch) -> None:
    """Every late word is kept."""
    patch.setattr(evidence, "ROWS_MAX", 10**9)


def repeats_are_evidence_again(patch: Patch) -> None:
    """A request that is sent again is kept again."""
    wanted, numbers = evidence.wanted, iter(range(10**9))
    patch.setattr(evidence, "wanted", lambda reader, said: wanted(reader, replace(said, request_id=str(next(numbers)))))


MUTANTS: list[tuple[Callable[[Patch], None], Callable[[RunnerKit], None]]] = [
    (good_start_refills_the_budget, checks.check_good_starts_refill_no_budget),
    (progress_refills_the_budget, checks.check_good_starts_refill_no_budget),
    (good_start_refills_the_rate, checks.check_nothing_refills_the_rate),
    (there_is_no_rate, checks.check_nothing_refills_the_rate),
    (time_is_the_wall_clock, checks.check_nothing_refills_the_rate),
    (every_launch_counts, checks.check_no_ruling_waits_for_the_rate),
    (limit_spends_budget, checks.check_a_limit_of_use_spends_no_budget),
    (limit_is_kept_by_the_wall_clock, checks.check_a_limit_of_use_spends_no_budget),
    (limit_is_not_counted, checks.check_a_past_limit_does_not_spin),
    (any_exit_meets_the_limit, checks.check_a_word_of_a_limit_ends_with_its_attempt),
    (evidence_is_a_change_of_the_task, checks.check_late_words_are_kept_and_nothing_else),
    (late_words_are_only_refused, checks.check_late_words_are_kept_and_nothing_else),
    (evidence_has_no_bound, checks.check_a_flood_of_late_words_is_bounded),
    (repeats_are_evidence_again, checks.check_a_flood_of_late_words_is_bounded),
]


@pytest.mark.parametrize(("mutate", "check"), MUTANTS, ids=lambda each: each.__name__)
def test_each_guard_is_guarded(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    mutate: Callable[[Patch], None],
    check: Callable[[RunnerKit], None],
) -> None:
    """The check passes with the guard and fails without it."""
    (tmp_path / "control").mkdir()
    (tmp_path / "mutant").mkdir()
    assert failure(check, tmp_path / "control") is None
    mutate(monkeypatch)
    assert failure(check, tmp_path / "mutant") is not None, "nobody misses this guard"


def test_every_check_has_a_mutant() -> None:
    """A check that no mutant fails may be one that cannot fail."""
    named = {check for name, check in vars(checks).items() if name.startswith("check_")}
    assert named == {check for _, check in MUTANTS}
