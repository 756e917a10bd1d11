"""The supervisor as a process: starts once, says so, stops cleanly, and forgets nothing when it is killed."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from lanewarden import client
from lanewarden.auth import Credentials, Role
from lanewarden.v1 import operator_service_pb2 as pb
from supervisor_svc.bootstrap import OPERATOR, SUPERVISOR
from tests.integration.supervisor_kit import RunnerSide, escalation, ruling
from tests.ports import free_port

WAIT_SECONDS = 30


def command(path: Path, *flags: str) -> list[str]:
    return [sys.executable, "-m", "supervisor_svc", "--state-dir", str(path), "--listen-port", "0", *flags]


@contextmanager
def started(path: Path) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A supervisor that has said it is ready, and its port."""
    process = subprocess.Popen(command(path), stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        line = json.loads(process.stderr.readline())
        assert line["message"] == "ready"
        yield process, line["port"]
    finally:
        process.kill()
        process.communicate(timeout=WAIT_SECONDS)


def connect(path: Path, port: int, role: Role) -> client.Connection:
    token = Credentials.load(path / "credentials").tokens[role]
    return client.connect(f"127.0.0.1:{port}", token=token)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_r03_a_signal_stops_it_cleanly(tmp_path: Path, number: signal.Signals) -> None:
    """It exits 0 within its grace."""
    with started(tmp_path) as (process, _):
        process.send_signal(number)
        assert process.wait(WAIT_SECONDS) == 0


def test_p20_second_process_on_the_same_directory_exits_at_once(tmp_path: Path) -> None:
    """One line, exit 1, and the first goes on."""
    with started(tmp_path) as (process, _):
        second = subprocess.run(command(tmp_path), capture_output=True, text=True, timeout=WAIT_SECONDS, check=False)
        assert second.returncode == 1
        assert second.stderr.count("\n") == 1
        assert f"process {process.pid}" in second.stderr
        assert process.poll() is None


def test_a_port_in_use_is_said_in_one_line(tmp_path: Path) -> None:
    """One line that names the port, exit 1."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        flags = command(tmp_path, "--listen-port", str(port))
        done = subprocess.run(flags, capture_output=True, text=True, timeout=WAIT_SECONDS, check=False)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert f"{port} is in use" in done.stderr


def test_r08_impossible_timings_stop_it_before_it_touches_anything(tmp_path: Path) -> None:
    """One line that names both settings, exit 2, no state directory."""
    path = tmp_path / "state"
    flags = command(path, "--lease-renew-seconds", "9")
    done = subprocess.run(flags, capture_output=True, text=True, timeout=WAIT_SECONDS, check=False)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "lease_renew_seconds" in done.stderr
    assert "lease_ttl_seconds" in done.stderr
    assert not path.exists()


async def test_h09_killed_with_an_open_hold_and_a_stored_ruling(tmp_path: Path) -> None:
    """After SIGKILL the escalation has the same id and age, and the accepted ruling is still on its way, once."""
    request = ruling()
    with started(tmp_path) as (process, port):
        async with connect(tmp_path, port, Role.RUNNER) as runner, connect(tmp_path, port, Role.OPERATOR) as operator:
            side = RunnerSide(runner.stub(SUPERVISOR), f"127.0.0.1:{free_port()}")
            await side.register()
            await side.escalate(1, escalation())
            before = await inbox(operator)
            assert (await operator.stub(OPERATOR).Steer(request)).message_id == request.request_id
            process.kill()
            process.wait(WAIT_SECONDS)
    with started(tmp_path) as (_, port):
        async with connect(tmp_path, port, Role.OPERATOR) as operator:
            (after,) = await inbox(operator)
            assert (after.escalation_id, after.opened_at) == (before[0].escalation_id, before[0].opened_at)
            assert after.ruling.ruling_id == request.request_id
            audit = (await operator.stub(OPERATOR).ListAudit(pb.ListAuditRequest())).entries
            assert [each.outcome for each in audit] == ["STORED"]


async def inbox(operator: client.Connection) -> list[Any]:
    return list((await operator.stub(OPERATOR).ListEscalations(pb.ListEscalationsRequest())).escalations)
