"""The one place where a supervisor is put together; nothing happens at import time."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from random import Random, SystemRandom
from types import MappingProxyType
from typing import Any, Final

from google.protobuf.descriptor import ServiceDescriptor

from lanewarden.auth import Credentials, Role
from lanewarden.build import UNKNOWN, Build, installed
from lanewarden.client import Stub
from lanewarden.clock import Clock, SystemClock
from lanewarden.hub import Hub
from lanewarden.ledger import WriteLedger
from lanewarden.readiness import Advances, loop_keeps_up, store_works, watch_readiness
from lanewarden.roll_up import RollUp
from lanewarden.server import Server
from lanewarden.store import StateDirectory, Store
from lanewarden.store.anchor import restore_clock
from lanewarden.telemetry import OFF as OFF_TELEMETRY
from lanewarden.telemetry import Read, Telemetry
from lanewarden.telemetry.metrics import observe, read_loop
from lanewarden.tls import OFF, Tls
from lanewarden.v1 import operator_service_pb2, supervisor_service_pb2, write_trace_service_pb2
from lanewarden.write_trace import WriteTraceHandlers
from supervisor_svc import emitters, metrics
from supervisor_svc.config import SupervisorConfig
from supervisor_svc.loop.delivery import deliver
from supervisor_svc.loop.filer import Filer
from supervisor_svc.loop.notifier import notify
from supervisor_svc.loop.pruner import prune
from supervisor_svc.loop.reach import probe
from supervisor_svc.loop.supervise import Supervise
from supervisor_svc.loop.sweep import sweep
from supervisor_svc.rpc.forward import Forwarder
from supervisor_svc.rpc.operator import OperatorHandlers
from supervisor_svc.rpc.runners import RunnerConnections
from supervisor_svc.rpc.supervisor import SupervisorHandlers
from supervisor_svc.sinks import Sink
from supervisor_svc.sinks.specs import make_sinks
from supervisor_svc.sinks.tracker import Tracker
from supervisor_svc.sinks.trackers import make_tracker
from supervisor_svc.store.schema import MIGRATIONS
from supervisor_svc.supervisor import Supervisor
from supervisor_svc.work.actions import RunnerActions
from supervisor_svc.work.carriage import Carriage
from supervisor_svc.work.courier import Courier
from supervisor_svc.work.presence import SWEEP_MAX_MS, Presence

log = logging.getLogger(__name__)

DATABASE: Final = "supervisor.sqlite3"
SWEEP_STILL_MS_MAX: Final = 2 * SWEEP_MAX_MS
"""A sweep that has not advanced for longer means a supervisor that does not work."""
SUPERVISOR: Final = supervisor_service_pb2.DESCRIPTOR.services_by_name["SupervisorService"]
OPERATOR: Final = operator_service_pb2.DESCRIPTOR.services_by_name["OperatorService"]
WRITE_TRACE: Final = write_trace_service_pb2.DESCRIPTOR.services_by_name["WriteTraceService"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """A supervisor without a transport: what serves each service, and the loops that have to run beside."""

    supervisor: Supervisor
    roll_up: RollUp
    handlers: Mapping[ServiceDescriptor, object]
    loops: tuple[Callable[[], Coroutine[Any, Any, None]], ...]
    readings: Mapping[str, Read]
    """How to read each metric, by its name."""


async def build(
    config: SupervisorConfig,
    *,
    store: Store,
    ledger: WriteLedger,
    clock: Clock,
    random: Random,
    incarnation: str,
    connect_runner: Callable[[str], Stub],
    sinks: Sequence[Sink] = (),
    own_build: Build = UNKNOWN,
    tracker: Tracker | None = None,
    telemetry: Telemetry = OFF_TELEMETRY,
) -> Parts:
    """Put a supervisor together on an open store and take over the runners of its last start. Without a ``tracker`` what is
    to be filed is claimed, and waits.

    Uses no thread, no socket and no clock but the given ones, so that a simulation runs the same parts. What watches the
    process itself, the gauge of its event loop and its readiness, is for whoever runs the process to start.
    """
    supervisor = Supervisor(
        supervisor_id=config.supervisor_id,
        incarnation=incarnation,
        store=store,
        clock=clock,
        random=random,
        hub=Hub(),
        presence=Presence(config.timing, clock),
        connect_runner=connect_runner,
        build=own_build,
        sinks=[sink.name for sink in sinks],
        supervision=config.supervision,
        telemetry=telemetry,
    )
    await supervisor.restore()
    courier = Courier(supervisor, timeout_seconds=config.delivery_seconds)
    carriage = Carriage(supervisor, courier)
    forwarder = Forwarder(supervisor, timeout_seconds=config.forward_seconds)
    actions = RunnerActions(supervisor, timeout_seconds=config.forward_seconds)
    supervise = Supervise(supervisor, actions, gather_seconds=config.incident_gather_seconds)
    filer = Filer(supervisor, tracker, actions) if tracker else None
    filing = (filer.run, filer.follow_runners) if filer else ()
    roll_up = RollUp(store, ledger, emitters.ROLL_UP)
    return Parts(
        supervisor=supervisor,
        roll_up=roll_up,
        handlers={
            SUPERVISOR: SupervisorHandlers(supervisor, carriage),
            OPERATOR: OperatorHandlers(supervisor, courier, forwarder),
            WRITE_TRACE: WriteTraceHandlers(store, ledger),
        },
        loops=(
            lambda: sweep(supervisor),
            lambda: deliver(supervisor, courier),
            carriage.settle,
            lambda: probe(supervisor, forwarder),
            lambda: prune(supervisor),
            roll_up.run,
            supervise.run,
            *filing,
            *(partial(notify, supervisor, sink) for sink in sinks),
        ),
        readings={**metrics.readings(supervisor, filer), **read_loop(supervisor.loop_lag)},
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningSupervisor:
    """A supervisor that serves. ``failed`` is set when its store or one of its loops has failed and it must stop."""

    supervisor: Supervisor
    port: int
    failed: asyncio.Event


@asynccontextmanager
async def running(
    config: SupervisorConfig,
    directory: StateDirectory,
    telemetry: Telemetry,
    tls: Tls = OFF,
    environment: Mapping[str, str] = MappingProxyType({}),
) -> AsyncIterator[RunningSupervisor]:
    """Serve until the block is left, then drain: health first, then streams, then calls, then the store.

    ``environment`` is what the programs of command sinks get.
    """
    own_build = installed()
    async with AsyncExitStack() as stack:
        failed = asyncio.Event()
        event_loop = asyncio.get_running_loop()
        ledger = WriteLedger(SystemClock(), limits=config.write_limits)
        sinks = make_sinks(config.notify, environment)

        def stop_at_once() -> None:
            event_loop.call_soon_threadsafe(failed.set)

        store = Store.open(
            directory.path / DATABASE,
            migrations=MIGRATIONS,
            ledger=ledger,
            on_failure=stop_at_once,
            telemetry=telemetry,
        )
        stack.callback(store.close)
        credentials = Credentials.ensure(config.credentials)
        connections = RunnerConnections(
            credentials.tokens.get(Role.SUPERVISOR, ""), telemetry, tls.channel_credentials()
        )
        stack.push_async_callback(connections.close)
        server = Server(name="supervisor", authenticator=credentials.authenticator(), telemetry=telemetry)
        port = await server.bind_tcp(config.listen_host, config.listen_port, credentials=tls.server_credentials())
        parts = await build(
            config,
            store=store,
            ledger=ledger,
            clock=restore_clock(store, emitter=emitters.START),
            random=SystemRandom(),
            incarnation=str(uuid.uuid4()),
            connect_runner=connections.stub,
            sinks=sinks,
            tracker=make_tracker(
                config.incidents,
                state_dir=directory.path,
                token_file=config.github_token_file,
                api=config.github_api,
            ),
            own_build=own_build,
            telemetry=telemetry,
        )
        stack.push_async_callback(parts.roll_up.finish)
        supervisor = parts.supervisor
        observe(telemetry, store, ledger, parts.readings)

        def serving(ready: bool) -> None:
            for service in parts.handlers:
                server.set_serving(service.full_name, ready)

        checks = (
            store_works(store),
            loop_keeps_up(supervisor.loop_lag),
            Advances("the sweep", lambda: supervisor.presence.sweeps, supervisor.clock, ms_max=SWEEP_STILL_MS_MAX),
        )
        for service, handlers in parts.handlers.items():
            server.add(service, handlers)
        await server.start()
        watch = (supervisor.loop_lag.run(), watch_readiness(checks, serving, supervisor.clock))
        for each in (*(loop() for loop in parts.loops), *watch):
            job = asyncio.ensure_future(each)
            job.add_done_callback(lambda job: _note_end(job, failed))
            stack.push_async_callback(_end, job)
        stack.push_async_callback(server.drain, config.drain_seconds)
        serving(True)
        yield RunningSupervisor(supervisor=supervisor, port=port, failed=failed)


def _note_end(job: asyncio.Future[None], failed: asyncio.Event) -> None:
    """A loop never ends by itself: without its sweep or its deliveries a supervisor must not look healthy."""
    if not job.cancelled():
        log.critical("a loop of the supervisor has failed", exc_info=job.exception())
        failed.set()


async def _end(job: asyncio.Future[None]) -> None:
    job.cancel()
    await asyncio.gather(job, return_exceptions=True)
