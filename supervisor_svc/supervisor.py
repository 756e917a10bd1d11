"""The supervisor: its store, clock, randomness, hub and leases, and the one way to carry out a unit of work.

Data flows one way: a handler or a loop calls :meth:`Supervisor.do`, the unit of work judges and stores, the commit tells
the hub, and the hub wakes the loops and streams that look at the store again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import TypeVar

from lanewarden.build import UNKNOWN, Build
from lanewarden.client import Stub
from lanewarden.clock import Clock
from lanewarden.errors import Refusal
from lanewarden.hub import Hub, Topic
from lanewarden.loop_lag import LoopLag
from lanewarden.records import replace
from lanewarden.server import Call
from lanewarden.store import Connection, Emitter, Entity, Store, UnitOfWork
from lanewarden.telemetry import OFF, Telemetry
from lanewarden.v1 import task_pb2
from supervisor_svc import emitters
from supervisor_svc.core import storms
from supervisor_svc.core.observation import Observed
from supervisor_svc.core.supervision import SupervisionConfig
from supervisor_svc.core.view import Storm
from supervisor_svc.store import views
from supervisor_svc.work import registry
from supervisor_svc.work.presence import Presence
from supervisor_svc.work.reach import Reach
from supervisor_svc.work.session import SETTINGS, Deed, Session
from supervisor_svc.work.vitals import VitalsBook

T = TypeVar("T")


@dataclass(slots=True)
class Supervisor:
    """What the handlers and loops of one supervisor share.

    ``connect_runner`` gives the LaneRunnerService at an address; calling it sends nothing. ``sinks`` names
    where people are told of news. ``supervision`` is what tasks are judged by; whoever replaces it raises its version.
    """

    supervisor_id: str
    incarnation: str
    store: Store
    clock: Clock
    random: Random
    hub: Hub
    presence: Presence
    connect_runner: Callable[[str], Stub]
    sinks: Sequence[str] = ()
    supervision: SupervisionConfig = field(default_factory=SupervisionConfig)
    build: Build = UNKNOWN
    vitals: VitalsBook = field(default_factory=VitalsBook)
    telemetry: Telemetry = OFF
    loop_lag: LoopLag = field(init=False)
    reach: Reach = field(init=False)

    def __post_init__(self) -> None:
        self.loop_lag = LoopLag(self.clock)
        self.reach = Reach(self.presence, self.clock, self.hub)

    async def restore(self) -> None:
        """Take over the runners of the last start. Before anything is served."""
        timing = self.presence.timing
        for row in await self.do(lambda session: registry.restore(session, timing), emitter=emitters.START):
            self.presence.put(registry.lease_of(row, timing))

    async def do(
        self, work: Callable[[Session], T], *, emitter: Emitter, entity: Entity | None = None, call: Call | None = None
    ) -> T:
        """Carry out a unit of work and return its result once it is durable."""

        def unit(uow: UnitOfWork) -> T:
            session = Session(uow=uow, steady_ms=self.clock.steady_ms(), wall_ms=self.clock.wall_ms(), sinks=self.sinks)
            result = work(session)
            uow.after_commit(lambda: self.hub.publish(session.changed))
            return result

        return await self.store.write(unit, emitter=emitter, entity=entity, origin=call.origin if call else "")

    async def do_audited(
        self, deed: Deed, work: Callable[[Session], T], *, emitter: Emitter, call: Call, entity: Entity | None = None
    ) -> T:
        """Carry out a unit of work that an operator asked for; a refusal is recorded before it is raised.

        ``work`` refuses before its first write, and records its own success.
        """

        def unit(session: Session) -> T | Refusal:
            try:
                return work(session)
            except Refusal as refusal:
                session.record(deed, refusal.reason.name)
                return refusal

        result = await self.do(unit, emitter=emitter, entity=entity, call=call)
        if isinstance(result, Refusal):
            raise result
        return result

    def supervise_by(self, settings: SupervisionConfig) -> bool:
        """Judge tasks by other settings from now on, under their next version; False when they are the same."""
        renewed = replace(settings, version=self.supervision.version + 1)
        if replace(renewed, version=self.supervision.version) == self.supervision:
            return False
        self.supervision = renewed
        self.hub.publish([SETTINGS])
        return True

    def read(self, work: Callable[[Connection], T]) -> T:
        """A short read of what is committed."""
        return self.store.read(work)

    def storm_against(self, task: task_pb2.Task, known: Observed) -> Storm | None:
        """What is written to a task at a rate that speaks against it, if anything is."""
        now_ms = self.clock.steady_ms()
        told = self.vitals.storm(task.runner_id, task.task_id, now_ms)
        if told is None:
            return None
        return storms.against(told, progressed_ms=known.progressed_ms, running_ms=known.running_ms, now_ms=now_ms)

    def announce(self, runner_id: str) -> None:
        """Wake whoever watches a runner or its tasks, because what can be said of it has changed."""
        ids = self.read(lambda reader: views.unfinished_ids(reader, runner_id))
        self.hub.publish([Topic("runner", runner_id), *(Topic("task", task_id) for task_id in ids)])
