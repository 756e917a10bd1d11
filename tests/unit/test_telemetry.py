"""Telemetry: free when off, harmless without a collector, one trace across processes."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import aclosing

import pytest

from lanewarden import client
from lanewarden.errors import Refusal
from lanewarden.server import Server
from lanewarden.telemetry import OFF, TRACEPARENT, TelemetrySettings, configure, valid_traceparent
from lanewarden.telemetry.otel import OtelTelemetry
from tests import echo_service as echo
from tests.otlp import Receiver
from tests.ports import free_port


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


def test_counts_reach_the_collector(telemetry: OtelTelemetry, port: int) -> None:
    """One sum for each name, by attributes."""
    for kind in ("PAUSE", "PAUSE", "CANCEL"):
        telemetry.count("lanewarden.signal.raised", kind=kind)
    with Receiver(port) as receiver:
        assert telemetry.force_flush(10)
    (metric,) = receiver.metrics
    points = {point.attributes[0].value.string_value: point.as_int for point in metric.sum.data_points}
    assert (metric.name, points) == ("lanewarden.signal.raised", {"PAUSE": 2, "CANCEL": 1})


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
    with OFF.server_span("x/Y", trace) as span:
        span.set("task.id", "t")
        assert TRACEPARENT.get() == trace
    with OFF.server_span("x/Y", trace + "-"):
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
        with telemetry.span("sweep", {"lane": "l1"}):
            answer = await stub.Echo(echo.request(), emitter="supervisor.sweep")
        with pytest.raises(Refusal):
            await stub.Refuse(echo.request())
    await server.drain(0)
    with Receiver(port) as receiver:
        assert await asyncio.to_thread(telemetry.force_flush, 10)
    by_kind = {span.kind: span for span in receiver.spans if not span.name.endswith("Refuse")}
    inner, serving, calling = by_kind["INTERNAL"], by_kind["SERVER"], by_kind["CLIENT"]
    assert (calling.parent_id, serving.parent_id) == (inner.span_id, calling.span_id)
    assert answer.traceparent.startswith(f"00-{serving.trace_id}-{serving.span_id}-")
    attributes = {key: value for span in receiver.spans for key, value in span.attributes.items()}
    assert attributes["lanewarden.origin"] == "supervisor.sweep"
    assert attributes["lanewarden.reason"] == "WORKER_DEAD"
    assert attributes["lanewarden.lane"] == "l1"
    ends = {(span.kind, span.attributes.get("rpc.response.status_code")) for span in receiver.spans}
    assert ends == {
        *(("CLIENT", "OK"), ("SERVER", "OK"), ("INTERNAL", None)),
        *(("CLIENT", "FAILED_PRECONDITION"), ("SERVER", "FAILED_PRECONDITION")),
    }


async def test_a_stream_has_a_span_for_as_long_as_it_is_read(telemetry: OtelTelemetry, port: int) -> None:
    """Both ends of a stream, in the trace that it continues; whoever reads it is not part of it. One that is left early says
    that it was cancelled.
    """
    server = Server(name="test", authenticator=echo.OneToken(), roles=echo.ROLES, telemetry=telemetry)
    server.add(echo.service(), echo.EchoHandlers())
    bound = await server.bind_tcp("127.0.0.1", 0)
    await server.start()
    stored = f"00-{'a' * 32}-{'b' * 16}-01"
    async with (
        client.connect(f"127.0.0.1:{bound}", token="operator", telemetry=telemetry) as connection,
        aclosing(connection.stub(echo.service()).Watch(echo.request(), traceparent=stored)) as answers,
    ):
        await anext(answers)
        assert TRACEPARENT.get() == ""
    await server.drain(0)
    with Receiver(port) as receiver:
        assert await asyncio.to_thread(telemetry.force_flush, 10)
    calling = receiver.wait_for(lambda span: span.kind == "CLIENT", "the reader's span")
    serving = receiver.wait_for(lambda span: span.kind == "SERVER", "the server's span")
    assert (calling.trace_id, calling.parent_id, serving.parent_id) == ("a" * 32, "b" * 16, calling.span_id)
    assert calling.attributes["rpc.response.status_code"] == "CANCELLED"


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
    with Receiver(port) as receiver:
        deadline = time.monotonic() + 20
        while not receiver.spans and time.monotonic() < deadline:
            work()
            telemetry.force_flush(5)
        work()
        telemetry.force_flush(5)
    said = [record.getMessage() for record in caplog.records if record.levelno >= logging.INFO]
    assert said == ["no collector answers; spans are dropped until one does", "the collector is back"]
