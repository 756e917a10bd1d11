"""What is sent of a span: the bytes that the SDK would send, within the limits that its variables set."""

from __future__ import annotations

from typing import Any

import pytest
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.proto.trace.v1 import trace_pb2
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanLimits
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, SpanKind, TraceFlags
from opentelemetry.trace.status import Status, StatusCode

from lanewarden.telemetry.spans import INTERNAL, SERVER, Exporter, KeptSpan
from tests.ports import free_port

RESOURCE = Resource.create({"service.name": "test"})
OWN, PARENT, LINKED = (f"00-{each * 32}-{each * 16}-01" for each in "abc")
ATTRIBUTES = {"rpc.method": "a.B/C", "lanewarden.rows": 3, "lanewarden.waited_seconds": 0.25}


def context(traceparent: str, *, remote: bool = False) -> SpanContext:
    return SpanContext(int(traceparent[3:35], 16), int(traceparent[36:52], 16), remote, TraceFlags(1))


def sent(span: KeptSpan) -> Any:
    """The request that would carry the span."""
    exporter = Exporter(f"http://127.0.0.1:{free_port()}", RESOURCE, SpanLimits())
    try:
        return exporter._translate_data([span])  # type: ignore[list-item]
    finally:
        exporter.shutdown()


@pytest.mark.parametrize("kind", [SERVER, INTERNAL], ids=["server", "internal"])
@pytest.mark.parametrize("parent", [PARENT, ""], ids=["child", "root"])
@pytest.mark.parametrize("error", ["", "TimeoutError"], ids=["well", "failed"])
def test_a_span_is_sent_as_the_sdk_sends_it(kind: trace_pb2.Span.SpanKind.ValueType, parent: str, error: str) -> None:
    """Every field, resource and scope included."""
    ours = sent(KeptSpan("a.B/C", OWN, parent, 7, ATTRIBUTES, kind=kind, links=(LINKED,), ended_ns=9, error=error))
    theirs = ReadableSpan(
        "a.B/C",
        context=context(OWN),
        parent=context(parent, remote=kind == SERVER) if parent else None,
        resource=RESOURCE,
        attributes=ATTRIBUTES,
        links=[Link(context(LINKED))],
        kind=SpanKind.SERVER if kind == SERVER else SpanKind.INTERNAL,
        status=Status(StatusCode.ERROR, error) if error else Status(StatusCode.UNSET),
        start_time=7,
        end_time=9,
        instrumentation_scope=InstrumentationScope("lanewarden"),
    )
    assert ours == encode_spans([theirs])


def test_the_limits_of_the_sdk_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attributes, their length and links are cut where ``OTEL_SPAN_*`` say, and what is cut is counted."""
    for name, value in (("ATTRIBUTE_COUNT", "1"), ("ATTRIBUTE_VALUE_LENGTH", "2"), ("LINK_COUNT", "1")):
        monkeypatch.setenv(f"OTEL_SPAN_{name}_LIMIT", value)
    request = sent(KeptSpan("x", OWN, "", 7, ATTRIBUTES, links=(LINKED, PARENT)))
    (span,) = request.resource_spans[0].scope_spans[0].spans
    assert [each.value.string_value for each in span.attributes] == ["a."]
    assert span.dropped_attributes_count == 2
    assert (len(span.links), span.dropped_links_count) == (1, 1)
