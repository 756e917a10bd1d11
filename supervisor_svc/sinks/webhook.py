"""Notifications as HTTP requests."""

from __future__ import annotations

from typing import Final

from supervisor_svc.sinks import SEND_SECONDS, SinkFailed
from supervisor_svc.sinks.aside import Aside
from supervisor_svc.sinks.http import Http
from supervisor_svc.store.notifications import Notification

_SLACK_SECONDS: Final = 1.0


class WebhookSink:
    """POSTs the JSON with ``Idempotency-Key``, and takes a 2xx for delivered. The URL may be a secret: it is in no message
    and no log.
    """

    def __init__(self, name: str, url: str, *, seconds: float = SEND_SECONDS) -> None:
        self.name = name
        self._url = url
        self._http = Http(seconds)
        self._aside = Aside(seconds + _SLACK_SECONDS)

    async def send(self, notification: Notification) -> None:
        """POST it; any other answer, or none in time, fails the try."""
        await self._aside.run(lambda: self._post(notification))

    def _post(self, notification: Notification) -> None:
        headers = {"Content-Type": "application/json", "Idempotency-Key": notification.key}
        status = self._http.exchange("POST", self._url, headers, notification.payload.encode()).status
        if not 200 <= status < 300:
            raise SinkFailed(f"answered HTTP {status}")
