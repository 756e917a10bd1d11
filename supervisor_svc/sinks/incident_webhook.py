"""Incidents as HTTP requests."""

from __future__ import annotations

import json
from typing import Final

from supervisor_svc.sinks import SEND_SECONDS, SinkFailed
from supervisor_svc.sinks.aside import Aside
from supervisor_svc.sinks.http import Http, NotSent
from supervisor_svc.sinks.tracker import Filed, FilingFailed, Report

_SLACK_SECONDS: Final = 1.0


class IncidentWebhook:
    """POSTs each incident with its key as ``Idempotency-Key``, and takes a 2xx for filed.

    Nothing can be looked up at a webhook, so a create that may have worked is sent again: the receiver tells a repeat by the
    key. It may answer with JSON that has ``id`` and ``url``.
    """

    name = "webhook"
    lag_seconds = 0.0

    def __init__(self, url: str, *, seconds: float = SEND_SECONDS) -> None:
        self._url = url
        self._http = Http(seconds)
        self._aside = Aside(seconds + _SLACK_SECONDS)

    async def find(self, key: str) -> Filed | None:
        """None: it cannot be asked."""
        return None

    async def create(self, report: Report) -> Filed:
        """POST it."""
        made: list[Filed] = []
        await self._aside.run(lambda: made.append(self._post(report)))
        return made[0]

    def _post(self, report: Report) -> Filed:
        headers = {"Content-Type": "application/json", "Idempotency-Key": report.key}
        try:
            answer = self._http.exchange("POST", self._url, headers, report.json().encode())
        except NotSent as error:
            raise FilingFailed(error.cause) from None
        if not 200 <= answer.status < 300:
            raise SinkFailed(f"answered HTTP {answer.status}")
        try:
            told = json.loads(answer.body)
        except ValueError:
            told = None
        if not isinstance(told, dict):
            told = {}
        return Filed(external_id=str(told.get("id") or report.key)[:255], url=str(told.get("url") or "")[:2048])
