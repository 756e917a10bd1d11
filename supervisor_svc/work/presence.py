"""Which runners can be reached now: the leases in memory, renewed without a write.

A time in which this process stood still is forgiven to every lease, because nobody could be heard in it. So whatever
looks at a lease notices first whether the sweep is overdue.
"""

from __future__ import annotations

import logging
from collections import Counter
from typing import Final

from lanewarden.clock import Clock
from lanewarden.errors import Reason, Refusal, refuse
from lanewarden.records import replace
from supervisor_svc.core import leases
from supervisor_svc.core.leases import Lease, LeaseState, Right, Timing

log = logging.getLogger(__name__)

SWEEP_MAX_MS: Final = 5_000
"""The longest time between two sweeps."""
STALL_MS: Final = 1_000
"""A sweep that is later than this shows that the process, its loop or its host stood still."""
STALL_MS_MIN: Final = 50
"""A sweep that is late by less than this shows nothing."""


class Presence:
    """The leases of all runners; used on the event loop's thread only, but for :meth:`summary`."""

    def __init__(self, timing: Timing, clock: Clock) -> None:
        self.timing = timing
        self.sweeps = 0
        self._clock = clock
        self._leases: dict[str, Lease] = {}
        self._rights: dict[str, Right] = {}
        self._shown: dict[str, LeaseState] = {}
        self._unrecorded: dict[str, Lease] = {}
        self._heard_ms: dict[str, int] = {}
        self._sweep_due_ms = clock.steady_ms() + SWEEP_MAX_MS
        # What is not forgiven must fit into the grace: else a stall could end a lease whose renewal waits in the socket.
        self._stall_ms = min(STALL_MS, max(STALL_MS_MIN, timing.grace_ms // 2))

    def find(self, runner_id: str) -> Lease | None:
        """The lease of a runner, or None when it has never had one."""
        self._forgive_stall()
        return self._leases.get(runner_id)

    def state(self, runner_id: str) -> LeaseState:
        """What the runner's lease says; UNREACHABLE without one."""
        lease = self.find(runner_id)
        if lease is None:
            return LeaseState.UNREACHABLE
        return leases.state(lease, self._clock.steady_ms(), self.timing)

    def remaining_ms(self, runner_id: str) -> int:
        """How much of the runner's lease is left."""
        lease = self.find(runner_id)
        return 0 if lease is None else leases.remaining_ms(lease, self._clock.steady_ms(), self.timing)

    def summary(self) -> tuple[Counter[LeaseState], int | None]:
        """How many leases say what, and the least that is left of a live one; on any thread.

        A time in which this process stands still counts as forgiven already: the next look on the loop's thread does it.
        """
        now_ms = self._clock.steady_ms()
        late_ms = now_ms - self._sweep_due_ms
        if late_ms > self._stall_ms:
            now_ms -= late_ms
        found = [(leases.state(each, now_ms, self.timing), each) for each in list(self._leases.values())]
        live = [leases.remaining_ms(each, now_ms, self.timing) for state, each in found if state is LeaseState.LIVE]
        return Counter(state for state, _ in found), min(live, default=None)

    def seen_wall_ms(self, runner_id: str) -> int | None:
        """When the runner was last heard, by the wall clock; None if not since this process started."""
        lease = self._leases.get(runner_id)
        return None if lease is None else lease.seen_wall_ms

    def heard_ms(self, runner_id: str) -> int | None:
        """Since when the runner has been heard without a break, in steady time; None if not since this process started."""
        self._forgive_stall()
        return self._heard_ms.get(runner_id)

    def expired_wall_ms(self, runner_id: str) -> int | None:
        """When the runner's lease ran out, by the wall clock; None while it has not, or when that is not known."""
        lease = self.find(runner_id)
        if lease is None or self.state(runner_id) is not LeaseState.UNREACHABLE:
            return None
        expired_ms = leases.expires_at_ms(lease, self.timing)
        return self._clock.wall_ms() - (self._clock.steady_ms() - expired_ms)

    def put(self, lease: Lease) -> None:
        """Take over a lease that is stored: a new grant, the recorded end of one, or what a restart found."""
        known = self._leases.get(lease.runner_id)
        if known is not None and known.generation > lease.generation:
            return  # two units committed in one group may report in any order
        self._leases[lease.runner_id] = lease
        self._unrecorded.pop(lease.runner_id, None)
        heard_before = lease.runner_id in self._heard_ms and known is not None and known.generation == lease.generation
        if lease.seen_wall_ms is not None and not heard_before:
            self._heard_ms[lease.runner_id] = lease.seen_ms

    def renew(self, runner_id: str, incarnation: str, generation: int) -> None:
        """Renew a lease from now on.

        Raises:
            Refusal: LEASE_UNKNOWN; LEASE_EXPIRED when it is over or another start holds the id.
        """
        lease = self.find(runner_id)
        if lease is None:
            raise refuse(Reason.LEASE_UNKNOWN, f"runner {runner_id} has no lease here; register", runner=runner_id)
        renewed = None
        if (lease.incarnation, lease.generation) == (incarnation, generation):
            now_ms, wall_ms = self._clock.steady_ms(), self._clock.wall_ms()
            renewed = leases.renew(lease, now_ms=now_ms, wall_ms=wall_ms, timing=self.timing)
        if renewed is None:
            raise lease_expired(runner_id, lease.generation)
        self._leases[runner_id] = renewed
        self._heard_ms.setdefault(runner_id, now_ms)

    def registered(self, runner_id: str) -> None:
        """The runner has registered with this start of the supervisor, and will tell it a generation of its own."""
        self._rights[runner_id] = Right(generation=0, heard_ms=self._clock.steady_ms())

    def hear_right(self, runner_id: str, right: Right) -> None:
        """The runner has told under which generation this supervisor may act there. Before it has registered with this start
        that is the generation of another one.
        """
        if runner_id in self._rights:
            self._rights[runner_id] = right

    def supervision_generation(self, runner_id: str) -> int:
        """The generation to be quoted by whatever this supervisor does at the runner by itself; 0 while it may not act."""
        right = self._rights.get(runner_id)
        if right is None or self.state(runner_id) is LeaseState.UNREACHABLE:
            return 0
        # A time in which this process stood still is not forgiven here: the runner's clock went on.
        return right.generation if leases.may_act(right, self._clock.steady_ms(), self.timing) else 0

    def sweep(self) -> list[Lease]:
        """End the leases whose time is over; the ended ones that are not stored as such yet."""
        self._forgive_stall()
        self.sweeps += 1
        found = leases.sweep(self._leases.values(), self._clock.steady_ms(), self.timing)
        if found.held:
            log.error("many leases would end at once; held for one more renewal", extra={"leases": len(found.held)})
        for lease in (*found.held, *found.expired):
            self._leases[lease.runner_id] = lease
        for lease in found.expired:
            self._unrecorded[lease.runner_id] = lease
        return list(self._unrecorded.values())

    def renewed_since_start(self, runner_id: str) -> bool:
        """Whether the runner has been heard since this process started."""
        return self.seen_wall_ms(runner_id) is not None

    def runner_ids(self) -> list[str]:
        """Every runner that has or had a lease."""
        return list(self._leases)

    def changed(self, runner_id: str) -> bool:
        """Whether the runner's state is another than at the last call."""
        state = self.state(runner_id)
        before, self._shown[runner_id] = self._shown.get(runner_id), state
        return state is not before

    def plan_sweep(self) -> float:
        """When to sweep next, in seconds from now."""
        now_ms = self._clock.steady_ms()
        change_ms = leases.next_change_ms(self._leases.values(), now_ms, self.timing)
        self._sweep_due_ms = min(now_ms + SWEEP_MAX_MS, now_ms + SWEEP_MAX_MS if change_ms is None else change_ms)
        return (self._sweep_due_ms - now_ms) / 1000

    def _forgive_stall(self) -> None:
        now_ms = self._clock.steady_ms()
        late_ms = now_ms - self._sweep_due_ms
        if late_ms <= self._stall_ms:
            return
        log.error("the supervisor stood still; its leases are extended by as long", extra={"stalled_ms": late_ms})
        self._sweep_due_ms = now_ms
        self._leases = {key: leases.forgive(lease, late_ms) for key, lease in self._leases.items()}
        self._heard_ms = dict.fromkeys(self._heard_ms, now_ms)


def lease_expired(runner_id: str, current_generation: int) -> Refusal:
    """The refusal of somebody who speaks for a lease that is not the current one."""
    return refuse(
        Reason.LEASE_EXPIRED,
        f"the lease of runner {runner_id} is over or held by another start of it; register again",
        runner=runner_id,
        current_generation=current_generation,
    )


def ended(lease: Lease) -> Lease:
    """The lease as it is once its end is stored, which raises the generation."""
    return replace(lease, ended=True, generation=lease.generation + 1)
