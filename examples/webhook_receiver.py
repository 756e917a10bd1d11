#!/usr/bin/env python3
"""Receives what `lanewarden up --notify webhook:http://127.0.0.1:8080` sends, and prints it: where a chat bot would begin.

A notification is sent again until it is answered with 2xx, so one may come twice: the same Idempotency-Key means the same
notification.
"""

from __future__ import annotations

import json
import sys
from collections import deque
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

BODY_BYTES_MAX = 1024 * 1024
KEYS_MAX = 10_000


class Receiver(BaseHTTPRequestHandler):
    """One request is one notification."""

    seen: ClassVar[deque[str]] = deque(maxlen=KEYS_MAX)

    def do_POST(self) -> None:
        """Print it and say that it has arrived; only then is it not sent again."""
        size = int(self.headers.get("Content-Length") or 0)
        if not 0 < size <= BODY_BYTES_MAX:
            self.send_error(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
            return
        body = json.loads(self.rfile.read(size))
        key = self.headers["Idempotency-Key"]
        if key not in self.seen:
            show(key, body)
            self.seen.append(key)
        self.send_response(HTTPStatus.NO_CONTENT)
        self.end_headers()

    def log_message(self, *args: Any) -> None:
        """Nothing but notifications."""


def show(key: str, body: dict[str, Any]) -> None:
    """What happened, and how to answer. What a worker wrote is shown by repr: nothing in it drives the terminal."""
    asked = body["escalation"]
    to = f" for {body['to']}" if body["to"] else ""
    print(f"[{key}] {body['kind']}{to}: {asked['question']!r}", flush=True)
    if asked.get("hold_state") == "HOLD_STATE_OPEN":
        answers = [f"choose --option {option['key']}" for option in asked.get("options", [])]
        for answer in answers or ["approve|reject|revise"]:
            print(f"    lanewarden rule {asked['escalation_id']} {answer} -m '...'", flush=True)


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1]) if sys.argv[1:] else 8080), Receiver)
    print(f"listening at http://127.0.0.1:{server.server_port}", flush=True)
    server.serve_forever()
