"""The write ledger: who writes to what, how fast.

Every committed row change is counted under (entity kind, entity id, emitter, origin) in sliding windows of
bounded memory. The ledger knows nothing of SQLite; the store tells it what each unit of work changed.
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from dataclasses import dataclass

from lanewarden.clock import Clock

WINDOWS_SECONDS = (1, 10, 300)
# A window moves in steps of a twentieth: its sum covers between 95 % and 100 % of its span.
BUCKETS_PER_WINDOW = 20
ENTITIES_MAX = 1_024
OTHER = "other"

_Key = tuple[str, str, str, str]


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

    ``entities_max`` bounds the keys of each window step, and of each answer; the rest is summed as ``other``
    under its emitter.
    """

    def __init__(self, clock: Clock, *, entities_max: int = ENTITIES_MAX) -> None:
        self._clock = clock
        self._entities_max = entities_max
        self._lock = threading.Lock()
        self._windows = {seconds: _Window(seconds, entities_max) for seconds in WINDOWS_SECONDS}
        self._emitters: Counter[str] = Counter()
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
        key = (entity_kind, entity_id, emitter, origin)
        now_ms = self._clock.steady_ms()
        with self._lock:
            self._attributed_rows += rows
            self._emitters[emitter] += rows
            for window in self._windows.values():
                window.add(now_ms, key, rows)

    def discard(self, rows: int) -> None:
        """Count ``rows`` changes that were rolled back."""
        with self._lock:
            self._discarded_rows += rows

    def rates(self, window_seconds: int) -> list[WriteRate]:
        """Return the rates of the last 1, 10 or 300 seconds, most rows first.

        Raises :class:`ValueError` for another window.
        """
        window = self._windows.get(window_seconds)
        if window is None:
            raise ValueError(f"the windows are {WINDOWS_SECONDS} seconds, not {window_seconds}")
        now_ms = self._clock.steady_ms()
        with self._lock:
            sums = window.sums(now_ms)
        return [
            WriteRate(
                entity_kind=kind,
                entity_id=entity_id,
                emitter=emitter,
                origin=origin,
                rows=rows,
                rows_per_second=rows / window_seconds,
            )
            for (kind, entity_id, emitter, origin), rows in _top(sums, self._entities_max)
        ]

    def emitters(self) -> dict[str, int]:
        """Return the rows of each emitter since the start, most rows first."""
        with self._lock:
            return dict(self._emitters.most_common())


class _Window:
    """Sums over a sliding span, kept as a ring of steps."""

    def __init__(self, seconds: int, entities_max: int) -> None:
        self._step_ms = seconds * 1_000 // BUCKETS_PER_WINDOW
        self._entities_max = entities_max
        self._steps: deque[tuple[int, dict[_Key, int]]] = deque(maxlen=BUCKETS_PER_WINDOW)

    def add(self, now_ms: int, key: _Key, rows: int) -> None:
        step = now_ms // self._step_ms
        if not self._steps or self._steps[-1][0] < step:
            self._steps.append((step, {}))
        sums = self._steps[-1][1]
        if key not in sums and len(sums) >= self._entities_max:
            key = _other(key)
        sums[key] = sums.get(key, 0) + rows

    def sums(self, now_ms: int) -> Counter[_Key]:
        oldest = now_ms // self._step_ms - BUCKETS_PER_WINDOW
        total: Counter[_Key] = Counter()
        for step, sums in self._steps:
            if step > oldest:
                total.update(sums)
        return total


def _other(key: _Key) -> _Key:
    # Emitters are sites in our code, so their number is bounded; origins come from elsewhere, so they are
    # dropped.
    return (OTHER, "", key[2], "")


def _top(sums: Counter[_Key], entities_max: int) -> list[tuple[_Key, int]]:
    own = Counter({key: rows for key, rows in sums.items() if key != _other(key)})
    kept = Counter(dict(own.most_common(entities_max)))
    for key, rows in sums.items():
        if key not in kept or key == _other(key):
            kept[_other(key)] += rows
    return kept.most_common()
