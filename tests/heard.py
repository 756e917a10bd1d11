"""Telemetry that keeps what it is told, for units of work that run in the test itself. Every span is kept."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import count

from lanewarden.telemetry import Past, Span, Telemetry, Value


class Heard(Telemetry):
    """``counts`` and ``spans`` in the order in which they were told; ``begun`` are the others that were begun, by name."""

    enabled = True

    def __init__(self) -> None:
        self.counts: list[tuple[str, dict[str, str]]] = []
        self.spans: list[Past] = []
        self.begun: list[tuple[str, str]] = []
        self._ids = count(1)

    def count(self, name: str, **attributes: str) -> None:
        self.counts.append((name, attributes))

    def span(
        self,
        name: str,
        attributes: Mapping[str, Value] | None = None,
        *,
        continues: str = "",
        links: Iterable[str] = (),
    ) -> Span:
        self.begun.append((name, continues))
        return super().span(name, attributes, continues=continues, links=links)

    def child(self, traceparent: str) -> str:
        number = next(self._ids)
        trace = traceparent[:35] or f"00-{number:032x}"
        return f"{trace}-{number:016x}-01"

    def past(self, span: Past) -> None:
        self.spans.append(span)

    def told(self, name: str) -> list[Past]:
        """The spans of a name."""
        return [span for span in self.spans if span.name == name]

    def unit(self, emitter: str) -> Past:
        """The one unit of work of an emitter."""
        (found,) = [
            span for span in self.told("lanewarden.store.unit") if span.attributes["lanewarden.emitter"] == emitter
        ]
        return found
