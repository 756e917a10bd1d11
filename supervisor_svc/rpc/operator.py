"""OperatorService: the inbox, the tasks, the runners, the notifications and the audit."""

from __future__ import annotations

from lanewarden.paging import fitting, page_size, parse_token
from lanewarden.server import Call
from lanewarden.stamps import timestamp
from lanewarden.v1 import audit_pb2, task_pb2
from lanewarden.v1 import operator_service_pb2 as pb
from supervisor_svc.rpc.control import ControlHandlers
from supervisor_svc.rpc.forward import Forwarder
from supervisor_svc.rpc.inbox import InboxHandlers
from supervisor_svc.rpc.incidents import IncidentHandlers
from supervisor_svc.rpc.leases import LeaseHandlers
from supervisor_svc.rpc.notifications import NotificationHandlers
from supervisor_svc.rpc.tasks import TaskHandlers
from supervisor_svc.store import audit
from supervisor_svc.store.audit import Entry
from supervisor_svc.supervisor import Supervisor
from supervisor_svc.work.courier import Courier


class OperatorHandlers(
    InboxHandlers, TaskHandlers, ControlHandlers, IncidentHandlers, NotificationHandlers, LeaseHandlers
):
    """For people and bots."""

    def __init__(self, supervisor: Supervisor, courier: Courier, forwarder: Forwarder) -> None:
        InboxHandlers.__init__(self, supervisor, courier)
        TaskHandlers.__init__(self, supervisor, forwarder)
        ControlHandlers.__init__(self, forwarder)
        IncidentHandlers.__init__(self, supervisor, forwarder)
        NotificationHandlers.__init__(self, supervisor)
        LeaseHandlers.__init__(self, supervisor)

    async def ListAudit(self, request: pb.ListAuditRequest, call: Call) -> pb.ListAuditResponse:
        """A page of the audit, oldest first."""
        rows_max = page_size(request.page_size)
        after = parse_token(request.page_token)
        found = self._supervisor.read(
            lambda reader: audit.page(reader, task_id=request.task_id, rows_max=rows_max + 1, after=after)
        )
        entries, token = fitting(((entry.sequence, _entry(entry)) for entry in found), rows_max)
        return pb.ListAuditResponse(entries=entries, next_page_token=token)


def _entry(entry: Entry) -> audit_pb2.AuditEntry:
    return audit_pb2.AuditEntry(
        sequence=entry.sequence,
        at=timestamp(entry.wall_ms),
        actor=task_pb2.Actor(identity=entry.identity, role=entry.role),
        action=entry.action,
        task_id=entry.task_id,
        escalation_id=entry.escalation_id,
        request_id=entry.request_id,
        trace_id=entry.trace_id,
        outcome=entry.outcome,
    )
