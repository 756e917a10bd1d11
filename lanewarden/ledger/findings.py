"""What is called wrong with how a service writes, and how much of it is too much."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass

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
