"""How long a supervisor may act at this runner: the holder's half of the lease, on the runner's own steady clock; pure.

The runner asks, the supervisor grants, and the same answer is both the runner's presence there and the supervisor's right to
act here. It counts from the moment the request was *sent*: the supervisor counts from a later one, so the runner never takes
for live what its supervisor has given up. A clock that jumps, forward in a suspend or back because it is broken, can only
end the lease earlier.

What this does *not* guarantee: that a supervisor whose lease has lapsed here knows of it, or has stopped. It may have been
asleep, and what it sent before may still be on its way. Only the generation keeps those from having an effect: it rises with
every grant and every end of one, and the fence compares it inside the unit of work that acts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from lanewarden.records import replace

RENEW_MARGIN: Final = 1.2
"""A renewal may start a fifth late; see client-go's leader election for the same rule."""
RENEWAL_MS_MAX: Final = 1_000
"""The longest that one renewal is waited for."""
GENERATION_MAX: Final = 2**62
"""No generation that anybody tells is believed beyond this, so that there is always a next one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseClock:
    """The times of a lease as the supervisor granted them.

    Raises:
        ValueError: they contradict each other; the sentences name both.
    """

    ttl_ms: int
    renew_ms: int

    def __post_init__(self) -> None:
        if problems := "; ".join(self._conflicts()):
            raise ValueError(problems)

    def _conflicts(self) -> Iterator[str]:
        if self.renew_ms <= 0:
            yield f"renew_interval ({self.renew_ms} ms) must be above 0"
        if 2 * self.renew_ms >= self.ttl_ms:
            yield (
                f"renew_interval ({self.renew_ms} ms) must be below half of ttl ({self.ttl_ms} ms): one lost renewal would"
                " end the lease"
            )

    @property
    def renewal_ms(self) -> int:
        """How long a renewal is waited for: two fit into what the interval leaves of the lease, so that one may be lost."""
        return max(1, min(RENEWAL_MS_MAX, int(self.ttl_ms - self.renew_ms * RENEW_MARGIN) // 2))


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """One grant, under one generation. ``sent_ms`` is the steady time at which the request that it rests on was sent."""

    generation: int
    sent_ms: int
    ttl_ms: int


def lapses_at_ms(lease: Lease) -> int:
    """The steady time from which nobody may act here."""
    return lease.sent_ms + lease.ttl_ms


def live(lease: Lease, now_ms: int) -> bool:
    """Whether the lease holds now. A clock that went back behind the request proves nothing."""
    return lease.sent_ms <= now_ms < lapses_at_ms(lease)


def remaining_ms(lease: Lease, now_ms: int) -> int:
    """How much of it is left."""
    return lapses_at_ms(lease) - now_ms if live(lease, now_ms) else 0


def renew(lease: Lease, *, sent_ms: int, ttl_ms: int, now_ms: int) -> Lease | None:
    """The lease after an answer that came at ``now_ms``, or None when it had lapsed: then only another grant helps.

    An answer that was overtaken by a later one never shortens it.
    """
    if not live(lease, now_ms):
        return None
    renewed = replace(lease, sent_ms=sent_ms, ttl_ms=ttl_ms)
    return renewed if lapses_at_ms(renewed) > lapses_at_ms(lease) else lease


def next_generation(*seen: int) -> int:
    """A generation above every one that anybody has seen (I7)."""
    return max(seen) + 1
