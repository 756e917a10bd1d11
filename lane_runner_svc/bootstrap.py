"""The one place where a lane runner is put together; nothing happens at import time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from importlib.metadata import version
from random import SystemRandom
from typing import Final

from lanewarden.write_trace import WriteTraceHandlers

from lane_runner_svc import emitters
from lane_runner_svc.config import RunnerConfig
from lane_runner_svc.loop.launcher import Launcher
from lane_runner_svc.loop.pruner import prune_requests
from lane_runner_svc.loop.reporter import Reporter
from lane_runner_svc.process import AttemptKey, ProcessHost, Spawner
from lane_runner_svc.rpc.lane_runner import LaneRunnerHandlers
from lane_runner_svc.rpc.logs import LogReader
from lane_runner_svc.rpc.worker import WorkerAuthenticator, WorkerHandlers
from lane_runner_svc.runner import Runner
from lane_runner_svc.store.meta import ensure_store_id
from lane_runner_svc.store.schema import MIGRATIONS
from lanewarden import client
from lanewarden.auth import Credentials, Role
from lanewarden.clock import SystemClock
from lanewarden.errors import Reason
from lanewarden.hub import Hub
from lanewarden.ledger import WriteLedger
from lanewarden.server import Server
from lanewarden.store import StateDirectory, Store
from lanewarden.store.anchor import restore_clock
from lanewarden.telemetry import Telemetry
from lanewarden.v1 import (
    lane_runner_service_pb2,
    supervisor_service_pb2,
    worker_service_pb2,
    write_trace_service_pb2,
)

log = logging.getLogger(__name__)

STOP_PATIENCE_SECONDS: Final = 630.0
"""Longer than the longest stop grace of a task."""
LANE_RUNNER: Final = lane_runner_service_pb2.DESCRIPTOR.services_by_name["LaneRunnerService"]
WORKER: Final = worker_service_pb2.DESCRIPTOR.services_by_name["WorkerService"]
WRITE_TRACE: Final = write_trace_service_pb2.DESCRIPTOR.services_by_name["WriteTraceService"]
SUPERVISOR: Final = supervisor_service_pb2.DESCRIPTOR.services_by_name["SupervisorService"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningRunner:
    """A lane runner that serves. ``failed`` is set when its store has failed and it must stop at once."""

    runner: Runner
    port: int
    failed: asyncio.Event


@asynccontextmanager
async def running(
    config: RunnerConfig,
    directory: StateDirectory,
    spawner: Spawner,
    environment: Mapping[str, str],
    telemetry: Telemetry,
) -> AsyncIterator[RunningRunner]:
    """Serve until the block is left, then drain: health first, then streams, then workers if so configured.

    The directory is locked and the spawner started before: both have to be before gRPC starts threads.
    """
    async with AsyncExitStack() as stack:
        failed = asyncio.Event()
        loop = asyncio.get_running_loop()
        ledger = WriteLedger(SystemClock())

        def stop_at_once() -> None:
            loop.call_soon_threadsafe(failed.set)

        store = Store.open(
            directory.path / "runner.sqlite3",
            migrations=MIGRATIONS,
            ledger=ledger,
            on_failure=stop_at_once,
        )
        stack.callback(store.close)
        store.write_now(ensure_store_id, emitter=emitters.START)
        clock = restore_clock(store, emitter=emitters.START)
        runner = Runner(
            runner_id=config.runner_id, lanes=config.lanes, store=store, clock=clock, random=SystemRandom(), hub=Hub()
        )
        launcher, host = await _workers(stack, runner, config, directory, spawner, environment)
        credentials = Credentials.ensure(config.credentials)
        workers = await _worker_server(stack, runner, config, telemetry)
        server = Server(name="lane-runner", authenticator=credentials.authenticator(), telemetry=telemetry)
        logs = LogReader(
            runner,
            lambda ref: host.log_path(AttemptKey(task_id=ref.task_id, epoch=ref.epoch, attempt=ref.attempt)),
        )
        server.add(LANE_RUNNER, LaneRunnerHandlers(runner, environment=environment, logs=logs))
        server.add(WRITE_TRACE, WriteTraceHandlers(store, ledger))
        port = await server.bind_tcp(config.listen_host, config.listen_port)
        await server.start()
        stack.push_async_callback(server.drain, config.drain_seconds)
        if config.stop_workers_on_exit:
            stack.push_async_callback(launcher.stop_all, STOP_PATIENCE_SECONDS)
        connection = client.connect(
            config.supervisor,
            token=credentials.tokens.get(Role.RUNNER, ""),
            unreachable=Reason.SUPERVISOR_UNREACHABLE,
            telemetry=telemetry,
        )
        stack.push_async_callback(connection.close)
        reporter = Reporter(
            runner,
            connection.stub(SUPERVISOR),
            address=f"{config.listen_host}:{port}",
            version=version("lanewarden"),
        )
        for job in (launcher.run(), reporter.run(), prune_requests(runner)):
            stack.push_async_callback(_end, asyncio.ensure_future(job))
        for serving, service in ((server, LANE_RUNNER), (server, WRITE_TRACE), (workers, WORKER)):
            serving.set_serving(service.full_name, True)
        yield RunningRunner(runner=runner, port=port, failed=failed)


async def _workers(
    stack: AsyncExitStack,
    runner: Runner,
    config: RunnerConfig,
    directory: StateDirectory,
    spawner: Spawner,
    environment: Mapping[str, str],
) -> tuple[Launcher, ProcessHost]:
    """The process host and its launcher, with every earlier attempt accounted for."""
    host = ProcessHost(directory.path / "attempts", spawner=spawner, on_exit=lambda record: launcher.on_exit(record))
    launcher = Launcher(runner, host, environment=environment, socket=str(config.worker_socket))
    runner.stop_worker = launcher.stop_worker
    runner.let_finish = launcher.let_finish
    stack.push_async_callback(host.close)
    stack.push_async_callback(launcher.close)
    await launcher.recover()
    return launcher, host


async def _worker_server(stack: AsyncExitStack, runner: Runner, config: RunnerConfig, telemetry: Telemetry) -> Server:
    server = Server(name="workers", authenticator=WorkerAuthenticator(runner), telemetry=telemetry)
    server.add(WORKER, WorkerHandlers(runner))
    await server.bind_unix(config.worker_socket)
    await server.start()
    stack.push_async_callback(server.drain, config.drain_seconds)
    return server


async def _end(job: asyncio.Future[None]) -> None:
    """Cancel a loop; one that had failed by itself is said."""
    job.cancel()
    (result,) = await asyncio.gather(job, return_exceptions=True)
    if isinstance(result, Exception):
        log.error("a loop of the runner had failed", exc_info=result)
