"""What must be so of leases, as checks that run on a kit: the tests run them as they are, the mutants must fail them."""

from __future__ import annotations

import asyncio
import threading

from lane_runner_svc import emitters
from lane_runner_svc.runner import Runner
from lane_runner_svc.store import supervision
from lane_runner_svc.store.schema import MIGRATIONS
from lane_runner_svc.store.supervision import Supervision
from lane_runner_svc.work import supervision as work
from lane_runner_svc.work.session import Session
from lanewarden.errors import Reason, Refusal
from lanewarden.hub import Hub
from lanewarden.ledger import WriteLedger
from lanewarden.store import Store
from supervisor_svc.core.leases import LeaseState
from supervisor_svc.store import runners
from tests.lease_kit import TIMING, LeaseKit

HOUR_MS = 3_600_000


def check_a_wall_clock_changes_no_lease(kit: LeaseKit) -> None:
    """P18: whatever anybody sets it to, on either side."""
    generation = kit.supervise()
    side = kit.sides["alpha"]
    for offset_ms in (HOUR_MS, -HOUR_MS, 0) * 10:
        kit.clock.wall_offset_ms = 10**12 + offset_ms
        side.clock.wall_offset_ms = 10**12 - offset_ms
        kit.lapse()
        side.sweep()
        assert (kit.holder.generation, kit.right(), kit.state()) == (generation, generation, LeaseState.LIVE)
        kit.hear(kit.arrive(kit.keep_alive()))
        kit.advance(100)
    assert kit.supervision().generation == generation


def check_the_holder_counts_from_the_request(kit: LeaseKit) -> None:
    """An answer that took its time makes the lease no longer: neither the first nor a later one."""
    for ask in (kit.register, kit.keep_alive):
        sent = kit.arrive(ask())
        kit.advance(900)
        kit.hear(sent)
        assert kit.holder.remaining_ms == TIMING.ttl_ms - 900


def check_an_end_raises_the_generation(kit: LeaseKit) -> None:
    """On both sides, and a renewal that comes after it learns the one that is current."""
    generation, granted = kit.supervise(), kit.lease_generation["alpha"]
    late = kit.keep_alive()
    kit.advance(TIMING.ttl_ms)
    assert kit.supervision().generation == generation + 1
    assert not kit.supervision().live
    kit.advance(TIMING.grace_ms)
    row = kit.sides["alpha"].store.read(lambda reader: runners.find(reader, "runner-1"))
    assert row is not None
    assert (row.lease_ended, row.generation) == (True, granted + 1)
    refusal = kit.arrive(late).refusal
    assert refusal is not None
    assert (refusal.reason, refusal.metadata["current_generation"]) == (Reason.LEASE_EXPIRED, str(granted + 1))


def check_no_grant_comes_between_the_fence_and_the_act(kit: LeaseKit) -> None:
    """An action that is queued behind the grant to another supervisor is fenced by it, though both commit together."""
    store = Store.open(
        kit.directory / "fenced.sqlite3", migrations=MIGRATIONS, ledger=WriteLedger(kit.clock), threaded=True
    )

    async def race() -> None:
        runner = Runner(runner_id="r", lanes=(), store=store, clock=kit.clock, random=kit.random, hub=Hub())
        started, go = threading.Event(), threading.Event()

        def put(generation: int, session: Session) -> None:
            supervision.put(session.uow, Supervision(generation=generation, supervisor_incarnation="i", live=True))

        def hold_up(session: Session) -> None:
            del session
            started.set()
            assert go.wait(20)

        await runner.do(lambda session: put(1, session), emitter=emitters.SUPERVISION)
        first = asyncio.ensure_future(runner.do(hold_up, emitter=emitters.SUPERVISION))
        while not started.is_set():
            await asyncio.sleep(0)
        granting = asyncio.ensure_future(runner.do(lambda session: put(2, session), emitter=emitters.SUPERVISION))
        await asyncio.sleep(0)
        acting = asyncio.ensure_future(runner.do(lambda session: work.fence(session, 1), emitter=emitters.SUPERVISION))
        await asyncio.sleep(0)
        go.set()
        await asyncio.gather(first, granting)
        (outcome,) = await asyncio.gather(acting, return_exceptions=True)
        assert isinstance(outcome, Refusal), "the old supervisor has acted under the new one"
        assert outcome.reason is Reason.SUPERVISION_FENCED

    try:
        asyncio.run(race())
    finally:
        store.close()
