"""The runner's link to its supervisor: register, keep alive, and send what the outbox holds, in order.

The runner never waits for a supervisor: while none answers, work goes on and the outbox grows by one mark per change.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import cache, partial
from typing import Final, TypeVar

from lane_runner_svc import emitters
from lane_runner_svc.core.budget import backoff_ms
from lane_runner_svc.rpc.convert import hold_message, task_message
from lane_runner_svc.runner import Runner
from lane_runner_svc.store import holds, messages, meta, tasks
from lane_runner_svc.store.messages import Due
from lane_runner_svc.work.session import OUTBOX
from lanewarden.client import Stub
from lanewarden.errors import Code, Reason, Refusal
from lanewarden.store import Connection
from lanewarden.v1 import supervisor_service_pb2 as pb

log = logging.getLogger(__name__)
T = TypeVar("T")

BATCH_MAX: Final = 256
BATCH_BYTES_MAX: Final = 2 << 20
GATHER_MARKS_MIN: Final = 16
"""So many marks since the last report are a burst: changes come faster than reports go."""
GATHER_SECONDS: Final = 0.1
CALL_SECONDS: Final = 5.0
KEEP_ALIVE_SECONDS: Final = 1.0
PAUSE_MS_MAX: Final = 5_000
_LEASE_GONE: Final = frozenset({Reason.LEASE_UNKNOWN, Reason.LEASE_EXPIRED})


class Reporter:
    """Keeps one supervisor informed. ``address`` is where the supervisor reaches this runner."""

    def __init__(
        self,
        runner: Runner,
        supervisor: Stub,
        *,
        address: str,
        version: str,
        fresh_uuid: Callable[[], str],
    ) -> None:
        self._runner = runner
        self._supervisor = supervisor
        self._address = address
        self._version = version
        self._fresh_uuid = fresh_uuid
        self._incarnation = fresh_uuid()
        self._failures = 0
        self.connected = False

    async def run(self) -> None:
        """Stay registered; never returns."""
        while True:
            try:
                grant = await self._register()
                self._note_connected()
                await self._serve(grant)
            except Refusal as refusal:
                self._note_lost(refusal)
            await self._runner.clock.sleep(self._pause_seconds(self._failures))

    async def _register(self) -> pb.RegisterResponse:
        request = pb.RegisterRequest(
            request_id=self._fresh_uuid(),
            runner_id=self._runner.runner_id,
            incarnation=self._incarnation,
            address=self._address,
            lanes=self._runner.lanes,
            version=self._version,
            store_id=self._runner.read(meta.store_id),
        )
        grant: pb.RegisterResponse = await self._supervisor.Register(request, timeout_seconds=CALL_SECONDS)
        return grant

    async def _resume_from(self, taken: int) -> None:
        """Go on from what the supervisor has. If that fits nothing that is kept here, one of the two has lost its past:
        number anew from there and mark everything.
        """
        if self._runner.read(lambda reader: messages.follows(reader, taken)):
            await self._forget(taken)
        else:
            log.warning("the supervisor has another past; telling it everything", extra={"taken": taken})
            await self._runner.do(lambda session: messages.restart(session.uow, taken), emitter=emitters.REPORT)

    async def _serve(self, grant: pb.RegisterResponse) -> None:
        """Renew and send until one of the two fails, and end both."""
        jobs = [
            asyncio.ensure_future(self._keep_alive(grant)),
            asyncio.ensure_future(self._send_all(grant.taken_sequence)),
        ]
        try:
            done, _ = await asyncio.wait(jobs, return_when=asyncio.FIRST_COMPLETED)
            for job in done:
                job.result()
        finally:
            for job in jobs:
                job.cancel()
            await asyncio.gather(*jobs, return_exceptions=True)

    async def _keep_alive(self, grant: pb.RegisterResponse) -> None:
        interval = grant.renew_interval.ToMilliseconds() / 1000
        request = pb.KeepAliveRequest(
            runner_id=self._runner.runner_id, incarnation=self._incarnation, generation=grant.generation
        )
        while True:
            await self._runner.clock.sleep(interval)
            try:
                response = await self._supervisor.KeepAlive(request, timeout_seconds=KEEP_ALIVE_SECONDS)
            except Refusal as refusal:
                if refusal.reason in _LEASE_GONE:
                    raise
                self._note_lost(refusal)
                continue
            self._note_connected()
            interval = response.renew_interval.ToMilliseconds() / 1000

    async def _send_all(self, taken: int) -> None:
        await self._once_there_is_room(partial(self._resume_from, taken))
        with self._runner.hub.subscribe(OUTBOX) as news:
            while True:
                due = self._due(taken)
                if not due:
                    await news.take()
                    continue
                answered = await self._once_there_is_room(partial(self._send, due))
                if answered <= taken:
                    # The supervisor lacks something before these: register again and go on from what it has.
                    raise Refusal(Reason.LEASE_EXPIRED, f"the supervisor has taken {answered} of {due[-1].sequence}")
                taken = answered
                await self._once_there_is_room(partial(self._forget, taken))
                if GATHER_MARKS_MIN <= len(due) < BATCH_MAX and taken >= due[-1].sequence:
                    # Few large reports cost less than many small ones, and what they cost is taken from those who call.
                    await self._runner.clock.sleep(GATHER_SECONDS)

    async def _once_there_is_room(self, work: Callable[[], Awaitable[T]]) -> T:
        """Try until neither store is full: that delays what is reported, and never a renewal."""
        failures = 0
        while True:
            try:
                return await work()
            except Refusal as refusal:
                if refusal.reason.code is not Code.RESOURCE_EXHAUSTED:
                    raise
                if failures == 0:
                    log.warning("reports wait for room", extra={"reason": refusal.reason.name})
            failures += 1
            await self._runner.clock.sleep(self._pause_seconds(failures))

    def _due(self, taken: int) -> list[Due]:
        return self._runner.read(lambda reader: messages.due(reader, after=taken, rows_max=BATCH_MAX))

    async def _send(self, due: Sequence[Due]) -> int:
        """Send the first of the marks; how far the supervisor has come now.

        A new escalation goes by itself, in its own trace; when several wait, one report is sooner for all of them.
        """
        response: pb.EscalateResponse | pb.ReportResponse
        if due[0].kind == "new_escalation" and all(mark.kind != "new_escalation" for mark in due[1:]):
            response = await self._supervisor.Escalate(
                self._escalation(due[0]), timeout_seconds=CALL_SECONDS, traceparent=due[0].traceparent
            )
        else:
            response = await self._supervisor.Report(self._report(due), timeout_seconds=CALL_SECONDS)
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
