"""Histograms of durations that cost a fraction of a microsecond to record into; what reads them is elsewhere.

OpenTelemetry's own take ten microseconds for each value, which a call or a unit of work would feel.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from lanewarden.telemetry.metric_names import OTHER, Kind, Metric

SERIES_MAX: Final = 1_000
"""Sets of attribute values that are told apart; whatever comes later is one more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """What was recorded under one set of attribute values: by bucket, the last of which has no upper bound, and as a sum in
    seconds.
    """

    counts: tuple[int, ...]
    seconds: float


class _Series:
    __slots__ = ("counts", "seconds")

    def __init__(self, buckets: int) -> None:
        self.counts = [0] * buckets
        self.seconds = 0.0


class Durations:
    """One histogram of the catalogue. Recorded into on one thread at a time; read on any."""

    def __init__(self, metric: Metric) -> None:
        assert metric.kind is Kind.HISTOGRAM, f"{metric.name} is no histogram"
        self.metric = metric
        self.since_ns = time.time_ns()
        self._bounds = metric.buckets
        self._series: dict[tuple[str, ...], _Series] = {}

    def record(self, seconds: float, *values: str) -> None:
        """Count one duration under the values of the metric's attributes, in their order."""
        series = self._series.get(values)
        if series is None:
            series = self._add(values)
        series.counts[bisect_left(self._bounds, seconds)] += 1
        series.seconds += seconds

    def recorded(self) -> Mapping[tuple[str, ...], Recorded]:
        """Everything since the start, by attribute values."""
        return {
            values: Recorded(counts=tuple(series.counts), seconds=series.seconds)
            for values, series in self._series.copy().items()
        }

    def _add(self, values: tuple[str, ...]) -> _Series:
        assert len(values) == len(self.metric.attributes), f"{self.metric.name} has other attributes than {values}"
        if len(self._series) >= SERIES_MAX:
            values = (OTHER,) * len(values)
        return self._series.setdefault(values, _Series(len(self._bounds) + 1))
