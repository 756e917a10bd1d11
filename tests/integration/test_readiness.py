"""Health as it is watched over real gRPC: a service that answers and does not work says so, and says when it works again."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from grpc_health.v1 import health_pb2

from lanewarden import client
from lanewarden.client import Stub
from lanewarden.client_sync import connect
from lanewarden.readiness import store_works
from supervisor_svc.loop import sweep
from tests.integration.pair import Pair
from tests.integration.supervisor_kit import PATIENCE_SECONDS, world

HEALTH = health_pb2.DESCRIPTOR.services_by_name["Health"]
STATES = health_pb2.HealthCheckResponse
OPERATOR_SERVICE = "lanewarden.v1.OperatorService"


@asynccontextmanager
async def watched(port: int, service: str = OPERATOR_SERVICE) -> AsyncIterator[AsyncIterator[int]]:
    """The states of a service, as Watch tells them."""
    async with client.connect(f"127.0.0.1:{port}") as connection:
        stub: Stub = connection.stub(HEALTH)
        yield (each.status async for each in stub.Watch(health_pb2.HealthCheckRequest(service=service)))


async def until(states: AsyncIterator[int], wanted: int) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        async for state in states:
            if state == wanted:
                return


class Gate:
    """Stands in for a step of the sweep, which hangs while it is shut."""

    def __init__(self, real: Any) -> None:
        self._real = real
        self.open = asyncio.Event()
        self.open.set()

    async def __call__(self, *arguments: Any) -> None:
        await self.open.wait()
        await self._real(*arguments)


async def test_a_supervisor_whose_sweep_stands_still_is_not_serving(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It answers, and its health says NOT_SERVING until the sweep goes on; each service by name and all together."""
    gate = Gate(sweep._store)
    monkeypatch.setattr(sweep, "_store", gate)
    monkeypatch.setattr("supervisor_svc.work.presence.SWEEP_MAX_MS", 100)
    monkeypatch.setattr("supervisor_svc.bootstrap.SWEEP_STILL_MS_MAX", 2_000)
    async with world(tmp_path) as w, watched(w.service.port) as states, watched(w.service.port, "") as whole:
        await until(states, STATES.SERVING)
        gate.open.clear()
        await until(states, STATES.NOT_SERVING)
        await until(whole, STATES.NOT_SERVING)
        sweeps = (await w.side.keep_alive()).sweep
        assert (await w.side.keep_alive()).sweep == sweeps, "renewals are answered, and show that nothing advances"
        gate.open.set()
        await until(states, STATES.SERVING)
        await until(whole, STATES.SERVING)


async def test_a_supervisor_whose_loop_stood_still_is_not_serving_for_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A loop that is too far behind shows in its health and in what it tells of itself, and passes."""
    monkeypatch.setattr("lanewarden.loop_lag.WINDOW_MS", 1_000)
    async with world(tmp_path) as w, watched(w.service.port) as states:
        await until(states, STATES.SERVING)
        time.sleep(2.6)  # the whole loop: that is the fault
        await until(states, STATES.NOT_SERVING)
        await until(states, STATES.SERVING)


async def test_a_failed_store_is_not_serving_and_a_full_one_is(tmp_path: Path) -> None:
    """A full disk costs new work, refused by its own reason, while rulings and renewals live on. A failure costs all."""
    async with world(tmp_path) as w, watched(w.service.port) as states:
        await until(states, STATES.SERVING)
        health = w.service.supervisor.store._health
        health.full = True
        assert store_works(w.service.supervisor.store)() == ""
        health.failed = True
        await until(states, STATES.NOT_SERVING)
        health.failed = False


def test_a_runner_that_stood_still_says_so_and_recovers(tmp_path: Path) -> None:
    """A stopped and continued process: its health, watched at its own port, goes to NOT_SERVING and back."""
    with Pair(tmp_path) as pair, connect(f"127.0.0.1:{pair.runner_port}") as connection:
        watch = connection.stub(HEALTH).Watch
        request = health_pb2.HealthCheckRequest(service="lanewarden.v1.LaneRunnerService")
        states = (each.status for each in watch(request, timeout_seconds=2 * PATIENCE_SECONDS))
        assert next(states) == STATES.SERVING
        assert pair.runner.process is not None
        pair.runner.process.send_signal(signal.SIGSTOP)
        time.sleep(3.0)  # the fault, not a wait
        pair.runner.process.send_signal(signal.SIGCONT)
        assert next(states) == STATES.NOT_SERVING
        assert next(states) == STATES.SERVING
