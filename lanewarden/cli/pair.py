"""Both services, kept up together: what `up` runs."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from grpc_health.v1 import health_pb2

from lanewarden import client
from lanewarden.auth import Credentials, Role
from lanewarden.cli import control
from lanewarden.cli.ports import HOST, any_free, is_free
from lanewarden.cli.service import Service, ServiceSpec
from lanewarden.cli.state import Endpoints, NotUp, StateDir
from lanewarden.errors import Refusal
from lanewarden.server.listen import ListenError, check_tcp
from lanewarden.v1 import operator_service_pb2

READY_SECONDS: Final = 30.0
POLL_SECONDS: Final = 0.05

_HEALTH: Final = health_pb2.DESCRIPTOR.services_by_name["Health"]
_OPERATOR: Final = operator_service_pb2.DESCRIPTOR.services_by_name["OperatorService"]


def choose_endpoints(state: StateDir, *, supervisor_port: int, runner_port: int) -> Endpoints:
    """Where the services will listen for as long as `up` runs, also while one of them is being started again.

    0 means any port: the one of an earlier `up` that was killed, if it is free, because the runner's lease is bound to
    its address until it expires; otherwise any that is free.

    Raises:
        NotUp: another process listens at a port that was asked for.
    """
    try:
        before = state.endpoints()
    except NotUp:
        before = Endpoints(supervisor="", runner="")
    state.endpoints_file.unlink(missing_ok=True)
    return Endpoints(
        supervisor=f"{HOST}:{choose_port(supervisor_port, before.supervisor)}",
        runner=f"{HOST}:{choose_port(runner_port, before.runner)}",
    )


def choose_port(port: int, before: str = "") -> int:
    """``port``; for 0 that of the address ``before``, if it is free, or any that is.

    Raises:
        NotUp: another process listens there.
    """
    if not port:
        earlier = before.rpartition(":")[2]
        return int(earlier) if earlier.isdecimal() and is_free(int(earlier)) else any_free()
    try:
        check_tcp(HOST, port, secured=False)
    except ListenError as error:
        raise NotUp(f"{error}; 0 means any") from None
    return port


class Pair:
    """A supervisor and a lane runner in one state directory, which the caller has locked; ``sinks`` tell people."""

    def __init__(
        self,
        state: StateDir,
        endpoints: Endpoints,
        *,
        lanes: int,
        sinks: Sequence[str],
        say: Callable[[str], None],
    ) -> None:
        self._state = state
        self._say = say
        self._since = time.time()
        self._stop = asyncio.Event()
        self.endpoints = endpoints
        shared = ("--credentials-dir", str(state.credentials), "--listen-host", HOST)
        self._supervisor = Service(
            ServiceSpec(
                name="supervisor",
                module="supervisor_svc",
                arguments=(
                    *shared,
                    *("--state-dir", str(state.supervisor), "--listen-port", _port(endpoints.supervisor)),
                    *(word for sink in sinks for word in ("--notify", sink)),
                ),
                address=self.endpoints.supervisor,
                log=state.logs / "supervisor.jsonl",
                prints=True,  # notifications, where one of the sinks is stdout
            ),
            say,
        )
        lane_flags = [word for number in range(1, lanes + 1) for word in ("--lanes", f"lane-{number}")]
        self._runner = Service(
            ServiceSpec(
                name="runner",
                module="lane_runner_svc",
                arguments=(
                    *shared,
                    *("--state-dir", str(state.runner), "--listen-port", _port(endpoints.runner)),
                    *("--supervisor", self.endpoints.supervisor, "--stop-workers-on-exit", *lane_flags),
                ),
                address=self.endpoints.runner,
                log=state.logs / "runner.jsonl",
            ),
            say,
        )

    async def run(self, *, on_ready: Callable[[], None]) -> None:
        """Keep both up until SIGINT, SIGTERM or the control socket says stop.

        Raises:
            NotUp: one of them cannot be started or keeps crashing, or they are not ready in time.
        """
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self.stop)
        server = await asyncio.start_unix_server(self._answer, sock=control.listen(self._state))
        kept = [asyncio.ensure_future(service.keep()) for service in (self._supervisor, self._runner)]
        announced = asyncio.ensure_future(self._announce(on_ready))
        told = asyncio.ensure_future(self._stop.wait())
        try:
            done, _ = await asyncio.wait({told, *kept, announced}, return_when=asyncio.FIRST_COMPLETED)
            if announced in done and announced.exception() is None:
                done, _ = await asyncio.wait({told, *kept}, return_when=asyncio.FIRST_COMPLETED)
            for each in done:
                each.result()  # raises what ended it
        finally:
            announced.cancel()
            told.cancel()
            self._state.endpoints_file.unlink(missing_ok=True)
            # The runner first: it tells the supervisor how its workers ended.
            await self._runner.stop()
            await self._supervisor.stop()
            await asyncio.gather(*kept, announced, told, return_exceptions=True)
            server.close()

    def stop(self) -> None:
        """Begin to stop; asked again, do not wait for workers any longer."""
        if self._stop.is_set():
            self._say("stopping at once")
            self._runner.crash(for_good=True)
            self._supervisor.crash(for_good=True)
        else:
            self._say("stopping: workers first, each within its grace (again: at once)")
            self._stop.set()

    async def _announce(self, on_ready: Callable[[], None]) -> None:
        try:
            async with asyncio.timeout(READY_SECONDS):
                await self._until_ready()
        except TimeoutError:
            raise NotUp(f"not ready within {READY_SECONDS:g} s; see {self._state.logs}") from None
        self.endpoints.save(self._state.endpoints_file)
        self._supervisor.ready = self._runner.ready = True
        on_ready()

    async def _until_ready(self) -> None:
        token = Credentials.load(self._state.credentials).tokens[Role.OPERATOR]
        trusted = self._state.channel_credentials()
        async with client.connect(self.endpoints.supervisor, token=token, credentials=trusted) as supervisor:
            async with client.connect(self.endpoints.runner, credentials=trusted) as runner:
                await _until(lambda: _serves(supervisor))
                await _until(lambda: _serves(runner))
            operator = supervisor.stub(_OPERATOR)

            async def has_runner() -> bool:
                found = await operator.ListRunners(operator_service_pb2.ListRunnersRequest())
                live = operator_service_pb2.RUNNER_STATE_LIVE
                return any(each.state == live and each.address == self.endpoints.runner for each in found.runners)

            await _until(has_runner)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(control.ANSWER_SECONDS):
                word = (await reader.readline()).decode("ascii", "replace").strip()
                self._obey(word, writer)
                writer.write(json.dumps(self._report()).encode() + b"\n")
                await writer.drain()
        except (
            OSError,
            ValueError,
        ):  # it went away, sent too much, or said nothing in time (TimeoutError is an OSError)
            pass
        finally:
            writer.close()

    def _obey(self, word: str, writer: asyncio.StreamWriter) -> None:
        if word == "stop":
            # Never closed here: the kernel does it when this process has ended, and that is what `down` waits for.
            os.dup(writer.get_extra_info("socket").fileno())
            self.stop()
        elif word == "crash supervisor":
            self._supervisor.crash()
        elif word == "crash runner":
            self._runner.crash()

    def _report(self) -> dict[str, Any]:
        return {
            "pid": os.getpid(),
            "since": self._since,
            "ready": self._supervisor.ready,
            "stopping": self._stop.is_set(),
            "services": {each.spec.name: each.report() for each in (self._supervisor, self._runner)},
        }


def _port(address: str) -> str:
    return address.rpartition(":")[2]


async def _until(check: Callable[[], Any]) -> None:
    while True:
        try:
            if await check():
                return
        except Refusal:
            pass  # not there yet; the caller's bound ends this
        await asyncio.sleep(POLL_SECONDS)


async def _serves(connection: client.Connection) -> bool:
    answer = await connection.stub(_HEALTH).Check(health_pb2.HealthCheckRequest())
    return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)
