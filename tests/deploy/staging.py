"""The services of deploy/compose.yaml as processes of this machine: their commands, their environment, their files.

What a container would give each of them is put in here: ports of a network namespace of its own become ports of the test's,
a volume becomes a directory, and an image the program that it holds.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lanewarden.auth import Credentials, Role
from lanewarden.errors import Reason
from tests.deploy import tools
from tests.integration.pair import DEADLINE_SECONDS, LANE_RUNNER, OPERATOR, Pair
from tests.ports import free_port

SERVICES: Mapping[str, Any] = tools.read_yaml(tools.DEPLOY / "compose.yaml")["services"]

_ADDRESS = re.compile(rf"(?<![\w.-])({'|'.join(map(re.escape, [*SERVICES, '127.0.0.1', '0.0.0.0']))}):(\d+)\b")  # noqa: S104
_PROGRAMS: Mapping[str, tuple[str, ...]] = {
    "sh": ("sh",),
    "supervisor-svc": (sys.executable, "-m", "supervisor_svc"),
    "lane-runner-svc": (sys.executable, "-m", "lane_runner_svc"),
}
_IMAGES = {"otel/opentelemetry-collector-contrib": tools.COLLECTOR, "prom/prometheus": tools.PROMETHEUS}
_READY = {"sh": "", "supervisor-svc": '"ready"', "lane-runner-svc": '"ready"'}


class Program:
    """One process; ``log`` keeps every line of its stderr over all its starts. It is up when a line holds ``ready``."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], *, ready: str = "") -> None:
        self.command = list(command)
        self.environment = dict(environment)
        self.log: list[str] = []
        self._ready = ready
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        said = threading.Event()
        self._process = subprocess.Popen(
            self.command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env={**os.environ, **self.environment}
        )
        threading.Thread(target=self._read, args=(self._process, said), daemon=True).start()
        if self._ready and not said.wait(DEADLINE_SECONDS):
            self.kill()
            raise AssertionError(f"{self.command} is not ready; it said {self.log[-5:]}")

    def _read(self, process: subprocess.Popen[bytes], said: threading.Event) -> None:
        assert process.stderr is not None
        for raw in process.stderr:
            self.log.append(raw.decode(errors="replace").rstrip())
            if self._ready in self.log[-1]:
                said.set()

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def stop(self) -> int:
        """Ask it to end; its exit code."""
        if self._process is None or self._process.poll() is not None:
            return 0
        self._process.terminate()
        return self._process.wait(DEADLINE_SECONDS)


class Client(Pair):
    """The operator of a pair that somebody else runs; its services are not this object's to start or stop."""

    def __init__(self, state: Path, *, supervisor_port: int, runner_port: int) -> None:
        self.directory, self.credentials = state, Credentials.load(state / "credentials")
        self.supervisor_port, self.runner_port = supervisor_port, runner_port
        self._trusted, self._connections = None, []
        self.operator = self.client(supervisor_port, OPERATOR, Role.OPERATOR, Reason.SUPERVISOR_UNREACHABLE)
        self.lane_runner = self.client(runner_port, LANE_RUNNER, Role.OPERATOR, Reason.RUNNER_UNREACHABLE)

    def close(self) -> None:
        """Close its connections."""
        for connection in self._connections:
            connection.close()


class Staging:
    """``environment`` and ``arguments`` are put over and behind what a service has in compose.yaml."""

    def __init__(
        self,
        directory: Path,
        *,
        environment: Mapping[str, Mapping[str, str]],
        arguments: Mapping[str, Sequence[str]],
    ) -> None:
        self._ports: dict[tuple[str, int], int] = {}
        self._places: dict[str, str] = {}
        self.state = directory / "state"
        self.state.mkdir(mode=0o700)
        self._places = {
            "/state": str(self.state),
            "/etc/otel": str(tools.DEPLOY / "otel"),
            "/etc/prometheus": str(self._prometheus(directory / "etc")),
            "/prometheus": str(directory / "prometheus"),
        }
        self.programs = {
            name: Program(
                [*self._command(name), *arguments.get(name, ())],
                self._environment(name) | environment.get(name, {}),
                ready=_READY.get(service["command"][0], " is ready"),
            )
            for name, service in SERVICES.items()
            if "command" in service
        }

    def port(self, service: str, number: int) -> int:
        """The port of this machine that stands for ``number`` in the network namespace of ``service``."""
        key = SERVICES[service].get("network_mode", service).removeprefix("service:"), number
        if key not in self._ports:
            self._ports[key] = free_port()
        return self._ports[key]

    def start(self, *names: str) -> None:
        """Start these services, each when the one before it is up."""
        for name in names:
            self.programs[name].start()

    def client(self) -> Client:
        """The operator of the pair, which has been started."""
        ports = {"supervisor_port": self.port("supervisor", 7811), "runner_port": self.port("runner", 7812)}
        return Client(self.state, **ports)

    def stop(self) -> None:
        """End all of them; what does not end fails the test and does not stay behind."""
        try:
            for program in reversed(self.programs.values()):
                program.stop()
        finally:
            for program in self.programs.values():
                program.kill()

    def _here(self, text: str, service: str) -> str:
        """``text`` with addresses and paths as they are on this machine for ``service``."""

        def address(found: re.Match[str]) -> str:
            host, number = found.groups()
            return f"127.0.0.1:{self.port(host if host in SERVICES else service, int(number))}"

        text = _ADDRESS.sub(address, text)
        for place, directory in self._places.items():
            text = re.sub(rf"(?<![\w/.]){place}(?![\w-])", directory, text)
        return text

    def _command(self, service: str) -> list[str]:
        first, *rest = SERVICES[service]["command"]
        program = _PROGRAMS.get(first)
        if program is None:
            program, rest = (_IMAGES[SERVICES[service]["image"].partition(":")[0]],), [first, *rest]
        return [*program, *(self._here(word, service) for word in rest)]

    def _environment(self, service: str) -> dict[str, str]:
        found = {}
        for name, value in SERVICES[service].get("environment", {}).items():
            if name.endswith("_PORT"):
                found[name] = str(self.port(service, int(value)))
            elif name.endswith("_HOST"):
                found[name] = "127.0.0.1"
            else:
                found[name] = self._here(value, service)
        return found

    def _prometheus(self, directory: Path) -> Path:
        """A copy of deploy/prometheus that scrapes this machine, and often."""
        shutil.copytree(tools.DEPLOY / "prometheus", directory)
        file = directory / "prometheus.yml"
        text = re.sub(r"_interval: \d+s", "_interval: 500ms", file.read_text(encoding="utf-8"))
        file.write_text(self._here(text, "prometheus"), encoding="utf-8")
        return directory
