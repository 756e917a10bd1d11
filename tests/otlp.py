"""An OTLP receiver for tests: what a collector would have been sent, over real gRPC."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final, Self

import grpc
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2, metrics_service_pb2_grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc
from opentelemetry.proto.common.v1 import common_pb2

from tests.ports import free_port

STOP_SECONDS: Final = 0.2
"""Calls that are still held then are cut off."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A span as it came. Ids are hexadecimal, ``service`` is the service.name of who sent it, ``links`` are pairs of a
    trace's and a span's id.
    """

    service: str
    name: str
    kind: str
    trace_id: str
    span_id: str
    parent_id: str
    begun_ns: int
    ended_ns: int
    attributes: dict[str, Any]
    links: tuple[tuple[str, str], ...]
    error: str

    @property
    def seconds(self) -> float:
        """How long it took."""
        return (self.ended_ns - self.begun_ns) / 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One value of a metric as it came; of a histogram the count. ``kind`` is gauge, sum or histogram."""

    service: str
    metric: str
    kind: str
    unit: str
    attributes: dict[str, Any]
    value: float
    bounds: tuple[float, ...] = ()


class Receiver:
    """Receives spans and metrics at ``port`` while it is entered. ``hold`` is called in each export before it is answered:
    one that blocks is a collector that hangs.
    """

    def __init__(self, port: int = 0, *, hold: Callable[[], object] = lambda: None) -> None:
        self.port = port or free_port()
        self.spans: list[Span] = []
        self.metrics: list[Any] = []
        self.points: list[Point] = []
        self.resources: dict[str, dict[str, Any]] = {}
        """What each service says of itself, by its service.name."""
        self.headers: dict[str, str] = {}
        """What came with the last export of metrics."""
        self.exports = 0
        self._hold = hold
        self._news = threading.Condition()
        self._server = grpc.server(ThreadPoolExecutor(4))
        trace_service_pb2_grpc.add_TraceServiceServicer_to_server(_Traces(self), self._server)
        metrics_service_pb2_grpc.add_MetricsServiceServicer_to_server(_Metrics(self), self._server)

    @property
    def endpoint(self) -> str:
        """For OTEL_EXPORTER_OTLP_ENDPOINT."""
        return f"http://127.0.0.1:{self.port}"

    def environment(self, sampler: str = "always_on", sampler_arg: str = "") -> dict[str, str]:
        """For a service that sends here without delay."""
        environment = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": self.endpoint,
            "OTEL_TRACES_SAMPLER": sampler,
            "OTEL_BSP_SCHEDULE_DELAY": "50",
            "OTEL_METRIC_EXPORT_INTERVAL": "500",
        }
        return environment | ({"OTEL_TRACES_SAMPLER_ARG": sampler_arg} if sampler_arg else {})

    def __enter__(self) -> Self:
        assert self._server.add_insecure_port(f"127.0.0.1:{self.port}") == self.port
        self._server.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._server.stop(STOP_SECONDS).wait()

    def take(
        self, resource: dict[str, Any], spans: Sequence[Span], metrics: Sequence[Any], points: Sequence[Point] = ()
    ) -> None:
        """Called with what has come."""
        with self._news:
            self.resources[resource.get("service.name", "")] = resource
            self.points += points
            self.exports += 1
            self.spans += spans
            self.metrics += metrics
            self._news.notify_all()
        self._hold()

    def wait_for(self, wanted: Callable[[Span], bool], what: str, seconds: float = 20.0) -> Span:
        """The first span that is ``wanted``, once it is here."""

        def found() -> Span | None:
            return next(filter(wanted, self.spans), None)

        with self._news:
            assert self._news.wait_for(lambda: found() is not None, seconds), f"not within {seconds} s: {what}"
            span = found()
        assert span is not None
        return span

    def wait_for_point(self, wanted: Callable[[Point], bool], what: str, seconds: float = 20.0) -> Point:
        """The first value of a metric that is ``wanted``, once it is here."""

        def found() -> Point | None:
            return next(filter(wanted, self.points), None)

        with self._news:
            assert self._news.wait_for(lambda: found() is not None, seconds), f"not within {seconds} s: {what}"
            point = found()
        assert point is not None
        return point

    def trace(self, trace_id: str) -> list[Span]:
        """The spans of a trace that are here."""
        with self._news:
            return [span for span in self.spans if span.trace_id == trace_id]


class _Traces(trace_service_pb2_grpc.TraceServiceServicer):
    def __init__(self, receiver: Receiver) -> None:
        self._receiver = receiver

    def Export(self, request: Any, context: Any) -> Any:
        for group in request.resource_spans:
            resource = _attributes(group.resource.attributes)
            service = str(resource.get("service.name", ""))
            spans = [_span(service, span) for scope in group.scope_spans for span in scope.spans]
            self._receiver.take(resource, spans, ())
        return trace_service_pb2.ExportTraceServiceResponse()


class _Metrics(metrics_service_pb2_grpc.MetricsServiceServicer):
    def __init__(self, receiver: Receiver) -> None:
        self._receiver = receiver

    def Export(self, request: Any, context: Any) -> Any:
        self._receiver.headers = dict(context.invocation_metadata())
        for group in request.resource_metrics:
            resource = _attributes(group.resource.attributes)
            metrics = [metric for scope in group.scope_metrics for metric in scope.metrics]
            points = [point for metric in metrics for point in _points(str(resource.get("service.name", "")), metric)]
            self._receiver.take(resource, (), metrics, points)
        return metrics_service_pb2.ExportMetricsServiceResponse()


def _span(service: str, span: Any) -> Span:
    return Span(
        service=service,
        name=span.name,
        kind=type(span).SpanKind.Name(span.kind).removeprefix("SPAN_KIND_"),
        trace_id=span.trace_id.hex(),
        span_id=span.span_id.hex(),
        parent_id=span.parent_span_id.hex(),
        begun_ns=span.start_time_unix_nano,
        ended_ns=span.end_time_unix_nano,
        attributes=_attributes(span.attributes),
        links=tuple((link.trace_id.hex(), link.span_id.hex()) for link in span.links),
        error=span.status.message if span.status.code == span.status.STATUS_CODE_ERROR else "",
    )


def _points(service: str, metric: Any) -> list[Point]:
    kind = metric.WhichOneof("data")
    return [
        Point(
            service=service,
            metric=metric.name,
            kind=kind,
            unit=metric.unit,
            attributes=_attributes(point.attributes),
            value=float(point.count if kind == "histogram" else getattr(point, point.WhichOneof("value"))),
            bounds=tuple(point.explicit_bounds) if kind == "histogram" else (),
        )
        for point in getattr(metric, kind).data_points
    ]


def _attributes(pairs: Sequence[common_pb2.KeyValue]) -> dict[str, Any]:
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value") or "string_value") for pair in pairs}
