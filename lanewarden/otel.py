"""Telemetry that is on. Imported only by :func:`lanewarden.telemetry.configure`, because the SDK is slow to import."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Mapping, Sequence

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.metrics import Counter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.trace import SpanKind, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from lanewarden.errors import Code, Refusal
from lanewarden.telemetry import TRACEPARENT, Span, Telemetry, TelemetrySettings

log = logging.getLogger(__name__)

# The refusals that are the server's fault; the others are answers, and a trace that shows them red is noise.
_FAULTS = frozenset({Code.DEADLINE_EXCEEDED, Code.UNIMPLEMENTED, Code.INTERNAL, Code.UNAVAILABLE})

# They log every failed export and every dropped span.
_TALKATIVE = ("opentelemetry.exporter.otlp", "opentelemetry.sdk._shared_internal")


class OtelTelemetry(Telemetry):
    """Sends spans to the OTLP endpoint from a background thread."""

    enabled = True

    def __init__(self, service_name: str, instance_id: str, settings: TelemetrySettings) -> None:
        for talkative in _TALKATIVE:  # OneLineExporter speaks for them
            logging.getLogger(talkative).setLevel(logging.CRITICAL)
        exporter = OneLineExporter(OTLPSpanExporter(endpoint=settings.endpoint), settings.endpoint)
        resource = Resource.create({"service.name": service_name, "service.instance.id": instance_id})
        # A provider of one's own: nothing global changes, and two services can live in one test process.
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("lanewarden")
        self._propagator = TraceContextTextMapPropagator()
        # Spans say when the collector is lost and when it is back; metrics are silent about the same collector.
        reader = PeriodicExportingMetricReader(OTLPMetricExporter(endpoint=settings.endpoint))
        self._meters = MeterProvider([reader], resource=resource, shutdown_on_exit=False)
        self._meter = self._meters.get_meter("lanewarden")
        self._counters: dict[str, Counter] = {}

    @contextlib.contextmanager
    def server_span(self, method: str, metadata: Mapping[str, str]) -> Iterator[Span]:
        parent = self._propagator.extract(metadata)
        with self._open(method, SpanKind.SERVER, parent, _rpc_attributes(method)) as span:
            TRACEPARENT.set(_traceparent(span))  # not reset: the log line of a failed call comes after the span
            yield _OtelSpan(span)

    @contextlib.contextmanager
    def client_span(self, method: str) -> Iterator[Span]:
        with self._child(method, SpanKind.CLIENT, _rpc_attributes(method)) as span:
            yield span

    @contextlib.contextmanager
    def span(self, name: str, **attributes: str | int) -> Iterator[Span]:
        named = {f"lanewarden.{key}": value for key, value in attributes.items()}
        with self._child(name, SpanKind.INTERNAL, named) as span:
            yield span

    def count(self, name: str, **attributes: str) -> None:
        counter = self._counters.get(name)
        if counter is None:
            counter = self._counters[name] = self._meter.create_counter(name)
        counter.add(1, {f"lanewarden.{key}": value for key, value in attributes.items()})

    def force_flush(self, timeout_seconds: float) -> bool:
        """Send what is queued now; false if that took longer."""
        timeout_ms = int(timeout_seconds * 1000)
        return self._provider.force_flush(timeout_ms) and self._meters.force_flush(timeout_ms)

    def shutdown(self) -> None:
        self._provider.shutdown()
        self._meters.shutdown()

    @contextlib.contextmanager
    def _child(self, name: str, kind: SpanKind, attributes: Mapping[str, str | int]) -> Iterator[Span]:
        parent = self._propagator.extract({"traceparent": TRACEPARENT.get()})
        with self._open(name, kind, parent, attributes) as span:
            token = TRACEPARENT.set(_traceparent(span))
            try:
                yield _OtelSpan(span)
            finally:
                TRACEPARENT.reset(token)

    @contextlib.contextmanager
    def _open(
        self, name: str, kind: SpanKind, parent: Context, attributes: Mapping[str, str | int]
    ) -> Iterator[trace.Span]:
        span = self._tracer.start_span(name, context=parent, kind=kind, attributes=attributes)
        try:
            yield span
        except Refusal as refusal:
            span.set_attribute("lanewarden.reason", refusal.reason.name)
            span.set_attribute("rpc.grpc.status_code", int(refusal.reason.code))
            if refusal.reason.code in _FAULTS:
                span.set_status(StatusCode.ERROR, refusal.reason.name)
            raise
        except Exception as error:
            span.set_status(StatusCode.ERROR, type(error).__name__)
            raise
        finally:
            span.end()


class _OtelSpan:
    def __init__(self, span: trace.Span) -> None:
        self._span = span

    def set(self, key: str, value: str | int) -> None:
        self._span.set_attribute(f"lanewarden.{key}", value)


class OneLineExporter(SpanExporter):
    """Exports through ``inner``; says once when the collector is lost and once when it is back."""

    def __init__(self, inner: SpanExporter, endpoint: str) -> None:
        self._inner = inner
        self._endpoint = endpoint
        self._lost = False

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        result = self._inner.export(spans)
        lost = result is not SpanExportResult.SUCCESS
        if lost and not self._lost:
            log.warning("no collector answers; spans are dropped until one does", extra={"endpoint": self._endpoint})
        if self._lost and not lost:
            log.info("the collector is back", extra={"endpoint": self._endpoint})
        self._lost = lost
        return result

    def shutdown(self) -> None:
        self._inner.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return self._inner.force_flush(timeout_millis)


def _rpc_attributes(method: str) -> dict[str, str | int]:
    service, _, name = method.rpartition("/")
    return {"rpc.system": "grpc", "rpc.service": service, "rpc.method": name}


def _traceparent(span: trace.Span) -> str:
    context = span.get_span_context()
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{int(context.trace_flags):02x}"
