"""SupervisorService: what lane runners tell. Requests become units of work, results become responses."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from lanewarden.errors import Refusal
from lanewarden.hub import Topic
from lanewarden.server import Call
from lanewarden.stamps import duration
from lanewarden.store import Emitter, Entity
from lanewarden.v1 import supervisor_service_pb2 as pb
from supervisor_svc import emitters
from supervisor_svc.core import inventory
from supervisor_svc.core.leases import LeaseState, Right
from supervisor_svc.core.view import Storm
from supervisor_svc.store import runners
from supervisor_svc.store.runners import RunnerRow
from supervisor_svc.supervisor import Supervisor
from supervisor_svc.work import intake, reconcile, registry
from supervisor_svc.work.carriage import Carriage
from supervisor_svc.work.intake import Item
from supervisor_svc.work.registry import Registration
from supervisor_svc.work.session import Session
from supervisor_svc.work.vitals import Vitals

log = logging.getLogger(__name__)


class SupervisorHandlers:
    """Grants leases and takes what runners report."""

    def __init__(self, supervisor: Supervisor, carriage: Carriage) -> None:
        self._supervisor = supervisor
        self._carriage = carriage
        timing = supervisor.presence.timing
        self._ttl = duration(timing.ttl_ms)
        self._renew_interval = duration(timing.renew_ms)

    async def Register(self, request: pb.RegisterRequest, call: Call) -> pb.RegisterResponse:
        """Grant a lease; stored before the answer."""
        registry.check_address(request.address)
        registry.check_generation("generation_seen", request.generation_seen)
        asked = Registration(
            runner_id=request.runner_id,
            incarnation=request.incarnation,
            address=request.address,
            lanes=tuple(request.lanes),
            version=request.version,
            store_id=request.store_id,
            generation_seen=request.generation_seen,
            build=request.build,
        )
        presence = self._supervisor.presence
        heard = presence.find(asked.runner_id)
        alive = presence.state(asked.runner_id) is not LeaseState.UNREACHABLE

        def work(session: Session) -> RunnerRow:
            generation = None if heard is None else heard.generation
            row = registry.register(session, asked, heard_generation=generation, heard_alive=alive)
            lease = registry.granted(row, now_ms=session.steady_ms, wall_ms=session.wall_ms)
            session.uow.after_commit(lambda: presence.put(lease))
            session.uow.after_commit(lambda: presence.registered(row.runner_id))
            return row

        entity = Entity("runner", asked.runner_id)
        row = await self._supervisor.do(work, emitter=emitters.GRANT, entity=entity, call=call)
        self._tell_if_changed(asked.runner_id)
        return pb.RegisterResponse(
            generation=row.generation,
            ttl=self._ttl,
            renew_interval=self._renew_interval,
            supervisor_id=self._supervisor.supervisor_id,
            supervisor_incarnation=self._supervisor.incarnation,
            taken_sequence=row.taken_sequence,
            supervision_generation_seen=row.supervision_generation_seen,
        )

    async def Reconcile(self, request: pb.ReconcileRequest, call: Call) -> pb.ReconcileResponse:
        """Compare what the runner has; reads only, save for what the runner has forgotten."""
        page = _page(request)
        reconcile.check_page(page)
        tasks, escalations = request.forgotten_task_ids, request.forgotten_escalation_ids
        if tasks or escalations:
            counts = {"tasks": len(tasks), "escalations": len(escalations)}
            log.warning("a runner has lost what it had", extra={"runner": page.runner_id, **counts})
            await self._supervisor.do(
                lambda session: reconcile.forget(session, page, tasks, escalations),
                emitter=emitters.RECONCILE,
                entity=Entity("runner", page.runner_id),
                call=call,
            )
        found, through = self._supervisor.read(lambda reader: reconcile.look(reader, page))
        findings = [
            pb.InventoryFinding(
                task_id=each.task_id,
                verdict=f"INVENTORY_VERDICT_{each.verdict.value}",
                open_holds=sorted(each.open_holds),
            )
            for each in found
        ]
        return pb.ReconcileResponse(findings=findings, through_task_id=through)

    async def KeepAlive(self, request: pb.KeepAliveRequest, call: Call) -> pb.KeepAliveResponse:
        """Renew a lease, in memory only; a generation that is new is stored before it is used. Nothing else that comes
        beside the renewal is waited for.
        """
        registry.check_generation("supervision_generation", request.supervision_generation)
        presence = self._supervisor.presence
        presence.renew(request.runner_id, request.incarnation, request.generation)
        right = Right(generation=request.supervision_generation, heard_ms=self._supervisor.clock.steady_ms())
        self._tell_if_changed(request.runner_id)
        self._note_vitals(request)
        self._carriage.answered(request.runner_id, request.answers)
        marks = self._supervisor.read(lambda reader: runners.marks(reader, request.runner_id))
        taken, seen = marks or (0, 0)
        if marks is not None and await self._seen(request.runner_id, right.generation, seen, call):
            might = presence.supervision_generation(request.runner_id)
            presence.hear_right(request.runner_id, right)
            if presence.supervision_generation(request.runner_id) != might:
                self._supervisor.announce(request.runner_id)
        return pb.KeepAliveResponse(
            ttl=self._ttl,
            renew_interval=self._renew_interval,
            sweep=presence.sweeps,
            taken_sequence=taken,
            commands=self._carriage.commands(request.runner_id),
            supervisor_incarnation=self._supervisor.incarnation,
        )

    def _note_vitals(self, request: pb.KeepAliveRequest) -> None:
        """Take what the runner tells of itself. A task that is written to too much, or was, is looked at."""
        vitals = self._supervisor.vitals
        before = vitals.of(request.runner_id).storms
        vitals.note(request.runner_id, self._vitals(request))
        stormy = before.keys() | vitals.of(request.runner_id).storms.keys()
        self._supervisor.hub.publish(Topic("task", task_id) for task_id in sorted(stormy))

    def _vitals(self, request: pb.KeepAliveRequest) -> Vitals:
        lead_ms, now_ms = None, self._supervisor.clock.steady_ms()
        if request.HasField("wall_time"):
            lead_ms = request.wall_time.ToMilliseconds() - self._supervisor.clock.wall_ms()
        return Vitals(
            generation=request.generation,
            loop_lag_ms=request.loop_lag.ToMilliseconds(),
            clock_lead_ms=lead_ms,
            occupants={each.lane: each.task_id for each in request.changed_lanes},
            storms={
                each.task_id: Storm(
                    emitter=each.emitter,
                    origin=each.origin,
                    rows_per_second=each.rows_per_second,
                    since_ms=now_ms - max(0, each.lasted.ToMilliseconds()),
                )
                for each in request.storms
            },
            told_ms=now_ms,
        )

    async def Escalate(self, request: pb.EscalateRequest, call: Call) -> pb.EscalateResponse:
        """Put an escalation into the inbox."""
        item = Item(sequence=request.sequence, field="escalation", change=request.escalation, new=True)
        entity = Entity("task", request.escalation.task_id)
        taken = await self._take(request.runner_id, request.incarnation, [item], emitters.ESCALATE, entity, call)
        return pb.EscalateResponse(taken_sequence=taken)

    async def Report(self, request: pb.ReportRequest, call: Call) -> pb.ReportResponse:
        """Take changes of tasks and escalations, one unit of work for the batch."""
        items = [
            Item(sequence=each.sequence, field=f"items[{index}]", change=_change(each), new=each.first_told)
            for index, each in enumerate(request.items)
        ]
        entity = Entity("runner", request.runner_id)
        taken = await self._take(request.runner_id, request.incarnation, items, emitters.REPORT, entity, call)
        return pb.ReportResponse(taken_sequence=taken)

    async def _take(
        self, runner_id: str, incarnation: str, items: Sequence[Item], emitter: Emitter, entity: Entity, call: Call
    ) -> int:
        intake.check_items(runner_id, items)
        return await self._supervisor.do(
            lambda session: intake.take(session, runner_id, incarnation, items),
            emitter=emitter,
            entity=entity,
            call=call,
        )

    async def _seen(self, runner_id: str, generation: int, seen: int, call: Call) -> bool:
        """Store a generation that is higher than every one before; False when there is no room for it, which costs the right
        to act and not the lease.
        """
        if generation <= seen:
            return True
        try:
            await self._supervisor.do(
                lambda session: runners.see_supervision_generation(session.uow, runner_id, generation),
                emitter=emitters.SUPERVISION,
                entity=Entity("runner", runner_id),
                call=call,
            )
        except Refusal as refusal:
            log.error("a generation could not be stored", extra={"reason": refusal.reason.name})
            return False
        return True

    def _tell_if_changed(self, runner_id: str) -> None:
        if self._supervisor.presence.changed(runner_id):
            self._supervisor.announce(runner_id)


def _page(request: pb.ReconcileRequest) -> reconcile.Page:
    return reconcile.Page(
        runner_id=request.runner_id,
        incarnation=request.incarnation,
        generation=request.generation,
        items=[
            inventory.Item(task_id=each.task_id, version=each.version, open_holds=frozenset(each.open_holds))
            for each in request.items
        ],
        after=request.after_task_id,
        through=request.through_task_id,
    )


def _change(item: pb.ReportItem) -> intake.Change | None:
    match item.WhichOneof("change"):
        case "task":
            return item.task
        case "escalation":
            return item.escalation
    return None
