"""Spans for a collector, and what its file exporter has written."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc
from opentelemetry.proto.trace.v1 import trace_pb2

from tests.otlp import Span

SEND_SECONDS: Final = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept(Span):
    """A span of the file; ``policy`` is what its trace was kept for, where the gateway records that."""

    policy: str


class KeptFile:
    """The file of a file exporter, read as it grows."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._read_bytes = 0
        self._spans: list[Kept] = []

    def spans(self) -> list[Kept]:
        """Every span of the file, so far."""
        if self.path.exists():
            with self.path.open("rb") as file:
                file.seek(self._read_bytes)
                for line in file:
                    if line.endswith(b"\n"):  # else it is still being written
                        self._read_bytes += len(line)
                        self._spans += _spans(line)
        return self._spans


def _spans(line: bytes) -> Iterator[Kept]:
    for group in json.loads(line)["resourceSpans"]:
        service = _attributes(group["resource"])["service.name"]
        for scope in group["scopeSpans"]:
            policy = _attributes(scope.get("scope", {})).get("tailsampling.policy", "")
            yield from (_kept(span, service, policy) for span in scope["spans"])


def _kept(span: dict[str, Any], service: str, policy: str) -> Kept:
    status = span.get("status", {})
    return Kept(
        service=service,
        name=span["name"],
        kind=trace_pb2.Span.SpanKind.Name(span.get("kind", 0)).removeprefix("SPAN_KIND_"),
        trace_id=span["traceId"],
        span_id=span["spanId"],
        parent_id=span.get("parentSpanId", ""),
        begun_ns=int(span["startTimeUnixNano"]),
        ended_ns=int(span["endTimeUnixNano"]),
        attributes=_attributes(span),
        links=tuple((link["traceId"], link["spanId"]) for link in span.get("links", ())),
        error=status.get("message", "") if status.get("code") == trace_pb2.Status.STATUS_CODE_ERROR else "",
        policy=policy,
    )


def _attributes(holder: dict[str, Any]) -> dict[str, Any]:
    return {pair["key"]: next(iter(pair["value"].values()), "") for pair in holder.get("attributes", ())}


def span(
    trace_id: bytes,
    *,
    name: str = "lanewarden.v1.OperatorService/GetTask",
    ns: int = 1_000_000,
    error: bool = False,
    attributes: Any = None,
) -> trace_pb2.Span:
    """A span that began ``ns`` ago."""
    now = time.time_ns()
    made = trace_pb2.Span(
        trace_id=trace_id,
        span_id=secrets.token_bytes(8),
        name=name,
        start_time_unix_nano=now - ns,
        end_time_unix_nano=now,
    )
    made.status.code = made.status.STATUS_CODE_ERROR if error else made.status.STATUS_CODE_UNSET
    for key, value in (attributes or {}).items():
        made.attributes.add(key=key).value.string_value = value
    return made


def send(port: int, *spans: trace_pb2.Span) -> None:
    """Give spans to the collector at that port, in the name of a service `test`."""
    group = trace_pb2.ResourceSpans(scope_spans=[trace_pb2.ScopeSpans(spans=spans)])
    group.resource.attributes.add(key="service.name").value.string_value = "test"
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        stub = trace_service_pb2_grpc.TraceServiceStub(channel)
        stub.Export(trace_service_pb2.ExportTraceServiceRequest(resource_spans=[group]), timeout=SEND_SECONDS)
