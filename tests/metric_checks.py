"""What holds of metrics, each as a function that fails where it does not: on the build as it is, and on mutants of it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from lane_runner_svc.store import gauges as runner_gauges
from lane_runner_svc.store.schema import MIGRATIONS as RUNNER_MIGRATIONS
from lanewarden.clock import SystemClock
from lanewarden.config import ConfigInvalid
from lanewarden.ledger import WriteLedger
from lanewarden.store import Connection, Store
from lanewarden.telemetry import TelemetrySettings, configure
from lanewarden.telemetry import metric_names as names
from lanewarden.telemetry.durations import SERIES_MAX, Durations
from lanewarden.telemetry.otel_metrics import OtelMetrics
from lanewarden.telemetry.variables import load
from supervisor_svc.core.leases import Lease, LeaseState, Timing
from supervisor_svc.store import gauges as supervisor_gauges
from supervisor_svc.store.schema import MIGRATIONS as SUPERVISOR_MIGRATIONS
from supervisor_svc.work.presence import SWEEP_MAX_MS, Presence
from tests.otlp import Receiver
from tests.unit.test_ledger import FakeClock

ORIGINS_MADE_UP = 10_000


def made_up_origins_are_few_series() -> None:
    """Ten thousand origins of a caller that makes them up are some two dozen series, and not one row is lost; an emitter
    whom it does not call keeps its own.
    """
    clock = FakeClock()
    ledger = WriteLedger(clock)
    for n in range(ORIGINS_MADE_UP):
        ledger.record("task", f"t{n % 7}", "runner.progress", f"made.up.{n}", 2)
        clock.now_ms += 1
    ledger.record("task", "t1", "runner.rule", "supervisor.command.deliver", 5)
    clock.now_ms += 50
    totals = ledger.totals()
    assert len(totals) == names.ORIGINS_MAX + 2
    assert sum(rows for (_, emitter, _), rows in totals.items() if emitter == "runner.progress") == 2 * ORIGINS_MADE_UP
    assert totals["task", "runner.progress", names.OTHER] == 2 * (ORIGINS_MADE_UP - names.ORIGINS_MAX)
    assert totals["task", "runner.rule", "supervisor.command.deliver"] == 5


def totals_are_exact_and_never_go_down() -> None:
    """Whenever they are read, in a burst over more entities than keep their name as well."""
    clock = FakeClock()
    ledger = WriteLedger(clock)
    seen: dict[tuple[str, str, str], int] = {}
    for step in range(40):
        for n in range(200):
            ledger.record("task", f"t{step * 200 + n}", f"runner.e{n % 3}", "o", 1)
        if step % 13 == 0:  # more than 2,048 in one step of 50 ms: cut, and read in the midst of it
            clock.now_ms += 60
        totals = ledger.totals()
        assert all(totals.get(key, 0) >= rows for key, rows in seen.items())
        seen = totals
    clock.now_ms += 60
    by_emitter = {emitter: 0 for _, emitter, _ in seen}
    for (_, emitter, _), rows in ledger.totals().items():
        by_emitter[emitter] += rows
    assert by_emitter == ledger.emitters()
    assert sum(by_emitter.values()) == 40 * 200 == ledger.attributed_rows


def a_histogram_has_a_bound_of_series() -> None:
    """What comes later is counted as one more."""
    durations = Durations(names.STORE_UNIT_DURATION)
    for n in range(2 * SERIES_MAX):
        durations.record(0.003, f"emitter.{n}")
    recorded = durations.recorded()
    assert len(recorded) == SERIES_MAX + 1
    assert sum(sum(each.counts) for each in recorded.values()) == 2 * SERIES_MAX
    assert recorded[names.OTHER,].counts[names.STORE_UNIT_DURATION.buckets.index(0.005)] == SERIES_MAX


@contextmanager
def sending(**variables: str) -> Iterator[tuple[OtelMetrics, Receiver]]:
    """Metrics that are sent when a check says so, and what receives them."""
    with Receiver() as receiver, pytest.MonkeyPatch.context() as patch:
        for name, value in variables.items():
            patch.setenv(name, value)
        made = configure("test", "i-1", TelemetrySettings(metrics_endpoint=receiver.endpoint))
        assert isinstance(made, OtelMetrics)
        try:
            yield made, receiver
        finally:
            made.shutdown()


def only_the_catalogue_is_sent() -> None:
    """A name that is not in it, or is there as something else, is our own mistake and is told at once."""
    with sending() as (telemetry, receiver):
        for make in (
            lambda: telemetry.count("lanewarden.task.made_up"),
            lambda: telemetry.count(names.TASKS.name),
            lambda: telemetry.observe("lanewarden.made_up", lambda: [(1, ())]),
            lambda: telemetry.durations("lanewarden.store.rows"),
        ):
            with pytest.raises(ValueError, match="of the catalogue"):
                make()
        telemetry.observe(names.HOLDS_OPEN.name, lambda: [(3, ())])
        assert telemetry.force_flush(10)
    assert {point.metric for point in receiver.points} == {names.HOLDS_OPEN.name}


def what_cannot_be_read_costs_nothing_else() -> None:
    """One metric that cannot be read is one line, however often it is not; the others are sent."""
    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    log = logging.getLogger("lanewarden.telemetry.otel_metrics")
    log.addHandler(handler)
    try:
        with sending() as (telemetry, receiver):
            telemetry.observe(names.HOLDS_OPEN.name, lambda: [(1 // 0, ())])
            telemetry.observe(names.OUTBOX_WAITING.name, lambda: [(3, ())])
            for _ in range(3):
                telemetry.force_flush(10)
    finally:
        log.removeHandler(handler)
    assert lines == ["a metric cannot be read"]
    assert {point.metric for point in receiver.points} == {names.OUTBOX_WAITING.name}


def deltas_are_what_is_new() -> None:
    """A collector that was promised differences gets each duration once; the others get all, each time."""

    def counts(**variables: str) -> list[float]:
        with sending(**variables) as (telemetry, receiver):
            durations = telemetry.durations(names.STORE_COMMIT_DURATION.name)
            assert durations is not None
            telemetry.observe(names.LOOP_LAG.name, lambda: [(0, ())])
            for times in (2, 1, 0):
                for _ in range(times):
                    durations.record(0.002)
                telemetry.force_flush(10)
        return [point.value for point in receiver.points if point.metric == names.STORE_COMMIT_DURATION.name]

    assert counts()[:3] == [2, 3, 3]
    assert counts(OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE="delta") == [2, 1]


def gauges_read_indexes_only() -> None:
    """No read of a gauge walks through a table, so none of them grows with what has ended, or with texts."""
    for migrations, gauges in ((RUNNER_MIGRATIONS, runner_gauges), (SUPERVISOR_MIGRATIONS, supervisor_gauges)):
        reads = [getattr(gauges, name) for name in dir(gauges) if name.startswith(("tasks_", "holds_", "oldest_"))]
        assert len(reads) == 3
        for read in reads:
            for step in _plan(migrations, read):
                assert (
                    "INDEX" in step or step.startswith(("CO-ROUTINE", "SCALAR", "USE TEMP")) or "SCAN (sub" in step
                ), step


def _plan(migrations: Any, read: Any) -> list[str]:
    """How SQLite goes about what a gauge reads."""
    asked: list[str] = []

    class Asking:
        def query(self, sql: str, params: Any = ()) -> list[Any]:
            asked.append(sql)
            return []

        def one(self, sql: str, params: Any = ()) -> Any:
            asked.append(sql)
            return [0]

    read(Asking())

    def explain(reader: Connection) -> list[str]:
        steps = reader.query(f"EXPLAIN QUERY PLAN {asked[0]}")
        return [str(step["detail"]) for step in steps if "INTEGER PRIMARY KEY" not in step["detail"]]

    with TemporaryDirectory() as directory:
        store = Store.open(
            Path(directory) / "s.sqlite3", migrations=migrations, ledger=WriteLedger(SystemClock()), threaded=False
        )
        try:
            return store.read(explain)
        finally:
            store.close()


def a_stall_of_our_own_shows_no_lost_lease() -> None:
    """As long as this process stands still its leases are shown as they will be once that is forgiven."""
    clock = FakeClock()
    presence = Presence(Timing(), clock)
    presence.put(Lease(runner_id="r1", incarnation="i", generation=1, seen_ms=clock.now_ms))
    assert presence.summary() == ({LeaseState.LIVE: 1}, Timing().ttl_ms)
    clock.now_ms += SWEEP_MAX_MS + 60_000
    shown, least_ms = presence.summary()
    assert (shown, least_ms) == ({LeaseState.LIVE: 1}, Timing().ttl_ms - SWEEP_MAX_MS)
    assert presence.state("r1") is LeaseState.LIVE, "and that is what the next look comes to"


def a_header_is_never_shown() -> None:
    """It may be a credential: a wrong one is named and not quoted."""
    with pytest.raises(ConfigInvalid) as told:
        load({"OTEL_EXPORTER_OTLP_HEADERS": "bearer s3cret"}, "http://127.0.0.1:4317")
    assert "OTEL_EXPORTER_OTLP_HEADERS" in str(told.value)
    assert "s3cret" not in str(told.value)
