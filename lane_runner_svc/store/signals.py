"""One-shot requests as rows. A row is discharged once and never forgotten, which the schema enforces."""

from __future__ import annotations

from typing import Final

from lane_runner_svc.core.holds import Actor
from lane_runner_svc.core.signals import Signal, SignalKind
from lane_runner_svc.store.tasks import Reader
from lanewarden.store import Row, UnitOfWork

OUTSTANDING: Final = "discharged_how IS NULL"
_SELECT = (
    "SELECT signal_id, task_id, epoch, attempt, kind, cause, raised_by, raised_role, raised_wall_ms FROM signals"  # noqa: S608
    f" WHERE task_id = ? AND {OUTSTANDING}"
)


def outstanding(reader: Reader, task_id: str) -> list[Signal]:
    """What is asked of the task and not discharged, oldest first."""
    return [_from_row(row) for row in reader.query(f"{_SELECT} ORDER BY position", (task_id,))]


def insert(uow: UnitOfWork, signal: Signal) -> None:
    """Store a signal that was raised."""
    uow.execute(
        "INSERT INTO signals (signal_id, task_id, epoch, attempt, kind, cause, raised_by, raised_role, raised_wall_ms)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            signal.signal_id,
            signal.task_id,
            signal.epoch,
            signal.attempt,
            signal.kind.value,
            signal.cause,
            signal.raised_by.identity,
            signal.raised_by.role,
            signal.raised_wall_ms,
        ),
    )


def discharge(uow: UnitOfWork, signal_id: str, *, by: Actor, how: str, wall_ms: int) -> None:
    """Store who acted on a signal, and how."""
    uow.execute(
        "UPDATE signals SET discharged_by = ?, discharged_role = ?, discharged_how = ?, discharged_wall_ms = ?"
        " WHERE signal_id = ?",
        (by.identity, by.role, how, wall_ms, signal_id),
    )


def count(reader: Reader, task_id: str) -> int:
    """How many were ever raised about the task."""
    row = reader.one("SELECT count(*) FROM signals WHERE task_id = ?", (task_id,))
    assert row is not None
    return int(row[0])


def _from_row(row: Row) -> Signal:
    return Signal(
        signal_id=row["signal_id"],
        task_id=row["task_id"],
        epoch=row["epoch"],
        attempt=row["attempt"],
        kind=SignalKind(row["kind"]),
        cause=row["cause"],
        raised_by=Actor(identity=row["raised_by"], role=row["raised_role"]),
        raised_wall_ms=row["raised_wall_ms"],
    )
