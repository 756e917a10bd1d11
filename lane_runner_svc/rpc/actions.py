"""LaneRunnerService: what a supervisor does by itself, fenced by its generation, and what is done about incidents."""

from __future__ import annotations

from typing import Protocol

from lane_runner_svc import emitters
from lane_runner_svc.core.holds import Actor
from lane_runner_svc.core.incidents import Filing
from lane_runner_svc.rpc import convert
from lane_runner_svc.rpc.commands import CommandHandlers
from lane_runner_svc.work import actions, incidents
from lane_runner_svc.work.actions import Quote
from lane_runner_svc.work.session import Session
from lanewarden.server import Call
from lanewarden.v1 import lane_runner_service_pb2 as pb


class _Quoting(Protocol):
    """A request that quotes what it was decided about."""

    task_id: str
    epoch: int
    supervision_generation: int


def _quote(request: _Quoting) -> Quote:
    return Quote(task_id=request.task_id, epoch=request.epoch, generation=request.supervision_generation)


class ActionHandlers(CommandHandlers):
    """Each has its effect only while the generation that it quotes is the current one, judged in its transaction."""

    async def WakeTask(self, request: pb.WakeTaskRequest, call: Call) -> pb.WakeTaskResponse:
        """Have a task look at its input, once per epoch."""
        return await self._task_command(
            request,
            call,
            pb.WakeTaskResponse,
            lambda session, by: actions.wake(session, _quote(request)),
            emitters.WAKE,
        )

    async def RelaunchTask(self, request: pb.RelaunchTaskRequest, call: Call) -> pb.RelaunchTaskResponse:
        """Replace an attempt that has stopped working."""
        return await self._task_command(
            request,
            call,
            pb.RelaunchTaskResponse,
            lambda session, by: actions.relaunch(
                session,
                _quote(request),
                attempt=request.attempt,
                cause=request.cause,
                relaunches_max=request.relaunches_max,
            ),
            emitters.RELAUNCH,
        )

    async def SettleTask(self, request: pb.SettleTaskRequest, call: Call) -> pb.SettleTaskResponse:
        """Give a task up."""
        return await self._task_command(
            request,
            call,
            pb.SettleTaskResponse,
            lambda session, by: actions.settle(
                session, _quote(request), summary=request.summary, diagnosis=request.diagnosis
            ),
            emitters.SETTLE,
        )

    async def ClaimIncident(self, request: pb.ClaimIncidentRequest, call: Call) -> pb.ClaimIncidentResponse:
        """Claim the filing of an incident: whoever is not told OK files nothing."""

        def work(session: Session, by: Actor) -> pb.ClaimIncidentResponse:
            incident = incidents.claim(session, _quote(request), request.kind)
            session.note = incident.key
            return pb.ClaimIncidentResponse(incident=convert.incident_message(incident))

        return await self._command(
            request, call, pb.ClaimIncidentResponse, work, emitters.CLAIM_INCIDENT, task_id=request.task_id
        )

    async def RecordIncident(self, request: pb.RecordIncidentRequest, call: Call) -> pb.RecordIncidentResponse:
        """Store what came of filing an incident."""
        filing = Filing(
            external_id=request.external_id,
            url=request.url,
            failure=request.failure,
            also_task_ids=tuple(request.also_task_ids),
        )

        def work(session: Session, by: Actor) -> pb.RecordIncidentResponse:
            incident = incidents.record(
                session, _quote(request), request.key, claim_generation=request.claim_generation, filing=filing
            )
            session.note = incident.key
            return pb.RecordIncidentResponse(incident=convert.incident_message(incident))

        return await self._command(
            request, call, pb.RecordIncidentResponse, work, emitters.RECORD_INCIDENT, task_id=request.task_id
        )

    async def ResolveIncident(self, request: pb.ResolveIncidentRequest, call: Call) -> pb.ResolveIncidentResponse:
        """Somebody has done something about an incident."""

        def work(session: Session, by: Actor) -> pb.ResolveIncidentResponse:
            incident = incidents.resolve(session, request.task_id, request.key)
            session.note = incident.key
            return pb.ResolveIncidentResponse(incident=convert.incident_message(incident))

        return await self._command(
            request, call, pb.ResolveIncidentResponse, work, emitters.RESOLVE_INCIDENT, task_id=request.task_id
        )
