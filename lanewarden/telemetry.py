"""Traces and counts, when somebody collects them; otherwise only the trace id that callers send.

The OpenTelemetry SDK is imported when an OTLP endpoint is configured and not before: without one, a call pays
for one context variable.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Protocol

TRACEPARENT: ContextVar[str] = ContextVar("lanewarden_traceparent", default="")
"""The W3C ``traceparent`` of the work that this task or thread does; empty if it belongs to no trace."""

_TRACEPARENT = re.compile(r"00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")


@dataclass(frozen=True, slots=True, kw_only=True)
class TelemetrySettings:
    """``endpoint``: the OTLP/gRPC endpoint of the collector; empty turns telemetry off.

    Everything else (sampling, headers, timeouts) the SDK reads from its own ``OTEL_*`` variables.
    """

    endpoint: str = ""


class Span(Protocol):
    """What a piece of work may say about itself."""

    def set(self, key: str, value: str | int) -> None:
        """Set the attribute ``lanewarden.<key>``."""
        ...


class _NoSpan:
    def set(self, key: str, value: str | int) -> None:
        pass


_NO_SPAN = _NoSpan()


class Telemetry:
    """Telemetry that is off; :class:`lanewarden.otel.OtelTelemetry` is the other kind."""

    enabled = False

    @contextlib.contextmanager
    def server_span(self, method: str, metadata: Mapping[str, str]) -> Iterator[Span]:
        """Around the serving of one call; leaves :data:`TRACEPARENT` set for what the task does next."""
        del method
        TRACEPARENT.set(valid_traceparent(metadata.get("traceparent", "")))
        yield _NO_SPAN

    @contextlib.contextmanager
    def client_span(self, method: str) -> Iterator[Span]:
        """Around one call to another process; ``method`` is ``package.Service/Method``."""
        del method
        yield _NO_SPAN

    @contextlib.contextmanager
    def span(self, name: str, **attributes: str | int) -> Iterator[Span]:
        """Around any other piece of work; attributes become ``lanewarden.<name>``."""
        del name, attributes
        yield _NO_SPAN

    def count(self, name: str, **attributes: str) -> None:
        """Count one of something; attributes become ``lanewarden.<name>`` and never name a task."""
        del name, attributes

    def shutdown(self) -> None:
        """Send what is left, within the exporter's own timeout; blocks."""


OFF = Telemetry()


def configure(service_name: str, instance_id: str, settings: TelemetrySettings) -> Telemetry:
    """The telemetry of this process: off unless ``settings`` names an endpoint. Never fails for want of a collector."""
    if not settings.endpoint:
        return OFF
    from lanewarden.otel import OtelTelemetry

    return OtelTelemetry(service_name, instance_id, settings)


def valid_traceparent(text: str) -> str:
    """``text`` if it is a W3C traceparent, otherwise the empty string."""
    return text if text and _TRACEPARENT.fullmatch(text) else ""


def current_trace_id() -> str:
    """The 32 hex digits of the current trace, or the empty string."""
    return TRACEPARENT.get()[3:35]
