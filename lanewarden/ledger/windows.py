"""Counts over sliding windows, as functions of what was counted and when; pure.

What is counted lands in steps of 50 ms. A step that is over is handed up into steps of 500 ms, those into 15 s, those into
minutes: counting costs one addition, and each window is a ring of twenty steps. A ring forgets by the step, so a window
covers between 95 % and 100 % of its span.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from lanewarden.ledger.totals import Series, Totals
from lanewarden.telemetry.metric_names import OTHER

STEPS: Final = 20
"""Steps of a window, the one that has not ended included."""
STEP_MS: Final = {1: 50, 10: 500, 300: 15_000}
"""The length of a step, by the seconds of its window."""
MINUTE_MS: Final = 60_000

Key = tuple[str, str, str, str]
"""Entity kind, entity id, emitter, origin."""


def other(key: Key) -> Key:
    """Where a key is summed that has no place of its own. Its emitter stays: emitters are code sites, so there are few."""
    return (OTHER, "", key[2], "")


def busiest(counts: Mapping[Key, int], keys_max: int) -> dict[Key, int]:
    """The counts of at most ``keys_max`` keys, and the rest summed as ``other`` under its emitters."""
    if len(counts) <= keys_max:
        return dict(counts)
    own = [(key, rows) for key, rows in counts.items() if key[0] != OTHER]
    own.sort(key=lambda item: -item[1])
    kept = dict(own[:keys_max])
    for key, rows in (*own[keys_max:], *((key, rows) for key, rows in counts.items() if key[0] == OTHER)):
        kept[other(key)] = kept.get(other(key), 0) + rows
    return kept


class _Ring:
    """One window; hands what is over up to the next coarser one."""

    def __init__(self, step_ms: int, keys_max: int, coarser: _Ring | None) -> None:
        self.step_ms = step_ms
        self.closed: deque[tuple[int, dict[Key, int]]] = deque(maxlen=STEPS)
        self.counts: dict[Key, int] = {}
        self.step = 0
        self._keys_max = keys_max
        self._open_max = 2 * keys_max
        self._coarser = coarser

    def move_to(self, now_ms: int) -> None:
        """Close the step that is open if it is over by now."""
        step = now_ms // self.step_ms
        if step <= self.step:
            return
        if self.counts:
            closed = busiest(self.counts, self._keys_max)
            self.closed.append((self.step, closed))
            self.counts = {}
            if self._coarser is not None:
                self._coarser.take(self.step * self.step_ms, closed)
        self.step = step

    def take(self, at_ms: int, counts: Mapping[Key, int]) -> None:
        """Add what was counted in a finer step."""
        self.move_to(at_ms)
        self.add(counts.items())

    def add(self, counted: Iterable[tuple[Key, int]]) -> int:
        """Count in the step that is open; how much it was. The step may have twice the keys of one that is closed, so that
        bounding is seldom; it is bounded once all is counted, which was in memory before.
        """
        counts, total = self.counts, 0
        known = counts.get
        for key, rows in counted:
            counts[key] = known(key, 0) + rows
            total += rows
        if len(counts) > self._open_max:
            self.counts = busiest(counts, self._keys_max)
        return total


class Windows:
    """Row changes by key over the last 1, 10 and 300 seconds, and by the minute; bounded by ``keys_max`` keys a step.

    Times are milliseconds that never go back; one that does counts as the latest.
    """

    def __init__(self, keys_max: int) -> None:
        self._minutes = _Ring(MINUTE_MS, keys_max, None)
        coarser = self._minutes
        self._rings: dict[int, _Ring] = {}
        for seconds in sorted(STEP_MS, reverse=True):
            coarser = self._rings[seconds] = _Ring(STEP_MS[seconds], keys_max, coarser)
        self._finest = coarser
        self._from_fine = [self._rings[seconds] for seconds in sorted(STEP_MS)]
        self._totals = Totals()
        self._now_ms = 0

    def add(self, now_ms: int, counted: Iterable[tuple[Key, int]]) -> int:
        """Count row changes by key; how many they were."""
        finest = self._finest
        if now_ms // finest.step_ms > finest.step:
            self._totals.add(finest.counts)
            self._now_ms = now_ms
            finest.move_to(now_ms)
        return finest.add(counted)

    def emitters(self) -> Counter[str]:
        """What each emitter has ever written."""
        total = self._totals.emitters()
        for key, rows in self._finest.counts.items():
            total[key[2]] += rows
        return total

    def totals(self, now_ms: int) -> dict[Series, int]:
        """What was ever written, by entity kind, emitter and origin. Not the step that is open: so none ever goes down."""
        self._move_to(now_ms)
        return self._totals.series()

    def steps(self, seconds: int, now_ms: int) -> Iterator[tuple[int, Mapping[Key, int]]]:
        """The counts of the window that ends now by step, oldest first, each with when its step began."""
        self._move_to(now_ms)
        ring = self._rings[seconds]
        for step, counts in ring.closed:
            if step > ring.step - STEPS:
                yield step * ring.step_ms, counts
        latest: Counter[Key] = Counter()
        for finer in self._from_fine[: self._from_fine.index(ring) + 1]:
            latest.update(finer.counts)
        if latest:
            yield ring.step * ring.step_ms, latest

    def sums(self, seconds: int, now_ms: int) -> Counter[Key]:
        """The counts of the window that ends now."""
        total: Counter[Key] = Counter()
        for _, counts in self.steps(seconds, now_ms):
            total.update(counts)
        return total

    def take_minutes(self, now_ms: int) -> list[tuple[int, dict[Key, int]]]:
        """The minutes that are over and were not taken, oldest first, each with when it began; at most the last 20."""
        self._move_to(now_ms)
        minutes = [(step * MINUTE_MS, counts) for step, counts in self._minutes.closed]
        self._minutes.closed.clear()
        return minutes

    def since_taken(self, now_ms: int) -> Counter[Key]:
        """What was counted in the minute that is not over, and in those over that were not taken."""
        self._move_to(now_ms)
        total: Counter[Key] = Counter()
        for _, counts in self._minutes.closed:
            total.update(counts)
        for ring in (*self._from_fine, self._minutes):
            total.update(ring.counts)
        return total

    def _move_to(self, now_ms: int) -> None:
        if now_ms // self._finest.step_ms > self._finest.step:
            self._totals.add(self._finest.counts)
        self._now_ms = max(now_ms, self._now_ms)
        for ring in (*self._from_fine, self._minutes):
            ring.move_to(self._now_ms)
