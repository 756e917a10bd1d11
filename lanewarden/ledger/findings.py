"""What is wrong with how a service writes, as a function of what it wrote when; pure."""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from lanewarden.ledger.windows import STEP_MS, STEPS, Key
from lanewarden.telemetry_names import OTHER

WINDOW_SECONDS: Final = 10
BURST_SECONDS: Final = 2
"""However many rows come at once, they count for no more than those of two seconds at the rate that is too high: a burst is
no storm, and a storm of any strength lasts for five steps, 2.5 s, before it is called one.
"""
RECENT_SECONDS: Final = 3
"""A storm is one only while it goes on: half of what is too much must have come in so many seconds."""
FULL: Final = 1 - 1 / STEPS
"""The share of its span that a window covers at least."""
LASTING: Final = 0.5
"""What was found stays while it is at half of what is too much, so that it does not come and go."""
SHARES_MAX: Final = 3

Entity = tuple[str, str]
"""Kind and id."""
Writer = tuple[str, str]
"""Emitter and origin."""
Step = tuple[int, Mapping[Key, int]]
"""When a step began, and what was counted in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """What is too much. ``rows_per_second`` is of one entity, ``total_rows_per_second`` of one emitter over many,
    ``ceiling_rows_per_second`` of one emitter on one entity (0: no ceiling); each over 10 s. ``versions`` may follow each
    other without progress; ``held_ms`` is for how long one unit of work may have the store to itself.
    """

    rows_per_second: float = 20.0
    total_rows_per_second: float = 200.0
    ceiling_rows_per_second: float = 1_000.0
    versions: int = 60
    held_ms: int = 1_000

    def conflicts(self) -> Iterator[str]:
        """Settings that contradict each other."""
        if 0 < self.ceiling_rows_per_second < self.rows_per_second:
            yield (
                f"write_ceiling_rows_per_second is {self.ceiling_rows_per_second:g}, below storm_rows_per_second, which is"
                f" {self.rows_per_second:g}: emitters would be throttled for what is no storm"
            )


class FindingKind(enum.Enum):
    """The names are those of ``lanewarden.v1.FindingKind``."""

    ENTITY_RATE = "ENTITY_RATE"
    TOTAL_RATE = "TOTAL_RATE"
    NO_PROGRESS = "NO_PROGRESS"
    STORE_HELD = "STORE_HELD"


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """What one emitter has in a finding: of all its rows, between 0 and 1."""

    emitter: str
    origin: str
    rows: int
    share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Something that is wrong, since when (of the ledger's own clock), and who does it, most rows first.

    ``rows_per_second`` is the latest while it lasts. ``entities`` counts those concerned. ``versions`` moved without
    progress; ``held_ms`` is how long the unit of work had the store. ``ended_ms`` is None while it lasts.
    """

    kind: FindingKind
    entity_kind: str = ""
    entity_id: str = ""
    since_ms: int
    ended_ms: int | None = None
    rows_per_second: float = 0.0
    shares: tuple[Share, ...] = ()
    entities: int = 1
    versions: int = 0
    held_ms: int = 0

    @property
    def name(self) -> tuple[FindingKind, str, str, str]:
        """What makes two of them one: what it is about, or who writes when it is about no single entity."""
        writer = "" if self.entity_id or not self.shares else self.shares[0].emitter
        return (self.kind, self.entity_kind, self.entity_id, writer)


@dataclass(slots=True)
class _Sum:
    """What was written of one thing, of which ``limit`` rows a second are too much. ``capped`` is without what bursts have
    too much, ``recent`` what came since ``recent_ms``.
    """

    limit: float
    recent_ms: int
    began_ms: int
    writers: Counter[Writer] = field(default_factory=Counter)
    capped: float = 0.0
    recent: int = 0
    step_rows: int = 0
    step_ms: int = -1

    def add(self, at_ms: int, writer: Writer, rows: int) -> None:
        if at_ms != self.step_ms:
            self.step_ms, self.step_rows = at_ms, 0
        self.capped += min(rows, max(0.0, self.limit * BURST_SECONDS - self.step_rows))
        self.step_rows += rows
        self.writers[writer] += rows
        if at_ms >= self.recent_ms:
            self.recent += rows

    @property
    def high(self) -> float:
        """How much of what is too much it is, sustained; 0 once it goes on no more."""
        if self.recent < self.limit * RECENT_SECONDS * LASTING:
            return 0.0
        return self.capped / (self.limit * WINDOW_SECONDS * FULL)

    def rows_per_second(self, now_ms: int) -> float:
        """Since it began, within the window."""
        return self.writers.total() / max(1.0, (now_ms - self.began_ms) / 1000)


class Survey:
    """What was written in the steps of the ten seconds before ``now_ms``, oldest first."""

    def __init__(self, steps: Sequence[Step], limits: Thresholds, now_ms: int) -> None:
        self._steps = steps
        self._limits = limits
        self._now_ms = now_ms
        self._recent_ms = now_ms - RECENT_SECONDS * 1000
        self._entities: dict[Entity, _Sum] = {}
        self._rows = sum(sum(counts.values()) for _, counts in steps)
        if self._rows >= min(limits.rows_per_second, limits.total_rows_per_second) * WINDOW_SECONDS * FULL * LASTING:
            self._sum_up()

    def _sum_up(self) -> None:
        limit, entities = self._limits.rows_per_second, self._entities
        for at_ms, counts in self._steps:
            for (kind, entity_id, emitter, origin), rows in counts.items():
                if entity_id and kind != OTHER:
                    entity = (kind, entity_id)
                    if entity not in entities:
                        entities[entity] = _Sum(limit, self._recent_ms, at_ms)
                    entities[entity].add(at_ms, (emitter, origin), rows)

    def rates(self) -> tuple[list[Finding], list[Finding]]:
        """The sustained rates that are too high, fastest first; and those that are no more than at half of that."""
        throttled = {(kind, entity_id) for kind, entity_id, _ in self.over_ceiling()}
        high = {entity: each for entity, each in self._entities.items() if each.high >= LASTING or entity in throttled}
        # Who is throttled writes in bursts, which would hide that it is one storm.
        found = [
            (self._over_one(entity, each), 1.0 if entity in throttled else each.high) for entity, each in high.items()
        ]
        rest = self._rows - sum(each.writers.total() for each in high.values())
        if rest >= self._limits.total_rows_per_second * WINDOW_SECONDS * FULL * LASTING:
            found += self._over_many(high)
        found.sort(key=lambda each: -each[0].rows_per_second)
        return [each for each, much in found if much >= 1], [each for each, much in found if much < 1]

    def _over_one(self, entity: Entity, written: _Sum) -> Finding:
        return Finding(
            kind=FindingKind.ENTITY_RATE,
            entity_kind=entity[0],
            entity_id=entity[1],
            since_ms=written.began_ms,
            rows_per_second=written.rows_per_second(self._now_ms),
            shares=shares(written.writers),
        )

    def _over_many(self, high: Container[Entity]) -> list[tuple[Finding, float]]:
        """Emitters that write too much to entities none of which has too much for itself."""
        limit = self._limits.total_rows_per_second
        emitters: dict[str, _Sum] = {}
        entities: dict[str, set[Entity]] = {}
        for at_ms, counts in self._steps:
            for (kind, entity_id, emitter, origin), rows in counts.items():
                if (kind, entity_id) not in high:
                    if emitter not in emitters:
                        emitters[emitter], entities[emitter] = _Sum(limit, self._recent_ms, at_ms), set()
                    emitters[emitter].add(at_ms, (emitter, origin), rows)
                    entities[emitter].add((kind, entity_id))
        return [
            (
                Finding(
                    kind=FindingKind.TOTAL_RATE,
                    since_ms=each.began_ms,
                    rows_per_second=each.rows_per_second(self._now_ms),
                    shares=shares(each.writers),
                    entities=len(entities[emitter]),
                ),
                each.high,
            )
            for emitter, each in emitters.items()
            if each.high >= LASTING
        ]

    def over_ceiling(self) -> dict[tuple[str, str, str], tuple[float, int]]:
        """Who has written more to an entity than the ceiling allows, by kind, id and emitter: the rate, and when it will
        have come down if no more is written.
        """
        most = self._limits.ceiling_rows_per_second * WINDOW_SECONDS
        if not most or self._rows < most:
            return {}
        found = {}
        for (kind, entity_id), each in self._entities.items():
            if each.writers.total() >= most:
                for emitter, rows in _by_emitter(each.writers).items():
                    if rows >= most:
                        who = (kind, entity_id, emitter)
                        found[who] = (rows / WINDOW_SECONDS, self._below_ms(who, rows, most))
        return found

    def _below_ms(self, who: tuple[str, str, str], rows: int, most: float) -> int:
        """When so much of what was written has left the window that it is less than ``most``."""
        left, until_ms = rows, 0
        for at_ms, counts in self._steps:
            left -= sum(more for key, more in counts.items() if key[:3] == who)
            until_ms = at_ms + STEPS * STEP_MS[WINDOW_SECONDS]
            if left < most:
                break
        return until_ms


def _by_emitter(writers: Mapping[Writer, int]) -> Counter[str]:
    found: Counter[str] = Counter()
    for (emitter, _), rows in writers.items():
        found[emitter] += rows
    return found


def shares(writers: Counter[Writer]) -> tuple[Share, ...]:
    """Who wrote, most rows first; three at most, each with its share of all."""
    total = writers.total()
    return tuple(
        Share(emitter=emitter, origin=origin, rows=rows, share=rows / total)
        for (emitter, origin), rows in writers.most_common(SHARES_MAX)
    )
