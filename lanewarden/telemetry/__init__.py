"""Traces and counts, when somebody collects them; otherwise only the trace id that callers send.

The OpenTelemetry SDK is imported when an OTLP endpoint is configured and not before: without one, a call pays
for one context variable.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self

if TYPE_CHECKING:
    from lanewarden.telemetry.durations import Durations

Read = Callable[[], Iterable[tuple[float, tuple[str, ...]]]]
"""What reads a metric: values, each with those of the metric's attributes, in their order. Called on a thread of its own."""

TRACEPARENT: ContextVar[str] = ContextVar("lanewarden_traceparent", default="")
"""The W3C ``traceparent`` of the work that this task or thread does; empty if it belongs to no trace."""

_TRACEPARENT = re.compile(r"00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")

Value = str | int | float


@dataclass(frozen=True, slots=True, kw_only=True)
class TelemetrySettings:
    """``endpoint``: the OTLP/gRPC endpoint of the collector, unless spans or metrics have one of their own; an empty one
    turns them off, and nothing is sent without any.

    Everything else (sampling, headers, timeouts) the SDK reads from its own ``OTEL_*`` variables, which
    :mod:`lanewarden.telemetry.variables` has checked.
    """

    endpoint: str = ""
    traces_endpoint: str | None = None
    metrics_endpoint: str | None = None

    @property
    def traces(self) -> str:
        """Where spans go; empty for nowhere."""
        return self.endpoint if self.traces_endpoint is None else self.traces_endpoint

    @property
    def metrics(self) -> str:
        """Where metrics go; empty for nowhere."""
        return self.endpoint if self.metrics_endpoint is None else self.metrics_endpoint


class Span(Protocol):
    """A piece of work under way; it ends when the ``with`` block is left, by a refusal or an error too.

    ``kept`` tells whether anybody will see it: what is set on another one goes nowhere. ``traceparent`` is what to send
    to whoever goes on with the trace.
    """

    @property
    def kept(self) -> bool: ...

    @property
    def traceparent(self) -> str: ...

    def set(self, key: str, value: Value) -> None:
        """Set the attribute ``lanewarden.<key>``."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class NoSpan:
    """A span that nobody will see."""

    __slots__ = ("traceparent",)
    kept = False

    def __init__(self, traceparent: str = "") -> None:
        self.traceparent = traceparent

    def set(self, key: str, value: Value) -> None:
        """Nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass


_NO_SPAN = NoSpan()


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """A span that is told of once it is over. Attribute names are whole; times are nanoseconds of the Unix epoch.

    ``context`` is its own traceparent, from :meth:`Telemetry.child`; ``continued`` when that of its parent was stored
    meanwhile. ``error`` is what went wrong, in a word.
    """

    name: str
    context: str
    parent: str
    begun_ns: int
    ended_ns: int
    attributes: Mapping[str, Value] = field(default_factory=dict)
    links: tuple[str, ...] = ()
    continued: bool = False
    error: str = ""


class Telemetry:
    """Telemetry that is off; :class:`lanewarden.telemetry.otel.OtelTelemetry` is the other kind."""

    enabled = False

    def server_span(self, method: str, traceparent: str) -> Span:
        """The serving of one call of ``package.Service/Method``, whose caller sent ``traceparent``, valid or not. Leaves
        :data:`TRACEPARENT` set for what the task does next.
        """
        del method
        TRACEPARENT.set(valid_traceparent(traceparent))
        return _NO_SPAN

    def client_span(self, method: str, target: str, *, continues: str = "") -> Span:
        """One call to another process, as part of the current trace or of the one that it ``continues``."""
        del method, target
        return NoSpan(continues or TRACEPARENT.get())

    def span(
        self,
        name: str,
        attributes: Mapping[str, Value] | None = None,
        *,
        continues: str = "",
        links: Iterable[str] = (),
    ) -> Span:
        """Any other piece of work; ``attributes`` get the prefix ``lanewarden.``. Inside, :data:`TRACEPARENT` is its own.

        It is part of the current trace, or of the one that it ``continues``, the traceparent of something that was stored:
        then it is linked with the current one. ``links`` are traceparents of other work that it is about.
        """
        del name, links, attributes
        return Continued(continues) if continues else _NO_SPAN

    def child(self, traceparent: str) -> str:
        """The context of a span to come below ``traceparent``, or of a root if that is empty: to be stored, sent, and told
        of by :meth:`past`. The trace is the same whether or not anybody will see the span.
        """
        return traceparent

    def past(self, span: Past) -> None:
        """Tell of a span that is over, if its context says that it is kept."""

    def count(self, name: str, **attributes: str) -> None:
        """Count one of something; attributes become ``lanewarden.<name>`` and never name a task."""
        del name, attributes

    def observe(self, name: str, read: Read) -> None:
        """Have a metric of the catalogue read whenever metrics are sent."""
        del name, read

    def durations(self, name: str) -> Durations | None:
        """The histogram of the catalogue to record into; None where nobody collects it."""
        del name
        return None

    def shutdown(self) -> None:
        """Send what is left, within a few seconds; blocks."""


OFF = Telemetry()


class Continued(NoSpan):
    """A span that nobody will see, of another trace than the current one: only its trace id goes on."""

    __slots__ = ("_token",)

    def __enter__(self) -> Self:
        self._token = TRACEPARENT.set(self.traceparent)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        TRACEPARENT.reset(self._token)


@contextlib.contextmanager
def within(traceparent: str) -> Iterator[None]:
    """What is done inside, and what is started there, is part of that trace."""
    token = TRACEPARENT.set(traceparent)
    try:
        yield
    finally:
        TRACEPARENT.reset(token)


def configure(service_name: str, instance_id: str, settings: TelemetrySettings) -> Telemetry:
    """The telemetry of this process: off unless ``settings`` names an endpoint. Never fails for want of a collector."""
    if not (settings.traces or settings.metrics):
        return OFF
    if not settings.traces:
        from lanewarden.telemetry.otel_metrics import OtelMetrics

        return OtelMetrics(service_name, instance_id, settings)
    from lanewarden.telemetry.otel import OtelTelemetry

    return OtelTelemetry(service_name, instance_id, settings)


def valid_traceparent(text: str) -> str:
    """``text`` if it is a W3C traceparent, otherwise the empty string."""
    return text if text and _TRACEPARENT.fullmatch(text) else ""


def is_kept(traceparent: str) -> bool:
    """Whether the trace that a valid traceparent names is kept, as far as whoever wrote it knew."""
    return bool(traceparent) and int(traceparent[53:], 16) & 1 == 1


def current_trace_id() -> str:
    """The 32 hex digits of the current trace, or the empty string."""
    return TRACEPARENT.get()[3:35]
