"""The ledger of one store: a clock and a lock around what :mod:`lanewarden.ledger.windows` counts.

It knows nothing of SQLite; the store tells it what each unit of work changed, and asks it who may write.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from lanewarden.clock import Clock
from lanewarden.errors import Reason, Refusal, refuse
from lanewarden.ledger.book import FindingBook, Motion
from lanewarden.ledger.findings import (
    WINDOW_SECONDS,
    Finding,
    FindingKind,
    Share,
    Thresholds,
    over_ceiling,
    rates_found,
    shares,
)
from lanewarden.ledger.windows import STEP_MS, Key, Windows, busiest

log = logging.getLogger(__name__)

ENTITIES_MAX: Final = 1_024
LOOK_MS: Final = 1_000
"""How often what is written is looked at while it is written; in between only those look who ask."""
LASTING: Final = 0.5
"""A finding stays while it is at half of what is too much, so that it does not come and go."""
WINDOWS_SECONDS: Final = tuple(STEP_MS)

Written = tuple[Key, int]
"""A key and how many rows were changed under it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteRate:
    """What one emitter wrote to one entity inside a window.

    ``entity_kind`` is ``other`` for the sum of what found no place of its own; its emitter is still exact.
    """

    entity_kind: str
    entity_id: str
    emitter: str
    origin: str
    rows: int
    rows_per_second: float


class WriteLedger:
    """Counts row changes; safe to use from any thread.

    ``entities_max`` bounds the keys of each window step, and of each answer; the rest is summed as ``other`` under its
    emitter. ``limits`` is what counts as too much.
    """

    def __init__(self, clock: Clock, *, entities_max: int = ENTITIES_MAX, limits: Thresholds | None = None) -> None:
        self.limits = limits or Thresholds()
        self._clock = clock
        self._entities_max = entities_max
        self._lock = threading.Lock()
        self._windows = Windows(entities_max)
        self._emitters: Counter[str] = Counter()
        self._motion = Motion()
        self._book = FindingBook()
        self._over: dict[tuple[str, str, str], tuple[float, int]] = {}
        self._looked_ms = 0
        self._holder: tuple[Key, int] | None = None
        self._attributed_rows = 0
        self._discarded_rows = 0

    @property
    def attributed_rows(self) -> int:
        """Committed row changes since the start, every one under its emitter."""
        return self._attributed_rows

    @property
    def discarded_rows(self) -> int:
        """Row changes since the start that were rolled back again."""
        return self._discarded_rows

    def record(self, entity_kind: str, entity_id: str, emitter: str, origin: str, rows: int) -> None:
        """Count ``rows`` committed changes; both entity fields are empty where no single entity is meant."""
        self.record_all([((entity_kind, entity_id, emitter, origin), rows)])

    def record_all(self, written: Iterable[Written], moved: Iterable[tuple[str, str, bool]] = ()) -> None:
        """Count committed changes, and versions that ``moved``: kind and id of each, and whether with progress."""
        now_ms = self._clock.steady_ms()
        with self._lock:
            for key, rows in written:
                self._attributed_rows += rows
                self._emitters[key[2]] += rows
                self._windows.add(now_ms, key, rows)
            for kind, entity_id, progressed in moved:
                self._motion.moved((kind, entity_id), now_ms, progressed=progressed)
            if now_ms - self._looked_ms >= LOOK_MS:
                self._look(now_ms)

    def discard(self, rows: int) -> None:
        """Count ``rows`` changes that were rolled back."""
        with self._lock:
            self._discarded_rows += rows

    def enter(self, key: Key) -> None:
        """A unit of work has the store from now on."""
        self._holder = (key, self._clock.steady_ms())

    def leave(self) -> None:
        """The unit that has entered has the store no more."""
        if self._holder is None:
            return
        now_ms = self._clock.steady_ms()
        if now_ms - self._holder[1] >= self.limits.held_ms:
            with self._lock:
                self._look(now_ms)
        self._holder = None

    def check(self, entity_kind: str, entity_id: str, emitter: str) -> None:
        """Return if the emitter may write to the entity.

        Raises:
            Refusal: WRITE_THROTTLED while it has written more than the ceiling allows.
        """
        if not self._over:
            return
        found = self._over.get((entity_kind, entity_id, emitter))
        if found is not None and (left_ms := found[1] - self._clock.steady_ms()) > 0:
            raise _throttled(entity_id, emitter, found[0], self.limits.ceiling_rows_per_second, left_ms)

    def rates(self, window_seconds: int) -> list[WriteRate]:
        """Return the rates of the last 1, 10 or 300 seconds, most rows first.

        Raises :class:`ValueError` for another window.
        """
        if window_seconds not in STEP_MS:
            raise ValueError(f"the windows are {WINDOWS_SECONDS} seconds, not {window_seconds}")
        with self._lock:
            sums = self._windows.sums(window_seconds, self._clock.steady_ms())
        return rates_of(sums, window_seconds, self._entities_max)

    def emitters(self) -> dict[str, int]:
        """Return the rows of each emitter since the start, most rows first."""
        with self._lock:
            return dict(self._emitters.most_common())

    def findings(self) -> list[tuple[Finding, int, int | None]]:
        """What is wrong or was lately, what lasts first; each with how long ago it began and, if it has, ended, in ms."""
        now_ms = self._clock.steady_ms()
        with self._lock:
            self._look(now_ms)
            found = self._book.everything()
        return [
            (each, now_ms - each.since_ms, None if each.ended_ms is None else now_ms - each.ended_ms) for each in found
        ]

    def take_minutes(self) -> list[tuple[int, Mapping[Key, int]]]:
        """The minutes that are over and were not taken before, oldest first, each with how long ago it began, in ms."""
        now_ms = self._clock.steady_ms()
        with self._lock:
            return [(now_ms - began_ms, counts) for began_ms, counts in self._windows.take_minutes(now_ms)]

    def this_minute(self) -> Counter[Key]:
        """What was counted since the last minute that was taken."""
        with self._lock:
            return self._windows.this_minute(self._clock.steady_ms())

    def _look(self, now_ms: int) -> None:
        """Find what is wrong now; the lock is held."""
        self._looked_ms = now_ms
        found: list[Finding] = self._motion.found(now_ms, self.limits)
        found = [self._with_writers(each, now_ms) for each in found] + self._long_holder(now_ms)
        lasting: list[Finding] = []
        steps = list(self._windows.steps(WINDOW_SECONDS, now_ms))
        if sum(sum(counts.values()) for _, counts in steps) >= self.limits.least_rows:
            found += rates_found(steps, self.limits, of_full=1.0)
            lasting += rates_found(steps, self.limits, of_full=LASTING)
        self._over = over_ceiling(steps, self.limits)
        raised, ended = self._book.note(now_ms, found, lasting)
        for each in raised:
            log.warning("too much is written", extra=_facts(each))
        for each in ended:
            log.info("no longer too much is written", extra=_facts(each))

    def _with_writers(self, finding: Finding, now_ms: int) -> Finding:
        """Who moves the version, as far as five minutes tell."""
        sums = self._windows.sums(WINDOWS_SECONDS[-1], now_ms)
        own = {key: rows for key, rows in sums.items() if key[:2] == (finding.entity_kind, finding.entity_id)}
        seconds = max(1.0, min(now_ms - finding.since_ms, WINDOWS_SECONDS[-1] * 1000) / 1000)
        return replace(finding, shares=shares(own), rows_per_second=sum(own.values()) / seconds)

    def _long_holder(self, now_ms: int) -> list[Finding]:
        if self._holder is None or now_ms - self._holder[1] < self.limits.held_ms:
            return []
        (kind, entity_id, emitter, origin), since_ms = self._holder
        return [
            Finding(
                kind=FindingKind.STORE_HELD,
                entity_kind=kind,
                entity_id=entity_id,
                since_ms=since_ms,
                shares=(Share(emitter=emitter, origin=origin, rows=0, share=1.0),),
                held_ms=now_ms - since_ms,
            )
        ]


def rates_of(sums: Mapping[Key, int], seconds: float, rates_max: int) -> list[WriteRate]:
    """Counts over a span as rates, most rows first; beyond ``rates_max`` keys summed as ``other``."""
    kept = sorted(busiest(sums, rates_max).items(), key=lambda item: -item[1])
    return [
        WriteRate(
            entity_kind=kind,
            entity_id=entity_id,
            emitter=emitter,
            origin=origin,
            rows=rows,
            rows_per_second=rows / seconds,
        )
        for (kind, entity_id, emitter, origin), rows in kept
    ]


def _throttled(entity_id: str, emitter: str, rate: float, ceiling: float, left_ms: int) -> Refusal:
    seconds = left_ms / 1000
    return refuse(
        Reason.WRITE_THROTTLED,
        f"{emitter} writes {rate:g} rows/s to {entity_id}, more than {ceiling:g}; try again in {seconds:g} s",
        emitter=emitter,
        entity_id=entity_id,
        rows_per_second=f"{rate:g}",
        ceiling_rows_per_second=f"{ceiling:g}",
        retry_after_seconds=f"{seconds:g}",
    )


def _facts(finding: Finding) -> dict[str, object]:
    return {
        "finding": finding.kind.value,
        "entity": f"{finding.entity_kind} {finding.entity_id}".strip(),
        "emitters": ", ".join(f"{each.emitter} {each.share:.0%}" for each in finding.shares),
        "rows_per_second": finding.rows_per_second,
    }
