"""Lease arithmetic: renewed or expired, never both; and what memory makes of it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lanewarden.errors import Reason, Refusal
from supervisor_svc.core import leases
from supervisor_svc.core.leases import Lease, LeaseState, Timing, Verdict
from supervisor_svc.work.presence import STALL_MS, SWEEP_MAX_MS, Presence, ended

TIMING = Timing()
LEASE = Lease(runner_id="r1", incarnation="i1", generation=7, seen_ms=1_000)
EXPIRES_MS = 1_000 + 15_000


class FakeClock:
    """Steady time that a test moves; the wall clock jumps as it likes."""

    def __init__(self) -> None:
        self.now_ms = 1_000
        self.wall = 5

    def wall_ms(self) -> int:
        return self.wall

    def steady_ms(self) -> int:
        return self.now_ms

    async def sleep(self, seconds: float) -> None:
        raise AssertionError("presence never sleeps")


@pytest.mark.parametrize(
    ("at_ms", "expected"),
    [
        (1_000, LeaseState.LIVE),
        (10_999, LeaseState.LIVE),
        (11_000, LeaseState.SUSPECT),
        (15_999, LeaseState.SUSPECT),
        (16_000, LeaseState.UNREACHABLE),
    ],
)
def test_state_changes_at_ttl_and_grace(at_ms: int, expected: LeaseState) -> None:
    """LIVE until the TTL, SUSPECT until the grace is over, then UNREACHABLE."""
    assert leases.state(LEASE, at_ms, TIMING) is expected


@given(st.integers(-3_000, 3_000))
def test_p17_a_renewal_is_accepted_exactly_before_expiry(offset_ms: int) -> None:
    """Around the expiry tick a lease is renewed or expired, never both and never neither."""
    now_ms = EXPIRES_MS + offset_ms
    renewed = leases.renew(LEASE, now_ms=now_ms, wall_ms=0, timing=TIMING)
    swept = leases.sweep([LEASE], now_ms, TIMING)
    assert (renewed is not None) == (offset_ms < 0)
    assert bool(swept.expired) == (offset_ms >= 0)


def test_an_ended_lease_is_over_for_good() -> None:
    """Expiry is terminal for a generation, whatever the clock says."""
    over = replace(LEASE, ended=True)
    assert leases.state(over, 1_000, TIMING) is LeaseState.UNREACHABLE
    assert leases.renew(over, now_ms=1_000, wall_ms=0, timing=TIMING) is None
    assert leases.forgive(over, 1_000_000) == over
    assert leases.remaining_ms(over, 1_000, TIMING) == 0


@pytest.mark.parametrize(
    ("alive", "incarnation", "address", "verdict"),
    [
        (False, "i2", "b:1", Verdict.GRANT),
        (False, "i1", "a:1", Verdict.GRANT),
        (True, "i1", "a:1", Verdict.KEEP),
        (True, "i1", "b:1", Verdict.KEEP),
        (True, "i2", "a:1", Verdict.GRANT),
        (True, "i2", "b:1", Verdict.DUPLICATE),
    ],
)
def test_p20_registration_table(alive: bool, incarnation: str, address: str, verdict: Verdict) -> None:
    """Only another start at another address, while the first is live, is a duplicate."""
    assert verdict is leases.judge(
        alive=alive, held_incarnation="i1", held_address="a:1", incarnation=incarnation, address=address
    )


def test_r08_impossible_timings_name_both_settings() -> None:
    """A renewal twice as often as the lease ends, and renew x 1.2 + deadline below the TTL; the sentence names what
    contradicts what.
    """
    assert list(TIMING.conflicts()) == []
    assert list(replace(TIMING, renew_ms=4_999).conflicts()) == []
    (sentence,) = replace(TIMING, renew_ms=5_000).conflicts()
    assert "lease_renew_seconds (5)" in sentence
    assert "lease_ttl_seconds (10)" in sentence
    assert list(replace(TIMING, rpc_deadline_ms=6_399).conflicts()) == []
    (sentence,) = replace(TIMING, rpc_deadline_ms=6_400).conflicts()
    assert "lease_renew_seconds (3)" in sentence
    assert "lease_rpc_deadline_seconds (6.4)" in sentence


def test_many_leases_that_end_at_once_are_held_once() -> None:
    """When most leases end in one tick they get time for one renewal, and no second time."""
    group = [replace(LEASE, runner_id=f"r{number}") for number in range(4)]
    first = leases.sweep(group, EXPIRES_MS, TIMING)
    assert (len(first.held), first.expired) == (4, ())
    until_ms = leases.expires_at_ms(first.held[0], TIMING)
    assert until_ms == EXPIRES_MS + 3_600 + 1_000
    again = leases.sweep(first.held, until_ms, TIMING)
    assert (again.held, len(again.expired)) == ((), 4)


def test_a_minority_ends_on_time() -> None:
    """A control: leases that end while most go on are not held."""
    late = [replace(LEASE, runner_id=f"r{number}", seen_ms=EXPIRES_MS) for number in range(4)]
    due = [replace(LEASE, runner_id=f"d{number}") for number in range(3)]
    found = leases.sweep([*late, *due], EXPIRES_MS, TIMING)
    assert (found.held, len(found.expired)) == ((), 3)


def presence(clock: FakeClock) -> Presence:
    found = Presence(TIMING, clock)
    found.put(LEASE)
    return found


def run_sweeps(found: Presence, clock: FakeClock, until_ms: int) -> list[Lease]:
    """Sweep on time, as the loop does."""
    while True:
        ending = found.sweep()
        due_ms = clock.now_ms + int(found.plan_sweep() * 1000)
        if due_ms > until_ms:
            clock.now_ms = until_ms
            return ending
        clock.now_ms = due_ms


def test_renewal_moves_the_lease_and_counts_the_wall_clock_for_people_only() -> None:
    """Renewals extend; a wall clock that jumps changes nothing but what is shown (P18)."""
    clock = FakeClock()
    found = presence(clock)
    run_sweeps(found, clock, 9_000)
    clock.wall = -3_600_000
    found.renew("r1", "i1", 7)
    run_sweeps(found, clock, 18_999)
    assert found.state("r1") is LeaseState.LIVE
    assert found.seen_wall_ms("r1") == -3_600_000


@pytest.mark.parametrize(("incarnation", "generation"), [("i2", 7), ("i1", 6), ("i1", 8)])
def test_renewal_of_another_lease_learns_the_current_generation(incarnation: str, generation: int) -> None:
    """Whoever quotes another incarnation or generation is told the current one, and renews nothing."""
    clock = FakeClock()
    found = presence(clock)
    clock.now_ms = 5_000
    with pytest.raises(Refusal) as refused:
        found.renew("r1", incarnation, generation)
    assert refused.value.reason is Reason.LEASE_EXPIRED
    assert refused.value.metadata["current_generation"] == "7"
    assert found.remaining_ms("r1") == 6_000


def test_renewal_of_an_unknown_runner() -> None:
    """A runner that never registered is told so."""
    with pytest.raises(Refusal) as refused:
        Presence(TIMING, FakeClock()).renew("r1", "i1", 1)
    assert refused.value.reason is Reason.LEASE_UNKNOWN


def test_expired_lease_stays_unrecorded_until_its_end_is_stored() -> None:
    """A lease ends in memory at once; its end is offered again until it is stored, then the generation is higher."""
    clock = FakeClock()
    found = presence(clock)
    (ending,) = run_sweeps(found, clock, EXPIRES_MS)
    assert ending.ended
    assert [lease.runner_id for lease in found.sweep()] == ["r1"]
    with pytest.raises(Refusal):
        found.renew("r1", "i1", 7)
    found.put(ended(ending))
    assert found.sweep() == []
    with pytest.raises(Refusal) as refused:
        found.renew("r1", "i1", 7)
    assert refused.value.metadata["current_generation"] == "8"


def test_p15_time_in_which_the_supervisor_stood_still_ends_no_lease() -> None:
    """Stopped for a minute and continued: whichever comes first, renewal, look or sweep, the lease is as it was before."""
    for first in ("renew", "look", "sweep"):
        clock = FakeClock()
        found = presence(clock)
        run_sweeps(found, clock, 4_000)
        clock.now_ms += 60_000
        if first == "renew":
            found.renew("r1", "i1", 7)
        elif first == "sweep":
            assert found.sweep() == []
        assert found.state("r1") is LeaseState.LIVE


def test_p15_a_stall_is_forgiven_once_and_a_dead_runner_still_expires() -> None:
    """A control: forgiveness is as long as the stall, so that silence that is the runner's own still ends its lease."""
    clock = FakeClock()
    found = presence(clock)
    run_sweeps(found, clock, 1_000)
    clock.now_ms += SWEEP_MAX_MS + STALL_MS + 1
    late_ms = clock.now_ms - (1_000 + SWEEP_MAX_MS)
    assert found.sweep() == []
    found.plan_sweep()
    (ending,) = run_sweeps(found, clock, EXPIRES_MS + late_ms)
    assert ending.runner_id == "r1"


def test_an_older_grant_never_replaces_a_newer_one() -> None:
    """Units that commit together may report in any order; the highest generation stays."""
    found = presence(FakeClock())
    found.put(replace(LEASE, incarnation="i0", generation=6))
    lease = found.find("r1")
    assert lease is not None
    assert lease.incarnation == "i1"
