"""Telemetry: free when off, harmless without a collector, one trace across processes."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2, metrics_service_pb2_grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc

from lanewarden import client
from lanewarden.errors import Refusal
from lanewarden.otel import OtelTelemetry
from lanewarden.server import Server
from lanewarden.telemetry import OFF, TRACEPARENT, TelemetrySettings, configure, valid_traceparent
from tests import echo_service as echo
from tests.ports import free_port


class Collector(trace_service_pb2_grpc.TraceServiceServicer):
    """Keeps the spans that it is sent."""

    def __init__(self) -> None:
        self.spans: list[Any] = []

    def Export(self, request: Any, context: Any) -> Any:
        self.spans += [span for group in request.resource_spans for scope in group.scope_spans for span in scope.spans]
        return trace_service_pb2.ExportTraceServiceResponse()


@pytest.fixture
def port() -> int:
    """A port that nothing listens at."""
    return free_port()


@pytest.fixture
def telemetry(port: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[OtelTelemetry]:
    """Telemetry that is on, towards that port."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
    made = configure("test", "i-1", TelemetrySettings(endpoint=f"http://127.0.0.1:{port}"))
    assert isinstance(made, OtelTelemetry)
    yield made
    made.shutdown()


class Metrics(metrics_service_pb2_grpc.MetricsServiceServicer):
    """Keeps the metrics that it is sent."""

    def __init__(self) -> None:
        self.metrics: list[Any] = []

    def Export(self, request: Any, context: Any) -> Any:
        self.metrics += [
            metric for group in request.resource_metrics for scope in group.scope_metrics for metric in scope.metrics
        ]
        return metrics_service_pb2.ExportMetricsServiceResponse()


def test_counts_reach_the_collector(telemetry: OtelTelemetry, port: int) -> None:
    """One sum for each name, by attributes."""
    server, metrics = grpc.server(ThreadPoolExecutor(2)), Metrics()
    metrics_service_pb2_grpc.add_MetricsServiceServicer_to_server(metrics, server)
    assert server.add_insecure_port(f"127.0.0.1:{port}") == port
    server.start()
    for kind in ("PAUSE", "PAUSE", "CANCEL"):
        telemetry.count("lanewarden.signal.raised", kind=kind)
    assert telemetry.force_flush(10)
    server.stop(0).wait()
    (metric,) = metrics.metrics
    points = {point.attributes[0].value.string_value: point.as_int for point in metric.sum.data_points}
    assert (metric.name, points) == ("lanewarden.signal.raised", {"PAUSE": 2, "CANCEL": 1})


def collect(port: int) -> tuple[grpc.Server, Collector]:
    server, collector = grpc.server(ThreadPoolExecutor(2)), Collector()
    trace_service_pb2_grpc.add_TraceServiceServicer_to_server(collector, server)
    assert server.add_insecure_port(f"127.0.0.1:{port}") == port
    server.start()
    return server, collector


def test_off_imports_no_sdk() -> None:
    """Without an endpoint a process that serves and calls never imports OpenTelemetry."""
    script = (
        "import sys, lanewarden.server, lanewarden.client, lanewarden.logs\n"
        "from lanewarden.telemetry import OFF, TelemetrySettings, configure\n"
        "assert configure('s', 'i', TelemetrySettings()) is OFF\n"
        "assert not any(name.startswith('opentelemetry') for name in sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=30)


def test_off_keeps_the_callers_trace() -> None:
    """With telemetry off the caller's trace id is still known to what the call does; nonsense is not a trace."""
    trace = f"00-{'a' * 32}-{'b' * 16}-01"
    with OFF.server_span("x/Y", {"traceparent": trace}) as span:
        span.set("task.id", "t")
        assert TRACEPARENT.get() == trace
    with OFF.server_span("x/Y", {"traceparent": trace + "-"}):
        assert TRACEPARENT.get() == ""
    assert valid_traceparent(f"00-{'0' * 32}-{'b' * 16}-01") == ""


async def test_one_trace_from_client_to_handler(telemetry: OtelTelemetry, port: int) -> None:
    """A client's span is the parent of the server's, the handler is told its server span, refusals show a reason."""
    server = Server(name="test", authenticator=echo.OneToken(), roles=echo.ROLES, telemetry=telemetry)
    server.add(echo.service(), echo.EchoHandlers())
    bound = await server.bind_tcp("127.0.0.1", 0)
    await server.start()
    token = "operator"
    async with client.connect(f"127.0.0.1:{bound}", token=token, telemetry=telemetry) as connection:
        stub = connection.stub(echo.service())
        with telemetry.span("sweep", lane="l1"):
            answer = await stub.Echo(echo.request(), emitter="supervisor.sweep")
        with pytest.raises(Refusal):
            await stub.Refuse(echo.request())
    await server.drain(0)
    receiver, collector = collect(port)
    assert await asyncio.to_thread(telemetry.force_flush, 10)
    receiver.stop(0).wait()
    echo_spans = [span for span in collector.spans if not span.name.endswith("Refuse")]
    by_kind = {span.kind: span for span in echo_spans}
    inner, serving, calling = by_kind[1], by_kind[2], by_kind[3]
    assert (calling.parent_span_id, serving.parent_span_id) == (inner.span_id, calling.span_id)
    assert answer.traceparent.startswith(f"00-{serving.trace_id.hex()}-{serving.span_id.hex()}-")
    attributes = {each.key: each.value.string_value for span in collector.spans for each in span.attributes}
    assert attributes["lanewarden.origin"] == "supervisor.sweep"
    assert attributes["lanewarden.reason"] == "WORKER_DEAD"
    assert attributes["lanewarden.lane"] == "l1"


def test_w07_no_collector_costs_one_line_each_way(
    telemetry: OtelTelemetry, port: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Without a collector spans cost no waiting; its loss and its return are one line each, however long it lasts."""
    caplog.set_level(logging.DEBUG)

    def work() -> None:
        with telemetry.span("work"):
            pass

    begun = time.monotonic()
    for _ in range(200):
        work()
    assert time.monotonic() - begun < 0.5
    for _ in range(2):
        work()
        telemetry.force_flush(5)
    receiver, collector = collect(port)
    deadline = time.monotonic() + 20
    while not collector.spans and time.monotonic() < deadline:
        work()
        telemetry.force_flush(5)
    work()
    telemetry.force_flush(5)
    receiver.stop(0).wait()
    said = [record.getMessage() for record in caplog.records if record.levelno >= logging.INFO]
    assert said == ["no collector answers; spans are dropped until one does", "the collector is back"]
