"""What metrics read of a lane runner, on a thread of their own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from lane_runner_svc.holder import Holder
from lane_runner_svc.runner import Runner
from lane_runner_svc.store import gauges
from lanewarden.telemetry import Read
from lanewarden.telemetry import metric_names as names
from lanewarden.telemetry.metrics import states


def readings(runner: Runner, holder: Holder) -> Mapping[str, Read]:
    """How to read each metric, by its name."""

    def tasks() -> Iterable[tuple[int, tuple[str, ...]]]:
        return states(runner.read(gauges.tasks_by_state), names.TASKS.attributes[0])

    def hold_age() -> Iterable[tuple[float, tuple[()]]]:
        opened_ms = runner.read(gauges.oldest_hold_ms)
        age_ms = 0 if opened_ms is None else max(0, runner.clock.steady_ms() - opened_ms)
        return [(age_ms / 1000, ())]

    return {
        names.TASKS.name: tasks,
        names.HOLDS_OPEN.name: lambda: [(runner.read(gauges.holds_open), ())],
        names.HOLD_AGE.name: hold_age,
        names.OUTBOX_WAITING.name: lambda: [(runner.read(gauges.outbox_waiting), ())],
        names.LEASE_REMAINING.name: lambda: [(holder.remaining_ms / 1000, ())],
    }
