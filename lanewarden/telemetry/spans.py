"""Spans that are kept: what they consist of, and their way to the collector.

The SDK's batch processor and exporter carry them. Its span objects and its encoder are left out: they cost ten times what
these do, on the event loop that serves the calls.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, cast

from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1 import trace_pb2
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanLimits
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, TraceFlags

from lanewarden.telemetry import Value
from lanewarden.telemetry.collector import Contact

INTERNAL: Final = trace_pb2.Span.SPAN_KIND_INTERNAL
SERVER: Final = trace_pb2.Span.SPAN_KIND_SERVER
CLIENT: Final = trace_pb2.Span.SPAN_KIND_CLIENT
CONSUMER: Final = trace_pb2.Span.SPAN_KIND_CONSUMER
_REMOTE: Final = frozenset({SERVER, CONSUMER})
"""Kinds whose parents are another process's, or an earlier one's."""
_HAS_IS_REMOTE: Final = trace_pb2.SPAN_FLAGS_CONTEXT_HAS_IS_REMOTE_MASK
_IS_REMOTE: Final = trace_pb2.SPAN_FLAGS_CONTEXT_IS_REMOTE_MASK


class KeptSpan:
    """A span that will be seen. ``own``, ``parent`` and ``links`` are traceparents, times nanoseconds of the Unix epoch."""

    __slots__ = ("attributes", "begun_ns", "ended_ns", "error", "kind", "links", "name", "own", "parent")

    context = SpanContext(1, 1, is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED))
    """All that the SDK's batch processor asks of a span: it takes those that are sampled, and only they come to it."""

    def __init__(
        self,
        name: str,
        own: str,
        parent: str,
        begun_ns: int,
        attributes: Mapping[str, Value],
        *,
        kind: trace_pb2.Span.SpanKind.ValueType = INTERNAL,
        links: Sequence[str] = (),
        ended_ns: int = 0,
        error: str = "",
    ) -> None:
        self.name = name
        self.own = own
        self.parent = parent
        self.begun_ns = begun_ns
        self.attributes = attributes
        self.kind = kind
        self.links = links
        self.ended_ns = ended_ns
        self.error = error


class Exporter(OTLPSpanExporter):
    """Sends :class:`KeptSpan`."""

    def __init__(self, endpoint: str, resource: Resource, limits: SpanLimits) -> None:
        super().__init__(endpoint=endpoint)
        like = ReadableSpan(
            "", context=KeptSpan.context, resource=resource, instrumentation_scope=InstrumentationScope("lanewarden")
        )
        self._empty = encode_spans([like])
        del self._empty.resource_spans[0].scope_spans[0].spans[:]
        self._limits = limits

    def _translate_data(self, data: Sequence[ReadableSpan]) -> ExportTraceServiceRequest:
        request = ExportTraceServiceRequest()
        request.CopyFrom(self._empty)
        spans = request.resource_spans[0].scope_spans[0].spans
        for each in cast("Sequence[KeptSpan]", data):
            _encode(each, spans.add(), self._limits)
        return request


def _encode(span: KeptSpan, into: trace_pb2.Span, limits: SpanLimits) -> None:
    into.name = span.name
    into.kind = span.kind
    into.trace_id = bytes.fromhex(span.own[3:35])
    into.span_id = bytes.fromhex(span.own[36:52])
    into.flags = _HAS_IS_REMOTE
    if span.parent:
        into.parent_span_id = bytes.fromhex(span.parent[36:52])
        if span.kind in _REMOTE:
            into.flags |= _IS_REMOTE
    into.start_time_unix_nano = span.begun_ns
    into.end_time_unix_nano = span.ended_ns
    attributes_max, length_max = limits.max_span_attributes, limits.max_span_attribute_length
    for key, value in span.attributes.items():
        if attributes_max is not None and len(into.attributes) >= attributes_max:
            into.dropped_attributes_count += 1
            continue
        # pairs are added in place: a message that is made first and then copied costs four times as much
        holder = into.attributes.add(key=key).value
        if isinstance(value, str):
            holder.string_value = value if length_max is None else value[:length_max]
        elif isinstance(value, int):
            holder.int_value = value
        else:
            holder.double_value = value
    links = span.links if limits.max_links is None else span.links[: limits.max_links]
    for link in links:
        into.links.add(trace_id=bytes.fromhex(link[3:35]), span_id=bytes.fromhex(link[36:52]), flags=_HAS_IS_REMOTE)
    into.dropped_links_count = len(span.links) - len(links)
    into.status.SetInParent()
    if span.error:
        into.status.code = trace_pb2.Status.STATUS_CODE_ERROR
        into.status.message = span.error


class OneLineExporter(SpanExporter):
    """Exports through ``inner``, and tells ``contact`` what came of it."""

    def __init__(self, inner: SpanExporter, contact: Contact) -> None:
        self._inner = inner
        self._contact = contact

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        result = self._inner.export(spans)
        self._contact.told(result is SpanExportResult.SUCCESS)
        return result

    def shutdown(self) -> None:
        self._inner.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return self._inner.force_flush(timeout_millis)
