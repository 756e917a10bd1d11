"""The lane runner's settings; the only place that knows their names."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from lane_runner_svc.core.timers import Approver
from lanewarden.config import setting
from lanewarden.ledger import Thresholds

UNIX_PATH_BYTES_MAX = 107
"""The kernel's bound on the path of a Unix socket."""


def _default_runner_id() -> str:
    name = "".join(letter if letter.isalnum() or letter in "._-" else "-" for letter in socket.gethostname())
    return name.strip("._-")[:63] or "runner"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerConfig:
    """See ``lane-runner-svc --help``."""

    state_dir: Path = setting(Path("lanewarden-runner"), help="directory of the store, sockets and attempts")
    runner_id: str = setting(
        _default_runner_id(), help="stable id of this runner; letters, digits, dots, dashes, underscores"
    )
    lanes: tuple[str, ...] = setting(("lane-1", "lane-2"), help="the lanes, by name")
    approvers: tuple[str, ...] = setting(
        (), help="who owes rulings, in order, as [LANE:]NAME[=SECONDS]; for tasks that name nobody"
    )
    listen_host: str = setting("127.0.0.1", help="address of LaneRunnerService; beyond loopback needs TLS")
    listen_port: int = setting(7812, help="port of LaneRunnerService; 0 for any", at_least=0, at_most=65535)
    supervisor: tuple[str, ...] = setting(
        ("127.0.0.1:7811",),
        help="address of a supervisor, host:port; of several, the next one is turned to when one is lost",
    )
    credentials_dir: Path | None = setting(
        None, help="directory of <role>.token files; default <state-dir>/credentials"
    )
    stop_workers_on_exit: bool = setting(
        False, help="stop all workers when the runner is told to stop, instead of leaving them to the next start"
    )
    tls_cert: Path | None = setting(None, help="PEM certificate chain to serve with; needs --tls-key")
    tls_key: Path | None = setting(None, help="PEM key of the certificate; needs --tls-cert")
    tls_ca: Path | None = setting(
        None, help="PEM certificates to trust in the supervisor, which is then called with TLS"
    )
    drain_seconds: float = setting(5.0, help="how long calls in flight may take when stopping", at_least=0, at_most=600)
    storm_rows_per_second: float = setting(
        20.0, help="rows/s written to one task over 10 s that are a storm", at_least=1, at_most=1_000_000
    )
    storm_total_rows_per_second: float = setting(
        200.0, help="the same for one emitter over many tasks", at_least=1, at_most=1_000_000
    )
    write_ceiling_rows_per_second: float = setting(
        1_000.0, help="rows/s of one emitter to one task beyond which it is throttled; 0 for none", at_least=0
    )
    log_style: str = setting("json", help="form of the log lines on stderr", choices=("json", "text"))
    otlp_endpoint: str = setting(
        "", help="OTLP/gRPC endpoint of a collector; empty for none", env="OTEL_EXPORTER_OTLP_ENDPOINT"
    )

    @property
    def write_limits(self) -> Thresholds:
        """What is too much to write."""
        return Thresholds(
            rows_per_second=self.storm_rows_per_second,
            total_rows_per_second=self.storm_total_rows_per_second,
            ceiling_rows_per_second=self.write_ceiling_rows_per_second,
        )

    @property
    def credentials(self) -> Path:
        """Where the credential files are."""
        return self.credentials_dir or self.state_dir / "credentials"

    @property
    def worker_socket(self) -> Path:
        """The Unix socket that workers find in LANEWARDEN_SOCKET."""
        return self.state_dir.absolute() / "worker.sock"

    @property
    def checkpoints_dir(self) -> Path:
        """Where the commands that write checkpoints find a directory of their own."""
        return self.state_dir.absolute() / "checkpoints"

    def approvers_of_lanes(self) -> dict[str, tuple[Approver, ...]]:
        """Who owes the rulings of each lane's tasks, in order.

        Raises:
            ValueError: one cannot be read, names no lane of this runner, or comes before the one above it.
        """
        found: dict[str, tuple[Approver, ...]] = dict.fromkeys(self.lanes, ())
        for text in self.approvers:
            lane, colon, rest = text.rpartition(":")
            identity, _, seconds = rest.partition("=")
            if not identity or (colon and lane not in found) or not (seconds or "0").isdigit():
                raise ValueError(f"{text!r} is not [LANE:]NAME[=SECONDS] with a lane of this runner")
            approver = Approver(identity=identity, after_ms=int(seconds or 0) * 1000)
            for each in [lane] if colon else self.lanes:
                if found[each] and found[each][-1].after_ms > approver.after_ms:
                    raise ValueError(f"{text!r} comes before the one above it")
                found[each] = (*found[each], approver)
        return found

    def conflicts(self) -> Iterator[str]:
        """Settings that cannot work."""
        yield from self.write_limits.conflicts()
        if not self.lanes:
            yield "lanes: name at least one"
        for lane in self.lanes:
            if not lane or len(lane) > 63 or not all(c.isascii() and (c.isalnum() or c in "._-") for c in lane):
                yield f"lanes: {lane!r} is not a name of letters, digits, dots, dashes and underscores"
        try:
            self.approvers_of_lanes()
        except ValueError as problem:
            yield f"approvers: {problem}"
        if len(set(self.lanes)) != len(self.lanes):
            yield "lanes: each name once"
        if not self.supervisor:
            yield "supervisor: name at least one"
        if len(set(self.supervisor)) != len(self.supervisor):
            yield "supervisor: each address once"
        if not self.runner_id or not all(c.isascii() and (c.isalnum() or c in "._-") for c in self.runner_id):
            yield f"runner_id: {self.runner_id!r} is not a name of letters, digits, dots, dashes and underscores"
        length = len(os.fsencode(self.worker_socket))
        if length > UNIX_PATH_BYTES_MAX:
            yield (
                f"state_dir: the worker socket's path would be {length} bytes, the kernel takes at most "
                f"{UNIX_PATH_BYTES_MAX}; choose a shorter --state-dir"
            )


def worker_environment() -> dict[str, str]:
    """What every worker is given: the runner's own environment, without what is Lanewarden's."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("LANEWARDEN_", "OTEL_"))}
