"""The one place where a lane runner is put together; nothing happens at import time."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random, SystemRandom
from typing import Any, Final

from google.protobuf.descriptor import ServiceDescriptor

from lane_runner_svc import emitters, metrics
from lane_runner_svc.config import RunnerConfig
from lane_runner_svc.holder import Holder
from lane_runner_svc.loop.carrier import Carrier
from lane_runner_svc.loop.files import fingerprint
from lane_runner_svc.loop.hooks import Hooks, is_hook
from lane_runner_svc.loop.launcher import Launcher, Workers
from lane_runner_svc.loop.pruner import prune_requests
from lane_runner_svc.loop.reporter import Reporter
from lane_runner_svc.loop.sensors import Sensors
from lane_runner_svc.loop.storms import storms
from lane_runner_svc.loop.timers import run_timers
from lane_runner_svc.loop.writers import Writers, is_writer
from lane_runner_svc.process import AttemptKey, ExitRecord, OutputTotals, ProcessHost, Spawner
from lane_runner_svc.rpc.lane_runner import LaneRunnerHandlers
from lane_runner_svc.rpc.logs import LogReader
from lane_runner_svc.rpc.supervision import SupervisionReader
from lane_runner_svc.rpc.worker import WorkerAuthenticator, WorkerHandlers
from lane_runner_svc.runner import Runner
from lane_runner_svc.store.meta import ensure_store_id
from lane_runner_svc.store.schema import MIGRATIONS
from lane_runner_svc.work.session import AttemptRef
from lanewarden import cgroups, client
from lanewarden.auth import Credentials, Role
from lanewarden.build import UNKNOWN, Build, installed
from lanewarden.client import Stub
from lanewarden.clock import Clock, SystemClock
from lanewarden.errors import Reason
from lanewarden.hub import Hub
from lanewarden.ledger import WriteLedger
from lanewarden.loop_lag import LoopLag
from lanewarden.readiness import loop_keeps_up, store_works, watch_readiness
from lanewarden.roll_up import RollUp
from lanewarden.server import Limits, Server
from lanewarden.store import StateDirectory, Store
from lanewarden.store.anchor import restore_clock
from lanewarden.telemetry import OFF as OFF_TELEMETRY
from lanewarden.telemetry import Read, Telemetry
from lanewarden.telemetry.metrics import observe, read_loop
from lanewarden.tls import OFF, Tls
from lanewarden.v1 import (
    lane_runner_service_pb2,
    supervisor_service_pb2,
    worker_service_pb2,
    write_trace_service_pb2,
)
from lanewarden.write_trace import WriteTraceHandlers

log = logging.getLogger(__name__)

STOP_PATIENCE_SECONDS: Final = 630.0
"""Longer than the longest stop grace of a task."""
DATABASE: Final = "runner.sqlite3"
LANE_RUNNER: Final = lane_runner_service_pb2.DESCRIPTOR.services_by_name["LaneRunnerService"]
WORKER: Final = worker_service_pb2.DESCRIPTOR.services_by_name["WorkerService"]
WRITE_TRACE: Final = write_trace_service_pb2.DESCRIPTOR.services_by_name["WriteTraceService"]
SUPERVISOR: Final = supervisor_service_pb2.DESCRIPTOR.services_by_name["SupervisorService"]


MakeWorkers = Callable[[Callable[[ExitRecord], None], Callable[[AttemptKey, OutputTotals], None]], Workers]
"""From what to call when a worker has ended, and when it has written, to the workers."""
WAITING_WORKERS_MAX: Final = 4096
"""Workers that wait for rulings and messages at once; a parked stream costs some 21 KiB and no CPU."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """A lane runner without a transport: what serves each service, and the loops that have to run beside."""

    runner: Runner
    launcher: Launcher
    hooks: Hooks
    writers: Writers
    loop_lag: LoopLag
    roll_up: RollUp
    authenticator: WorkerAuthenticator
    handlers: Mapping[ServiceDescriptor, object]
    worker_handlers: object
    loops: tuple[Callable[[], Coroutine[Any, Any, None]], ...]
    readings: Mapping[str, Read]
    """How to read each metric, by its name."""


async def build(
    config: RunnerConfig,
    *,
    store: Store,
    ledger: WriteLedger,
    clock: Clock,
    random: Random,
    fresh_uuid: Callable[[], str],
    make_workers: MakeWorkers,
    log_path: Callable[[AttemptRef], Path],
    environment: Mapping[str, str],
    address: str,
    supervisors: Mapping[str, Stub],
    own_build: Build = UNKNOWN,
    telemetry: Telemetry = OFF_TELEMETRY,
) -> Parts:
    """Put a lane runner together on an open store and account for every attempt of its last start.

    Uses no thread, no socket, no process and no clock but the given ones, so that a simulation runs the same parts.
    ``make_workers`` is given what to call when a worker has ended, and when it has written; ``supervisors`` are tried in
    order. What watches the process itself, the gauge of its event loop and its readiness, is for whoever runs it to start.
    """
    await store.write(lambda uow: ensure_store_id(uow, fresh_uuid()), emitter=emitters.START)
    runner = Runner(
        runner_id=config.runner_id,
        lanes=config.lanes,
        store=store,
        clock=clock,
        random=random,
        hub=Hub(),
        telemetry=telemetry,
    )
    launcher, hooks, sensors, writers = await _hands(runner, config, make_workers, environment)
    holder = Holder(runner)
    await holder.begin()
    incarnation = fresh_uuid()
    loop_lag = LoopLag(clock)
    supervision = SupervisionReader(
        runner, holder, incarnation=incarnation, build=own_build, loop_lag=loop_lag, supervisors=tuple(supervisors)
    )
    handlers = LaneRunnerHandlers(
        runner,
        environment=environment,
        approvers=config.approvers_of_lanes(),
        logs=LogReader(runner, log_path),
        supervision=supervision,
    )
    carrier = Carrier(handlers, telemetry=telemetry)
    reporter = Reporter(
        runner,
        supervisors,
        holder,
        incarnation=incarnation,
        address=address,
        build=own_build,
        loop_lag=loop_lag,
        carrier=carrier,
        fresh_uuid=fresh_uuid,
        storms=lambda: storms(ledger),
    )
    roll_up = RollUp(store, ledger, emitters.ROLL_UP)
    return Parts(
        runner=runner,
        launcher=launcher,
        hooks=hooks,
        writers=writers,
        loop_lag=loop_lag,
        roll_up=roll_up,
        authenticator=WorkerAuthenticator(runner),
        handlers={LANE_RUNNER: handlers, WRITE_TRACE: WriteTraceHandlers(store, ledger)},
        worker_handlers=WorkerHandlers(runner),
        loops=(
            *(launcher.run, hooks.run, sensors.run, writers.run),
            *(reporter.run, holder.run, carrier.run),
            lambda: run_timers(runner),
            lambda: prune_requests(runner),
            roll_up.run,
        ),
        readings={**metrics.readings(runner, holder), **read_loop(loop_lag)},
    )


async def _hands(
    runner: Runner, config: RunnerConfig, make_workers: MakeWorkers, environment: Mapping[str, str]
) -> tuple[Launcher, Hooks, Sensors, Writers]:
    """What starts processes and hears of them: of attempts, of on_success commands, of checkpoint writers. Those of the last
    start are accounted for.
    """

    def on_exit(record: ExitRecord) -> None:
        (hooks if is_hook(record.key) else writers if is_writer(record.key) else launcher).on_exit(record)

    def on_output(key: AttemptKey, totals: OutputTotals) -> None:
        if not (is_hook(key) or is_writer(key)):
            sensors.heard(_ref(key), totals.log_lines)

    sensors = Sensors(runner, look=fingerprint)
    workers = make_workers(on_exit, on_output)
    launcher = Launcher(runner, workers, sensors, environment=environment, socket=str(config.worker_socket))
    hooks = Hooks(runner, workers, environment=environment)
    writers = Writers(runner, workers, environment=environment, directory=config.checkpoints_dir)
    runner.stop_worker, runner.let_finish = launcher.stop_worker, launcher.let_finish
    for each in (launcher, hooks, writers):
        await each.recover()
    return launcher, hooks, sensors, writers


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningRunner:
    """A lane runner that serves. ``failed`` is set when its store or one of its loops has failed and it must stop."""

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
    tls: Tls = OFF,
) -> AsyncIterator[RunningRunner]:
    """Serve until the block is left, then drain: workers first if so configured, then health, streams, calls, the store.

    The directory is locked and the spawner started before: both have to be before gRPC starts threads.
    """
    own_build = installed()
    async with AsyncExitStack() as stack:
        failed = asyncio.Event()
        ledger = WriteLedger(SystemClock(), limits=config.write_limits)
        store = _open(directory.path / DATABASE, ledger, telemetry, failed)
        stack.callback(store.close)
        credentials = Credentials.ensure(config.credentials)
        server = Server(name="lane-runner", authenticator=credentials.authenticator(), telemetry=telemetry)
        port = await server.bind_tcp(config.listen_host, config.listen_port, credentials=tls.server_credentials())
        hosts: list[ProcessHost] = []

        def make_workers(
            on_exit: Callable[[ExitRecord], None], on_output: Callable[[AttemptKey, OutputTotals], None]
        ) -> ProcessHost:
            host = _process_host(directory.path / "attempts", spawner, on_exit, on_output)
            stack.push_async_callback(host.close)
            hosts.append(host)
            return host

        parts = await build(
            config,
            store=store,
            ledger=ledger,
            clock=restore_clock(store, emitter=emitters.START),
            random=SystemRandom(),
            fresh_uuid=lambda: str(uuid.uuid4()),
            make_workers=make_workers,
            log_path=lambda ref: hosts[0].log_path(_key(ref)),
            environment=environment,
            address=f"{config.listen_host}:{port}",
            supervisors={
                target: _supervisor(stack, target, credentials.tokens.get(Role.RUNNER, ""), telemetry, tls)
                for target in config.supervisor
            },
            own_build=own_build,
            telemetry=telemetry,
        )
        stack.push_async_callback(parts.roll_up.finish)
        for each in (parts.launcher, parts.hooks, parts.writers):
            stack.push_async_callback(each.close)
        observe(telemetry, store, ledger, parts.readings)
        workers = Server(
            name="workers",
            authenticator=parts.authenticator,
            telemetry=telemetry,
            limits=Limits(streams_max=WAITING_WORKERS_MAX),
        )
        workers.add(WORKER, parts.worker_handlers)
        await workers.bind_unix(config.worker_socket)
        await _serve(stack, workers, config.drain_seconds)
        for service, handlers in parts.handlers.items():
            server.add(service, handlers)
        await _serve(stack, server, config.drain_seconds)
        serving = _serving(workers, server, parts)
        _run_loops(stack, parts, serving, failed)
        if config.stop_workers_on_exit:
            for each in (parts.writers, parts.hooks, parts.launcher):
                stack.push_async_callback(each.stop_all, STOP_PATIENCE_SECONDS)
        serving(True)
        yield RunningRunner(runner=parts.runner, port=port, failed=failed)


def _open(path: Path, ledger: WriteLedger, telemetry: Telemetry, failed: asyncio.Event) -> Store:
    """The store; when the database fails the service is to stop at once."""
    event_loop = asyncio.get_running_loop()

    def stop_at_once() -> None:
        event_loop.call_soon_threadsafe(failed.set)

    return Store.open(path, migrations=MIGRATIONS, ledger=ledger, on_failure=stop_at_once, telemetry=telemetry)


def _supervisor(stack: AsyncExitStack, target: str, token: str, telemetry: Telemetry, tls: Tls) -> Stub:
    connection = client.connect(
        target,
        token=token,
        unreachable=Reason.SUPERVISOR_UNREACHABLE,
        telemetry=telemetry,
        credentials=tls.channel_credentials(),
    )
    stack.push_async_callback(connection.close)
    return connection.stub(SUPERVISOR)


def _key(ref: AttemptRef) -> AttemptKey:
    return AttemptKey(task_id=ref.task_id, epoch=ref.epoch, attempt=ref.attempt)


def _ref(key: AttemptKey) -> AttemptRef:
    return AttemptRef(task_id=key.task_id, epoch=key.epoch, attempt=key.attempt)


def _process_host(
    attempts_dir: Path,
    spawner: Spawner,
    on_exit: Callable[[ExitRecord], None],
    on_output: Callable[[AttemptKey, OutputTotals], None],
) -> ProcessHost:
    """The workers, each in a cgroup of its own if this process may make some."""
    found = cgroups.find()
    log.info("cgroups of workers", extra={"found": found.text})
    return ProcessHost(attempts_dir, spawner=spawner, on_exit=on_exit, on_output=on_output, cgroup_parent=found.path)


async def _serve(stack: AsyncExitStack, server: Server, drain_seconds: float) -> None:
    await server.start()
    stack.push_async_callback(server.drain, drain_seconds)


def _serving(workers: Server, server: Server, parts: Parts) -> Callable[[bool], None]:
    """Says on both servers whether every service works."""

    def tell(ready: bool) -> None:
        workers.set_serving(WORKER.full_name, ready)
        for service in parts.handlers:
            server.set_serving(service.full_name, ready)

    return tell


def _run_loops(stack: AsyncExitStack, parts: Parts, serving: Callable[[bool], None], failed: asyncio.Event) -> None:
    """Run every loop, and what watches the process itself, until the stack is left."""
    checks = (store_works(parts.runner.store), loop_keeps_up(parts.loop_lag))
    watch = (parts.loop_lag.run(), watch_readiness(checks, serving, parts.runner.clock))
    for each in (*(loop() for loop in parts.loops), *watch):
        job = asyncio.ensure_future(each)
        job.add_done_callback(lambda job: _note_end(job, failed))
        stack.push_async_callback(_end, job)


def _note_end(job: asyncio.Future[None], failed: asyncio.Event) -> None:
    """A loop never ends by itself: without its launches or its reports a runner must not look healthy."""
    if not job.cancelled():
        log.critical("a loop of the runner has failed", exc_info=job.exception())
        failed.set()


async def _end(job: asyncio.Future[None]) -> None:
    job.cancel()
    await asyncio.gather(job, return_exceptions=True)
