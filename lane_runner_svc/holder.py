"""Who supervises this runner now, by its own clock; everything is stored before it is used or told."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from lane_runner_svc import emitters
from lane_runner_svc.core import supervision as core
from lane_runner_svc.core.supervision import GENERATION_MAX, Lease, LeaseClock
from lane_runner_svc.runner import Runner
from lane_runner_svc.store.supervision import Supervision
from lane_runner_svc.work import supervision as work
from lane_runner_svc.work.session import Session
from lane_runner_svc.work.supervision import Grant
from lanewarden.errors import Reason, Refusal
from lanewarden.v1 import supervisor_service_pb2 as pb

log = logging.getLogger(__name__)

STORE_RETRY_SECONDS: Final = 1.0


class Holder:
    """The lease of whoever supervises this runner; used on the event loop's thread only, unless it says otherwise.

    ``renewed_wall_ms`` is when it was last renewed, for people; None when it never was since this start.
    """

    def __init__(self, runner: Runner) -> None:
        self.renewed_wall_ms: int | None = None
        self._runner = runner
        self._lease: Lease | None = None
        self._granted = asyncio.Event()

    @property
    def generation(self) -> int:
        """The generation of the right to act here, as every KeepAlive tells it; 0 while nobody has it."""
        return self._lease.generation if self._lease is not None and self.remaining_ms > 0 else 0

    @property
    def remaining_ms(self) -> int:
        """How much of the lease is left; 0 once it has lapsed. On any thread."""
        lease = self._lease
        return 0 if lease is None else core.remaining_ms(lease, self._runner.clock.steady_ms())

    async def begin(self) -> None:
        """End what an earlier start of the runner left, before anything is served."""
        await self._runner.do(work.begin, emitter=emitters.SUPERVISION)

    async def grant(self, answer: pb.RegisterResponse, *, sent_ms: int, address: str) -> LeaseClock:
        """Take what the supervisor at ``address`` answered to a Register that was sent at ``sent_ms``.

        Raises:
            Refusal: UNEXPECTED when the lease that it grants is impossible, STORE_FULL when it cannot be stored.
        """
        clock = _clock(answer)
        if max(answer.generation, answer.supervision_generation_seen) > GENERATION_MAX:
            raise Refusal(Reason.UNEXPECTED, "the supervisor tells a generation that cannot be")
        granted = Grant(
            supervisor_id=answer.supervisor_id,
            supervisor_incarnation=answer.supervisor_incarnation,
            address=address,
            lease_generation=answer.generation,
            generation_seen=answer.supervision_generation_seen,
        )
        before = self._lease

        def unit(session: Session) -> Supervision:
            if before is not None and not core.live(before, session.now.steady_ms):
                work.lapse(session, before.generation)
            return work.grant(session, granted, runner_id=self._runner.runner_id)

        stored = await self._runner.do(unit, emitter=emitters.SUPERVISION)
        self._lease = Lease(generation=stored.generation, sent_ms=sent_ms, ttl_ms=clock.ttl_ms)
        self._granted.set()
        self.renewed_wall_ms = self._runner.clock.wall_ms()
        log.info("supervised", extra={"supervisor": stored.supervisor_id, "generation": stored.generation})
        return clock

    def renew(self, answer: pb.KeepAliveResponse, *, sent_ms: int) -> LeaseClock:
        """Take the answer to a KeepAlive that was sent at ``sent_ms``; one to a lease that has lapsed changes nothing.

        Raises:
            Refusal: UNEXPECTED when the lease that it grants is impossible.
        """
        clock, now_ms = _clock(answer), self._runner.clock.steady_ms()
        if self._lease is not None:
            renewed = core.renew(self._lease, sent_ms=sent_ms, ttl_ms=clock.ttl_ms, now_ms=now_ms)
            if renewed is not None:
                self._lease = renewed
                self.renewed_wall_ms = self._runner.clock.wall_ms()
        return clock

    async def until_lapsed(self) -> None:
        """Return once nobody may act here."""
        while remaining_ms := self.remaining_ms:
            await self._runner.clock.sleep(remaining_ms / 1000)

    async def run(self) -> None:
        """Store the end of every lease when it lapses; never returns."""
        while True:
            await self._granted.wait()
            await self.until_lapsed()
            if self._lease is not None:
                await self._end(self._lease)

    async def _end(self, lease: Lease) -> None:
        try:
            await self._runner.do(lambda session: work.lapse(session, lease.generation), emitter=emitters.SUPERVISION)
        except Refusal as refusal:  # a full disk; what a supervisor would do meanwhile could not be stored either
            log.error("the end of a lease could not be stored", extra={"reason": refusal.reason.name})
            await self._runner.clock.sleep(STORE_RETRY_SECONDS)
            return
        if self._lease is lease:
            log.warning("nobody supervises this runner; work goes on", extra={"generation": lease.generation})
            self._lease = None
            self._granted.clear()


def _clock(answer: pb.RegisterResponse | pb.KeepAliveResponse) -> LeaseClock:
    try:
        return LeaseClock(ttl_ms=answer.ttl.ToMilliseconds(), renew_ms=answer.renew_interval.ToMilliseconds())
    except ValueError as problem:
        raise Refusal(Reason.UNEXPECTED, f"the supervisor grants an impossible lease: {problem}") from None
