"""``doctor``."""

from __future__ import annotations

import os
import shutil
import socket
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import click

from lanewarden import cgroups
from lanewarden.cli import control, settings
from lanewarden.cli.exits import Exit
from lanewarden.cli.inbox import json_option
from lanewarden.cli.ports import is_free
from lanewarden.cli.state import NotUp, StateDir
from lanewarden.cli.terminal import one_line, write_json
from lanewarden.cli.up import RUNNER_PORT, SUPERVISOR_PORT
from lanewarden.config import ConfigInvalid

PYTHON_MIN: Final = (3, 11)
SQLITE_MIN: Final = (3, 51, 3)
"""The first release without the WAL bug of 3.7.0 to 3.51.2."""
SOCKET_PATH_BYTES_MAX: Final = 107
PR_GET_CHILD_SUBREAPER: Final = 37
CONNECT_SECONDS: Final = 1.0
GRPC_PORT: Final = 443
"""Where gRPC goes without a port."""


@dataclass(frozen=True, slots=True)
class Finding:
    """``level`` is ok, warn or fail; ``text`` says what was found and, unless it is ok, what to do."""

    level: str
    subject: str
    text: str


@click.command()
@json_option
@click.pass_obj
def doctor(state: StateDir, as_json: bool) -> int:
    """Check this machine for what Lanewarden needs.

    Exit code 1 when something that it cannot do without is missing.
    """
    findings = [
        *_platform(),
        *_cgroups(),
        *_sqlite(),
        *_directory(state.path),
        *_ports(state),
        *_tools(),
        *_collector(),
    ]
    if as_json:
        write_json([asdict(each) for each in findings])
    else:
        for each in findings:
            click.echo(one_line(f"{each.level:<4}  {each.subject:<16} {each.text}"))
    return Exit.FAILED if any(each.level == "fail" for each in findings) else Exit.DONE


def _either(good: bool, subject: str, ok: str, otherwise: str, *, level: str = "fail") -> Finding:
    return Finding("ok", subject, ok) if good else Finding(level, subject, otherwise)


def _platform() -> Iterator[Finding]:
    found = ".".join(map(str, sys.version_info[:3]))
    yield _either(sys.version_info >= PYTHON_MIN, "python", found, f"{found}; install Python 3.11 or newer")
    yield _either(
        sys.platform == "linux", "system", "Linux", f"{sys.platform}; the lane runner needs Linux, clients run anywhere"
    )
    yield _either(
        _has_pidfd(), "pidfd_open", "available", "missing; needs Linux 5.3 and a sandbox that lets it through"
    )
    yield _either(
        _has_subreaper(), "child subreaper", "available", "missing; needs Linux 3.4 and a sandbox that lets it"
    )


def _cgroups() -> Iterator[Finding]:
    found = cgroups.find()
    how = "ended at one stroke, in" if found.path else "ended process by process:"
    yield Finding("ok", "worker trees", f"{how} {found.text}")


def _has_pidfd() -> bool:
    try:
        os.close(os.pidfd_open(os.getpid()))
    except (AttributeError, OSError):
        return False
    return True


def _has_subreaper() -> bool:
    import ctypes

    value = ctypes.c_int()
    try:
        return bool(ctypes.CDLL(None).prctl(PR_GET_CHILD_SUBREAPER, ctypes.byref(value), 0, 0, 0) == 0)
    except (OSError, AttributeError):
        return False


def _sqlite() -> Iterator[Finding]:
    from sqlite_utils import db  # which knows the library that the stores use

    sqlite3 = db.sqlite3  # type: ignore[attr-defined]

    version: str = sqlite3.sqlite_version
    fixed = tuple(int(part) for part in version.split(".")) >= SQLITE_MIN
    remedy = f"{version} is in the range of the WAL bug (3.7.0 to 3.51.2); `pip install pysqlite3` brings a newer one"
    yield _either(fixed, "sqlite", f"{version} of {sqlite3.__name__}", remedy, level="warn")


def _directory(path: Path) -> Iterator[Finding]:
    present = next(each for each in (path, *path.parents) if each.exists())
    usable = present.is_dir() and os.access(present, os.W_OK | os.X_OK)
    yield _either(usable, "state directory", str(path), f"{present} is not writable; choose another --state-dir")
    length = len(os.fsencode(path / "runner" / "worker.sock"))
    yield _either(
        length <= SOCKET_PATH_BYTES_MAX,
        "socket path",
        f"{length} of at most {SOCKET_PATH_BYTES_MAX} bytes",
        f"{length} bytes, at most {SOCKET_PATH_BYTES_MAX} fit; choose a shorter --state-dir",
    )


def _ports(state: StateDir) -> Iterator[Finding]:
    try:
        answer = control.ask(state, "status")
    except (NotUp, TimeoutError):
        answer = None
    if answer is not None:
        addresses = ", ".join(facts["address"] for facts in answer["services"].values())
        yield Finding("ok", "ports", f"up at {addresses}")
        return
    for port, name in ((SUPERVISOR_PORT, "supervisor"), (RUNNER_PORT, "runner")):
        taken = f"{port} is in use by another process; give `up` --port-{name} 0 for any"
        yield _either(is_free(port), f"{name} port", f"{port} is free", taken, level="warn")


def _tools() -> Iterator[Finding]:
    found = shutil.which("grpcurl")
    yield _either(found is not None, "grpcurl", found or "", "not on PATH; only needed to call by hand", level="warn")


def _collector() -> Iterator[Finding]:
    """Whether something listens where spans and metrics would go; what it is, only an export would show."""
    try:
        sent = settings.collector()
    except ConfigInvalid as invalid:
        yield Finding("fail", "collector", f"{invalid}; the services would not start")
        return
    for endpoint in sorted({sent.traces, sent.metrics} - {""}):
        away = f"nothing answers at {endpoint}; the services run without, and say so once"
        yield _either(_answers(endpoint), "collector", f"something answers at {endpoint}", away, level="warn")
    if not (sent.traces or sent.metrics):
        yield Finding("ok", "collector", "none; OTEL_EXPORTER_OTLP_ENDPOINT names one")


def _answers(endpoint: str) -> bool:
    parts = urlsplit(endpoint if "://" in endpoint else f"//{endpoint}")
    try:
        socket.create_connection((parts.hostname or "", parts.port or GRPC_PORT), CONNECT_SECONDS).close()
    except OSError:
        return False
    return True
