"""Makes sure that the pair is up, by starting an `up` in the background when it is not."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Final

from lanewarden.cli import control, tied
from lanewarden.cli.connect import operator
from lanewarden.cli.ports import is_free
from lanewarden.cli.state import NotUp, StateDir
from lanewarden.cli.terminal import complain
from lanewarden.cli.up import RUNNER_PORT, SUPERVISOR_PORT
from lanewarden.errors import Refusal
from lanewarden.v1 import operator_service_pb2

READY_SECONDS: Final = 40.0
"""Somewhat longer than `up` itself waits for its services, so that it is the one to say what is wrong."""
POLL_SECONDS: Final = 0.05
ANSWER_SECONDS: Final = 2.0
"""What services that run without `up` have to answer."""
LAST_LINE_BYTES: Final = 4096


def ensure_up(state: StateDir) -> None:
    """Return when both services are ready, whoever runs them.

    Raises:
        NotUp: they are stopping, or cannot be started; the message says why.
    """
    if _ready(state):
        return
    started = None
    if control.ask(state, "status") is None:
        if _runs_without_up(state):
            return
        ports = SUPERVISOR_PORT, RUNNER_PORT
        started = start(state, *(port if is_free(port) else 0 for port in ports))
        complain(
            f"lanewarden: started the services in the background (log {log_of(state)}; `lanewarden down` stops them)"
        )
    wait_ready(state, started)


def wait_ready(state: StateDir, started: subprocess.Popen[bytes] | None) -> None:
    """Return when both services are ready; ``started`` is the `up` that this process has started, if it has.

    Raises:
        NotUp: they cannot be started, or are not ready in time.
    """
    deadline = time.monotonic() + READY_SECONDS
    while time.monotonic() < deadline:
        if _ready(state):
            return
        # Another command may have been first: then ours has ended, and that one's is waited for.
        if started is not None and started.poll() is not None and control.ask(state, "status") is None:
            raise NotUp(_last_line(log_of(state)))
        time.sleep(POLL_SECONDS)
    raise NotUp(f"not ready within {READY_SECONDS:g} s; see {log_of(state)}")


def _ready(state: StateDir) -> bool:
    answer = control.ask(state, "status")
    if answer is not None and answer["stopping"]:
        raise NotUp("the services are stopping; try again when they are down")
    return answer is not None and bool(answer["ready"])


def _runs_without_up(state: StateDir) -> bool:
    """Whether somebody else, a container say, keeps the services that ``endpoints.json`` names."""
    try:
        with operator(state) as stub:
            stub.ListRunners(operator_service_pb2.ListRunnersRequest(), timeout_seconds=ANSWER_SECONDS)
    except (NotUp, Refusal):
        return False
    return True


def start(state: StateDir, supervisor_port: int, runner_port: int, *, parent_pid: int = 0) -> subprocess.Popen[bytes]:
    """Start an `up` in a session of its own; with ``parent_pid`` (this process's) it ends when that does.

    Raises:
        NotUp: the state directory cannot be written.
    """
    try:
        state.logs.mkdir(mode=0o700, parents=True, exist_ok=True)
        log = log_of(state).open("wb")
    except OSError as error:
        raise NotUp(f"{state.path} cannot be the state directory: {error.strerror}") from None
    ports = ("--port-supervisor", str(supervisor_port), "--port-runner", str(runner_port))
    trusted = ("--tls-ca", str(state.tls_ca)) if state.tls_ca else ()
    words = ("lanewarden", "--state-dir", str(state.path), *trusted, "up", *ports)
    with log:
        return subprocess.Popen(
            [sys.executable, "-P", tied.__file__, str(parent_pid), *words],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


def log_of(state: StateDir) -> Path:
    """What an `up` in the background says."""
    return state.logs / "up.log"


def _last_line(log: Path) -> str:
    with log.open("rb") as file:
        file.seek(0, 2)
        file.seek(max(0, file.tell() - LAST_LINE_BYTES))
        said = file.read().decode("utf-8", "replace").strip().splitlines()
    return said[-1].removeprefix("lanewarden: ") if said else f"`up` ended without a word; see {log}"
