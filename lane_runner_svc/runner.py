"""The runner: its store, clock, randomness and hub, and the one way to carry out a unit of work.

Data flows one way: a handler or a loop calls :meth:`Runner.do`, the unit of work judges and stores, the commit tells the
hub, and the hub wakes the loops and streams that look at the store again.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import TypeVar

from google.protobuf.message import Message as ProtoMessage

from lane_runner_svc import emitters
from lane_runner_svc.core.task import Now
from lane_runner_svc.store.audit import Deed
from lane_runner_svc.work.session import AttemptRef, Session
from lane_runner_svc.work.supervision import fence
from lanewarden.clock import Clock
from lanewarden.errors import Refusal
from lanewarden.hub import Hub
from lanewarden.server import Call
from lanewarden.store import Connection, Emitter, Entity, Store, UnitOfWork
from lanewarden.store.requests import once
from lanewarden.telemetry import OFF, Telemetry, within

T = TypeVar("T")
Response = TypeVar("Response", bound=ProtoMessage)


@dataclass(slots=True)
class Runner:
    """What the handlers and loops of one lane runner share."""

    runner_id: str
    lanes: tuple[str, ...]
    store: Store
    clock: Clock
    random: Random
    hub: Hub
    stop_worker: Callable[[AttemptRef], None] = field(default=lambda ref: None)
    """Told after the commit that a worker is to be stopped; set by the composition root."""
    telemetry: Telemetry = OFF
    let_finish: Callable[[AttemptRef], None] = field(default=lambda ref: None)
    """Told after the commit that a worker has said Complete; set by the composition root."""

    async def do(
        self, work: Callable[[Session], T], *, emitter: Emitter, task_id: str = "", call: Call | None = None
    ) -> T:
        """Carry out a unit of work and return its result once it is durable."""

        def unit(uow: UnitOfWork) -> T:
            session = self._session(uow)
            result = work(session)
            session.store_marks()
            session.after_commit(self._committed)
            return result

        entity = Entity("task", task_id) if task_id else None
        return await self.store.write(unit, emitter=emitter, entity=entity, origin=call.origin if call else "")

    async def command(
        self,
        request: ProtoMessage,
        call: Call,
        response_type: type[Response],
        work: Callable[[Session], Response],
        *,
        emitter: Emitter,
        task_id: str = "",
        deed: Deed | None = None,
    ) -> Response:
        """Carry out a request at most once by its ``request_id``; a repeat gets the first response.

        A ``deed`` goes into the audit: with its effect, or with the reason it was refused for.
        """
        request_id: str = request.request_id  # type: ignore[attr-defined]
        # A request_id belongs to whoever chose it: two workers that pick the same one are two.
        scope = call.identity.attempt or call.identity.role.value
        digest = hashlib.sha256(f"{scope}\0".encode() + _content(request)).digest()

        def respond(session: Session) -> bytes:
            response = work(session).SerializeToString()
            if deed is not None:
                session.record(deed, "OK")
            return response

        def unit(session: Session) -> bytes:
            return once(
                session.uow,
                request_id=request_id,
                method=call.method,
                digest=digest,
                respond=lambda: respond(session),
                now_ms=session.now.steady_ms,
                before_repeat=lambda: _fence_repeat(session, request),
            )

        try:
            return response_type.FromString(await self.do(unit, emitter=emitter, task_id=task_id, call=call))
        except Refusal as refusal:
            if deed is not None:
                await self._record_refusal(deed, refusal)
            raise

    async def _record_refusal(self, deed: Deed, refusal: Refusal) -> None:
        """What was refused left nothing behind, so its entry has a unit of work of its own; if not even that can be
        stored, the caller still hears the refusal.
        """
        with contextlib.suppress(Refusal):
            await self.do(lambda session: session.record(deed, refusal.reason.name), emitter=emitters.AUDIT)

    def read(self, work: Callable[[Connection], T]) -> T:
        """A short read of what is committed."""
        return self.store.read(work)

    def _session(self, uow: UnitOfWork) -> Session:
        now = Now(steady_ms=self.clock.steady_ms(), wall_ms=self.clock.wall_ms())
        return Session(uow=uow, now=now, random=self.random)

    def _committed(self, session: Session) -> None:
        self.hub.publish(session.changed)
        if session.stops or session.completed:
            with within(session.traceparent):
                for ref in session.stops:
                    self.stop_worker(ref)
                for ref in session.completed:
                    self.let_finish(ref)


def _fence_repeat(session: Session, request: ProtoMessage) -> None:
    """An action is named by what it says, so that two supervisors may send the same: only the one that may act here now is
    told that it was done.
    """
    if "supervision_generation" in request.DESCRIPTOR.fields_by_name:
        fence(session, request.supervision_generation)  # type: ignore[attr-defined]


def _content(request: ProtoMessage) -> bytes:
    """What makes two requests the same. By what right an action is asked for is no part of it: a supervisor that has been
    started again repeats, under its new generation, what it does not know to have been done.
    """
    if "supervision_generation" in request.DESCRIPTOR.fields_by_name:
        asked = type(request)()
        asked.CopyFrom(request)
        asked.ClearField("supervision_generation")
        request = asked
    return request.SerializeToString(deterministic=True)
