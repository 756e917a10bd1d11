"""Every metric that the services send: its name, kind, unit, attributes and meaning. Nothing is counted under another name.

Attributes never name a task, a path or a text, and each has few values: what callers choose themselves is bounded where it
is counted. Spans have a catalogue of their own.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final


class Kind(enum.Enum):
    """What a metric is; the names are OpenTelemetry's."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class On(enum.Enum):
    """Which service sends a metric."""

    BOTH = "both"
    SUPERVISOR = "supervisor"
    RUNNER = "runner"


@dataclass(frozen=True, slots=True, kw_only=True)
class Attribute:
    """One attribute of a metric. ``values`` are all that it may have; empty where they are too many to list, but bounded."""

    name: str
    meaning: str
    values: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One metric. ``unit`` is a UCUM unit, or in braces what is counted; ``buckets`` are the upper bounds of a histogram."""

    name: str
    kind: Kind
    unit: str
    description: str
    attributes: tuple[Attribute, ...] = ()
    on: On = On.BOTH
    buckets: tuple[float, ...] = ()

    @property
    def prometheus_name(self) -> str:
        """What the collector's Prometheus exporter calls it; a histogram also has ``_bucket``, ``_sum`` and ``_count``."""
        name = prometheus_label(self.name)
        if self.unit == "s":
            name += "_seconds"
        return f"{name}_total" if self.kind is Kind.COUNTER else name


def prometheus_label(name: str) -> str:
    """What Prometheus calls an attribute."""
    return name.replace(".", "_")


NONE: Final = "none"
"""The value of an attribute that a row or unit of work does not have."""
OTHER: Final = "other"
"""The value under which everything is summed that got no value of its own."""

ORIGINS_MAX: Final = 24
"""The origins that are told apart for one entity kind and emitter. Whoever calls names its own."""

_EMITTER = Attribute(name="lanewarden.emitter", meaning="the code site that writes, as `lanewarden emitters` lists it")
_ORIGIN = Attribute(
    name="lanewarden.origin",
    meaning=f"who asked for it, the emitter at the far end of the RPC; `{NONE}` if nobody did; `{OTHER}` beyond the first"
    f" {ORIGINS_MAX} of an entity kind and emitter",
)
_ENTITY_KIND = Attribute(
    name="lanewarden.entity.kind",
    meaning=f"what the rows are about; `{NONE}` if nothing single, `{OTHER}` in a burst over more than 2,048 entities",
)
_FINDING_KIND = Attribute(
    name="lanewarden.finding.kind",
    meaning="what is wrong",
    values=("ENTITY_RATE", "TOTAL_RATE", "NO_PROGRESS", "STORE_HELD"),
)
_TASK_STATE = Attribute(
    name="lanewarden.task.state", meaning="its state", values=("QUEUED", "STARTING", "RUNNING", "HELD", "IDLE")
)
_LEASE_STATE = Attribute(
    name="lanewarden.lease.state", meaning="what the lease says", values=("LIVE", "SUSPECT", "UNREACHABLE")
)
_SINK = Attribute(name="lanewarden.sink", meaning="the tracker", values=("jsonl", "webhook", "github"))
_FILING_OUTCOME = Attribute(
    name="lanewarden.outcome",
    meaning="what it came to: a try that failed is repeated, a claim that was lost is another supervisor's",
    values=("filed", "failed", "lost"),
)
_SIGNAL = Attribute(
    name="lanewarden.kind",
    meaning="what was asked for",
    values=("REDUCE_CONTEXT", "WRAP_UP", "PAUSE", "CANCEL", "STOP"),
)
_DIRECTIVE = Attribute(
    name="lanewarden.directive",
    meaning="what the worker was told to do",
    values=("CHECKPOINT", "REBUILD", "COMPACT", "WRAP_UP"),
)
_DIRECTIVE_OUTCOME = Attribute(name="lanewarden.outcome", meaning="what came of it", values=("DONE", "FAILED"))
_CHECKPOINT_STATE = Attribute(
    name="lanewarden.state",
    meaning="what the writer came to",
    values=("SUCCEEDED", "FAILED", "NOT_STARTED", "SUPERSEDED"),
)
_RPC_SYSTEM = Attribute(name="rpc.system.name", meaning="the system", values=("grpc",))
_RPC_METHOD = Attribute(name="rpc.method", meaning="the call, as `package.Service/Method`")
_RPC_STATUS = Attribute(name="rpc.response.status_code", meaning="the name of its gRPC status code, such as `OK`")

_FAST = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
_CALLS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)

STORE_ROWS: Final = Metric(
    name="lanewarden.store.rows",
    kind=Kind.COUNTER,
    unit="{row}",
    description="Committed row changes since the start; the sum over emitters is what SQLite counts.",
    attributes=(_ENTITY_KIND, _EMITTER, _ORIGIN),
)
STORE_ROWS_UNATTRIBUTED: Final = Metric(
    name="lanewarden.store.rows.unattributed",
    kind=Kind.COUNTER,
    unit="{row}",
    description="Row changes that no unit of work accounts for: 0, or something is wrong.",
)
STORE_COMMIT_DURATION: Final = Metric(
    name="lanewarden.store.commit.duration",
    kind=Kind.HISTOGRAM,
    unit="s",
    description="How long the commit of a group of units took, its sync included.",
    buckets=_FAST,
)
STORE_UNIT_DURATION: Final = Metric(
    name="lanewarden.store.unit.duration",
    kind=Kind.HISTOGRAM,
    unit="s",
    description="For how long a unit of work had the store.",
    attributes=(_EMITTER,),
    buckets=_FAST,
)
STORE_THROTTLED: Final = Metric(
    name="lanewarden.store.throttled",
    kind=Kind.COUNTER,
    unit="{unit}",
    description="Units of work that were refused with `WRITE_THROTTLED`.",
    attributes=(_EMITTER,),
)
FINDINGS_OPEN: Final = Metric(
    name="lanewarden.findings.open",
    kind=Kind.GAUGE,
    unit="{finding}",
    description="What is wrong now with how the service writes, as `lanewarden findings` lists it.",
    attributes=(_FINDING_KIND,),
)
HOLDS_OPEN: Final = Metric(
    name="lanewarden.holds.open",
    kind=Kind.GAUGE,
    unit="{hold}",
    description="Holds that wait for a ruling: on the runner its own, on the supervisor all that it knows.",
)
HOLD_AGE: Final = Metric(
    name="lanewarden.hold.age",
    kind=Kind.GAUGE,
    unit="s",
    description="How long the oldest open hold has waited; 0 without one. The supervisor counts from when it heard of it.",
)
TASKS: Final = Metric(
    name="lanewarden.tasks",
    kind=Kind.GAUGE,
    unit="{task}",
    description="Tasks that have not ended: on the runner its own, on the supervisor all that it knows.",
    attributes=(_TASK_STATE,),
)
OUTBOX_WAITING: Final = Metric(
    name="lanewarden.outbox.waiting",
    kind=Kind.GAUGE,
    unit="{row}",
    description="What the other side has not taken yet: on the runner reports, on the supervisor rulings and acks.",
)
LEASES: Final = Metric(
    name="lanewarden.leases",
    kind=Kind.GAUGE,
    unit="{lease}",
    description="Runners that are known, by what their lease says.",
    attributes=(_LEASE_STATE,),
    on=On.SUPERVISOR,
)
LEASE_REMAINING: Final = Metric(
    name="lanewarden.lease.remaining",
    kind=Kind.GAUGE,
    unit="s",
    description="What is left of a lease: on the runner of its own, 0 once it has lapsed; on the supervisor the least of all"
    " live ones, and nothing without one.",
)
LOOP_LAG: Final = Metric(
    name="lanewarden.loop.lag",
    kind=Kind.GAUGE,
    unit="s",
    description="How far the event loop was behind its timers, at the most, in the last five seconds.",
)
INCIDENT_FILINGS: Final = Metric(
    name="lanewarden.incident.filings",
    kind=Kind.COUNTER,
    unit="{filing}",
    description="Tries to file an incident, by what they came to.",
    attributes=(_SINK, _FILING_OUTCOME),
    on=On.SUPERVISOR,
)
RPC_SERVER_CALL_DURATION: Final = Metric(
    name="rpc.server.call.duration",
    kind=Kind.HISTOGRAM,
    unit="s",
    description="How long a call was served; a stream, until it ended.",
    attributes=(_RPC_SYSTEM, _RPC_METHOD, _RPC_STATUS),
    buckets=_CALLS,
)


def _event(name: str, what: str, description: str, *attributes: Attribute) -> Metric:
    return Metric(
        name=name,
        kind=Kind.COUNTER,
        unit=f"{{{what}}}",
        description=description,
        attributes=attributes,
        on=On.RUNNER,
    )


SIGNAL_RAISED: Final = _event("lanewarden.signal.raised", "signal", "One-shot requests that were recorded.", _SIGNAL)
SIGNAL_DISCHARGED: Final = _event(
    "lanewarden.signal.discharged", "signal", "One-shot requests that were acted on.", _SIGNAL
)
DIRECTIVE_GIVEN: Final = _event(
    "lanewarden.directive.given", "directive", "What workers were told between two turns.", _DIRECTIVE
)
DIRECTIVE_REPORTED: Final = _event(
    "lanewarden.directive.reported",
    "directive",
    "What workers said came of it.",
    *(_DIRECTIVE, _DIRECTIVE_OUTCOME),
)
CHECKPOINT_STARTED: Final = _event(
    "lanewarden.checkpoint.started", "checkpoint", "Checkpoint writers that were to be started."
)
CHECKPOINT_TIMED_OUT: Final = _event(
    "lanewarden.checkpoint.timed_out", "checkpoint", "Checkpoint writers that are waited for no longer."
)
CHECKPOINT_ENDED: Final = _event(
    "lanewarden.checkpoint.ended", "checkpoint", "Checkpoint writers, by what they came to.", _CHECKPOINT_STATE
)

METRICS: Final = (
    *(STORE_ROWS, STORE_ROWS_UNATTRIBUTED, STORE_COMMIT_DURATION, STORE_UNIT_DURATION, STORE_THROTTLED, FINDINGS_OPEN),
    *(TASKS, HOLDS_OPEN, HOLD_AGE, OUTBOX_WAITING, LEASES, LEASE_REMAINING, LOOP_LAG, INCIDENT_FILINGS),
    RPC_SERVER_CALL_DURATION,
    *(SIGNAL_RAISED, SIGNAL_DISCHARGED, DIRECTIVE_GIVEN, DIRECTIVE_REPORTED),
    *(CHECKPOINT_STARTED, CHECKPOINT_TIMED_OUT, CHECKPOINT_ENDED),
)
BY_NAME: Final = {metric.name: metric for metric in METRICS}
