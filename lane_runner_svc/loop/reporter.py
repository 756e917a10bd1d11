"""The runner's link to its supervisor: register, keep alive, and send what the outbox holds, in order.

One supervisor at a time, the next of the list once the lease has lapsed or none was granted. The runner never waits for one:
while none answers, work goes on and the outbox grows by one mark per change.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import cache, partial
from typing import Final, TypeVar

from lane_runner_svc import emitters
from lane_runner_svc.core.budget import backoff_ms
from lane_runner_svc.core.supervision import LeaseClock
from lane_runner_svc.holder import Holder
from lane_runner_svc.loop.carrier import Carrier
from lane_runner_svc.loop.reconcile import LEASE_GONE, reconcile
from lane_runner_svc.loop.renewals import Renewals
from lane_runner_svc.rpc.convert import hold_message, task_message
from lane_runner_svc.runner import Runner
from lane_runner_svc.store import holds, messages, meta, supervision, tasks
from lane_runner_svc.store.messages import Due
from lane_runner_svc.work import outbox
from lane_runner_svc.work.session import OUTBOX
from lanewarden.build import Build
from lanewarden.client import Stub
from lanewarden.errors import Code, Reason, Refusal
from lanewarden.loop_lag import LoopLag
from lanewarden.store import Connection
from lanewarden.telemetry import span_names
from lanewarden.v1 import supervisor_service_pb2 as pb

log = logging.getLogger(__name__)
T = TypeVar("T")

BATCH_MAX: Final = 256
BATCH_BYTES_MAX: Final = 2 << 20
GATHER_MARKS_MIN: Final = 16
"""So many marks since the last report are a burst: changes come faster than reports go."""
GATHER_SECONDS: Final = 0.2
CALL_SECONDS: Final = 5.0
PAUSE_MS_MAX: Final = 5_000


class Reporter:
    """Keeps one of the ``supervisors``, by address, informed; they are tried in order. ``address`` is where they reach this
    runner.
    """

    def __init__(
        self,
        runner: Runner,
        supervisors: Mapping[str, Stub],
        holder: Holder,
        *,
        incarnation: str,
        address: str,
        build: Build,
        loop_lag: LoopLag,
        carrier: Carrier,
        fresh_uuid: Callable[[], str],
        storms: Callable[[], list[pb.WriteStorm]] = list,
    ) -> None:
        self._runner = runner
        self._supervisors = tuple(supervisors.items())
        self._turn = 0
        self._holder = holder
        self._address = address
        self._build = build
        self._loop_lag = loop_lag
        self._carrier = carrier
        self._fresh_uuid = fresh_uuid
        self._storms = storms
        self._incarnation = incarnation
        self._failures = 0
        self.connected = False

    async def run(self) -> None:
        """Stay registered; never returns."""
        while True:
            grant, granted = None, False
            try:
                sent_ms = self._runner.clock.steady_ms()
                grant = await self._register()
                clock = await self._holder.grant(grant, sent_ms=sent_ms, address=self._supervisors[self._turn][0])
                granted = True
                self._note_connected()
                await self._serve(grant, clock)
            except Refusal as refusal:
                self._failures = 0 if granted else self._failures
                self._note_lost(refusal)
                # One that is lost is asked once more before the next: perhaps this host has only slept.
                if grant is None and not self._holder.generation:
                    self._next_turn()
            pause_seconds = self._pause_seconds(self._failures)
            if grant is not None and not granted:  # there is no room to store it: registering again renews it meanwhile
                pause_seconds = min(pause_seconds, grant.renew_interval.ToMilliseconds() / 1000)
            await self._runner.clock.sleep(pause_seconds)

    @property
    def _supervisor(self) -> Stub:
        """Whose turn it is."""
        return self._supervisors[self._turn][1]

    def _next_turn(self) -> None:
        self._turn = (self._turn + 1) % len(self._supervisors)

    async def _register(self) -> pb.RegisterResponse:
        request = pb.RegisterRequest(
            request_id=self._fresh_uuid(),
            runner_id=self._runner.runner_id,
            incarnation=self._incarnation,
            address=self._address,
            lanes=self._runner.lanes,
            version=self._build.version,
            build=self._build.hash,
            store_id=self._runner.read(meta.store_id),
            generation_seen=self._runner.read(supervision.load).lease_generation_seen,
        )
        grant: pb.RegisterResponse = await self._supervisor.Register(
            request, timeout_seconds=CALL_SECONDS, emitter=emitters.SUPERVISION.name
        )
        return grant

    async def _resume_from(self, grant: pb.RegisterResponse) -> None:
        """Go on from what the supervisor has."""
        taken, told = grant.taken_sequence, f"{grant.supervisor_id} at {self._supervisors[self._turn][0]}"
        if not await self._runner.do(lambda session: outbox.resume(session, taken, told=told), emitter=emitters.REPORT):
            log.warning("the supervisor has another past; telling it everything", extra={"taken": taken})

    async def _serve(self, grant: pb.RegisterResponse, clock: LeaseClock) -> None:
        """Renew, send and compare until one of them fails or the lease has lapsed, and end all."""
        resumed = asyncio.Event()
        jobs = [
            asyncio.ensure_future(self._keep_alive(grant, clock)),
            asyncio.ensure_future(self._send_all(grant, resumed)),
            asyncio.ensure_future(self._reconcile(grant, resumed)),
            asyncio.ensure_future(self._until_lapsed()),
        ]
        try:
            done, _ = await asyncio.wait(jobs, return_when=asyncio.FIRST_COMPLETED)
            for job in done:
                job.result()
        finally:
            for job in jobs:
                job.cancel()
            await asyncio.gather(*jobs, return_exceptions=True)

    async def _until_lapsed(self) -> None:
        await self._holder.until_lapsed()
        raise Refusal(Reason.SUPERVISOR_UNREACHABLE, "the supervisor has not renewed its lease in time")

    async def _keep_alive(self, grant: pb.RegisterResponse, clock: LeaseClock) -> None:
        """Renew at once, so that the supervisor learns under which generation it may act, and then at each interval."""
        renewals = Renewals(self._runner, self._loop_lag, self._carrier, grant, incarnation=self._incarnation)
        while True:
            request = renewals.request()
            request.supervision_generation = self._holder.generation
            request.storms.extend(self._storms())
            sent_ms = self._runner.clock.steady_ms()
            try:
                response = await self._supervisor.KeepAlive(request, timeout_seconds=clock.renewal_ms / 1000)
            except Refusal as refusal:
                if refusal.reason in LEASE_GONE:
                    raise
                self._note_lost(refusal)
                # Sooner than the next interval, so that a short cut costs no lease, and not all runners at once.
                pause_ms = clock.renewal_ms * self._runner.random.random()
            else:
                renewals.answered(request, response)
                if not renewals.supervisor_works and len(self._supervisors) > 1:
                    self._next_turn()
                    raise Refusal(Reason.SUPERVISOR_UNREACHABLE, "it answers, and its sweep stands still")
                clock = self._holder.renew(response, sent_ms=sent_ms)
                self._note_connected()
                pause_ms = clock.renew_ms
            await self._runner.clock.sleep(pause_ms / 1000)

    async def _reconcile(self, grant: pb.RegisterResponse, resumed: asyncio.Event) -> None:
        """Compare once it is settled what is sent anyway; after that there is nothing more to do under this grant."""
        await resumed.wait()
        compare = partial(
            reconcile,
            self._runner,
            self._supervisor,
            incarnation=self._incarnation,
            generation=grant.generation,
        )
        await self._until_answered(compare)
        await asyncio.Event().wait()

    async def _send_all(self, grant: pb.RegisterResponse, resumed: asyncio.Event) -> None:
        taken = grant.taken_sequence
        await self._until_answered(partial(self._resume_from, grant))
        resumed.set()
        with self._runner.hub.subscribe(OUTBOX) as news:
            while True:
                due = self._due(taken)
                if not due:
                    await news.take()
                    continue
                answered = await self._until_answered(partial(self._send, due))
                if answered <= taken:
                    # The supervisor lacks something before these: register again and go on from what it has.
                    raise Refusal(Reason.LEASE_EXPIRED, f"the supervisor has taken {answered} of {due[-1].sequence}")
                taken = answered
                await self._until_answered(partial(self._forget, taken))
                if GATHER_MARKS_MIN <= len(due) < BATCH_MAX and taken >= due[-1].sequence:
                    # Few large reports cost less than many small ones, and what they cost is taken from those who call.
                    await self._runner.clock.sleep(GATHER_SECONDS)

    async def _until_answered(self, work: Callable[[], Awaitable[T]]) -> T:
        """Try until neither store is full or busy: that delays what is reported, and never a renewal, which needs no store.
        What is sent again is known by its sequence.
        """
        failures = 0
        while True:
            try:
                return await work()
            except Refusal as refusal:
                if refusal.reason.code is not Code.RESOURCE_EXHAUSTED and refusal.reason is not Reason.DEADLINE_PASSED:
                    raise
                if failures == 0:
                    log.warning("reports wait", extra={"reason": refusal.reason.name})
            failures += 1
            await self._runner.clock.sleep(self._pause_seconds(failures))

    def _due(self, taken: int) -> list[Due]:
        return self._runner.read(lambda reader: messages.due(reader, after=taken, rows_max=BATCH_MAX))

    async def _send(self, due: Sequence[Due]) -> int:
        """Send the first of the marks; how far the supervisor has come now.

        A new escalation goes by itself; when several wait, one report is sooner for all of them. What is about one trace is
        told in that, what is about more is linked with each.
        """
        alone = due[0].kind == "new_escalation" and all(mark.kind != "new_escalation" for mark in due[1:])
        told = due[:1] if alone else due
        traces = tuple(dict.fromkeys(mark.traceparent for mark in told if mark.traceparent))
        one = len({traceparent[:35] for traceparent in traces}) == 1
        with self._runner.telemetry.span(
            span_names.REPORT, {"marks": len(told)}, continues=traces[0] if one else "", links=traces[one:]
        ):
            stub, seconds, emitter = self._supervisor, CALL_SECONDS, emitters.REPORT.name
            response: pb.EscalateResponse | pb.ReportResponse
            if alone:
                response = await stub.Escalate(self._escalation(due[0]), timeout_seconds=seconds, emitter=emitter)
            else:
                response = await stub.Report(self._report(due), timeout_seconds=seconds, emitter=emitter)
        return int(response.taken_sequence)

    def _escalation(self, mark: Due) -> pb.EscalateRequest:
        def look(reader: Connection) -> pb.EscalateRequest:
            return pb.EscalateRequest(
                request_id=self._fresh_uuid(),
                runner_id=self._runner.runner_id,
                incarnation=self._incarnation,
                sequence=mark.sequence,
                escalation=hold_message(reader, holds.load(reader, mark.entity_id), self._runner.runner_id),
            )

        return self._runner.read(look)

    def _report(self, due: Sequence[Due]) -> pb.ReportRequest:
        """The oldest marks, each with its entity as it is now."""

        def look(reader: Connection) -> pb.ReportRequest:
            request = pb.ReportRequest(
                request_id=self._fresh_uuid(), runner_id=self._runner.runner_id, incarnation=self._incarnation
            )
            task = cache(partial(tasks.load, reader))
            shown_task = cache(lambda task_id: task_message(reader, task(task_id), self._runner.runner_id))
            size = 0
            for mark in due:
                if size > BATCH_BYTES_MAX:
                    break
                item = request.items.add(sequence=mark.sequence, first_told=mark.kind == "new_escalation")
                if mark.kind == "task":
                    item.task.CopyFrom(shown_task(mark.entity_id))
                else:
                    hold = holds.load(reader, mark.entity_id)
                    shown = hold_message(reader, hold, self._runner.runner_id, task=task(hold.task_id))
                    item.escalation.CopyFrom(shown)
                size += item.ByteSize()
            return request

        return self._runner.read(look)

    async def _forget(self, taken: int) -> None:
        await self._runner.do(lambda session: messages.forget(session.uow, taken), emitter=emitters.REPORT)

    def _pause_seconds(self, failures: int) -> float:
        return min(backoff_ms(failures, self._runner.random.random()), PAUSE_MS_MAX) / 1000

    def _note_connected(self) -> None:
        if not self.connected:
            log.info("supervisor reached", extra={"runner": self._runner.runner_id})
        self.connected, self._failures = True, 0

    def _note_lost(self, refusal: Refusal) -> None:
        if self.connected or self._failures == 0:
            log.warning("supervisor lost; work goes on", extra={"reason": refusal.reason.name})
        self.connected, self._failures = False, self._failures + 1
