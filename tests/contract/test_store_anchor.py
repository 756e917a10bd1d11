"""The steady clock: one scale across restarts, reboots and wall-clock jumps."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lanewarden.clock import boottime_ms
from lanewarden.ledger import WriteLedger
from lanewarden.store import Emitter
from lanewarden.store import anchor as anchor_module
from lanewarden.store.anchor import RESERVE_MS, Anchor, next_anchor, restore_clock
from tests.contract.test_store_open import open_at
from tests.contract.test_store_units import EMIT, add

RESTORE = Emitter("tests.clock.restore")
DAY_MS = 86_400_000


def test_first_start_begins_at_the_wall_clock() -> None:
    """The very first steady time is the wall clock's, so that stored times look like times."""
    first = next_anchor(None, boot_id="one", boottime_ms=700, wall_ms=5_000_000)
    assert first.anchor_ms + 700 == 5_000_000


def test_same_boot_keeps_its_anchor() -> None:
    """Within a boot neither a restart nor a wall-clock jump moves the scale."""
    first = next_anchor(None, boot_id="one", boottime_ms=700, wall_ms=5_000_000)
    assert next_anchor(first, boot_id="one", boottime_ms=900, wall_ms=1) == first


def test_reboot_goes_on_at_the_wall_clock_or_further() -> None:
    """After a reboot the scale is at the wall clock, unless a stored time may be further on."""
    first = next_anchor(None, boot_id="one", boottime_ms=700, wall_ms=5_000_000)
    right = next_anchor(first, boot_id="two", boottime_ms=3, wall_ms=9_000_000)
    assert right.anchor_ms + 3 == 9_000_000
    set_back = next_anchor(first, boot_id="two", boottime_ms=3, wall_ms=1)
    assert set_back.anchor_ms + 3 == first.ceiling_ms


starts = st.tuples(
    st.booleans(),  # a reboot, or a restart of the process alone
    st.booleans(),  # whether a reboot shows in the boot id
    st.integers(0, DAY_MS),  # how long it was away
    st.integers(-DAY_MS, DAY_MS),  # by how much somebody moved the wall clock
    st.lists(st.integers(0, DAY_MS), max_size=4),  # how long until each stored time
)


@given(st.lists(starts, max_size=12))
def test_stored_time_never_goes_back(runs: list[tuple[bool, bool, int, int, list[int]]]) -> None:
    """No steady time that is stored is smaller than one stored before, whatever restarts and clocks do."""
    stored: Anchor | None = None
    wall_ms, boottime, boot = 1_700_000_000_000, 0, "boot 0"
    last_stored_ms, behind_ms_max = 0, 0
    for number, (reboots, shows, away_ms, moved_ms, waits_ms) in enumerate(runs, start=1):
        wall_ms = max(0, wall_ms + away_ms + moved_ms)
        boottime = 0 if reboots else boottime + away_ms
        if reboots:
            # One that does not show may cost up to the reserve, until one that shows makes up for it.
            boot, behind_ms_max = (f"boot {number}", 0) if shows else (boot, RESERVE_MS)
        stored = next_anchor(stored, boot_id=boot, boottime_ms=boottime, wall_ms=wall_ms)
        for wait_ms in waits_ms:
            wall_ms, boottime = wall_ms + wait_ms, boottime + wait_ms
            steady_ms = stored.anchor_ms + boottime
            assert steady_ms >= last_stored_ms - behind_ms_max
            last_stored_ms = max(last_stored_ms, steady_ms)
            if steady_ms >= stored.ceiling_ms:
                stored = replace(stored, ceiling_ms=steady_ms + RESERVE_MS)


def test_clock_is_restored_with_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A restart in the same boot writes nothing and goes on; another boot never goes back."""
    ledger = WriteLedger(anchor_module.SystemClock())
    store = open_at(tmp_path / "tests.sqlite3", ledger=ledger)
    first = restore_clock(store, emitter=RESTORE)
    assert abs(first.steady_ms() - first.wall_ms()) < 5_000
    seen_ms = first.steady_ms()
    store.close()

    store = open_at(tmp_path / "tests.sqlite3", ledger=ledger)
    second = restore_clock(store, emitter=RESTORE)
    assert second._anchor_ms == first._anchor_ms
    assert ledger.emitters()[RESTORE.name] == 1
    store.close()

    monkeypatch.setattr(anchor_module, "boot_id", lambda: "another boot")
    monkeypatch.setattr(anchor_module.SystemClock, "wall_ms", lambda _: 0)
    store = open_at(tmp_path / "tests.sqlite3", ledger=ledger)
    third = restore_clock(store, emitter=RESTORE)
    assert third._anchor_ms != first._anchor_ms
    assert third.steady_ms() >= seen_ms
    store.close()


def test_ceiling_is_raised_only_beside_other_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reserve costs one row per ten seconds of writing, nothing while idle, and is above all stored."""
    ledger = WriteLedger(anchor_module.SystemClock())
    store = open_at(tmp_path / "tests.sqlite3", ledger=ledger)
    clock = restore_clock(store, emitter=RESTORE)
    name = anchor_module.CEILING_EMITTER.name
    store.write_now(add("within the reserve"), emitter=EMIT)
    assert name not in ledger.emitters()
    later_ms = boottime_ms() + 3 * RESERVE_MS
    monkeypatch.setattr("lanewarden.clock.boottime_ms", lambda: later_ms)
    store.write_now(lambda uow: uow.query("SELECT 1"), emitter=EMIT)
    assert name not in ledger.emitters()
    for n in range(3):
        store.write_now(add(f"beyond it {n}"), emitter=EMIT)
    assert ledger.emitters()[name] == 1
    stored = store.read(anchor_module._load)
    assert stored is not None
    assert stored.ceiling_ms > clock.steady_ms()
    assert store.unattributed_rows() == 0
    store.close()
