"""Ports for services whose address must be known before they run."""

from __future__ import annotations

import socket
from functools import cache
from itertools import count
from typing import Final

FIRST: Final = 10_000
"""All are below the ports that the kernel gives to whoever asks for any: one that waits for its service, or that a killed
service has just left, is then nobody else's.
"""
EACH: Final = 500
"""Ports of one process that runs tests."""
PROCESSES_MAX: Final = 44

_numbers = count()


def free_port() -> int:
    """A port of this test process's own on which nobody listens."""
    first, _ = _own()
    for _ in range(EACH):
        port = first + next(_numbers) % EACH
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise AssertionError("no port is free")


@cache
def _own() -> tuple[int, socket.socket]:
    """The first of this process's ports, and what keeps others from them: a name that is free when the process ends."""
    for number in range(PROCESSES_MAX):
        claim = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            claim.bind(f"\0lanewarden-test-ports-{number}")
        except OSError:
            claim.close()
            continue
        return FIRST + number * EACH, claim
    raise AssertionError(f"{PROCESSES_MAX} processes run tests already")
