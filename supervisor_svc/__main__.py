"""``supervisor-svc``: run one supervisor until SIGTERM or SIGINT."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Callable, Sequence

from lanewarden import config, logs, telemetry
from lanewarden.auth import CredentialsInvalid
from lanewarden.server import ListenError
from lanewarden.store import StateDirectory, StateDirectoryBusy, StoreUnusable
from lanewarden.telemetry import variables as otel_variables
from lanewarden.tls import Tls
from supervisor_svc.bootstrap import running
from supervisor_svc.config import SupervisorConfig
from supervisor_svc.sinks import SinkUnusable
from supervisor_svc.supervisor import Supervisor

log = logging.getLogger("supervisor_svc")


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code 0 after a clean stop, 1 when it could not start or had to stop, 2 for settings that cannot work."""
    try:
        settings = _load(argv)
        tls = Tls.load(cert=settings.tls_cert, key=settings.tls_key, ca=settings.tls_ca)
        otel_variables.drop_unset(os.environ)
        collector = otel_variables.load(os.environ, settings.otlp_endpoint)
    except config.ConfigInvalid as invalid:
        print(f"supervisor-svc: {invalid}", file=sys.stderr)
        return 2
    logs.configure("supervisor", settings.supervisor_id, style="text" if settings.log_style == "text" else "json")
    try:
        with StateDirectory.acquire(settings.state_dir) as directory:
            return asyncio.run(_serve(settings, tls, collector, directory, again=lambda: _load(argv)))
    except (StateDirectoryBusy, StoreUnusable, ListenError, CredentialsInvalid, SinkUnusable) as problem:
        print(f"supervisor-svc: {problem}", file=sys.stderr)
        return 1


def _load(argv: Sequence[str] | None) -> SupervisorConfig:
    given = sys.argv[1:] if argv is None else argv
    return config.load(SupervisorConfig, service="supervisor", argv=given, environ=os.environ)


async def _serve(
    settings: SupervisorConfig,
    tls: Tls,
    collector: telemetry.TelemetrySettings,
    directory: StateDirectory,
    again: Callable[[], SupervisorConfig],
) -> int:
    told = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, told.set)
    tracing = telemetry.configure("supervisor", settings.supervisor_id, collector)
    try:
        async with running(settings, directory, tracing, tls, environment=os.environ) as service:
            loop.add_signal_handler(signal.SIGHUP, lambda: _read_again(service.supervisor, again))
            log.info("ready", extra={"host": settings.listen_host, "port": service.port})
            waits = [asyncio.ensure_future(told.wait()), asyncio.ensure_future(service.failed.wait())]
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            for each in waits:
                each.cancel()
            if service.supervisor.store.failed:
                # Nothing that is said from here on could be kept: stop at once; the next start checks the database.
                log.critical("the store has failed; stopping")
                os._exit(1)
            code = int(service.failed.is_set())
    finally:
        tracing.shutdown()
    log.info("stopped")
    return code


def _read_again(supervisor: Supervisor, again: Callable[[], SupervisorConfig]) -> None:
    """SIGHUP: judge tasks by what the settings say now; all other settings are for the next start."""
    try:
        settings = again()
    except config.ConfigInvalid as invalid:
        log.error("the settings cannot be used; the old ones hold", extra={"problem": str(invalid)})
        return
    changed = supervisor.supervise_by(settings.supervision)
    log.info("settings read again", extra={"changed": changed, "version": supervisor.supervision.version})


if __name__ == "__main__":
    sys.exit(main())
