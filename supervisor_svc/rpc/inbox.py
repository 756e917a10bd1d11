"""The inbox of OperatorService: escalations, acks, rulings, instructions."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

from lanewarden.errors import invalid
from lanewarden.hub import ALL, Topic
from lanewarden.paging import fitting, page_size, parse_token
from lanewarden.server import Call
from lanewarden.stamps import timestamp
from lanewarden.store import Connection, Emitter, Entity
from lanewarden.v1 import escalation_pb2, task_pb2
from lanewarden.v1 import lane_runner_service_pb2 as runner_pb
from lanewarden.v1 import operator_service_pb2 as pb
from supervisor_svc import emitters
from supervisor_svc.core.holds import Actor
from supervisor_svc.core.leases import LeaseState
from supervisor_svc.store import outbox, views
from supervisor_svc.store.outbox import Command
from supervisor_svc.supervisor import Supervisor
from supervisor_svc.work import commands
from supervisor_svc.work.courier import Courier
from supervisor_svc.work.session import Deed

STATES_DEFAULT: Final = ("OPEN", "RELEASED")


def actor_message(call: Call) -> task_pb2.Actor:
    """The caller, as the supervisor vouches for it at a runner."""
    return task_pb2.Actor(identity=call.identity.name, role=call.identity.role.value)


def deed(call: Call, action: str, *, request_id: str, task_id: str = "", escalation_id: str = "") -> Deed:
    """What a caller asks for, as the audit names it."""
    return Deed(
        actor=Actor(identity=call.identity.name, role=call.identity.role.value),
        action=action,
        request_id=request_id,
        traceparent=call.traceparent,
        task_id=task_id,
        escalation_id=escalation_id,
    )


class InboxHandlers:
    """Escalations as last reported, with what was ruled here; acks and rulings are stored before they are answered."""

    def __init__(self, supervisor: Supervisor, courier: Courier) -> None:
        self._supervisor = supervisor
        self._courier = courier

    async def ListEscalations(self, request: pb.ListEscalationsRequest, call: Call) -> pb.ListEscalationsResponse:
        """A page of the inbox, oldest first."""
        names = [escalation_pb2.HoldState.Name(state).removeprefix("HOLD_STATE_") for state in request.states]
        states = [name for name in names if name != "UNSPECIFIED"] or list(STATES_DEFAULT)
        rows_max = page_size(request.page_size)

        def look(reader: Connection) -> pb.ListEscalationsResponse:
            found = views.escalations(
                reader,
                states=[*states, *(["NONE"] if request.notices else [])],
                forgotten=bool(request.states),
                task_id=request.task_id,
                rows_max=rows_max + 1,
                after=parse_token(request.page_token),
            )
            shown, token = fitting(((view.position, self._parsed(reader, view.payload)) for view in found), rows_max)
            return pb.ListEscalationsResponse(escalations=shown, next_page_token=token)

        return self._supervisor.read(look)

    async def GetEscalation(self, request: pb.GetEscalationRequest, call: Call) -> pb.GetEscalationResponse:
        """One escalation."""
        return pb.GetEscalationResponse(escalation=self._shown_escalation(request.escalation_id))

    async def WatchInbox(self, request: pb.WatchInboxRequest, call: Call) -> AsyncIterator[pb.WatchInboxResponse]:
        """The open holds, then what changes."""
        with self._supervisor.hub.subscribe(Topic("escalation", ALL)) as news:
            changed = self._supervisor.read(lambda reader: views.open_ids(reader, request.task_id))
            while True:
                for escalation_id in changed:
                    escalation = self._shown_escalation(escalation_id)
                    if request.task_id in ("", escalation.task_id):
                        yield pb.WatchInboxResponse(escalation=escalation)
                changed = await news.take()

    async def Acknowledge(
        self, request: pb.OperatorServiceAcknowledgeRequest, call: Call
    ) -> pb.OperatorServiceAcknowledgeResponse:
        """Stamp a hold; it stays open."""
        forwarded = runner_pb.AcknowledgeRequest(
            request_id=request.request_id,
            escalation_id=request.escalation_id,
            note=request.note,
            on_behalf_of=actor_message(call),
        )
        if request.HasField("expected_by"):
            forwarded.expected_by.CopyFrom(request.expected_by)
        command = await self._carry(forwarded, call, emitters.ACK, escalation_id=request.escalation_id)
        return pb.OperatorServiceAcknowledgeResponse(
            escalation=self._shown_escalation(request.escalation_id), delivery=_delivery(command)
        )

    async def Steer(self, request: pb.OperatorServiceSteerRequest, call: Call) -> pb.OperatorServiceSteerResponse:
        """A ruling releases the hold it names; an instruction releases nothing."""
        forwarded = runner_pb.SteerRequest(
            request_id=request.request_id, task_id=request.task_id, on_behalf_of=actor_message(call)
        )
        match request.WhichOneof("steer"):
            case "ruling":
                forwarded.ruling.CopyFrom(request.ruling)
            case "instruction":
                forwarded.instruction.CopyFrom(request.instruction)
            case _:
                raise invalid(("steer", "a steer carries a ruling or an instruction"))
        if not request.HasField("ruling") and not request.task_id:
            raise invalid(("task_id", "an instruction needs a task"))
        command = await self._carry(
            forwarded, call, emitters.STEER, task_id=request.task_id, escalation_id=request.ruling.escalation_id
        )
        response = pb.OperatorServiceSteerResponse(message_id=command.command_id, delivery=_delivery(command))
        if command.state == outbox.DELIVERED:
            task = self._supervisor.read(lambda reader: commands.find_task(reader, command.task_id))
            response.task.CopyFrom(task)
        return response

    async def _carry(
        self,
        forwarded: commands.RunnerRequest,
        call: Call,
        emitter: Emitter,
        *,
        task_id: str = "",
        escalation_id: str = "",
    ) -> Command:
        """Store a command, try to deliver it now, and return what is known of it then; a final refusal is raised."""
        asked = deed(
            call,
            commands.action_of(forwarded),
            request_id=forwarded.request_id,
            task_id=task_id,
            escalation_id=escalation_id,
        )
        command = await self._supervisor.do_audited(
            asked,
            lambda session: commands.accept(session, asked, forwarded),
            emitter=emitter,
            call=call,
            entity=Entity("escalation", escalation_id) if escalation_id else Entity("task", task_id),
        )
        if command.state == outbox.STORED:
            await self._courier.drain(command.runner_id)
            command = self._supervisor.read(lambda reader: outbox.find(reader, command.command_id)) or command
        if command.refusal is not None:
            raise command.refusal
        return command

    def _shown_escalation(self, escalation_id: str) -> escalation_pb2.Escalation:
        return self._supervisor.read(
            lambda reader: self._as_heard(reader, commands.find_escalation(reader, escalation_id))
        )

    def _parsed(self, reader: Connection, payload: bytes) -> escalation_pb2.Escalation:
        return self._as_heard(reader, escalation_pb2.Escalation.FromString(payload))

    def _as_heard(self, reader: Connection, escalation: escalation_pb2.Escalation) -> escalation_pb2.Escalation:
        """The escalation with the ruling given here, said to be as last heard of while its runner is not live."""
        shown, presence = commands.shown_escalation(reader, escalation), self._supervisor.presence
        if presence.state(shown.runner_id) is not LeaseState.LIVE:
            shown.runner_unreachable = True
            if seen := timestamp(presence.seen_wall_ms(shown.runner_id)):
                shown.last_seen.CopyFrom(seen)
        return shown


def _delivery(command: Command) -> escalation_pb2.DeliveryState:
    stored = command.state == outbox.STORED
    return escalation_pb2.DELIVERY_STATE_STORED if stored else escalation_pb2.DELIVERY_STATE_PENDING
