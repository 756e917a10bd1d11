"""What was found before: versions that move, findings that last or have ended; told what is so now, pure.

A finding is raised when its condition holds, stays while half of it does, and is remembered for a while after its end.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from lanewarden.ledger.findings import Entity, Finding, FindingKind, Thresholds
from lanewarden.records import replace

FINDINGS_MAX: Final = 256
KEEP_ENDED_MS: Final = 600_000
QUIET_MS: Final = 60_000
"""A version that has stood still for so long moves anew when it moves."""
TASKS_MAX: Final = 4_096


@dataclass(slots=True)
class _Moves:
    since_ms: int
    last_ms: int
    versions: int = 0


class Motion:
    """How often the versions of tasks have moved since their last progress; the latest :data:`TASKS_MAX` that moved."""

    def __init__(self) -> None:
        self._moves: OrderedDict[Entity, _Moves] = OrderedDict()

    def moved(self, entity: Entity, now_ms: int, *, progressed: bool) -> None:
        """A version was stored, with progress or without."""
        if progressed:
            self._moves.pop(entity, None)
            return
        known = self._moves.get(entity)
        if known is None or now_ms - known.last_ms > QUIET_MS:
            known = self._moves[entity] = _Moves(since_ms=now_ms, last_ms=now_ms)
        known.versions += 1
        known.last_ms = now_ms
        self._moves.move_to_end(entity)
        if len(self._moves) > TASKS_MAX:
            self._moves.popitem(last=False)

    def found(self, now_ms: int, limits: Thresholds) -> list[Finding]:
        """Those that move and make no progress. Who moves them, and how fast rows are written, is not known here."""
        return [
            Finding(
                kind=FindingKind.NO_PROGRESS,
                entity_kind=entity[0],
                entity_id=entity[1],
                since_ms=moves.since_ms,
                versions=moves.versions,
            )
            for entity, moves in self._moves.items()
            if moves.versions >= limits.versions and now_ms - moves.last_ms <= QUIET_MS
        ]


class FindingBook:
    """The findings that last and those that have ended lately, by name; at most :data:`FINDINGS_MAX`."""

    def __init__(self) -> None:
        self._known: OrderedDict[object, Finding] = OrderedDict()

    def note(
        self, now_ms: int, found: Iterable[Finding], lasting: Iterable[Finding]
    ) -> tuple[list[Finding], list[Finding]]:
        """Take what is found now, and what would be at half of what is too much; those raised and those ended by it.

        One that was found before keeps when it began.
        """
        raised: list[Finding] = []
        latest = {each.name: each for each in lasting} | {each.name: each for each in found}
        full = {each.name for each in found}
        for name, each in latest.items():
            before = self._known.get(name)
            if before is not None and before.ended_ms is None:
                self._known[name] = replace(each, since_ms=before.since_ms, held_ms=max(each.held_ms, before.held_ms))
            elif name in full:
                self._known[name] = each
                self._known.move_to_end(name)
                raised.append(each)
        ended = self._end(now_ms, latest.keys())
        while len(self._known) > FINDINGS_MAX:
            self._known.popitem(last=False)
        return raised, ended

    def _end(self, now_ms: int, lasting: Iterable[object]) -> list[Finding]:
        lasts = set(lasting)
        ended = []
        for name, known in list(self._known.items()):
            if known.ended_ms is None and name not in lasts:
                self._known[name] = over = replace(known, ended_ms=now_ms)
                ended.append(over)
            elif known.ended_ms is not None and now_ms - known.ended_ms > KEEP_ENDED_MS:
                del self._known[name]
        return ended

    def lasting(self) -> list[Finding]:
        """Those that have not ended."""
        return [each for each in self._known.values() if each.ended_ms is None]

    def everything(self) -> list[Finding]:
        """Those that last first, the latest raised first among them and among the others."""
        latest_first = list(reversed(self._known.values()))
        return sorted(latest_first, key=lambda each: each.ended_ms is not None)
