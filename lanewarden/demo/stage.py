"""What the demo plays with: a pair of services of its own, and calls that wait for one that is being started again."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, Literal

from lanewarden.cli import control
from lanewarden.cli.background import start, wait_ready
from lanewarden.cli.state import StateDir
from lanewarden.errors import Code, Refusal

PATIENCE_SECONDS: Final = 15.0
POLL_SECONDS: Final = 0.1
STOP_SECONDS: Final = 30.0


@contextmanager
def services(state: StateDir) -> Iterator[None]:
    """Both services on free ports; gone, workers included, when the block is left."""
    up = start(state, 0, 0, parent_pid=os.getpid())
    try:
        wait_ready(state, up)
        yield
    finally:
        up.send_signal(signal.SIGTERM)
        try:
            up.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            up.kill()
            up.wait()


def patiently(call: Callable[..., Any], *arguments: Any) -> Any:
    """The result of ``call(*arguments)``, tried again while a service cannot be reached, within PATIENCE_SECONDS."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            return call(*arguments)
        except Refusal as refusal:
            if refusal.reason.code is not Code.UNAVAILABLE or time.monotonic() > deadline:
                raise
        time.sleep(POLL_SECONDS)


def kill(state: StateDir, service: Literal["supervisor", "runner"]) -> int:
    """Have a service killed with SIGKILL, and return its process id once it has another."""
    word: control.Word = "crash supervisor" if service == "supervisor" else "crash runner"
    before = _pid(control.ask(state, "status"), service)
    control.ask(state, word)
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        now = _pid(control.ask(state, "status"), service)
        if now and now != before:
            return before
        time.sleep(POLL_SECONDS)
    raise TimeoutError(f"the {service} has not been started again within {PATIENCE_SECONDS:g} s")


def _pid(answer: Any, service: str) -> int:
    return int(answer["services"][service]["pid"] or 0) if answer else 0
