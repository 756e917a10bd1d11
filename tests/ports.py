"""Ports for services whose address must be known before they run."""

from __future__ import annotations

import os
import random
import socket
from itertools import count
from typing import Final

FIRST: Final = 10_000
"""All are below the ports that the kernel gives to whoever asks for any: one that waits for its service, or that a killed
service has just left, is then nobody else's.
"""
EACH: Final = 1_000
"""Ports of one worker of the suite; 32,768 and above are the kernel's."""
WORKERS: Final = 20

_numbers = count(random.randrange(EACH))


def free_port() -> int:
    """A port of this test process's own on which nobody listens."""
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % WORKERS
    for _ in range(EACH):
        port = FIRST + worker * EACH + next(_numbers) % EACH
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise AssertionError("no port is free")
