"""What was ever written, by entity kind, emitter and origin; pure, exact and bounded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from lanewarden.telemetry.metric_names import NONE, ORIGINS_MAX, OTHER

Series = tuple[str, str, str]
"""Entity kind, emitter, origin; ``none`` where there is none."""


class Totals:
    """Sums that only ever rise. Kinds and emitters are code sites, so there are few; an origin is whatever a caller says:
    those that come first keep their name, the rest is summed as ``other``.
    """

    def __init__(self) -> None:
        self._sums: dict[Series, int] = {}
        self._origins: Counter[tuple[str, str]] = Counter()

    def add(self, counts: Mapping[tuple[str, str, str, str], int]) -> None:
        """Add what was counted, by entity kind, entity id, emitter and origin."""
        for (kind, _, emitter, origin), rows in counts.items():
            # What was cut from a burst has lost its kind and its origin.
            series = (kind or NONE, emitter, origin or (OTHER if kind == OTHER else NONE))
            if series not in self._sums:
                series = self._named(series)
            self._sums[series] = self._sums.get(series, 0) + rows

    def series(self) -> dict[Series, int]:
        """Every sum."""
        return self._sums.copy()

    def emitters(self) -> Counter[str]:
        """The sum of each emitter."""
        total: Counter[str] = Counter()
        for (_, emitter, _), rows in self._sums.items():
            total[emitter] += rows
        return total

    def _named(self, series: Series) -> Series:
        kind, emitter, origin = series
        if origin not in (NONE, OTHER):
            if self._origins[kind, emitter] >= ORIGINS_MAX:
                return (kind, emitter, OTHER)
            self._origins[kind, emitter] += 1
        return series
