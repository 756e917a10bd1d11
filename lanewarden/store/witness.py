"""What telemetry is told of the store: a span for each unit of work, for each commit, and for what units told of themselves;
and how long units and commits take.

A unit's span lasts from when the unit was asked for until its caller could have the answer, so a unit that waits for another
one shows by whom it was kept waiting, and the other one that it held the store.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from lanewarden.errors import Refusal
from lanewarden.store.names import Emitter, Entity
from lanewarden.store.unit import Told
from lanewarden.telemetry import Past, Telemetry, Value, is_kept
from lanewarden.telemetry.metric_names import STORE_COMMIT_DURATION, STORE_UNIT_DURATION
from lanewarden.telemetry.span_names import COMMIT, UNIT

log = logging.getLogger(__name__)

LONG_NS: Final = 10_000_000
"""A wait as long as that has somebody who is to blame for it."""
HOLDS_MAX: Final = 64
"""The long holds that are remembered, the latest ones."""
COMMIT_EMITTER: Final = "store.commit"
"""Who has the store while a slow disk keeps a commit waiting."""
BEGIN_EMITTER: Final = "store.begin"
"""Who has the store while another process holds the write lock of the file."""


class Finished(Protocol):
    """What is read of a unit that is over. Times are nanoseconds of the Unix epoch; the store's own were never asked for."""

    emitter: Emitter
    entity: Entity | None
    origin: str
    parent: str
    traceparent: str
    asked_ns: int
    begun_ns: int
    ended_ns: int
    rows: int
    error: BaseException | None
    told: Sequence[Told]


@dataclass(frozen=True, slots=True)
class _Hold:
    emitter: str
    begun_ns: int
    ended_ns: int
    context: str = ""

    def within(self, begun_ns: int, ended_ns: int) -> int:
        return min(self.ended_ns, ended_ns) - max(self.begun_ns, begun_ns)


class Witness:
    """Used by the thread that writes, once the callers of a group have their answers.

    ``storm_of`` says what is wrong with what an emitter writes to an entity, by its kind and id; empty for nothing.
    """

    def __init__(self, telemetry: Telemetry, storm_of: Callable[[str, str, str], str]) -> None:
        self._telemetry = telemetry
        self._storm_of = storm_of
        self._holds: deque[_Hold] = deque(maxlen=HOLDS_MAX)
        self._units = telemetry.durations(STORE_UNIT_DURATION.name)
        self._commits = telemetry.durations(STORE_COMMIT_DURATION.name)

    def saw(self, units: Sequence[Finished], *, begun_ns: int, committing_ns: int, ended_ns: int) -> None:
        """A group is over: it was begun, its units ran, it was committed or lost. What goes wrong in here is logged."""
        try:
            self._note_holds(units, begun_ns, committing_ns, ended_ns)
            self._record(units, committing_ns, ended_ns)
            asked = [unit for unit in units if unit.asked_ns]
            for unit in asked:
                self._unit(unit, ended_ns)
            if kept := [unit for unit in asked if is_kept(unit.traceparent)]:
                self._commit(units, kept, committing_ns, ended_ns)
        except Exception:  # the writer must go on, and all callers with it
            log.exception("a group of units could not be told of")

    def _record(self, units: Sequence[Finished], committing_ns: int, ended_ns: int) -> None:
        if self._commits is not None and any(unit.error is None for unit in units):
            self._commits.record(_seconds(committing_ns, ended_ns))
        if self._units is not None:
            for unit in units:
                if unit.begun_ns:  # else its group was lost before its turn
                    self._units.record(_seconds(unit.begun_ns, unit.ended_ns), unit.emitter.name)

    def _note_holds(self, units: Sequence[Finished], begun_ns: int, committing_ns: int, ended_ns: int) -> None:
        if ended_ns - begun_ns < LONG_NS:
            return
        held = [_Hold(unit.emitter.name, unit.begun_ns, unit.ended_ns, unit.traceparent) for unit in units]
        first = units[0].begun_ns or committing_ns
        held += [_Hold(BEGIN_EMITTER, begun_ns, first), _Hold(COMMIT_EMITTER, committing_ns, ended_ns)]
        self._holds += [hold for hold in held if hold.ended_ns - hold.begun_ns >= LONG_NS]

    def _unit(self, unit: Finished, ended_ns: int) -> None:
        if is_kept(unit.traceparent):
            self._kept_unit(unit, ended_ns)
        if unit.error is None:
            for told in unit.told:
                self._told(unit, told, ended_ns)

    def _kept_unit(self, unit: Finished, ended_ns: int) -> None:
        held_ns = unit.ended_ns - unit.begun_ns
        waited_ns = ended_ns - unit.asked_ns - held_ns
        attributes = _writes(unit)
        if unit.entity is not None:
            attributes["lanewarden.entity.kind"] = unit.entity.kind
            attributes[f"lanewarden.{unit.entity.kind}.id"] = unit.entity.id
        kind, entity_id = (unit.entity.kind, unit.entity.id) if unit.entity else ("", "")
        if storm := self._storm_of(kind, entity_id, unit.emitter.name):
            attributes["lanewarden.finding.kind"] = storm
        attributes["lanewarden.rows"] = unit.rows
        attributes["lanewarden.waited_seconds"] = waited_ns / 1e9
        attributes["lanewarden.held_seconds"] = held_ns / 1e9
        links: tuple[str, ...] = ()
        if waited_ns >= LONG_NS and (holder := self._holder(unit, ended_ns)):
            attributes["lanewarden.waited_for"] = holder.emitter
            links = (holder.context,) if is_kept(holder.context) else ()
        error = ""
        if isinstance(unit.error, Refusal):
            attributes["lanewarden.reason"] = unit.error.reason.name
        elif unit.error is not None:
            attributes["error.type"] = error = type(unit.error).__name__
        self._telemetry.past(
            Past(
                name=UNIT,
                context=unit.traceparent,
                parent=unit.parent,
                begun_ns=unit.asked_ns,
                ended_ns=ended_ns,
                attributes=attributes,
                links=links,
                error=error,
            )
        )

    def _holder(self, unit: Finished, ended_ns: int) -> _Hold | None:
        """Who had the store for most of a unit's wait."""
        others = [hold for hold in self._holds if hold.begun_ns != unit.begun_ns]
        longest = max(others, key=lambda hold: hold.within(unit.asked_ns, ended_ns), default=None)
        return longest if longest and longest.within(unit.asked_ns, ended_ns) > 0 else None

    def _told(self, unit: Finished, told: Told, ended_ns: int) -> None:
        if told.counted:
            self._telemetry.count(told.name, **{key: str(value) for key, value in told.attributes.items()})
        parent = told.continues or unit.traceparent
        context = self._telemetry.child(parent)
        if not is_kept(context):
            return
        attributes = _writes(unit)
        for key, value in (*told.about.items(), *told.attributes.items()):
            attributes[f"lanewarden.{key}"] = value
        self._telemetry.past(
            Past(
                name=told.name,
                context=context,
                parent=parent,
                begun_ns=told.at_ns,
                ended_ns=ended_ns,
                attributes=attributes,
                links=(unit.traceparent,) if told.continues and unit.traceparent else (),
                continued=bool(told.continues),
            )
        )

    def _commit(self, units: Sequence[Finished], kept: Sequence[Finished], committing_ns: int, ended_ns: int) -> None:
        first, *others = kept
        attributes: dict[str, Value] = {
            "lanewarden.units": len(units),
            "lanewarden.rows": sum(unit.rows for unit in units if unit.error is None),
        }
        lost = "" if any(unit.error is None for unit in units) else type(first.error).__name__
        if lost:
            attributes["error.type"] = lost
        self._telemetry.past(
            Past(
                name=COMMIT,
                context=self._telemetry.child(first.traceparent),
                parent=first.traceparent,
                begun_ns=committing_ns,
                ended_ns=ended_ns,
                attributes=attributes,
                links=tuple(unit.traceparent for unit in others),
            )
        )


def _seconds(begun_ns: int, ended_ns: int) -> float:
    """Between two times of a clock that somebody may set back in between."""
    return max(0, ended_ns - begun_ns) / 1e9


def _writes(unit: Finished) -> dict[str, Value]:
    attributes: dict[str, Value] = {"lanewarden.emitter": unit.emitter.name}
    if unit.origin:
        attributes["lanewarden.origin"] = unit.origin
    return attributes
