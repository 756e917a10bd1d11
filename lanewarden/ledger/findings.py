"""What is wrong with how a service writes, as a function of what it wrote when; pure."""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from lanewarden.ledger.windows import OTHER, STEP_MS, STEPS, Key

WINDOW_SECONDS: Final = 10
BURST_SECONDS: Final = 2
"""However many rows come at once, they count for no more than those of two seconds at the rate that is too high: a burst is
no storm, and a storm of any strength lasts for five steps, 2.5 s, before it is called one.
"""
FULL: Final = 1 - 1 / STEPS
"""The share of its span that a window covers at least."""
SHARES_MAX: Final = 3

Entity = tuple[str, str]
"""Kind and id."""


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

    @property
    def least_rows(self) -> float:
        """With fewer rows in ten seconds no rate can be too high, nor half of it."""
        return min(self.rows_per_second, self.total_rows_per_second) * WINDOW_SECONDS * FULL / 2


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
        """What makes two of them one: what it is about, and for rates over many entities who."""
        about = "" if self.entity_id or not self.shares else self.shares[0].emitter
        return (self.kind, self.entity_kind, self.entity_id, about)


Step = tuple[int, Mapping[Key, int]]


def rates_found(steps: Sequence[Step], limits: Thresholds, *, of_full: float) -> list[Finding]:
    """The sustained rates in the steps of a window of ten seconds, at ``of_full`` of what is too much, fastest first."""
    began: dict[Entity, int] = {}
    capped: dict[Entity, float] = {}
    burst = limits.rows_per_second * BURST_SECONDS
    for at_ms, counts in steps:
        for entity, rows in _by_entity(counts).items():
            began.setdefault(entity, at_ms)
            capped[entity] = capped.get(entity, 0) + min(rows, burst)
    least = limits.rows_per_second * WINDOW_SECONDS * FULL * of_full
    hot = {entity for entity, rows in capped.items() if rows >= least}
    found = [_of_entity(entity, began[entity], steps) for entity in hot]
    return sorted(found + _over_many(steps, hot, limits, of_full), key=lambda each: -each.rows_per_second)


def _by_entity(counts: Mapping[Key, int]) -> Counter[Entity]:
    found: Counter[Entity] = Counter()
    for (kind, entity_id, _, _), rows in counts.items():
        if entity_id and kind != OTHER:
            found[kind, entity_id] += rows
    return found


def _of_entity(entity: Entity, since_ms: int, steps: Sequence[Step]) -> Finding:
    own: Counter[Key] = Counter()
    for _, counts in steps:
        for key, rows in counts.items():
            if key[:2] == entity:
                own[key] += rows
    return Finding(
        kind=FindingKind.ENTITY_RATE,
        entity_kind=entity[0],
        entity_id=entity[1],
        since_ms=since_ms,
        rows_per_second=own.total() / WINDOW_SECONDS,
        shares=shares(own),
    )


def _over_many(steps: Sequence[Step], hot: set[Entity], limits: Thresholds, of_full: float) -> list[Finding]:
    """Emitters that write too much to entities none of which has too much for itself."""
    burst = limits.total_rows_per_second * BURST_SECONDS
    began: dict[str, int] = {}
    capped: dict[str, float] = {}
    own: dict[str, Counter[Key]] = {}
    for at_ms, counts in steps:
        of_step: Counter[str] = Counter()
        for key, rows in counts.items():
            if key[:2] not in hot:
                of_step[key[2]] += rows
                own.setdefault(key[2], Counter())[key] += rows
        for emitter, rows in of_step.items():
            began.setdefault(emitter, at_ms)
            capped[emitter] = capped.get(emitter, 0) + min(rows, burst)
    least = limits.total_rows_per_second * WINDOW_SECONDS * FULL * of_full
    return [
        Finding(
            kind=FindingKind.TOTAL_RATE,
            since_ms=began[emitter],
            rows_per_second=own[emitter].total() / WINDOW_SECONDS,
            shares=shares(own[emitter]),
            entities=len({key[:2] for key in own[emitter]}),
        )
        for emitter, rows in capped.items()
        if rows >= least
    ]


def shares(counts: Mapping[Key, int]) -> tuple[Share, ...]:
    """Who wrote, most rows first; three at most, each with its share of all."""
    by: Counter[tuple[str, str]] = Counter()
    for (_, _, emitter, origin), rows in counts.items():
        by[emitter, origin] += rows
    total = by.total()
    return tuple(
        Share(emitter=emitter, origin=origin, rows=rows, share=rows / total)
        for (emitter, origin), rows in by.most_common(SHARES_MAX)
    )


def over_ceiling(steps: Sequence[Step], limits: Thresholds) -> dict[tuple[str, str, str], tuple[float, int]]:
    """Who has written more to an entity than the ceiling allows, by kind, id and emitter: the rate, and when it will have
    come down if no more is written.
    """
    if not limits.ceiling_rows_per_second:
        return {}
    most = limits.ceiling_rows_per_second * WINDOW_SECONDS
    totals: Counter[tuple[str, str, str]] = Counter()
    for _, counts in steps:
        for key, rows in counts.items():
            totals[key[:3]] += rows
    found = {}
    for who, rows in totals.items():
        if rows < most or not who[1]:
            continue
        left, until_ms = rows, 0
        for at_ms, counts in steps:
            left -= sum(more for key, more in counts.items() if key[:3] == who)
            until_ms = at_ms + STEPS * STEP_MS[WINDOW_SECONDS]
            if left < most:
                break
        found[who] = (rows / WINDOW_SECONDS, until_ms)
    return found
