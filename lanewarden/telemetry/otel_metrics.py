"""The metrics of a process on their way to a collector. Imported only where telemetry is on, because the SDK is slow to
import.

Most are read when they are sent, on the reader's own thread, from what the service keeps anyway; so a write or a call pays
nothing for them.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter
from opentelemetry.metrics import CallbackOptions, Counter, Observation
from opentelemetry.sdk import metrics as sdk
from opentelemetry.sdk.metrics import export as sdk_export
from opentelemetry.sdk.metrics.export import AggregationTemporality, HistogramDataPoint, MetricExportResult, MetricsData
from opentelemetry.sdk.resources import OTELResourceDetector, Resource

from lanewarden.build import released
from lanewarden.errors import Refusal
from lanewarden.records import replace
from lanewarden.telemetry import Read, Telemetry, TelemetrySettings
from lanewarden.telemetry.collector import METRICS, Contact
from lanewarden.telemetry.durations import Durations, Recorded
from lanewarden.telemetry.metric_names import BY_NAME, Kind, Metric

log = logging.getLogger(__name__)

SCOPE: Final = "lanewarden"
SHUTDOWN_SECONDS: Final = 2.0
"""What the last spans and metrics have to reach a collector when the service stops."""
# They log every failed export, every dropped span and every callback; Contact speaks for them.
_TALKATIVE: Final = (
    "opentelemetry.exporter.otlp",
    "opentelemetry.sdk._shared_internal",
    "opentelemetry.sdk.metrics._internal.export",
)


class OtelMetrics(Telemetry):
    """Sends metrics, if they have an endpoint, and no spans: a trace goes on as it came."""

    enabled = True

    def __init__(self, service_name: str, instance_id: str, settings: TelemetrySettings) -> None:
        for talkative in _TALKATIVE:
            logging.getLogger(talkative).setLevel(logging.CRITICAL)
        self.resource = _resource(service_name, instance_id)
        self._meters: Meters | None = None
        if settings.metrics:
            # Spans say that a collector is lost or back; about the same one metrics are silent.
            same = settings.metrics == settings.traces
            told = (lambda taken: None) if same else Contact(settings.metrics, METRICS).told
            self._meters = Meters(self.resource, settings.metrics, told)

    def count(self, name: str, **attributes: str) -> None:
        if self._meters is not None:
            self._meters.count(name, {f"lanewarden.{key}": value for key, value in attributes.items()})

    def observe(self, name: str, read: Read) -> None:
        if self._meters is not None:
            self._meters.observe(name, read)

    def durations(self, name: str) -> Durations | None:
        return None if self._meters is None else self._meters.durations(name)

    def force_flush(self, timeout_seconds: float) -> bool:
        """Send what is queued now; false if that took longer."""
        return self._meters is None or self._meters.force_flush(int(timeout_seconds * 1000))

    def shutdown(self) -> None:
        closing = threading.Thread(target=self._close, name="telemetry-close", daemon=True)
        closing.start()
        closing.join(SHUTDOWN_SECONDS)
        if closing.is_alive():  # a collector that does not answer: what is under way to it is given up
            self._give_up()

    def _close(self) -> None:
        if self._meters is not None:
            self._meters.shutdown()

    def _give_up(self) -> None:
        if self._meters is not None:
            self._meters.give_up()


def _resource(service_name: str, instance_id: str) -> Resource:
    """Who sends, unless OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES say otherwise."""
    own = {
        "service.name": service_name,
        "service.namespace": "lanewarden",
        "service.version": released(),
        "service.instance.id": instance_id,
    }
    return Resource.create(own).merge(OTELResourceDetector().detect())


class Meters:
    """Every metric that the process sends, all of them of the catalogue, to one endpoint.

    ``said`` is told after each export whether a collector took it.
    """

    def __init__(self, resource: Resource, endpoint: str, said: Callable[[bool], None]) -> None:
        self._durations: dict[str, Durations] = {}
        self._counters: dict[str, Counter] = {}
        self._exporter = OTLPMetricExporter(endpoint=endpoint)
        reader = sdk_export.PeriodicExportingMetricReader(DurationsToo(self._exporter, self._durations, said))
        self._provider = sdk.MeterProvider([reader], resource=resource, shutdown_on_exit=False)
        self._meter = self._provider.get_meter(SCOPE)

    def count(self, name: str, attributes: Mapping[str, str]) -> None:
        """Count one of something that seldom happens."""
        counter = self._counters.get(name)
        if counter is None:
            metric = _of_kind(name, Kind.COUNTER)
            counter = self._meter.create_counter(metric.name, metric.unit, metric.description)
            self._counters[name] = counter
        counter.add(1, dict(attributes))

    def observe(self, name: str, read: Read) -> None:
        """Have a counter or gauge read each time that metrics are sent."""
        metric = _of_kind(name, Kind.COUNTER, Kind.GAUGE)
        gauge = metric.kind is Kind.GAUGE
        make: Any = self._meter.create_observable_gauge if gauge else self._meter.create_observable_counter
        make(metric.name, [_callback(metric, read)], metric.unit, metric.description)

    def durations(self, name: str) -> Durations:
        """The histogram of that name."""
        if name not in self._durations:
            self._durations[name] = Durations(_of_kind(name, Kind.HISTOGRAM))
        return self._durations[name]

    def force_flush(self, timeout_ms: int) -> bool:
        """Send everything now; false if that took longer."""
        return self._provider.force_flush(timeout_ms)

    def shutdown(self) -> None:
        """Send everything a last time."""
        self._provider.shutdown()

    def give_up(self) -> None:
        """Send no more."""
        self._exporter.shutdown(timeout_millis=0)


def _of_kind(name: str, *kinds: Kind) -> Metric:
    metric = BY_NAME.get(name)
    if metric is None or metric.kind not in kinds:
        raise ValueError(f"{name!r} is no {' or '.join(kind.value for kind in kinds)} of the catalogue")
    return metric


def _callback(metric: Metric, read: Read) -> Callable[[CallbackOptions], Iterable[Observation]]:
    keys = [attribute.name for attribute in metric.attributes]
    failing = False

    def look(options: CallbackOptions) -> Iterable[Observation]:
        nonlocal failing
        del options
        try:
            found = [Observation(value, dict(zip(keys, values, strict=True))) for value, values in read()]
        except Refusal:  # the store is closed, or has failed, which its owner says
            return []
        except Exception:
            if not failing:
                log.exception("a metric cannot be read", extra={"metric": metric.name})
            failing = True
            return []
        failing = False
        return found

    return look


class DurationsToo(sdk_export.MetricExporter):
    """Exports through ``inner``, and the histograms with what the SDK has collected."""

    def __init__(
        self, inner: OTLPMetricExporter, durations: Mapping[str, Durations], said: Callable[[bool], None]
    ) -> None:
        temporality, aggregation = inner._preferred_temporality, inner._preferred_aggregation
        super().__init__(temporality, aggregation)
        self._inner = inner
        self._durations = durations
        self._said = said
        self._temporality = (temporality or {}).get(sdk.Histogram, AggregationTemporality.CUMULATIVE)
        self._sent: dict[tuple[str, tuple[str, ...]], Recorded] = {}
        self._since_ns = 0

    def export(self, metrics_data: MetricsData, timeout_millis: float = 10_000, **kwargs: Any) -> MetricExportResult:
        result = self._inner.export(self._with_durations(metrics_data), timeout_millis, **kwargs)
        self._said(result is MetricExportResult.SUCCESS)
        return result

    def shutdown(self, timeout_millis: float = 30_000, **kwargs: Any) -> None:
        self._inner.shutdown(timeout_millis, **kwargs)

    def force_flush(self, timeout_millis: float = 10_000) -> bool:
        return self._inner.force_flush(timeout_millis)

    def _with_durations(self, data: MetricsData) -> MetricsData:
        now_ns = time.time_ns()
        own = [made for each in list(self._durations.values()) if (made := self._metric(each, now_ns))]
        if self._temporality is AggregationTemporality.DELTA:
            self._since_ns = now_ns
        if not (own and data.resource_metrics):
            return data
        first, *others = data.resource_metrics
        scopes = [
            replace(each, metrics=[*each.metrics, *own]) if each.scope.name == SCOPE else each
            for each in first.scope_metrics
        ]
        return replace(data, resource_metrics=[replace(first, scope_metrics=scopes), *others])

    def _metric(self, durations: Durations, now_ns: int) -> sdk_export.Metric | None:
        metric = durations.metric
        points = [
            HistogramDataPoint(
                attributes={key.name: value for key, value in zip(metric.attributes, values, strict=True)},
                start_time_unix_nano=max(durations.since_ns, self._since_ns),
                time_unix_nano=now_ns,
                count=sum(recorded.counts),
                sum=recorded.seconds,
                bucket_counts=list(recorded.counts),
                explicit_bounds=list(metric.buckets),
                min=None,  # type: ignore[arg-type] # not kept, and optional in OTLP
                max=None,  # type: ignore[arg-type]
            )
            for values, each in durations.recorded().items()
            if sum((recorded := self._not_sent(metric.name, values, each)).counts)
        ]
        if not points:
            return None
        data = sdk_export.Histogram(data_points=points, aggregation_temporality=self._temporality)
        return sdk_export.Metric(name=metric.name, description=metric.description, unit=metric.unit, data=data)

    def _not_sent(self, name: str, values: tuple[str, ...], recorded: Recorded) -> Recorded:
        """What goes out: everything, or what has come since the last time where the collector was promised that."""
        if self._temporality is AggregationTemporality.CUMULATIVE:
            return recorded
        before = self._sent.get((name, values))
        self._sent[name, values] = recorded
        if before is None:
            return recorded
        counts = tuple(now - then for now, then in zip(recorded.counts, before.counts, strict=True))
        return Recorded(counts=counts, seconds=recorded.seconds - before.seconds)
