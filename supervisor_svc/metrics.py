"""What metrics read of a supervisor, on a thread of their own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from lanewarden.telemetry import Read
from lanewarden.telemetry import metric_names as names
from lanewarden.telemetry.metrics import states
from supervisor_svc.loop.filer import Filer
from supervisor_svc.store import gauges
from supervisor_svc.supervisor import Supervisor


def readings(supervisor: Supervisor, filer: Filer | None) -> Mapping[str, Read]:
    """How to read each metric, by its name."""

    def tasks() -> Iterable[tuple[int, tuple[str, ...]]]:
        return states(supervisor.read(gauges.tasks_by_state), names.TASKS.attributes[0])

    def hold_age() -> Iterable[tuple[float, tuple[()]]]:
        heard_ms = supervisor.read(gauges.oldest_hold_wall_ms)
        age_ms = 0 if heard_ms is None else max(0, supervisor.clock.wall_ms() - heard_ms)
        return [(age_ms / 1000, ())]

    def leases() -> Iterable[tuple[int, tuple[str, ...]]]:
        counts, _ = supervisor.presence.summary()
        return states({state.value: counts[state] for state in counts}, names.LEASES.attributes[0])

    def lease_remaining() -> Iterable[tuple[float, tuple[()]]]:
        _, least_ms = supervisor.presence.summary()
        return [] if least_ms is None else [(least_ms / 1000, ())]

    return {
        names.TASKS.name: tasks,
        names.HOLDS_OPEN.name: lambda: [(supervisor.read(gauges.holds_open), ())],
        names.HOLD_AGE.name: hold_age,
        names.OUTBOX_WAITING.name: lambda: [(supervisor.read(gauges.outbox_waiting), ())],
        names.LEASES.name: leases,
        names.LEASE_REMAINING.name: lease_remaining,
        names.INCIDENT_FILINGS.name: lambda: [] if filer is None else filer.outcomes(),
    }
