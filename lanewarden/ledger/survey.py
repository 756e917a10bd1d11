"""What is wrong with how a service writes, as a function of what it wrote when; pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from lanewarden.ledger.findings import Entity, Finding, FindingKind, Share, Thresholds
from lanewarden.ledger.windows import STEP_MS, STEPS, Key
from lanewarden.telemetry.metric_names import OTHER

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

Writer = tuple[str, str]
"""Emitter and origin."""
Step = tuple[int, Mapping[Key, int]]
"""When a step began, and what was counted in it."""


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
        self._over: dict[tuple[str, str, str], tuple[float, int]] | None = None
        self._rows = sum(sum(counts.values()) for _, counts in steps)
        if self._rows >= min(limits.rows_per_second, limits.total_rows_per_second) * WINDOW_SECONDS * FULL * LASTING:
            self._sum_up()

    def _sum_up(self) -> None:
        """Sum up the entities that were written to so much that something can be wrong with them: most were not."""
        limit, entities = self._limits.rows_per_second, self._entities
        busy = self._busy()
        if not busy:
            return
        for at_ms, counts in self._steps:
            for (kind, entity_id, emitter, origin), rows in counts.items():
                entity = (kind, entity_id)
                if entity in busy:
                    if entity not in entities:
                        entities[entity] = _Sum(limit, self._recent_ms, at_ms)
                    entities[entity].add(at_ms, (emitter, origin), rows)

    def _busy(self) -> set[Entity]:
        limits, rows_of = self._limits, dict[Entity, int]()
        for _, counts in self._steps:
            for (kind, entity_id, _, _), rows in counts.items():
                rows_of[kind, entity_id] = rows_of.get((kind, entity_id), 0) + rows
        least = limits.rows_per_second * FULL * LASTING
        if limits.ceiling_rows_per_second:
            least = min(least, limits.ceiling_rows_per_second)
        return {
            entity
            for entity, rows in rows_of.items()
            if rows >= least * WINDOW_SECONDS and entity[1] and entity[0] != OTHER
        }

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

    def _over_many(self, high: Mapping[Entity, _Sum]) -> list[tuple[Finding, float]]:
        """Emitters that write too much to entities none of which has too much for itself."""
        limit = self._limits.total_rows_per_second
        emitters: dict[str, _Sum] = {}
        for at_ms, counts in self._steps:
            step: dict[Writer, int] = {}
            for (kind, entity_id, emitter, origin), rows in counts.items():
                if (kind, entity_id) not in high:
                    step[emitter, origin] = step.get((emitter, origin), 0) + rows
            for writer, rows in step.items():
                if writer[0] not in emitters:
                    emitters[writer[0]] = _Sum(limit, self._recent_ms, at_ms)
                emitters[writer[0]].add(at_ms, writer, rows)
        return [
            (
                Finding(
                    kind=FindingKind.TOTAL_RATE,
                    since_ms=each.began_ms,
                    rows_per_second=each.rows_per_second(self._now_ms),
                    shares=shares(each.writers),
                    entities=len(self._written_by(emitter) - high.keys()),
                ),
                each.high,
            )
            for emitter, each in emitters.items()
            if each.high >= LASTING
        ]

    def _written_by(self, emitter: str) -> set[Entity]:
        return {key[:2] for _, counts in self._steps for key in counts if key[2] == emitter}

    def over_ceiling(self) -> dict[tuple[str, str, str], tuple[float, int]]:
        """Who has written more to an entity than the ceiling allows, by kind, id and emitter: the rate, and when it will
        have come down if no more is written.
        """
        if self._over is None:
            self._over = {}
            most = self._limits.ceiling_rows_per_second * WINDOW_SECONDS
            if most and self._rows >= most:
                over = {
                    (*entity, emitter): rows
                    for entity, each in self._entities.items()
                    if each.writers.total() >= most
                    for emitter, rows in _by_emitter(each.writers).items()
                    if rows >= most
                }
                below_ms = self._below_ms(over, most)
                self._over = {who: (rows / WINDOW_SECONDS, below_ms[who]) for who, rows in over.items()}
        return self._over

    def _below_ms(self, over: Mapping[tuple[str, str, str], int], most: float) -> dict[tuple[str, str, str], int]:
        """When so much of what each has written has left the window that it is less than ``most``."""
        left, until_ms = dict(over), {}
        for at_ms, counts in self._steps:
            for (kind, entity_id, emitter, _), rows in counts.items():
                who = (kind, entity_id, emitter)
                if who in left:
                    left[who] -= rows
            for who in [who for who in left if who not in until_ms and left[who] < most]:
                until_ms[who] = at_ms + STEPS * STEP_MS[WINDOW_SECONDS]
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
