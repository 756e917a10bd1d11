"""One HTTP exchange, with nothing that a library would do by itself: no redirects, no proxies, no retries."""

from __future__ import annotations

import socket
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from email.message import Message
from http.client import HTTPException
from typing import Final
from urllib.parse import urlsplit

from supervisor_svc.sinks import SinkFailed
from supervisor_svc.sinks.aside import cause_of

BODY_BYTES_MAX: Final = 8 << 20
_NOT_CONNECTED: Final = (ConnectionRefusedError, socket.gaierror)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a server answered, whatever its status."""

    status: int
    headers: Message
    body: bytes


class NotSent(SinkFailed):
    """Nothing reached the server, so nothing can have come of it."""


class Http:
    """Sends requests to where the operator has said, and nowhere else.

    Follows no redirect, because a POST that is sent on arrives as an empty GET, and uses no proxy. A URL may be a secret: it
    is in no message.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._opener = urllib.request.OpenerDirector()
        self._opener.add_handler(urllib.request.HTTPHandler())
        self._opener.add_handler(urllib.request.HTTPSHandler())

    def exchange(self, method: str, url: str, headers: Mapping[str, str], data: bytes | None = None) -> Answer:
        """The answer. Blocks.

        Raises:
            NotSent: the server could not be connected to.
            SinkFailed: it gave no answer, or none in time.
        """
        request = urllib.request.Request(  # noqa: S310 - the scheme was checked when the URL was configured
            url, data=data, method=method, headers={"User-Agent": "lanewarden", **headers}
        )
        try:
            with self._opener.open(request, timeout=self._seconds) as response:
                body = response.read(BODY_BYTES_MAX)
                return Answer(status=response.status, headers=response.headers, body=body)
        except urllib.error.URLError as error:
            told = cause_of(error.reason) if isinstance(error.reason, OSError) else "no answer"
            raise (NotSent if isinstance(error.reason, _NOT_CONNECTED) else SinkFailed)(told) from None
        except HTTPException as error:
            closed = isinstance(error, ConnectionError)
            raise SinkFailed("closed the connection" if closed else "did not answer with HTTP") from None


def problem(url: str) -> str:
    """What is wrong with a URL to send to, without repeating it; empty when nothing is."""
    wanted = "needs an http:// or https:// URL with a host, without user, password, fragment or spaces"
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        return wanted
    plain = all("!" <= each <= "~" for each in url) and "@" not in parts.netloc and "#" not in url
    return "" if usable and plain else wanted
