"""What a unit of work and a read can do with the database."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from lanewarden.store.engine import Cursor, RawConnection, Row
from lanewarden.store.names import Entity
from lanewarden.telemetry import Value

Parameters = Sequence[object] | Mapping[str, object]

_STATEMENTS_MAX = 1_024
_TRANSACTION_WORDS = ("begin", "commit", "end", "rollback", "savepoint", "release")


@functools.lru_cache(maxsize=_STATEMENTS_MAX)
def _controls_transaction(sql: str) -> bool:
    return sql.lstrip().lower().startswith(_TRANSACTION_WORDS)


@dataclass(slots=True)
class Told:
    """What a unit of work has told telemetry, once it is durable: see :meth:`UnitOfWork.tell`."""

    name: str
    at_ns: int
    attributes: Mapping[str, Value]
    about: Mapping[str, Value]
    continues: str
    counted: bool


class Connection:
    """Reads on one snapshot of the database."""

    __slots__ = ("_raw",)

    def __init__(self, raw: RawConnection) -> None:
        self._raw: RawConnection | None = raw

    def query(self, sql: str, params: Parameters = ()) -> list[Row]:
        """Return every row; put a LIMIT into the statement where the table is not small."""
        return self._run(sql, params).fetchall()

    def one(self, sql: str, params: Parameters = ()) -> Row | None:
        """Return the first row, or ``None``."""
        row: Row | None = self._run(sql, params).fetchone()
        return row

    def end(self) -> None:
        """Make any later use an error: the snapshot or the transaction is over."""
        self._raw = None

    def _run(self, sql: str, params: Parameters) -> Cursor:
        if _controls_transaction(sql):
            raise RuntimeError("the store begins and ends the transaction; raise an exception to undo a unit")
        # Some errors end the transaction. Code that went on after one would commit each statement by itself.
        if self._raw is None or not self._raw.in_transaction:
            raise RuntimeError("the transaction is over; use the connection only inside of the unit of work")
        return self._raw.execute(sql, params)


class UnitOfWork(Connection):
    """Reads and writes that commit together or not at all.

    A unit shares its transaction with others, each inside its own savepoint, so it must not begin, commit or
    roll back anything itself: raise an exception to undo the unit. Deferred foreign keys do not belong in the
    schema, since they fail at the commit that all share.

    ``traceparent`` is the trace that it is part of, empty if there is none: what is stored with it can be continued later.
    What it tells is kept only where somebody listens.
    """

    __slots__ = ("callbacks", "moves", "told", "traceparent", "turns")

    def __init__(self, raw: RawConnection, traceparent: str = "", *, listened: bool = False) -> None:
        super().__init__(raw)
        self.traceparent = traceparent
        self.callbacks: list[Callable[[], None]] = []
        self.told: list[Told] | None = [] if listened else None
        self.turns: list[tuple[int, Entity]] = []
        self.moves: list[tuple[str, str, bool]] = []

    def execute(self, sql: str, params: Parameters = ()) -> Cursor:
        """Run one statement and return its cursor (``rowcount``, ``lastrowid``, rows)."""
        return self._run(sql, params)

    def about(self, entity: Entity) -> None:
        """Count what is changed from here on as about another entity than the unit was opened for."""
        assert self._raw is not None, "only inside of the unit of work"
        self.turns.append((self._raw.total_changes, entity))

    def moved(self, entity: Entity, *, progressed: bool) -> None:
        """The entity gets another version; ``progressed`` when it has also come further by its own account."""
        self.moves.append((entity.kind, entity.id, progressed))

    def tell(
        self,
        name: str,
        attributes: Mapping[str, Value] | None = None,
        *,
        about: Mapping[str, Value] | None = None,
        continues: str = "",
        counted: bool = False,
    ) -> None:
        """Have telemetry told, once the unit is durable, that something has happened in it: a span, and when it is
        ``counted`` a count, which knows nothing of what it is ``about``. Attributes get the prefix ``lanewarden.``.

        The span is part of the unit's, or of the trace that it ``continues``, and then linked with the unit's.
        """
        if self.told is not None:
            self.told.append(Told(name, time.time_ns(), attributes or {}, about or {}, continues, counted))

    def after_commit(self, callback: Callable[[], None]) -> None:
        """Have ``callback`` called once the unit is on disk, before its caller goes on; or never."""
        self.callbacks.append(callback)
