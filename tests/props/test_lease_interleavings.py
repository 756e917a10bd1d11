"""No interleaving of renewals, ends, restarts, stalls and partitions makes two live generations, or ends a lease before its
time. Both sides are the real thing: cores, stores, units of work and handlers.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from lane_runner_svc.core import supervision as holder_core
from lanewarden.v1 import supervisor_service_pb2 as pb
from supervisor_svc.core.leases import LeaseState
from supervisor_svc.store import runners
from supervisor_svc.work.presence import STALL_MS, SWEEP_MAX_MS
from tests.lease_kit import TIMING, LeaseKit, Sent

PROFILE = settings(
    max_examples=25, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True
)


class _Leases(RuleBasedStateMachine):
    """One runner, and what its supervisors and it have told each other."""

    names: tuple[str, ...] = ("alpha",)

    def __init__(self) -> None:
        super().__init__()
        self._place = tempfile.TemporaryDirectory()
        self.kit = LeaseKit(Path(self._place.name), self.names)
        self.sent: list[Sent] = []
        self.owners: dict[int, str] = {}
        """Every generation that a supervisor was told, and which start of which it was."""
        self.grants: dict[int, str] = {}
        """Every lease generation that the runner was told, and by whom."""
        self.stored = 0
        self.live_until: dict[str, int] = {}
        """Until when each supervisor has promised, by its own clock, to count the runner as there."""

    def teardown(self) -> None:
        self.kit.close()
        self._place.cleanup()

    def _side(self, number: int) -> str:
        return self.names[number % len(self.names)]

    @rule(number=st.integers(0, 1))
    def register(self, number: int) -> None:
        self.sent.append(self.kit.register(self._side(number)))

    @rule(number=st.integers(0, 1))
    def keep_alive(self, number: int) -> None:
        self.sent.append(self.kit.keep_alive(self._side(number)))

    @rule(number=st.integers(0, 1))
    def round_trips(self, number: int) -> None:
        """A day on which nothing is lost."""
        for ask in (self.kit.register, self.kit.keep_alive):
            self._arrive(sent := ask(self._side(number)))
            self._hear(sent)

    @precondition(lambda self: self.sent)
    @rule(pick=st.integers(0, 99))
    def arrives(self, pick: int) -> None:
        """Any request that was ever sent, perhaps again."""
        self._arrive(self.sent[pick % len(self.sent)])

    @precondition(lambda self: any(each.answer is not None for each in self.sent))
    @rule(pick=st.integers(0, 99))
    def is_answered(self, pick: int) -> None:
        """The latest answers of a supervisor reach the runner; it has given up on older ones."""
        answered = [each for each in self.sent if each.answer is not None]
        self._hear(answered[pick % len(answered)])

    @rule(ms=st.sampled_from([1, 100, 2_900, 9_999, 10_000, 14_999, 15_000]))
    def time_passes(self, ms: int) -> None:
        self.kit.advance(ms)

    @rule(ms=st.sampled_from([1_000, 6_000, 60_000]), number=st.integers(0, 1))
    def supervisor_stands_still(self, ms: int, number: int) -> None:
        name = self._side(number)
        self.kit.advance(ms, but=name)
        if name in self.live_until:
            # Forgiven is what the next sweep was late.
            self.live_until[name] += max(0, ms - SWEEP_MAX_MS - STALL_MS)
        self.kit.sides[name].sweep()

    @rule(ms=st.sampled_from([1_000, 60_000, 600_000]))
    def runner_sleeps(self, ms: int) -> None:
        self.kit.clock.now_ms += ms

    @rule(number=st.integers(0, 1))
    def supervisor_restarts(self, number: int) -> None:
        side = self.kit.sides[self._side(number)]
        side.restart()
        row = side.store.read(lambda reader: runners.find(reader, "runner-1"))
        if row is not None and side.name in self.live_until:
            self.live_until[side.name] = min(self.live_until[side.name], row.extended_until_ms or 0)

    @rule()
    def runner_restarts(self) -> None:
        self.kit.restart_runner()
        self.sent.clear()

    def _arrive(self, sent: Sent) -> None:
        self.kit.arrive(sent)
        if sent.refusal is None:
            side = self.kit.sides[sent.to]
            self.live_until[sent.to] = side.clock.now_ms + TIMING.ttl_ms + TIMING.grace_ms

    def _hear(self, sent: Sent) -> None:
        lease = self.kit.holder._lease
        ends_ms = holder_core.lapses_at_ms(lease) if lease is not None and self.kit.holder.generation else 0
        waited_ms = self.kit.clock.now_ms - sent.sent_ms
        if waited_ms > TIMING.ttl_ms or sent.answer is None:
            return  # given up on
        mine = self.kit.sides[sent.to].supervisor.incarnation
        if sent.answer.supervisor_incarnation != mine:
            return  # an answer of a start that is gone has gone with it
        if isinstance(sent.answer, pb.KeepAliveResponse):
            if self.kit.supervision().supervisor_incarnation != mine:
                return  # the reporter hears one supervisor at a time
            self.kit.hear(sent)
            if self.kit.holder.generation:
                assert self.kit.holder._lease is not None
                assert holder_core.lapses_at_ms(self.kit.holder._lease) >= ends_ms, "a renewal has shortened a lease"
            return
        self.kit.hear(sent)
        known = self.grants.setdefault(sent.answer.generation, sent.to)
        assert known == sent.to, "two supervisors have granted one generation"

    @invariant()
    def generations_only_rise(self) -> None:
        """I7 at the runner."""
        self.kit.lapse()
        now = self.kit.supervision()
        assert now.generation >= self.stored
        self.stored = now.generation

    @invariant()
    def one_generation_is_live_and_it_has_one_owner(self) -> None:
        """I6: of all the supervisors that take themselves for entitled, at most one passes, under a generation that was
        never anybody else's.
        """
        now = self.kit.supervision()
        passing = []
        for name in self.names:
            generation = self.kit.right(name)
            if generation:
                owner = f"{name} {self.kit.sides[name].supervisor.incarnation}"
                assert self.owners.setdefault(generation, owner) == owner, "a generation has two owners"
                if self.kit.passes(generation):
                    passing.append(name)
                    assert now.live
                    assert now.supervisor_id == name
        assert len(passing) <= 1
        for old in [each for each in self.owners if each != now.generation][-3:]:
            assert not self.kit.passes(old), "an old generation passes"

    @invariant()
    def a_lease_that_was_renewed_lives_its_time(self) -> None:
        """Nothing but another grant ends a lease before its TTL and grace are over."""
        for name, until_ms in self.live_until.items():
            side = self.kit.sides[name]
            if side.clock.now_ms < until_ms:
                assert self.kit.state(name) is not LeaseState.UNREACHABLE, f"{name} has ended a lease early"

    @invariant()
    def the_runner_never_takes_for_live_what_is_over(self) -> None:
        """The holder's half ends first, while the two clocks run alike."""
        holder: Any = self.kit.holder
        if holder.generation:
            assert self.kit.state(self.kit.supervision().supervisor_id) is not LeaseState.UNREACHABLE


class _Two(_Leases):
    """Two supervisors, one runner."""

    names = ("alpha", "beta")


TestLeases = _Leases.TestCase
TestLeases.settings = PROFILE
TestTwoSupervisors = _Two.TestCase
TestTwoSupervisors.settings = PROFILE
