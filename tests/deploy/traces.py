"""What a collector's file exporter has written."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A span as it was written. ``service`` is the service.name of who sent it, ``links`` are pairs of a trace's and a
    span's id, ``policy`` is what a tail sampling processor that records it kept the trace for.
    """

    service: str
    name: str
    trace_id: str
    span_id: str
    parent_id: str
    attributes: dict[str, Any]
    links: tuple[tuple[str, str], ...]
    policy: str


def written(path: Path) -> list[Span]:
    """Every span of the file, so far."""
    return list(_spans(path)) if path.exists() else []


def _spans(path: Path) -> Iterator[Span]:
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            groups = json.loads(line)["resourceSpans"]
        except ValueError:  # the last line, half written
            return
        for group in groups:
            service = _attributes(group["resource"])["service.name"]
            for scope in group["scopeSpans"]:
                policy = _attributes(scope.get("scope", {})).get("tailsampling.policy", "")
                yield from (_span(span, service, policy) for span in scope["spans"])


def _span(span: dict[str, Any], service: str, policy: str) -> Span:
    return Span(
        service=service,
        name=span["name"],
        trace_id=span["traceId"],
        span_id=span["spanId"],
        parent_id=span.get("parentSpanId", ""),
        attributes=_attributes(span),
        links=tuple((link["traceId"], link["spanId"]) for link in span.get("links", ())),
        policy=policy,
    )


def _attributes(holder: dict[str, Any]) -> dict[str, Any]:
    return {pair["key"]: next(iter(pair["value"].values()), "") for pair in holder.get("attributes", ())}
