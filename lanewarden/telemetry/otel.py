"""Telemetry that is on. Imported only by :func:`lanewarden.telemetry.configure`, because the SDK is slow to import.

Whether a span is kept is decided before anything is made for it: by the trace that it belongs to, or for a root by its new
trace id. One that is not costs a comparison, and its trace id goes on all the same.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from contextvars import Token
from random import getrandbits
from types import TracebackType
from typing import Final, Self, cast

from opentelemetry.sdk.trace import ReadableSpan, SpanLimits, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from lanewarden.errors import Code, Refusal
from lanewarden.telemetry import (
    TRACEPARENT,
    Continued,
    NoSpan,
    Past,
    Span,
    TelemetrySettings,
    Value,
    is_kept,
    valid_traceparent,
)
from lanewarden.telemetry.collector import SPANS, Contact
from lanewarden.telemetry.otel_metrics import OtelMetrics
from lanewarden.telemetry.sampling import Sampling
from lanewarden.telemetry.spans import CLIENT, CONSUMER, INTERNAL, SERVER, Exporter, KeptSpan, OneLineExporter

# The refusals that are the server's fault; the others are answers, and a trace that shows them red is noise.
_FAULTS: Final = frozenset({Code.DEADLINE_EXCEEDED, Code.UNIMPLEMENTED, Code.INTERNAL, Code.UNAVAILABLE})

_NO_SPAN: Final = NoSpan()
_STATUS: Final = "rpc.response.status_code"
_RANDOM: Final = 2
"""The flag of W3C's level 2 that says that a trace id is random."""


class OtelTelemetry(OtelMetrics):
    """Sends spans to their endpoint from a background thread, and metrics to theirs."""

    def __init__(self, service_name: str, instance_id: str, settings: TelemetrySettings) -> None:
        super().__init__(service_name, instance_id, settings)
        # A provider of one's own: nothing global changes, and two services can live in one test process.
        self.sampling = Sampling(TracerProvider(resource=self.resource, shutdown_on_exit=False).sampler)
        self._exporter = Exporter(settings.traces, self.resource, SpanLimits())
        self._spans = BatchSpanProcessor(OneLineExporter(self._exporter, Contact(settings.traces, SPANS)))

    def server_span(self, method: str, traceparent: str) -> Span:
        parent = valid_traceparent(traceparent)
        own = self.child(parent)
        TRACEPARENT.set(own)  # not reset: the log line of a failed call comes after the span
        if not is_kept(own):
            return _NO_SPAN
        attributes: dict[str, Value] = {"rpc.system.name": "grpc", "rpc.method": method}
        return _OpenCall(self._spans, KeptSpan(method, own, parent, time.time_ns(), attributes, kind=SERVER))

    def client_span(self, method: str, target: str, *, continues: str = "") -> Span:
        current = TRACEPARENT.get()
        parent = continues or current
        own = self.child(parent)
        if not is_kept(own):
            return NoSpan(own)
        attributes: dict[str, Value] = {"rpc.system.name": "grpc", "rpc.method": method, "server.address": target}
        links = (current,) if continues and current and current[:35] != continues[:35] else ()
        kept = KeptSpan(method, own, parent, time.time_ns(), attributes, kind=CLIENT, links=links)
        return _OpenCall(self._spans, kept)

    def span(
        self,
        name: str,
        attributes: Mapping[str, Value] | None = None,
        *,
        continues: str = "",
        links: Iterable[str] = (),
    ) -> Span:
        current = TRACEPARENT.get()
        own = self.child(continues or current)
        if not is_kept(own):
            return _NO_SPAN if own == current else Continued(own)
        named = {f"lanewarden.{key}": value for key, value in (attributes or {}).items()}
        linked = (*links, current) if continues and current else tuple(links)
        kind = CONSUMER if continues else INTERNAL
        kept = KeptSpan(name, own, continues or current, time.time_ns(), named, kind=kind, links=linked)
        return _OpenWork(self._spans, kept)

    def child(self, traceparent: str) -> str:
        if not traceparent:
            trace_id = getrandbits(128) or 1
            flags = _RANDOM | self.sampling.keeps(trace_id, None)
            return f"00-{trace_id:032x}-{getrandbits(64) or 1:016x}-{flags:02x}"
        flags = int(traceparent[53:], 16)
        parent = flags & 1 == 1
        kept = self.sampling.always(parent)
        if kept is None:
            kept = self.sampling.keeps(int(traceparent[3:35], 16), parent)
        if kept:
            return f"{traceparent[:36]}{getrandbits(64) or 1:016x}-{flags & _RANDOM | 1:02x}"
        return traceparent if not parent else f"{traceparent[:53]}{flags & ~1:02x}"

    def past(self, span: Past) -> None:
        if is_kept(span.context):
            kind = CONSUMER if span.parent and span.continued else INTERNAL
            _send(
                self._spans,
                KeptSpan(
                    span.name,
                    span.context,
                    span.parent,
                    span.begun_ns,
                    span.attributes,
                    kind=kind,
                    links=span.links,
                    ended_ns=span.ended_ns,
                    error=span.error,
                ),
            )

    def force_flush(self, timeout_seconds: float) -> bool:
        return self._spans.force_flush(int(timeout_seconds * 1000)) and super().force_flush(timeout_seconds)

    def _close(self) -> None:
        self._spans.shutdown()  # type: ignore[no-untyped-call]
        super()._close()

    def _give_up(self) -> None:
        self._exporter.shutdown(timeout_millis=0)
        super()._give_up()


class _Open:
    """A span that is kept, until it ends."""

    __slots__ = ("_span", "_spans")
    kept = True

    def __init__(self, spans: BatchSpanProcessor, span: KeptSpan) -> None:
        self._spans = spans
        self._span = span

    @property
    def traceparent(self) -> str:
        return self._span.own

    def set(self, key: str, value: Value) -> None:
        cast("dict[str, Value]", self._span.attributes)[f"lanewarden.{key}"] = value

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        span = self._span
        span.ended_ns = time.time_ns()
        if isinstance(error, Refusal):
            self.set("reason", error.reason.name)
            if error.reason.code in _FAULTS:
                span.error = error.reason.name
        elif isinstance(error, Exception):
            span.error = type(error).__name__
        if span.error:
            cast("dict[str, Value]", span.attributes)["error.type"] = span.error
        _send(self._spans, span)


class _OpenCall(_Open):
    """A call, served or made; it says how it ended."""

    __slots__ = ()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        cast("dict[str, Value]", self._span.attributes)[_STATUS] = _status(error)
        super().__exit__(kind, error, trace)


class _OpenWork(_Open):
    """A piece of work, inside of which the current trace is its own."""

    __slots__ = ("_token",)
    _token: Token[str]

    def __enter__(self) -> Self:
        self._token = TRACEPARENT.set(self._span.own)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        TRACEPARENT.reset(self._token)
        super().__exit__(kind, error, trace)


def _status(error: BaseException | None) -> str:
    if error is None:
        return "OK"
    if isinstance(error, Refusal):
        return error.reason.code.name
    return "INTERNAL" if isinstance(error, Exception) else "CANCELLED"


def _send(spans: BatchSpanProcessor, span: KeptSpan) -> None:
    spans.on_end(cast("ReadableSpan", span))
