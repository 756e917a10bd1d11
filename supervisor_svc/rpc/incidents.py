"""What was filed, what is to be, and what somebody has resolved."""

from __future__ import annotations

from lanewarden.errors import Reason, refuse
from lanewarden.paging import fitting, page_size, parse_token
from lanewarden.server import Call
from lanewarden.v1 import incident_pb2
from lanewarden.v1 import lane_runner_service_pb2 as runner_pb
from lanewarden.v1 import operator_service_pb2 as pb
from supervisor_svc.rpc.forward import Forwarder
from supervisor_svc.rpc.inbox import actor_message, deed
from supervisor_svc.store import incidents
from supervisor_svc.supervisor import Supervisor


class IncidentHandlers:
    """Incidents as their runners last reported them; resolving one is the runner's to do."""

    def __init__(self, supervisor: Supervisor, forwarder: Forwarder) -> None:
        self._supervisor = supervisor
        self._forwarder = forwarder

    async def ListIncidents(self, request: pb.ListIncidentsRequest, call: Call) -> pb.ListIncidentsResponse:
        """A page of incidents, newest first."""
        rows_max = page_size(request.page_size)
        before = parse_token(request.page_token)
        found = self._supervisor.read(
            lambda reader: incidents.page(
                reader,
                task_id=request.task_id,
                with_resolved=request.resolved,
                rows_max=rows_max + 1,
                before=before,
            )
        )
        shown, token = fitting(
            ((row.position, incident_pb2.Incident.FromString(row.payload)) for row in found), rows_max
        )
        return pb.ListIncidentsResponse(incidents=shown, next_page_token=token)

    async def ResolveIncident(
        self, request: pb.OperatorServiceResolveIncidentRequest, call: Call
    ) -> pb.OperatorServiceResolveIncidentResponse:
        """Say that an incident is over."""
        known = self._supervisor.read(lambda reader: incidents.find(reader, request.key))
        if known is None:
            raise refuse(
                Reason.INCIDENT_UNKNOWN,
                f"no incident {request.key!r} here; `lanewarden incidents --resolved` lists them",
                key=request.key,
            )
        forwarded = runner_pb.ResolveIncidentRequest(
            request_id=request.request_id,
            task_id=known.task_id,
            key=request.key,
            on_behalf_of=actor_message(call),
        )
        asked = deed(call, f"ResolveIncident {request.key}", request_id=request.request_id, task_id=known.task_id)
        answer = await self._forwarder.command(asked, "ResolveIncident", forwarded, call)
        return pb.OperatorServiceResolveIncidentResponse(incident=answer.incident)
