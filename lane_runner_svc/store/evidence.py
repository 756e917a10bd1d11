"""What attempts said after they were over, as rows: only ever added to, and so many per task at most."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from lane_runner_svc.store.tasks import Reader
from lanewarden.store import Row, UnitOfWork

ROWS_MAX: Final = 100
"""Per task. The first are kept: what an old attempt said right after its end says more than its hundredth repetition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """A late request: who made it, by which RPC, what it said as JSON, and the reason it was refused for."""

    task_id: str
    epoch: int
    attempt: int
    method: str
    content: str
    reason: str
    request_id: str


def wanted(reader: Reader, said: Said) -> bool:
    """Whether it would be kept: there is room, and it is not there yet."""
    row = reader.one(
        "SELECT count(*), coalesce(max(request_id = ?), 0) FROM evidence WHERE task_id = ?",
        (said.request_id, said.task_id),
    )
    assert row is not None
    return row[0] < ROWS_MAX and not row[1]


def keep(uow: UnitOfWork, said: Said, wall_ms: int) -> None:
    """Add it at the end of the task's, if it is wanted."""
    if not wanted(uow, said):
        return
    uow.execute(
        "INSERT INTO evidence (task_id, sequence, epoch, attempt, method, content, reason, request_id, wall_ms)"
        " VALUES (?, (SELECT count(*) + 1 FROM evidence WHERE task_id = ?), ?, ?, ?, ?, ?, ?, ?)",
        (
            said.task_id,
            said.task_id,
            said.epoch,
            said.attempt,
            said.method,
            said.content,
            said.reason,
            said.request_id,
            wall_ms,
        ),
    )


def page(reader: Reader, *, task_id: str, rows_max: int, after: int | None) -> list[Row]:
    """Entries of a task, oldest first."""
    return reader.query(
        "SELECT * FROM evidence WHERE task_id = ? AND sequence > ? ORDER BY sequence LIMIT ?",
        (task_id, after or 0, rows_max),
    )
