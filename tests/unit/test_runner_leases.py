"""The holder's half of a lease: counted from when it was asked for, live or lapsed, never longer than was granted."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lane_runner_svc.core import supervision
from lane_runner_svc.core.supervision import Lease, LeaseClock
from lanewarden.errors import Refusal
from supervisor_svc.core import leases
from supervisor_svc.core.leases import Timing
from supervisor_svc.work.presence import Presence

LEASE = Lease(generation=7, sent_ms=1_000, ttl_ms=10_000)
SEEDS = 1_000
times = st.integers(-(10**12), 10**12)


@pytest.mark.parametrize(
    ("ttl_ms", "renew_ms", "both"),
    [
        (10_000, 5_000, ("renew_interval (5000 ms)", "ttl (10000 ms)")),
        (10_000, 10_000, ("renew_interval (10000 ms)", "ttl (10000 ms)")),
        (0, 0, ("renew_interval (0 ms)", "ttl (0 ms)")),
        (10_000, 0, ("renew_interval (0 ms)",)),
        (10_000, -1, ("renew_interval (-1 ms)",)),
        (-1, 1, ("renew_interval (1 ms)", "ttl (-1 ms)")),
    ],
)
def test_r08_a_lease_clock_refuses_impossible_ratios(ttl_ms: int, renew_ms: int, both: tuple[str, ...]) -> None:
    """Times that contradict each other are no clock, and the sentence names both."""
    with pytest.raises(ValueError) as problem:
        LeaseClock(ttl_ms=ttl_ms, renew_ms=renew_ms)
    assert all(each in str(problem.value) for each in both)


@given(ttl_ms=st.integers(-10, 400_000), renew_ms=st.integers(-10, 400_000))
def test_r08_a_lease_clock_is_refused_or_can_lose_a_renewal(ttl_ms: int, renew_ms: int) -> None:
    """Every ratio is refused, or a renewal that is lost leaves time for the next one to be sent."""
    try:
        clock = LeaseClock(ttl_ms=ttl_ms, renew_ms=renew_ms)
    except ValueError:
        assert renew_ms <= 0 or 2 * renew_ms >= ttl_ms
        return
    assert renew_ms + clock.renewal_ms < ttl_ms
    assert clock.renewal_ms == Timing(ttl_ms=ttl_ms, renew_ms=renew_ms).renewal_ms, "the supervisor counts on another"


@pytest.mark.parametrize(("at_ms", "live"), [(999, False), (1_000, True), (10_999, True), (11_000, False)])
def test_a_lease_is_live_from_its_request_to_its_ttl(at_ms: int, live: bool) -> None:
    """Not before it was asked for: a clock that went back proves nothing."""
    assert supervision.live(LEASE, at_ms) is live
    assert (supervision.remaining_ms(LEASE, at_ms) > 0) is live


@given(asked_ms=st.integers(0, 10_000), took_ms=st.integers(0, 20_000), ttl_ms=st.integers(1, 20_000))
def test_a_renewal_counts_from_when_it_was_sent(asked_ms: int, took_ms: int, ttl_ms: int) -> None:
    """However long the answer took, the lease ends its TTL after the request; one that comes after the end renews nothing;
    and no answer, however late, makes a live lease shorter.
    """
    sent_ms, now_ms = 1_000 + asked_ms, 1_000 + asked_ms + took_ms
    renewed = supervision.renew(LEASE, sent_ms=sent_ms, ttl_ms=ttl_ms, now_ms=now_ms)
    assert (renewed is None) == (now_ms >= 11_000)
    if renewed is not None:
        assert supervision.lapses_at_ms(renewed) == max(11_000, sent_ms + ttl_ms)
        assert renewed.generation == LEASE.generation


@given(jump_ms=times)
def test_p18_a_clock_that_jumps_only_shortens(jump_ms: int) -> None:
    """Forward or back, no jump leaves more of a lease than there was."""
    assert supervision.remaining_ms(LEASE, 4_000 + jump_ms) <= 10_000
    if jump_ms >= 0:
        assert supervision.remaining_ms(LEASE, 4_000 + jump_ms) <= supervision.remaining_ms(LEASE, 4_000)


@given(st.lists(st.integers(0, 2**62), min_size=1))
def test_i07_the_next_generation_is_above_all_that_were_seen(seen: list[int]) -> None:
    """Whoever remembers the highest one decides."""
    assert supervision.next_generation(*seen) > max(seen)


class _Clock:
    def __init__(self, now_ms: int) -> None:
        self.now_ms = now_ms

    def wall_ms(self) -> int:
        return 0

    def steady_ms(self) -> int:
        return self.now_ms

    async def sleep(self, seconds: float) -> None:
        raise AssertionError("nobody sleeps here")


def test_p17_a_millisecond_around_the_end_it_is_renewed_or_expired() -> None:
    """1,000 seeds of times, and of who comes first, a renewal or the sweep, 1 ms before, at and after the end: at the
    supervisor the lease is renewed or expired, never both; and where it has expired, the runner's half had lapsed.
    """
    outcomes = {True: 0, False: 0}
    for seed in range(SEEDS):
        random = Random(seed)
        ttl_ms = random.randint(1_000, 300_000)
        timing = Timing(
            ttl_ms=ttl_ms, renew_ms=ttl_ms // 4, grace_ms=random.randint(0, 300_000), rpc_deadline_ms=ttl_ms // 4
        )
        sent_ms = random.randint(0, 10**9)
        heard_ms = sent_ms + random.randint(0, timing.renewal_ms)
        end_ms = heard_ms + timing.ttl_ms + timing.grace_ms
        clock = _Clock(heard_ms)
        presence = Presence(timing, clock)
        presence.put(leases.Lease(runner_id="r", incarnation="i", generation=1, seen_ms=heard_ms))
        _sweep_until(presence, clock, end_ms - 1)
        clock.now_ms = end_ms + random.choice((-1, 0, 1))
        expired = False
        for step in random.sample(("renew", "sweep"), 2):
            if step == "sweep":
                expired = bool(presence.sweep()) or expired
            else:
                renewed = _renews(presence)
        assert renewed != expired, f"seed {seed}"
        assert renewed == (clock.now_ms < end_ms), f"seed {seed}"
        outcomes[renewed] += 1
        mine = Lease(generation=1, sent_ms=sent_ms, ttl_ms=timing.ttl_ms)
        assert renewed or not supervision.live(mine, clock.now_ms), f"seed {seed}: the runner takes it for live"
    assert min(outcomes.values()) > SEEDS // 5


def _sweep_until(presence: Presence, clock: _Clock, end_ms: int) -> None:
    while True:
        presence.sweep()
        due_ms = clock.now_ms + round(presence.plan_sweep() * 1000)
        if due_ms >= end_ms:
            clock.now_ms = end_ms
            presence.sweep()
            presence.plan_sweep()
            return
        clock.now_ms = due_ms


def _renews(presence: Presence) -> bool:
    try:
        presence.renew("r", "i", 1)
    except Refusal:
        return False
    return True
