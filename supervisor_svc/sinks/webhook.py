"""Notifications as HTTP requests."""

from __future__ import annotations

import urllib.error
import urllib.request
from http.client import HTTPException
from typing import Final
from urllib.parse import urlsplit

from supervisor_svc.sinks import SEND_SECONDS, SinkFailed
from supervisor_svc.sinks.aside import Aside, cause_of
from supervisor_svc.store.notifications import Notification

_SLACK_SECONDS: Final = 1.0


class WebhookSink:
    """POSTs the JSON with ``Idempotency-Key``, and takes a 2xx for delivered.

    Follows no redirect, because a POST that is sent on arrives as an empty GET, and uses no proxy. The URL may be a secret:
    it is in no message and no log.
    """

    def __init__(self, name: str, url: str, *, seconds: float = SEND_SECONDS) -> None:
        self.name = name
        self._url = url
        self._seconds = seconds
        self._aside = Aside(seconds + _SLACK_SECONDS)
        self._opener = urllib.request.OpenerDirector()
        for handler in (
            urllib.request.HTTPHandler(),
            urllib.request.HTTPSHandler(),
            urllib.request.HTTPErrorProcessor(),
            urllib.request.HTTPDefaultErrorHandler(),
        ):
            self._opener.add_handler(handler)

    async def send(self, notification: Notification) -> None:
        """POST it; any other answer, or none in time, fails the try."""
        await self._aside.run(lambda: self._post(notification))

    def _post(self, notification: Notification) -> None:
        request = urllib.request.Request(  # noqa: S310 - the scheme was checked when the sink was configured
            self._url,
            data=notification.payload.encode(),
            method="POST",
            headers={
                "Content-Type": "application/json",
                "Idempotency-Key": notification.key,
                "User-Agent": "lanewarden",
            },
        )
        try:
            self._opener.open(request, timeout=self._seconds).close()
        except urllib.error.HTTPError as answer:
            answer.close()
            raise SinkFailed(f"answered HTTP {answer.code}") from None
        except urllib.error.URLError as error:
            raise SinkFailed(cause_of(error.reason) if isinstance(error.reason, OSError) else "no answer") from None
        except HTTPException as error:
            closed = isinstance(error, ConnectionError)
            raise SinkFailed("closed the connection" if closed else "did not answer with HTTP") from None


def problem(url: str) -> str:
    """What is wrong with a URL to POST to, without repeating it; empty when nothing is."""
    wanted = "needs an http:// or https:// URL with a host, without user, password, fragment or spaces"
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        return wanted
    plain = all("!" <= each <= "~" for each in url) and "@" not in parts.netloc and "#" not in url
    return "" if usable and plain else wanted
