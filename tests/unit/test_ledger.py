"""The write ledger: exact totals, sliding windows, bounded memory."""

from __future__ import annotations

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lanewarden.ledger import OTHER, STEPS, WINDOWS_SECONDS, WriteLedger, WriteRate


class FakeClock:
    """Steady time that a test moves."""

    def __init__(self) -> None:
        self.now_ms = 1_000_000

    def wall_ms(self) -> int:
        raise AssertionError("the ledger decides nothing by the wall clock")

    def steady_ms(self) -> int:
        return self.now_ms

    async def sleep(self, seconds: float) -> None:
        raise AssertionError("the ledger never sleeps")


def test_rate_names_entity_emitter_and_origin() -> None:
    """Rows of one key add up; keys that differ in anything are kept apart, most rows first."""
    ledger = WriteLedger(FakeClock())
    ledger.record("task", "t1", "runner.a", "", 2)
    ledger.record("task", "t1", "runner.a", "", 3)
    ledger.record("task", "t1", "runner.a", "supervisor.sweep", 20)
    ledger.record("task", "t2", "runner.b", "", 10)
    assert ledger.rates(10) == [
        WriteRate(
            entity_kind="task",
            entity_id="t1",
            emitter="runner.a",
            origin="supervisor.sweep",
            rows=20,
            rows_per_second=2.0,
        ),
        WriteRate(entity_kind="task", entity_id="t2", emitter="runner.b", origin="", rows=10, rows_per_second=1.0),
        WriteRate(entity_kind="task", entity_id="t1", emitter="runner.a", origin="", rows=5, rows_per_second=0.5),
    ]


@pytest.mark.parametrize("seconds", WINDOWS_SECONDS)
def test_rows_leave_each_window_in_time(seconds: int) -> None:
    """Rows count for at least 95 % of the window and never longer than all of it."""
    clock = FakeClock()
    ledger = WriteLedger(clock)
    ledger.record("task", "t1", "runner.a", "", 7)
    clock.now_ms += seconds * 1_000 * (STEPS - 1) // STEPS
    assert [rate.rows for rate in ledger.rates(seconds)] == [7]
    clock.now_ms += seconds * 1_000 // STEPS
    assert ledger.rates(seconds) == []
    assert ledger.emitters() == {"runner.a": 7}


def test_w01_steady_rate_is_shown_as_it_is() -> None:
    """A steady rate shows as itself, or up to one step of the window less; never more."""
    clock = FakeClock()
    ledger = WriteLedger(clock)
    for n in range(1_000):
        ledger.record("task", "t1", "runner.a", "", 1)
        if n >= 250:
            assert 25 * (1 - 1 / STEPS) - 0.1 <= ledger.rates(10)[0].rows_per_second <= 25
        clock.now_ms += 40


def test_unknown_window_is_refused() -> None:
    """Only the kept windows can be asked for."""
    with pytest.raises(ValueError, match="windows"):
        WriteLedger(FakeClock()).rates(60)


def test_totals_keep_committed_and_discarded_apart() -> None:
    """Rows rolled back are counted, but under no emitter."""
    ledger = WriteLedger(FakeClock())
    ledger.record("task", "t1", "runner.a", "", 4)
    ledger.discard(9)
    assert (ledger.attributed_rows, ledger.discarded_rows, ledger.emitters()) == (4, 9, {"runner.a": 4})
    assert sum(rate.rows for rate in ledger.rates(1)) == 4


def test_w01_storm_over_many_entities_keeps_its_emitter() -> None:
    """Beyond the bound rows are summed as other under their emitter, so a spread-out storm is still named."""
    ledger = WriteLedger(FakeClock(), entities_max=10)
    for n in range(500):
        ledger.record("task", f"t{n}", "runner.storm", f"origin {n}", 1)
    rates = ledger.rates(10)
    assert (rates[0].entity_kind, rates[0].emitter, rates[0].origin, rates[0].rows) == (
        OTHER,
        "runner.storm",
        "",
        490,
    )
    assert len(rates) == 11


keys = st.tuples(st.sampled_from("ab"), st.integers(0, 30), st.sampled_from("xy"), st.integers(0, 5))
events = st.lists(st.tuples(keys, st.integers(1, 50), st.integers(0, 3_000)), max_size=80)


@given(events, st.integers(1, 8))
def test_every_row_is_in_the_window_once(
    recorded: list[tuple[tuple[str, int, str, int], int, int]], entities_max: int
) -> None:
    """Whatever is folded into other, each emitter's sum over a window is exact and memory is bounded."""
    clock = FakeClock()
    ledger = WriteLedger(clock, entities_max=entities_max)
    expected: dict[str, int] = {}
    for (kind, entity, emitter, origin), rows, wait_ms in recorded:
        ledger.record(kind, str(entity), emitter, str(origin), rows)
        expected[emitter] = expected.get(emitter, 0) + rows
        clock.now_ms += wait_ms
    assert ledger.emitters() == expected
    assert ledger.attributed_rows == sum(expected.values())
    found: dict[str, int] = {}
    rates = ledger.rates(300)
    for rate in rates:
        found[rate.emitter] = found.get(rate.emitter, 0) + rate.rows
    assert found == expected
    assert len(rates) <= entities_max + 2
    assert [rate.rows for rate in rates] == sorted((rate.rows for rate in rates), reverse=True)
    for ring in (*ledger._windows._from_fine, ledger._windows._minutes):
        assert len(ring.closed) <= STEPS
        assert all(len(counts) <= entities_max + 2 for _, counts in ring.closed)
        assert len(ring.counts) <= 2 * entities_max + 2


def test_threads_lose_no_row() -> None:
    """Writers on several threads and a reader beside them: the totals are exact."""
    ledger = WriteLedger(FakeClock())

    def write() -> None:
        for _ in range(2_000):
            ledger.record("task", "t1", "runner.a", "", 1)
            ledger.discard(1)

    threads = [threading.Thread(target=write) for _ in range(4)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        ledger.rates(1)
    assert (ledger.attributed_rows, ledger.discarded_rows, ledger.rates(300)[0].rows) == (8_000, 8_000, 8_000)
