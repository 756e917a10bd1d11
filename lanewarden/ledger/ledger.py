"""The ledger of one store: a clock and a lock around what :mod:`lanewarden.ledger.windows` counts.

It knows nothing of SQLite; the store tells it what each unit of work changed, and asks it who may write.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from lanewarden.clock import Clock, stopwatch
from lanewarden.errors import Reason, Refusal, refuse
from lanewarden.ledger.book import FindingBook, Motion
from lanewarden.ledger.findings import Finding, FindingKind, Share, Thresholds
from lanewarden.ledger.survey import WINDOW_SECONDS, Survey, Writer, shares
from lanewarden.ledger.totals import Series
from lanewarden.ledger.windows import MINUTE_MS, STEP_MS, Key, Windows, busiest
from lanewarden.records import replace

log = logging.getLogger(__name__)

ENTITIES_MAX: Final = 1_024
LOOK_MS: Final = 1_000
"""How often what is written is looked at while it is written; in between only those look who ask."""
WINDOWS_SECONDS: Final = tuple(STEP_MS)

Written = tuple[Key, int]
"""A key and how many rows were changed under it."""
Moved = tuple[str, str, bool]
"""Kind and id of an entity whose version has moved, and whether with progress."""


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
        self.clock = clock
        self._steady_ms = clock.steady_ms
        self._seconds = stopwatch(clock)
        self._held_seconds = self.limits.held_ms / 1000
        self._entities_max = entities_max
        self._lock = threading.Lock()
        self._windows = Windows(entities_max)
        self._motion = Motion()
        self._book = FindingBook()
        self._over: dict[tuple[str, str, str], tuple[float, int]] = {}
        self._storms: dict[tuple[str, str], str] = {}
        self._looked_ms = 0
        self._holder: Key | None = None
        self._too_long_at = 0.0
        self._attributed_rows = 0
        self._discarded_rows = 0
        self._throttled: Counter[str] = Counter()

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

    def record_all(self, written: Iterable[Written], moved: Iterable[Moved] = ()) -> None:
        """Count committed changes, and versions that have moved."""
        now_ms = self._steady_ms()
        with self._lock:
            self._attributed_rows += self._windows.add(now_ms, written)
            for kind, entity_id, progressed in moved:
                self._motion.moved((kind, entity_id), now_ms, progressed=progressed)
            if now_ms - self._looked_ms >= LOOK_MS:
                self._look(now_ms)

    def discard(self, rows: int) -> None:
        """Count ``rows`` changes that were rolled back."""
        with self._lock:
            self._discarded_rows += rows

    def turn(self, key: Key | None) -> None:
        """From now on the store is this unit of work's; whose it was before is done with it. None: nobody's."""
        now = self._seconds()
        if now >= self._too_long_at and self._holder is not None:
            with self._lock:
                self._look(self._steady_ms())
        self._too_long_at = now + self._held_seconds  # first, so that nobody ever sees a holder with another's time
        self._holder = key

    def check(self, entity_kind: str, entity_id: str, emitter: str) -> None:
        """Return if the emitter may write to the entity.

        Raises:
            Refusal: WRITE_THROTTLED while it has written more than the ceiling allows.
        """
        if not self._over:
            return
        found = self._over.get((entity_kind, entity_id, emitter))
        if found is not None and (left_ms := found[1] - self._steady_ms()) > 0:
            with self._lock:
                self._throttled[emitter] += 1
            raise _throttled(entity_id, emitter, found[0], self.limits.ceiling_rows_per_second, left_ms)

    def storm_of(self, entity_kind: str, entity_id: str, emitter: str) -> str:
        """The kind of the finding that lasts about this entity or this emitter, as of the last look; empty without one."""
        return self._storms.get((entity_kind, entity_id)) or self._storms.get(("", emitter), "")

    def rates(self, window_seconds: int, entity_id: str = "") -> list[WriteRate]:
        """Return the rates of the last 1, 10 or 300 seconds, of one entity if it is named, most rows first.

        Raises :class:`ValueError` for another window.
        """
        if window_seconds not in STEP_MS:
            raise ValueError(f"the windows are {WINDOWS_SECONDS} seconds, not {window_seconds}")
        with self._lock:
            sums = self._windows.sums(window_seconds, self._steady_ms())
        if entity_id:
            sums = Counter({key: rows for key, rows in sums.items() if key[1] == entity_id})
        return rates_of(sums, window_seconds, self._entities_max)

    def emitters(self) -> dict[str, int]:
        """Return the rows of each emitter since the start, most rows first."""
        with self._lock:
            return dict(self._windows.emitters().most_common())

    def totals(self) -> dict[Series, int]:
        """Return the rows since the start by entity kind, emitter and origin, but those of the last 50 ms."""
        with self._lock:
            return self._windows.totals(self._steady_ms())

    def throttled(self) -> dict[str, int]:
        """Return how many units of each emitter were refused since the start."""
        with self._lock:
            return dict(self._throttled)

    def open_findings(self) -> Counter[FindingKind]:
        """Return how much of each kind is wrong now."""
        return Counter(each.kind for each, _, ended_ms in self.findings() if ended_ms is None)

    def findings(self) -> list[tuple[Finding, int, int | None]]:
        """What is wrong or was lately, what lasts first; each with how long ago it began and, if it has, ended, in ms."""
        now_ms = self._steady_ms()
        with self._lock:
            self._look(now_ms)
            found = self._book.everything()
        return [
            (each, now_ms - each.since_ms, None if each.ended_ms is None else now_ms - each.ended_ms) for each in found
        ]

    def take_minutes(self, *, ending: bool = False) -> list[tuple[int, dict[Key, int]]]:
        """The minutes that are over and were not taken before, oldest first, each with how long ago it began, in ms.
        ``ending`` ends the one that is not over; after that nothing more is to be counted.
        """
        now_ms = self._steady_ms()
        until_ms = now_ms + MINUTE_MS if ending else now_ms
        with self._lock:
            return [(now_ms - began_ms, counts) for began_ms, counts in self._windows.take_minutes(until_ms)]

    def since_taken(self) -> Counter[Key]:
        """What was counted since the last minute that was taken."""
        with self._lock:
            return self._windows.since_taken(self._steady_ms())

    def _look(self, now_ms: int) -> None:
        """Find what is wrong now; the lock is held."""
        self._looked_ms = now_ms
        survey = Survey(list(self._windows.steps(WINDOW_SECONDS, now_ms)), self.limits, now_ms)
        found, lasting = survey.rates()
        found += [self._with_writers(each, now_ms) for each in self._motion.found(now_ms, self.limits)]
        found += self._long_holder(now_ms)
        self._over = survey.over_ceiling()
        raised, ended = self._book.note(now_ms, found, lasting)
        self._storms = {
            (each.entity_kind, each.entity_id) if each.entity_id else ("", each.shares[0].emitter): each.kind.value
            for each in self._book.lasting()
            if each.kind is not FindingKind.STORE_HELD
        }
        _tell(logging.WARNING, "too much is written", raised)
        _tell(logging.INFO, "no longer too much is written", ended)

    def _with_writers(self, finding: Finding, now_ms: int) -> Finding:
        """Who moves the version, as far as five minutes tell."""
        writers: Counter[Writer] = Counter()
        for (kind, entity_id, emitter, origin), rows in self._windows.sums(WINDOWS_SECONDS[-1], now_ms).items():
            if (kind, entity_id) == (finding.entity_kind, finding.entity_id):
                writers[emitter, origin] += rows
        seconds = max(1.0, min(now_ms - finding.since_ms, WINDOWS_SECONDS[-1] * 1000) / 1000)
        return replace(finding, shares=shares(writers), rows_per_second=writers.total() / seconds)

    def _long_holder(self, now_ms: int) -> list[Finding]:
        holder = self._holder
        held_ms = round((self._seconds() - self._too_long_at) * 1000) + self.limits.held_ms
        if holder is None or held_ms < self.limits.held_ms or self._holder is not holder:
            return []
        kind, entity_id, emitter, origin = holder
        return [
            Finding(
                kind=FindingKind.STORE_HELD,
                entity_kind=kind,
                entity_id=entity_id,
                since_ms=now_ms - held_ms,
                shares=(Share(emitter=emitter, origin=origin, rows=0, share=1.0),),
                held_ms=held_ms,
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


def _tell(level: int, said: str, findings: Sequence[Finding]) -> None:
    """One line for all that were found at once, which names the first."""
    if not findings:
        return
    first = findings[0]
    facts = {
        "finding": first.kind.value,
        "entity": f"{first.entity_kind} {first.entity_id}".strip(),
        "emitters": ", ".join(f"{each.emitter} {each.share:.0%}" for each in first.shares),
        "rows_per_second": first.rows_per_second,
        "more": len(findings) - 1,
    }
    log.log(level, said, extra=facts)
