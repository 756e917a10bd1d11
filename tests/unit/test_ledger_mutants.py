"""For each guard of the ledger, a mutant without it that a check of the real tests must kill.

Each check passes on the build as it is: the control.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable

import pytest

from lanewarden import roll_up
from lanewarden.errors import Refusal
from lanewarden.ledger import book, findings, ledger, survey, windows
from lanewarden.store import Emitter, Store, UnitOfWork
from supervisor_svc.core import storms
from tests import ledger_checks as checks

Patch = pytest.MonkeyPatch


def bursts_count_in_full(patch: Patch) -> None:
    """Rows are rows, however many come at once."""
    patch.setattr(survey, "BURST_SECONDS", 1_000)


def what_was_a_storm_is_one(patch: Patch) -> None:
    """As long as the window has its rows."""
    patch.setattr(survey, "RECENT_SECONDS", 0)


def a_storm_needs_all_of_its_rate_to_last(patch: Patch) -> None:
    """No hysteresis."""
    rates = survey.Survey.rates
    patch.setattr(survey.Survey, "rates", lambda self: (rates(self)[0], []))


def one_task_at_a_time(patch: Patch) -> None:
    """Rates are judged by the task alone."""
    patch.setattr(survey.Survey, "_over_many", lambda *_: [])


def the_rest_has_no_emitter(patch: Patch) -> None:
    """What has no place of its own is summed under nobody."""
    patch.setattr(windows, "other", lambda _key: (windows.OTHER, "", "", ""))


def no_ceiling(patch: Patch) -> None:
    """Nobody is throttled."""
    patch.setattr(ledger.WriteLedger, "check", lambda *_: None)


def nothing_is_exempt(patch: Patch) -> None:
    """Rulings wait as notes do."""

    def unit(self: Store, work: object, emitter: Emitter, *rest: object) -> object:
        return original(self, work, Emitter(emitter.name), *rest)  # type: ignore[arg-type]

    original = Store._unit
    patch.setattr(Store, "_unit", unit)


def a_whole_task_is_throttled(patch: Patch) -> None:
    """Whoever writes to it."""

    def check(self: ledger.WriteLedger, kind: str, entity_id: str, emitter: str) -> None:
        for each in list(self._over):
            if each[:2] == (kind, entity_id):
                original(self, *each)

    original = ledger.WriteLedger.check
    patch.setattr(ledger.WriteLedger, "check", check)


def throttled_for_good(patch: Patch) -> None:
    """Once too much is too much."""
    patch.setattr(survey.Survey, "_below_ms", lambda _self, over, _most: dict.fromkeys(over, 1 << 62))


def only_what_lasts_is_found(patch: Patch) -> None:
    """Whether it is throttled or not."""
    high = survey.Survey.rates

    def rates(self: survey.Survey) -> object:
        with patch.context() as lenient:
            lenient.setattr(survey.Survey, "over_ceiling", lambda _self: {})
            return high(self)

    patch.setattr(survey.Survey, "rates", rates)


def units_are_about_one_thing(patch: Patch) -> None:
    """What a unit turned to is not looked at."""
    patch.setattr(UnitOfWork, "about", lambda *_: None)


def a_roll_up_is_a_reason(patch: Patch) -> None:
    """Whatever was written is stored."""
    init = roll_up.RollUp.__init__

    def mutant(self: roll_up.RollUp, *given: object) -> None:
        init(self, *given)  # type: ignore[arg-type]
        self._followers = frozenset()

    patch.setattr(roll_up.RollUp, "__init__", mutant)


def the_reserve_is_a_reason(patch: Patch) -> None:
    """The roll-ups themselves are none, and what their transactions bring along is."""
    init = roll_up.RollUp.__init__

    def mutant(self: roll_up.RollUp, *given: object) -> None:
        init(self, *given)  # type: ignore[arg-type]
        self._followers = frozenset({checks.ROLL_UP.name})

    patch.setattr(roll_up.RollUp, "__init__", mutant)


def a_stop_is_like_any_minute(patch: Patch) -> None:
    """What is not over is lost."""
    take = ledger.WriteLedger.take_minutes
    patch.setattr(ledger.WriteLedger, "take_minutes", lambda self, **_: take(self))


def any_storm_speaks_at_once(patch: Patch) -> None:
    """However long it lasts without progress."""
    patch.setattr(storms, "LASTS_MS_MIN", -1 << 62)


MUTANTS: list[tuple[Callable[[Patch], None], Callable[[], object]]] = [
    (bursts_count_in_full, checks.a_burst_is_no_storm),
    (what_was_a_storm_is_one, checks.a_storm_is_over_when_it_is_over),
    (a_storm_needs_all_of_its_rate_to_last, checks.a_storm_that_wavers_is_one),
    (one_task_at_a_time, checks.a_spread_storm_names_its_emitter),
    (the_rest_has_no_emitter, checks.more_keys_than_there_is_room_for),
    (no_ceiling, checks.the_ceiling_stops_one_emitter_on_one_task),
    (nothing_is_exempt, checks.the_ceiling_stops_one_emitter_on_one_task),
    (a_whole_task_is_throttled, checks.the_ceiling_stops_one_emitter_on_one_task),
    (throttled_for_good, checks.the_ceiling_stops_one_emitter_on_one_task),
    (only_what_lasts_is_found, checks.what_is_throttled_is_found),
    (units_are_about_one_thing, checks.a_unit_counts_what_it_turned_to),
    (a_roll_up_is_a_reason, checks.one_change_is_rolled_up_once),
    (the_reserve_is_a_reason, checks.one_change_is_rolled_up_once),
    (a_stop_is_like_any_minute, checks.a_stop_keeps_the_last_minute),
    (any_storm_speaks_at_once, checks.a_storm_is_that_of_its_attempt_and_without_progress),
]


@pytest.mark.parametrize(("mutant", "check"), MUTANTS, ids=lambda each: each.__name__)
def test_each_mutant_is_killed(
    mutant: Callable[[Patch], None], check: Callable[[], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without its guard the check fails, by an assertion, by a finding too few, or by a refusal that should not be."""
    mutant(monkeypatch)
    with pytest.raises((AssertionError, ValueError, Refusal)):
        run(check)


def run(check: Callable[[], object]) -> None:
    """Carry out a check, whichever kind of function it is."""
    result = check()
    if inspect.iscoroutine(result):
        asyncio.run(result)


@pytest.mark.parametrize("check", dict.fromkeys(check for _, check in MUTANTS), ids=lambda each: each.__name__)
def test_the_build_as_it_is_passes(check: Callable[[], object]) -> None:
    """The controls; see each for its guarantee."""
    run(check)


def test_a_version_that_moves_with_progress_is_no_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control and its mutant in one: progress counts, and does not when it is not told apart."""

    def versions() -> int:
        motion = book.Motion()
        for n in range(200):
            motion.moved(("task", "t1"), n * 1_000, progressed=n % 50 == 0)
        return len(motion.found(200_000, findings.Thresholds()))

    assert versions() == 0
    moved = book.Motion.moved
    monkeypatch.setattr(
        book.Motion, "moved", lambda self, entity, now_ms, **_: moved(self, entity, now_ms, progressed=False)
    )
    assert versions() == 1
