"""Who supervises this runner: one row, whose generation only rises."""

from __future__ import annotations

from dataclasses import dataclass

from lane_runner_svc.store.tasks import Reader
from lanewarden.store import UnitOfWork


@dataclass(frozen=True, slots=True, kw_only=True)
class Supervision:
    """The right of one start of a supervisor to act here by itself. ``generation`` is 0 before the first.

    ``lease_generation_seen`` is the highest generation that any supervisor has granted this runner.
    """

    generation: int = 0
    supervisor_id: str = ""
    supervisor_incarnation: str = ""
    address: str = ""
    live: bool = False
    lease_generation_seen: int = 0


def load(reader: Reader) -> Supervision:
    """The latest supervision, live or ended."""
    row = reader.one(
        "SELECT generation, supervisor_id, supervisor_incarnation, address, live, lease_generation_seen FROM supervision"
    )
    if row is None:
        return Supervision()
    return Supervision(
        generation=row[0],
        supervisor_id=row[1],
        supervisor_incarnation=row[2],
        address=row[3],
        live=bool(row[4]),
        lease_generation_seen=row[5],
    )


def put(uow: UnitOfWork, supervision: Supervision) -> None:
    """Store a grant or its end; the schema refuses a generation that goes down."""
    uow.execute(
        "INSERT INTO supervision"
        " (one, generation, supervisor_id, supervisor_incarnation, address, live, lease_generation_seen)"
        " VALUES (1, ?, ?, ?, ?, ?, ?) ON CONFLICT (one) DO UPDATE SET generation = excluded.generation,"
        " supervisor_id = excluded.supervisor_id, supervisor_incarnation = excluded.supervisor_incarnation,"
        " address = excluded.address, live = excluded.live, lease_generation_seen = excluded.lease_generation_seen",
        (
            supervision.generation,
            supervision.supervisor_id,
            supervision.supervisor_incarnation,
            supervision.address,
            int(supervision.live),
            supervision.lease_generation_seen,
        ),
    )
