"""W01 and its neighbours on a fake clock: what is found, how soon, what it names; and what is not.

What has a mutant is checked in ``test_ledger_mutants.py``.
"""

from __future__ import annotations

import pytest

from lane_runner_svc.config import RunnerConfig
from lanewarden.ledger import FindingKind, Thresholds, WriteLedger
from lanewarden.ledger.book import FINDINGS_MAX, KEEP_ENDED_MS, QUIET_MS, TASKS_MAX, Motion
from supervisor_svc.config import SupervisorConfig
from tests.ledger_checks import ORIGIN, STORM, FakeClock, Writes


@pytest.mark.parametrize("rows_per_second", [25, 300, 640])
def test_w01_a_storm_on_one_task_is_found_within_ten_seconds(rows_per_second: int) -> None:
    """It names task, emitter, origin, rate and share, while ten others write to the task and 2,000 tasks are written to."""
    writes = Writes()
    for second in range(10):
        writes.at(rows_per_second, 1)
        writes.ledger.record("task", "t1", "tests.planted.other", "", 1)
        for n in range(200):
            writes.ledger.record("task", f"quiet{second * 200 + n}", f"tests.planted.quiet_{n % 10}", "", 1)
    [found] = [each for each in writes.found() if each.kind is FindingKind.ENTITY_RATE]
    assert (found.entity_kind, found.entity_id) == ("task", "t1")
    assert (found.shares[0].emitter, found.shares[0].origin) == (STORM.name, ORIGIN)
    assert found.shares[0].share > 0.9
    assert found.rows_per_second == pytest.approx(rows_per_second, rel=0.1)


def test_w01_a_storm_is_found_while_nobody_looks() -> None:
    """What was a storm and is over is still told afterwards, with its emitter, for ten minutes."""
    writes = Writes()
    writes.at(300, 5)
    writes.clock.advance(60)
    [(found, began_ms, ended_ms)] = writes.ledger.findings()
    assert (found.shares[0].emitter, ended_ms) == (STORM.name, 0)
    assert 64_000 <= began_ms <= 66_000
    writes.clock.advance(KEEP_ENDED_MS / 1000 + 1)
    assert writes.ledger.findings() == []


def test_w01_what_belongs_to_a_storm_can_be_told_while_it_lasts() -> None:
    """By its entity, or by its emitter when it writes to many; what else is written meanwhile does not."""
    writes = Writes()
    writes.at(300, 5)
    assert writes.ledger.storm_of("task", "t1", STORM.name) == "ENTITY_RATE"
    assert writes.ledger.storm_of("task", "t2", "tests.planted.other") == ""
    writes.clock.advance(60)
    writes.at(600, 10, tasks=500)
    assert writes.ledger.storm_of("task", "t1", "tests.planted.other") == ""
    assert writes.ledger.storm_of("task", "t9", STORM.name) == "TOTAL_RATE"
    assert writes.ledger.storm_of("task", "t9", "tests.planted.other") == ""
    writes.clock.advance(60)
    writes.at(1, 1)
    assert writes.ledger.storm_of("task", "t9", STORM.name) == ""


def test_less_than_too_much_is_no_finding() -> None:
    """15 rows/s on one task for ever, and 150 rows/s over 500 of them."""
    writes = Writes()
    for _ in range(60):
        writes.at(15, 1)
        writes.at(135, 1, tasks=500)
        assert writes.found() == []


def test_what_is_too_much_can_be_set() -> None:
    """Both rates and the ceiling; 0 is no ceiling."""
    strict = Writes(Thresholds(rows_per_second=2, ceiling_rows_per_second=0))
    strict.at(3, 10)
    assert strict.kinds() == [FindingKind.ENTITY_RATE]
    strict.at(3_000, 10)
    strict.ledger.check("task", "t1", STORM.name)


@pytest.mark.parametrize("config", [RunnerConfig, SupervisorConfig])
def test_r08_a_ceiling_below_what_is_a_storm_is_refused(config: type[RunnerConfig] | type[SupervisorConfig]) -> None:
    """Naming both; none at all is none, and both at once is no contradiction."""
    [said] = config(write_ceiling_rows_per_second=19).conflicts()
    assert "write_ceiling_rows_per_second is 19" in said
    assert "storm_rows_per_second, which is 20" in said
    for ceiling in (0, 20):
        assert not list(config(write_ceiling_rows_per_second=ceiling).conflicts())


def test_a_version_that_moves_without_progress_is_found() -> None:
    """The 60th time, however slowly, with who moves it; progress, or a minute of quiet, begins anew."""
    writes = Writes()

    def move(times: int, *, progressed: bool = False, seconds: float = 5.0) -> None:
        for _ in range(times):
            key = ("task", "t1", STORM.name, ORIGIN)
            writes.ledger.record_all([(key, 3)], [("task", "t1", progressed)])
            writes.clock.advance(seconds)

    move(59)
    move(1, progressed=True)
    move(59)
    assert writes.found() == []
    move(1)
    [found] = writes.found()
    assert (found.kind, found.entity_id, found.versions) == (FindingKind.NO_PROGRESS, "t1", 60)
    assert (found.shares[0].emitter, found.shares[0].origin) == (STORM.name, ORIGIN)
    assert found.rows_per_second == pytest.approx(0.6, rel=0.1)
    writes.clock.advance(QUIET_MS / 1000)
    assert writes.found() == []
    move(59, seconds=1)
    assert writes.found() == []


def test_w05_whoever_has_the_store_too_long_is_named_while_it_has_it() -> None:
    """The holder, not who waits; for how long; and it is over when the next one has its turn."""
    clock = FakeClock()
    ledger = WriteLedger(clock)
    for victim in ("tests.victim.one", "tests.victim.two"):
        ledger.turn(("task", "t9", victim, ""))
        clock.advance(0.1)
    ledger.turn(("task", "t1", STORM.name, ORIGIN))
    clock.advance(20)
    [(found, began_ms, ended_ms)] = ledger.findings()
    assert (found.kind, found.entity_id, found.held_ms) == (FindingKind.STORE_HELD, "t1", 20_000)
    assert [(each.emitter, each.origin) for each in found.shares] == [(STORM.name, ORIGIN)]
    assert (began_ms, ended_ms) == (20_000, None)
    ledger.turn(None)
    [(found, _, ended_ms)] = ledger.findings()
    assert (found.held_ms, ended_ms) == (20_000, 0)


def test_findings_and_moving_tasks_are_bounded() -> None:
    """A storm over each of a thousand tasks, and versions of ten thousand, take no more room than some."""
    writes = Writes(Thresholds(rows_per_second=1))
    for _ in range(10):
        for n in range(1_000):
            writes.ledger.record("task", f"t{n}", STORM.name, "", 2)
        writes.clock.advance(1)
    assert 0 < len(writes.ledger.findings()) <= FINDINGS_MAX
    motion = Motion()
    for n in range(2 * TASKS_MAX):
        motion.moved(("task", f"t{n}"), n, progressed=False)
    assert len(motion._moves) == TASKS_MAX
