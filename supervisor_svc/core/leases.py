"""Leases: how long a runner counts as reachable. Pure arithmetic on the supervisor's own steady clock.

A lease runs from the moment its supervisor heard the runner. It is LIVE until its TTL, SUSPECT until its grace is over, and
then UNREACHABLE for good: only another grant, with another generation, makes the runner reachable again. What this does
*not* say: that an unreachable runner is dead, or that its workers are.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from lanewarden.records import replace

MASS_EXPIRY_MIN: Final = 3
"""Fewer leases than this that expire together say nothing about the supervisor's own side."""
RENEW_MARGIN: Final = 1.2
"""A renewal may come a fifth late; see client-go's leader election for the same rule."""
RENEWAL_MS_MAX: Final = 1_000
"""The longest that a runner waits for one renewal."""
GENERATION_MAX: Final = 2**62
"""No generation that a runner tells is believed beyond this, so that there is always a next one."""


class LeaseState(enum.Enum):
    """What a lease says about its runner; the names are those of ``lanewarden.v1.RunnerState``."""

    LIVE = "LIVE"
    SUSPECT = "SUSPECT"
    UNREACHABLE = "UNREACHABLE"


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """The lease's times; ``rpc_deadline_ms`` bounds one KeepAlive."""

    ttl_ms: int = 10_000
    renew_ms: int = 3_000
    grace_ms: int = 5_000
    rpc_deadline_ms: int = 1_000

    @property
    def renewal_ms(self) -> int:
        """How long a runner waits for the answer to a renewal; its own ``LeaseClock`` says the same."""
        return max(1, min(RENEWAL_MS_MAX, int(self.ttl_ms - self.renew_ms * RENEW_MARGIN) // 2))

    def conflicts(self) -> Iterator[str]:
        """Sentences about times that contradict each other, in the names of the settings."""
        if 2 * self.renew_ms >= self.ttl_ms:
            yield (
                f"lease_renew_seconds ({self.renew_ms / 1000:g}) must be below half of lease_ttl_seconds"
                f" ({self.ttl_ms / 1000:g}): one lost renewal would end a lease; renew earlier or raise the TTL"
            )
        if self.renew_ms * RENEW_MARGIN + self.rpc_deadline_ms >= self.ttl_ms:
            yield (
                f"lease_renew_seconds ({self.renew_ms / 1000:g}) x {RENEW_MARGIN} + lease_rpc_deadline_seconds"
                f" ({self.rpc_deadline_ms / 1000:g}) must be below lease_ttl_seconds ({self.ttl_ms / 1000:g}):"
                " a lease would end before its renewal could come; renew earlier or raise the TTL"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """One grant. ``seen_ms`` is the steady time it runs from; ``ended`` never becomes false again."""

    runner_id: str
    incarnation: str
    generation: int
    seen_ms: int
    seen_wall_ms: int | None = None
    ended: bool = False
    held: bool = False
    """Whether its expiry has been put off once since the last renewal."""


def suspect_at_ms(lease: Lease, timing: Timing) -> int:
    """The steady time at which the TTL is over."""
    return lease.seen_ms + timing.ttl_ms


def expires_at_ms(lease: Lease, timing: Timing) -> int:
    """The steady time from which no renewal is accepted."""
    return suspect_at_ms(lease, timing) + timing.grace_ms


def state(lease: Lease, now_ms: int, timing: Timing) -> LeaseState:
    """What the lease says now."""
    if lease.ended or now_ms >= expires_at_ms(lease, timing):
        return LeaseState.UNREACHABLE
    return LeaseState.SUSPECT if now_ms >= suspect_at_ms(lease, timing) else LeaseState.LIVE


def remaining_ms(lease: Lease, now_ms: int, timing: Timing) -> int:
    """How much of the TTL is left; 0 once it is over."""
    return 0 if lease.ended else max(0, suspect_at_ms(lease, timing) - now_ms)


def renew(lease: Lease, *, now_ms: int, wall_ms: int, timing: Timing) -> Lease | None:
    """The lease from now on, or None when it has expired: renewed or expired, never both."""
    if state(lease, now_ms, timing) is LeaseState.UNREACHABLE:
        return None
    return replace(lease, seen_ms=now_ms, seen_wall_ms=wall_ms, held=False)


def forgive(lease: Lease, by_ms: int) -> Lease:
    """The lease without a time in which the supervisor itself stood still and could not hear anybody."""
    return lease if lease.ended else replace(lease, seen_ms=lease.seen_ms + by_ms)


def restored(
    *, runner_id: str, incarnation: str, generation: int, ended: bool, extended_until_ms: int, timing: Timing
) -> Lease:
    """The lease after a restart of the supervisor: extended to one stored moment, however often it restarts.

    That puts its end off once, so it is not put off again for ending with many others: a supervisor that keeps dying would
    put it off for ever.
    """
    return Lease(
        runner_id=runner_id,
        incarnation=incarnation,
        generation=generation,
        seen_ms=extended_until_ms - timing.ttl_ms - timing.grace_ms,
        ended=ended,
        held=True,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Right:
    """This supervisor's right to act at a runner by itself, as the runner told it last, and when that was heard.

    ``generation`` is 0 while there is none.
    """

    generation: int
    heard_ms: int


def may_act(right: Right, now_ms: int, timing: Timing) -> bool:
    """Whether the runner must still take the right for live.

    The runner counts its TTL from when it sent what was heard, and has waited for the answer no longer than a renewal may
    take. That the answer reached it is not known here: where it did not, the runner's fence refuses.
    """
    return right.generation > 0 and 0 <= now_ms - right.heard_ms < timing.ttl_ms - timing.renewal_ms


class Verdict(enum.Enum):
    """What a registration gets."""

    KEEP = "the generation it has"
    GRANT = "another generation"
    DUPLICATE = "a refusal: its id is in use elsewhere"


def judge(*, alive: bool, held_incarnation: str, held_address: str, incarnation: str, address: str) -> Verdict:
    """Whether a start of a runner may have the lease of its id; ``alive`` is False where nobody holds one."""
    if not alive:
        return Verdict.GRANT
    if held_incarnation == incarnation:
        return Verdict.KEEP
    # At the same address the earlier start must be gone: two processes cannot listen there.
    return Verdict.GRANT if held_address == address else Verdict.DUPLICATE


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """What one look at all leases came to."""

    expired: tuple[Lease, ...]
    held: tuple[Lease, ...]


def sweep(leases: Iterable[Lease], now_ms: int, timing: Timing) -> Sweep:
    """Leases whose time is over, as ended; or as held a little longer, when so many end at once that the fault is likely
    to be on our side.
    """
    live = [lease for lease in leases if not lease.ended]
    due = [lease for lease in live if now_ms >= expires_at_ms(lease, timing)]
    fresh = [lease for lease in due if not lease.held]
    mass = len(fresh) >= MASS_EXPIRY_MIN and 2 * len(fresh) > len(live)
    if not mass:
        return Sweep(expired=tuple(replace(lease, ended=True) for lease in due), held=())
    # Long enough for every runner that is there to renew once.
    until_ms = now_ms + int(timing.renew_ms * RENEW_MARGIN) + timing.rpc_deadline_ms
    seen_ms = until_ms - timing.ttl_ms - timing.grace_ms
    return Sweep(
        expired=tuple(replace(lease, ended=True) for lease in due if lease.held),
        held=tuple(replace(lease, seen_ms=seen_ms, held=True) for lease in fresh),
    )


def next_change_ms(leases: Iterable[Lease], now_ms: int, timing: Timing) -> int | None:
    """The earliest steady time at which a lease changes its state by itself."""
    times = [
        at_ms
        for lease in leases
        if not lease.ended
        for at_ms in (suspect_at_ms(lease, timing), expires_at_ms(lease, timing))
        if at_ms > now_ms
    ]
    return min(times, default=None)
