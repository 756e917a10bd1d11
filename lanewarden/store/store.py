"""The store: the only way to one SQLite file."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar, cast

from sqlite_utils import Migrations

from lanewarden.ledger import WriteLedger
from lanewarden.store.backup import copy_database
from lanewarden.store.engine import DatabaseError, RawConnection
from lanewarden.store.group import Failpoints, GroupCommit, Unit
from lanewarden.store.health import Health, closed
from lanewarden.store.names import Emitter, Entity
from lanewarden.store.opening import open_writer
from lanewarden.store.readers import Readers
from lanewarden.store.unit import Connection, UnitOfWork
from lanewarden.store.witness import Witness
from lanewarden.store.writer import WriterThread
from lanewarden.telemetry import OFF, TRACEPARENT, Telemetry

T = TypeVar("T")


class Store:
    """Durable writes in units of work that name their emitter, and short reads.

    Every write may raise the refusals STORE_FULL (nothing stored; works again once there is space),
    STORE_FAILED (the database failed; the service must stop), LIMIT_REACHED (too many writes waiting),
    WRITE_THROTTLED (its emitter has written too much to its entity, unless it is exempt) and SHUTTING_DOWN,
    or whatever its own unit raised.
    """

    def __init__(
        self,
        path: Path,
        connection: RawConnection,
        commits: GroupCommit,
        health: Health,
        *,
        threaded: bool,
        telemetry: Telemetry = OFF,
    ) -> None:
        self._path = path
        self._connection = connection
        self._commits = commits
        self._readers = Readers(path)
        self._health = health
        self._telemetry = telemetry
        self._thread = WriterThread(commits) if threaded else None
        self._closed = False

    @classmethod
    def open(
        cls,
        path: Path,
        *,
        migrations: Migrations,
        ledger: WriteLedger,
        threaded: bool = True,
        failpoints: Failpoints | None = None,
        on_failure: Callable[[], None] | None = None,
        telemetry: Telemetry = OFF,
    ) -> Store:
        """Open the database, created if it is missing, and bring its schema up to this build.

        ``threaded=False`` runs every unit at once on the calling thread. ``on_failure`` is called once, on
        whatever thread found out, when the database failed. Raises :class:`StoreUnusable` with the file
        unchanged.
        """
        connection = open_writer(path, migrations, ledger)
        health = Health(path, on_failure)
        commits = GroupCommit(
            connection,
            ledger=ledger,
            health=health,
            failpoints=failpoints,
            witness=Witness(telemetry, ledger.storm_of) if telemetry.enabled else None,
        )
        return cls(path, connection, commits, health, threaded=threaded, telemetry=telemetry)

    @property
    def full(self) -> bool:
        """Whether the disk was full at the last try; ends with the next commit that changes rows."""
        return self._health.full

    @property
    def failed(self) -> bool:
        """Whether the database failed; it stays so until the process starts again."""
        return self._health.failed

    async def write(
        self,
        work: Callable[[UnitOfWork], T],
        *,
        emitter: Emitter,
        entity: Entity | None = None,
        origin: str = "",
    ) -> T:
        """Run ``work`` on the writer's thread and return its result once it is on disk.

        What ``work`` raises undoes the unit and is raised here. A caller that is canceled while it waits does
        not take the unit back: it commits, and its ``after_commit`` callbacks run.
        """
        if self._thread is None:
            return self.write_now(work, emitter=emitter, entity=entity, origin=origin)
        unit = self._unit(work, emitter, entity, origin)
        unit.loop = asyncio.get_running_loop()
        unit.future = future = unit.loop.create_future()
        self._thread.put(unit)
        return cast("T", await future)

    def write_now(
        self,
        work: Callable[[UnitOfWork], T],
        *,
        emitter: Emitter,
        entity: Entity | None = None,
        origin: str = "",
    ) -> T:
        """Do what :meth:`write` does, but block until it is done; callbacks run on this thread."""
        unit = self._unit(work, emitter, entity, origin)
        if self._thread is not None:
            self._thread.put_and_wait(unit)
        elif self._closed:
            raise closed()
        elif self._connection.in_transaction:
            raise RuntimeError("a unit of work cannot wait for another one")
        else:
            self._commits.run([unit])
            self._commits.tell()
        if unit.error is not None:
            raise unit.error
        for callback in unit.callbacks:
            callback()
        return cast("T", unit.result)

    def read(self, work: Callable[[Connection], T]) -> T:
        """Run ``work`` on one snapshot of what is committed and return its result; keep it short."""
        if (refusal := self._health.refusal()) is not None:
            raise refusal
        try:
            return self._readers.read(work)
        except DatabaseError as error:
            told = self._health.told(error)
            if told is error:
                raise
            raise told from error

    def backup(self, target: Path) -> None:
        """Write a consistent copy to ``target``, which must not exist, while writes go on; blocks."""
        if self._closed:
            raise closed()
        copy_database(self._path, target)

    def unattributed_rows(self) -> int:
        """Row changes that no unit accounts for, as of the last finished group: 0, or something is wrong."""
        return self._commits.unattributed_rows

    def with_each_group(self, emitter: Emitter, work: Callable[[UnitOfWork], None]) -> None:
        """From now on run ``work`` inside every transaction that changed rows, after the others' units."""
        self._commits.with_each_group(emitter, work)

    def close(self) -> None:
        """Write what is queued, then close; later writes and reads are refused with SHUTTING_DOWN."""
        if self._closed:
            return
        self._closed = True
        self._readers.close()
        if self._thread is None or self._thread.close():
            self._connection.close()

    def _unit(self, work: Callable[[UnitOfWork], T], emitter: Emitter, entity: Entity | None, origin: str) -> Unit[T]:
        if not isinstance(emitter, Emitter):
            raise TypeError("every unit of work names its emitter, as an Emitter")
        if entity is not None and not emitter.exempt:
            self._commits.ledger.check(entity.kind, entity.id, emitter.name)
        parent = TRACEPARENT.get()
        if not self._telemetry.enabled:
            return Unit(work, emitter, entity, origin, parent, parent)
        return Unit(work, emitter, entity, origin, parent, self._telemetry.child(parent), time.time_ns())
