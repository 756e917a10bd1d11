"""``lane-runner-svc``: run one lane runner until SIGTERM or SIGINT."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Sequence

from lane_runner_svc.bootstrap import running
from lane_runner_svc.config import RunnerConfig, worker_environment
from lane_runner_svc.process import Spawner
from lanewarden import config, logs, telemetry
from lanewarden.auth import CredentialsInvalid
from lanewarden.server import ListenError
from lanewarden.store import StateDirectory, StateDirectoryBusy, StoreUnusable
from lanewarden.telemetry import variables as otel_variables
from lanewarden.tls import Tls

log = logging.getLogger("lane_runner_svc")


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code 0 after a clean stop, 1 when it could not start or had to stop, 2 for settings that cannot work."""
    if sys.platform != "linux":
        print("lane-runner-svc: needs Linux (pidfd, child subreaper)", file=sys.stderr)
        return 1
    try:
        settings = config.load(
            RunnerConfig, service="lane_runner", argv=sys.argv[1:] if argv is None else argv, environ=os.environ
        )
        tls = Tls.load(cert=settings.tls_cert, key=settings.tls_key, ca=settings.tls_ca)
        otel_variables.drop_unset(os.environ)
        collector = otel_variables.load(os.environ, settings.otlp_endpoint)
    except config.ConfigInvalid as invalid:
        print(f"lane-runner-svc: {invalid}", file=sys.stderr)
        return 2
    logs.configure("lane_runner", settings.runner_id, style="text" if settings.log_style == "text" else "json")
    try:
        with StateDirectory.acquire(settings.state_dir) as directory:
            spawner = Spawner()
            spawner.start()
            try:
                return asyncio.run(_serve(settings, tls, collector, directory, spawner))
            finally:
                spawner.close()
    except (StateDirectoryBusy, StoreUnusable, ListenError, CredentialsInvalid) as problem:
        print(f"lane-runner-svc: {problem}", file=sys.stderr)
        return 1


async def _serve(
    settings: RunnerConfig,
    tls: Tls,
    collector: telemetry.TelemetrySettings,
    directory: StateDirectory,
    spawner: Spawner,
) -> int:
    told = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, told.set)
    tracing = telemetry.configure("lane_runner", settings.runner_id, collector)
    try:
        async with running(settings, directory, spawner, worker_environment(), tracing, tls) as service:
            log.info("ready", extra={"host": settings.listen_host, "port": service.port})
            waits = [asyncio.ensure_future(told.wait()), asyncio.ensure_future(service.failed.wait())]
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            for each in waits:
                each.cancel()
            if service.failed.is_set():
                # Nothing that is said from here on could be kept: stop at once; the next start checks the database.
                log.critical("the store has failed; stopping")
                os._exit(1)
    finally:
        tracing.shutdown()
    log.info("stopped")
    return 0


if __name__ == "__main__":
    sys.exit(main())
