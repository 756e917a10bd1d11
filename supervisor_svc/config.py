"""The supervisor's settings; the only place that knows their names."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from lanewarden.config import setting
from lanewarden.ledger import Thresholds
from supervisor_svc.core.leases import Timing
from supervisor_svc.core.supervision import SupervisionConfig
from supervisor_svc.sinks import specs, trackers
from supervisor_svc.sinks.incident_github import API


@dataclass(frozen=True, slots=True, kw_only=True)
class SupervisorConfig:
    """See ``supervisor-svc --help``."""

    state_dir: Path = setting(Path("lanewarden-supervisor"), help="directory of the store")
    supervisor_id: str = setting("supervisor", help="stable id of this supervisor")
    listen_host: str = setting("127.0.0.1", help="address to listen at; beyond loopback needs TLS")
    listen_port: int = setting(7811, help="port to listen at; 0 for any", at_least=0, at_most=65535)
    credentials_dir: Path | None = setting(
        None, help="directory of <role>.token files; default <state-dir>/credentials"
    )
    lease_ttl_seconds: float = setting(10.0, help="how long a runner's lease lasts", at_least=1, at_most=300)
    lease_renew_seconds: float = setting(3.0, help="how often a runner renews it", at_least=0.1, at_most=300)
    lease_grace_seconds: float = setting(
        5.0, help="how long a runner whose lease has run out is only suspect", at_least=0, at_most=300
    )
    lease_rpc_deadline_seconds: float = setting(1.0, help="how long a renewal may take", at_least=0.01, at_most=60)
    parked_seconds: float = setting(
        120.0, help="how long a session's input may wait before it is called parked", at_least=1, at_most=31_536_000
    )
    stale_seconds: float = setting(
        900.0,
        help="how long a worker with a progress sensor may make no progress before it is called stale; the task's own"
        " heartbeat may be longer",
        at_least=1,
        at_most=31_536_000,
    )
    first_progress_seconds: float = setting(
        60.0, help="the same, before the first progress of an attempt", at_least=1, at_most=31_536_000
    )
    relaunches_max: int = setting(
        2, help="how often a task may be relaunched in an epoch before it is settled", at_least=0, at_most=100
    )
    delivery_seconds: float = setting(
        2.0,
        help="how long a runner may take to answer a stored command before it is tried later",
        at_least=0.05,
        at_most=60,
    )
    forward_seconds: float = setting(
        5.0, help="how long a runner may take to answer a forwarded request", at_least=0.05, at_most=60
    )
    tls_cert: Path | None = setting(None, help="PEM certificate chain to serve with; needs --tls-key")
    tls_key: Path | None = setting(None, help="PEM key of the certificate; needs --tls-cert")
    tls_ca: Path | None = setting(None, help="PEM certificates to trust in runners, which is then called with TLS")
    notify: tuple[str, ...] = setting(
        (),
        help="where people are told of escalations: stdout, jsonl:PATH, webhook:URL or command:PROGRAM ARGS"
        " (in the environment separated by commas)",
    )
    incidents: str = setting(
        "",
        help="where incidents are filed: jsonl:PATH, webhook:URL or github:OWNER/NAME;"
        " default jsonl:<state-dir>/incidents.jsonl",
    )
    incident_gather_seconds: float = setting(
        60.0, help="how long an incident waits for others with the same cause", at_least=0, at_most=3600
    )
    github_token_file: Path | None = setting(None, help="file that holds the token for github:OWNER/NAME")
    github_api: str = setting(API, help="where GitHub's API is, for an installation of one's own")
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
    def timing(self) -> Timing:
        """The times of a lease."""
        return Timing(
            ttl_ms=round(self.lease_ttl_seconds * 1000),
            renew_ms=round(self.lease_renew_seconds * 1000),
            grace_ms=round(self.lease_grace_seconds * 1000),
            rpc_deadline_ms=round(self.lease_rpc_deadline_seconds * 1000),
        )

    @property
    def supervision(self) -> SupervisionConfig:
        """What tasks are judged by."""
        return SupervisionConfig(
            parked_ms=round(self.parked_seconds * 1000),
            stale_ms=round(self.stale_seconds * 1000),
            first_progress_ms=round(self.first_progress_seconds * 1000),
            relaunches_max=self.relaunches_max,
        )

    def conflicts(self) -> Iterator[str]:
        """Settings that cannot work."""
        yield from self.timing.conflicts()
        yield from self.write_limits.conflicts()
        yield from self.supervision.conflicts(self.timing)
        yield from specs.problems(self.notify)
        yield from trackers.problems(self.incidents, token_file=self.github_token_file, api=self.github_api)
        if not self.supervisor_id or not all(c.isascii() and (c.isalnum() or c in "._-") for c in self.supervisor_id):
            yield f"supervisor_id: {self.supervisor_id!r} is not a name of letters, digits, dots, dashes and underscores"
