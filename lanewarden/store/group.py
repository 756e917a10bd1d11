"""Group commit: many units of work, one transaction, one sync."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, TypeVar

from lanewarden.ledger import WriteLedger, Written
from lanewarden.store import engine
from lanewarden.store.engine import RawConnection, Trouble, trouble
from lanewarden.store.health import Health
from lanewarden.store.names import Emitter, Entity
from lanewarden.store.unit import Told, UnitOfWork
from lanewarden.store.witness import Witness

log = logging.getLogger(__name__)
T = TypeVar("T")

# Called as ``failpoints(point, emitters)``, with the emitters of the units that commit, at the points
# ``before_commit`` and ``after_commit``; may raise SimulatedCrash.
Failpoints = Callable[[str, tuple[str, ...]], None]

# With the connection's own patience of a second each: half a minute for a person who holds the write lock.
BEGIN_TRIES_MAX = 30
# SQLite counts changes in 32 bits; a difference of two readings stays right when the counter wraps.
_CHANGES_MODULUS = 1 << 32
# What has the store while a slow disk keeps a commit waiting.
_COMMIT = ("", "", "store.commit", "")


@dataclass(slots=True, eq=False)
class Unit(Generic[T]):
    """One unit of work on its way: who asked, and then what came of it.

    ``parent`` and ``traceparent`` are the traces of who asked and its own. Times are nanoseconds of the Unix epoch, and 0
    while nobody wants to know.
    """

    work: Callable[[UnitOfWork], T]
    emitter: Emitter
    entity: Entity | None
    origin: str
    parent: str = ""
    traceparent: str = ""
    asked_ns: int = 0
    begun_ns: int = 0
    ended_ns: int = 0
    loop: asyncio.AbstractEventLoop | None = None
    future: asyncio.Future[T] | concurrent.futures.Future[None] | None = None
    result: T | None = None
    error: BaseException | None = None
    rows: int = 0
    written: Sequence[Written] = ()
    moves: Sequence[tuple[str, str, bool]] = ()
    told: Sequence[Told] = ()
    callbacks: Sequence[Callable[[], None]] = field(default=())

    def key(self, entity: Entity | None) -> tuple[str, str, str, str]:
        """What its rows about ``entity`` are counted under."""
        kind, entity_id = ("", "") if entity is None else (entity.kind, entity.id)
        return (kind, entity_id, self.emitter.name, self.origin)


def _by_entity(unit: Unit[Any], work: UnitOfWork, before: int, after: int) -> list[Written]:
    """The rows of a unit that turned to other entities; ``before`` and ``after`` are SQLite's own counts."""
    written: list[Written] = []
    entity = unit.entity
    for turned, turned_to in work.turns:
        written.append((unit.key(entity), (turned - before) % _CHANGES_MODULUS))
        before, entity = turned, turned_to
    written.append((unit.key(entity), (after - before) % _CHANGES_MODULUS))
    return [each for each in written if each[1]]


class _GroupLost(Exception):  # noqa: N818 - control flow inside this module
    """A unit took the whole transaction down with it."""


class GroupCommit:
    """Runs groups of units on the writing connection; one thread at a time, never two."""

    def __init__(
        self,
        connection: RawConnection,
        *,
        ledger: WriteLedger,
        health: Health,
        failpoints: Failpoints | None = None,
        witness: Witness | None = None,
    ) -> None:
        self._connection = connection
        self._witness = witness
        self._untold: Callable[[], None] | None = None
        self.ledger = ledger
        self._health = health
        self._failpoints = failpoints
        self._baseline = connection.total_changes - self._accounted()
        self._unattributed = 0
        self._each_group: Unit[None] | None = None

    @property
    def unattributed_rows(self) -> int:
        """Rows that SQLite counted and no unit accounts for, as of the last finished group."""
        return self._unattributed

    def with_each_group(self, emitter: Emitter, work: Callable[[UnitOfWork], None]) -> None:
        """From now on run ``work`` as the last unit of every group that changed rows."""
        self._each_group = Unit(work, emitter, None, "")

    def run(self, units: Sequence[Unit[Any]]) -> None:
        """Run the units in one transaction; afterwards each has its result or its error."""
        if self._health.refusal() is not None:
            for unit in units:
                unit.error = self._health.refusal()
            return
        units = list(units)
        begun_ns = committing_ns = self._now_ns()
        try:
            self._begin()
            for unit in units:
                self._run_unit(unit)
            self._run_closing_unit(units)
            self._reach("before_commit", units)
            committing_ns = self._now_ns()
            self.ledger.turn(_COMMIT)
            self._connection.execute("COMMIT")
        except BaseException as error:  # noqa: BLE001 - whatever it is, every caller of the group is told
            self._lose(units, error)
        self.ledger.turn(None)
        ended_ns = self._now_ns()
        self._account(units)
        if (witness := self._witness) is not None:
            self._untold = partial(
                witness.saw, units, begun_ns=begun_ns, committing_ns=committing_ns, ended_ns=ended_ns
            )
        try:
            self._reach("after_commit", units)
        except BaseException as error:  # noqa: BLE001 - see above
            for unit in units:
                unit.error = self._health.told(error)

    def tell(self) -> None:
        """Tell telemetry of the last group; for when its callers have their answers."""
        untold, self._untold = self._untold, None
        if untold is not None:
            untold()

    def _now_ns(self) -> int:
        return 0 if self._witness is None else time.time_ns()

    def _begin(self) -> None:
        for tries_left in reversed(range(BEGIN_TRIES_MAX)):
            try:
                self._connection.execute("BEGIN IMMEDIATE")
            except engine.DatabaseError as error:
                if trouble(error) is not Trouble.BUSY or not tries_left:
                    raise
            else:
                return

    def _run_unit(self, unit: Unit[Any]) -> None:
        connection = self._connection
        before = connection.total_changes
        key = unit.key(unit.entity)
        self.ledger.turn(key)
        connection.execute("SAVEPOINT unit")
        work = UnitOfWork(connection, unit.traceparent, listened=self._witness is not None)
        unit.begun_ns = self._now_ns()
        try:
            unit.result = unit.work(work)
            unit.callbacks = work.callbacks
        except Exception as error:  # noqa: BLE001 - it belongs to the caller of this unit alone
            unit.error = self._health.told(error)
        finally:
            work.end()
            unit.ended_ns = self._now_ns()
            unit.told = work.told or ()
            after = connection.total_changes
            unit.rows = (after - before) % _CHANGES_MODULUS
            unit.moves = work.moves
            unit.written = _by_entity(unit, work, before, after) if work.turns else [(key, unit.rows)]
        if not connection.in_transaction:
            # SQLite gives the whole transaction up on some errors (a full disk); RAISE(ROLLBACK) asks for it.
            raise _GroupLost(unit.emitter.name) from unit.error
        if unit.error is not None:
            connection.execute("ROLLBACK TO unit")
        connection.execute("RELEASE unit")

    def _run_closing_unit(self, units: list[Unit[Any]]) -> None:
        template = self._each_group
        if template is None or not any(unit.rows for unit in units):
            return
        closing: Unit[None] = Unit(template.work, template.emitter, None, "")
        units.append(closing)
        self._run_unit(closing)
        if closing.error is not None:
            raise closing.error

    def _reach(self, point: str, units: Sequence[Unit[Any]]) -> None:
        if self._failpoints is not None:
            emitters = tuple(unit.emitter.name for unit in units if unit.error is None)
            if emitters:
                self._failpoints(point, emitters)

    def _lose(self, units: Sequence[Unit[Any]], error: BaseException) -> None:
        with contextlib.suppress(engine.DatabaseError):
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
        for unit in units:
            if unit.error is None:
                unit.error = self._health.told(self._reason_lost(error))

    @staticmethod
    def _reason_lost(error: BaseException) -> BaseException:
        if not isinstance(error, _GroupLost):
            return error
        cause = error.__cause__.__cause__ if error.__cause__ is not None else None
        if cause is not None and trouble(cause) is not Trouble.NONE:
            return cause
        return RuntimeError(f"not stored: a unit of {error} ended the transaction that both shared")

    def _account(self, units: Sequence[Unit[Any]]) -> None:
        written: list[Written] = []
        moves: list[tuple[str, str, bool]] = []
        for unit in units:
            if not unit.rows:
                continue
            if unit.error is not None:
                self.ledger.discard(unit.rows)
                continue
            self._health.full = False
            written += unit.written
            moves += unit.moves
        if written:
            self.ledger.record_all(written, moves)
        strays = self._connection.total_changes - self._accounted() - self._baseline
        # Read as a signed difference: it is small, whichever of the two counters has wrapped.
        unattributed = (strays + _CHANGES_MODULUS // 2) % _CHANGES_MODULUS - _CHANGES_MODULUS // 2
        if unattributed != self._unattributed:
            log.critical("rows were changed that no unit of work accounts for", extra={"rows": unattributed})
        self._unattributed = unattributed

    def _accounted(self) -> int:
        return self.ledger.attributed_rows + self.ledger.discarded_rows
