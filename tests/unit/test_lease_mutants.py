"""For each guard of the leases, a mutant without it that a check must kill; each check passes on the build as it is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lane_runner_svc.holder import Holder
from lane_runner_svc.runner import Runner
from lane_runner_svc.store import supervision
from lane_runner_svc.work import supervision as work
from lanewarden.errors import Refusal
from supervisor_svc.loop import sweep
from supervisor_svc.store import runners
from supervisor_svc.work.presence import Presence
from tests import lease_checks as checks
from tests.lease_kit import LeaseKit

Patch = pytest.MonkeyPatch


class _Wall:
    """A clock that decides by what the wall shows."""

    def __init__(self, clock: Any) -> None:
        self._clock = clock

    def wall_ms(self) -> int:
        return int(self._clock.wall_ms())

    steady_ms = wall_ms


def wall_clock_at_the_supervisor(patch: Patch) -> None:
    """The supervisor counts by the wall clock."""
    init = Presence.__init__
    patch.setattr(Presence, "__init__", lambda self, timing, clock: init(self, timing, _Wall(clock)))


def wall_clock_at_the_holder(patch: Patch) -> None:
    """The runner counts by the wall clock."""
    init = Holder.__init__

    def mutant(self: Holder, runner: Runner) -> None:
        init(self, runner)
        self._runner = SimpleNamespace(  # type: ignore[assignment]
            clock=_Wall(runner.clock), do=runner.do, read=runner.read, runner_id=runner.runner_id
        )

    patch.setattr(Holder, "__init__", mutant)


def holder_counts_from_the_answer(patch: Patch) -> None:
    """The lease runs from when the answer came."""
    grant, renew = Holder.grant, Holder.renew

    async def granted(self: Holder, answer: Any, *, sent_ms: int, address: str) -> Any:
        del sent_ms
        return await grant(self, answer, sent_ms=self._runner.clock.steady_ms(), address=address)

    def renewed(self: Holder, answer: Any, *, sent_ms: int) -> Any:
        del sent_ms
        return renew(self, answer, sent_ms=self._runner.clock.steady_ms())

    patch.setattr(Holder, "grant", granted)
    patch.setattr(Holder, "renew", renewed)


def holder_counts_renewals_from_the_answer(patch: Patch) -> None:
    """Only the grant runs from its request."""
    renew = Holder.renew

    def mutant(self: Holder, answer: Any, *, sent_ms: int) -> Any:
        return renew(self, answer, sent_ms=max(sent_ms, self._runner.clock.steady_ms()))

    patch.setattr(Holder, "renew", mutant)


def end_at_the_runner_keeps_the_generation(patch: Patch) -> None:
    """The end of the right to act is stored under its own generation."""

    def mutant(session: Any, generation: int) -> None:
        before = supervision.load(session.uow)
        if before.live and before.generation == generation:
            supervision.put(session.uow, replace(before, live=False))

    patch.setattr(work, "lapse", mutant)


def end_at_the_supervisor_keeps_the_generation(patch: Patch) -> None:
    """The end of a lease is stored under its own generation."""

    def mutant(uow: Any, runner_id: str, generation: int) -> bool:
        row = runners.find(uow, runner_id)
        assert row is not None
        assert row.generation == generation
        runners.put(uow, replace(row, lease_ended=True, extended_until_ms=None))
        return True

    patch.setattr(runners, "end_lease", mutant)
    patch.setattr(sweep, "ended", lambda lease: replace(lease, ended=True))


def fence_outside_the_unit_of_work(patch: Patch) -> None:
    """The fence looks at what is committed, not at what the unit of work sees."""
    do = Runner.do

    async def mutant(self: Runner, unit: Callable[[Any], Any], **options: Any) -> Any:
        patch.setattr(work.supervision, "load", lambda _uow: self.read(load))
        return await do(self, unit, **options)

    load = supervision.load
    patch.setattr(Runner, "do", mutant)


MUTANTS: list[tuple[Callable[[Patch], None], Callable[[LeaseKit], None]]] = [
    (wall_clock_at_the_supervisor, checks.check_a_wall_clock_changes_no_lease),
    (wall_clock_at_the_holder, checks.check_a_wall_clock_changes_no_lease),
    (holder_counts_from_the_answer, checks.check_the_holder_counts_from_the_request),
    (holder_counts_renewals_from_the_answer, checks.check_the_holder_counts_from_the_request),
    (end_at_the_runner_keeps_the_generation, checks.check_an_end_raises_the_generation),
    (end_at_the_supervisor_keeps_the_generation, checks.check_an_end_raises_the_generation),
    (fence_outside_the_unit_of_work, checks.check_no_grant_comes_between_the_fence_and_the_act),
]


def failure(check: Callable[[LeaseKit], None], directory: Path) -> Exception | None:
    """What the check finds, or None."""
    directory.mkdir()
    kit = LeaseKit(directory)
    try:
        check(kit)
    except (AssertionError, Refusal) as found:
        return found
    finally:
        kit.close()
    return None


@pytest.mark.parametrize(("mutate", "check"), MUTANTS, ids=lambda each: each.__name__)
def test_each_guard_of_the_leases_is_guarded(
    tmp_path: Path, monkeypatch: Patch, mutate: Callable[[Patch], None], check: Callable[[LeaseKit], None]
) -> None:
    """The check passes with the guard and fails without it."""
    assert failure(check, tmp_path / "control") is None
    mutate(monkeypatch)
    assert failure(check, tmp_path / "mutant") is not None, "nobody misses this guard"
