"""The audit as rows; only ever added to."""

from __future__ import annotations

from dataclasses import dataclass

from lane_runner_svc.core.holds import Actor
from lane_runner_svc.store.tasks import Reader
from lanewarden.store import Row, UnitOfWork


@dataclass(frozen=True, slots=True, kw_only=True)
class Deed:
    """What somebody asked for: who, what, on what, by which request, in which trace."""

    by: Actor
    action: str
    task_id: str = ""
    escalation_id: str = ""
    request_id: str = ""
    trace_id: str = ""


def record(uow: UnitOfWork, deed: Deed, *, outcome: str, wall_ms: int) -> None:
    """Add an entry; ``outcome`` is OK or the reason of a refusal."""
    uow.execute(
        "INSERT INTO audit (wall_ms, identity, role, action, task_id, escalation_id, request_id, trace_id, outcome)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            wall_ms,
            deed.by.identity,
            deed.by.role,
            deed.action,
            deed.task_id,
            deed.escalation_id,
            deed.request_id,
            deed.trace_id,
            outcome,
        ),
    )


def page(reader: Reader, *, task_id: str, rows_max: int, after: int | None) -> list[Row]:
    """Entries, oldest first."""
    where, values = ("sequence > ? AND task_id = ?", [task_id]) if task_id else ("sequence > ?", [])
    return reader.query(
        f"SELECT * FROM audit WHERE {where} ORDER BY sequence LIMIT ?",  # noqa: S608
        (after or 0, *values, rows_max),
    )
