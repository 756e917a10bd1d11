"""What was sent to people, and what waits to be."""

from __future__ import annotations

from collections.abc import Sequence

from lanewarden.paging import fitting, page_size, parse_token
from lanewarden.server import Call
from lanewarden.stamps import timestamp
from lanewarden.v1 import operator_service_pb2 as pb
from supervisor_svc.store import notifications
from supervisor_svc.store.notifications import Notification
from supervisor_svc.supervisor import Supervisor


class NotificationHandlers:
    """Notifications of all sinks, also of those that are not configured any more."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor

    async def ListNotifications(self, request: pb.ListNotificationsRequest, call: Call) -> pb.ListNotificationsResponse:
        """A page of notifications, newest first."""
        rows_max = page_size(request.page_size)
        before = parse_token(request.page_token)
        sinks = self._supervisor.sinks
        found = self._supervisor.read(
            lambda reader: notifications.page(
                reader, escalation_id=request.escalation_id, rows_max=rows_max + 1, before=before
            )
        )
        shown, token = fitting(((each.position, _message(each, sinks)) for each in found), rows_max)
        return pb.ListNotificationsResponse(notifications=shown, next_page_token=token)


def _message(stored: Notification, sinks: Sequence[str]) -> pb.Notification:
    orphaned = stored.next_try_ms is not None and stored.sink not in sinks
    return pb.Notification(
        key=stored.key,
        sink=stored.sink,
        escalation_id=stored.escalation_id,
        kind=stored.kind,
        to=stored.addressee,
        tries=stored.tries,
        delivered_at=timestamp(stored.delivered_wall_ms),
        failure="this sink is not configured any more" if orphaned else stored.failure,
    )
