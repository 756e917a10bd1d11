"""Context windows, checkpoints and directives as rows."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields
from typing import Any, Final

from lane_runner_svc.core.checkpoints import Checkpoint, CheckpointState, Failure
from lane_runner_svc.core.directives import Context, Directive
from lane_runner_svc.store.tasks import Reader
from lanewarden.errors import Reason, refuse
from lanewarden.records import made
from lanewarden.store import UnitOfWork

ROWS_AT_A_TIME: Final = 50
_CONTEXT: Final = tuple(field.name for field in fields(Context))
_CHECKPOINT: Final = tuple(field.name for field in fields(Checkpoint))
_SELECT: Final = f"SELECT {', '.join(_CHECKPOINT)} FROM checkpoints"  # noqa: S608 - the columns are the dataclass's own


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """A directive that was given to an attempt; ``outcome`` is None until it is reported."""

    directive_id: str
    task_id: str
    epoch: int
    number: int
    attempt: int
    kind: Directive
    cause: str
    checkpoint_id: str | None
    given_wall_ms: int
    outcome: str | None = None


_GIVEN: Final = tuple(field.name for field in fields(Given))


def load(reader: Reader, task_id: str, epoch: int) -> Context:
    """The context window of a task in an epoch; of one that was never measured as it begins."""
    row = reader.one(f"SELECT {', '.join(_CONTEXT)} FROM contexts WHERE task_id = ? AND epoch = ?", (task_id, epoch))  # noqa: S608
    if row is None:
        return Context(task_id=task_id, epoch=epoch)
    values: dict[str, Any] = dict(zip(_CONTEXT, row, strict=True))
    values |= {"raised": bool(values["raised"]), "wrapped_up": bool(values["wrapped_up"])}
    values["earlier_ids"] = tuple(json.loads(values["earlier_ids"]))
    return made(Context, values)


def save(uow: UnitOfWork, context: Context) -> None:
    """Store a context window."""
    sets = ", ".join(f"{name} = excluded.{name}" for name in _CONTEXT if name not in ("task_id", "epoch"))
    uow.execute(
        f"INSERT INTO contexts ({', '.join(_CONTEXT)}) VALUES ({', '.join('?' * len(_CONTEXT))})"  # noqa: S608
        f" ON CONFLICT (task_id, epoch) DO UPDATE SET {sets}",
        [json.dumps(value) if isinstance(value := getattr(context, name), tuple) else value for name in _CONTEXT],
    )


def change(uow: UnitOfWork, task_id: str, epoch: int, how: Callable[[Context], Context]) -> None:
    """Store what a context window becomes, if that is anything else."""
    before = load(uow, task_id, epoch)
    after = how(before)
    if after != before:
        save(uow, after)


def insert_checkpoint(uow: UnitOfWork, checkpoint: Checkpoint) -> None:
    """Store a start of the writer."""
    uow.execute(
        f"INSERT INTO checkpoints ({', '.join(_CHECKPOINT)}) VALUES ({', '.join('?' * len(_CHECKPOINT))})",  # noqa: S608
        _values(checkpoint, _CHECKPOINT),
    )


def update_checkpoint(uow: UnitOfWork, checkpoint: Checkpoint) -> None:
    """Store what a start of the writer has come to."""
    names = ("state", "failure", "detail", "content", "ended_wall_ms")
    uow.execute(
        f"UPDATE checkpoints SET {', '.join(f'{name} = ?' for name in names)} WHERE checkpoint_id = ?",  # noqa: S608
        [*_values(checkpoint, names), checkpoint.checkpoint_id],
    )


def find_checkpoint(reader: Reader, checkpoint_id: str) -> Checkpoint | None:
    """The checkpoint, or None."""
    row = reader.one(f"{_SELECT} WHERE checkpoint_id = ?", (checkpoint_id,))
    return None if row is None else _from_row(row)


def load_checkpoint(reader: Reader, checkpoint_id: str) -> Checkpoint:
    """The checkpoint.

    Raises:
        Refusal: CHECKPOINT_UNKNOWN.
    """
    found = find_checkpoint(reader, checkpoint_id)
    if found is None:
        raise refuse(
            Reason.CHECKPOINT_UNKNOWN,
            f"no checkpoint {checkpoint_id!r} here; `lanewarden checkpoints TASK` lists those of a task",
            checkpoint_id=checkpoint_id,
        )
    return found


def latest_checkpoint(reader: Reader, task_id: str, epoch: int) -> Checkpoint | None:
    """The writer's latest start of the epoch, or None."""
    row = reader.one(f"{_SELECT} WHERE task_id = ? AND epoch = ? ORDER BY number DESC LIMIT 1", (task_id, epoch))
    return None if row is None else _from_row(row)


def usable_checkpoint(reader: Reader, context: Context) -> str | None:
    """The latest checkpoint that was committed in this cycle, or None."""
    row = reader.one(
        "SELECT checkpoint_id FROM checkpoints WHERE task_id = ? AND epoch = ? AND cycle = ? AND state = 'SUCCEEDED'"
        " ORDER BY number DESC LIMIT 1",
        (context.task_id, context.epoch, context.cycle),
    )
    return None if row is None else str(row[0])


def in_flight(reader: Reader, task_id: str | None = None) -> list[Checkpoint]:
    """Checkpoints that are being written: of one task, or all."""
    where, values = ("", ()) if task_id is None else (" AND task_id = ?", (task_id,))
    return [
        _from_row(row)
        for row in reader.query(f"{_SELECT} WHERE ended_wall_ms IS NULL{where} ORDER BY position", values)
    ]


def page(reader: Reader, task_id: str, *, after: int | None) -> Iterator[tuple[int, Checkpoint]]:
    """Checkpoints of a task with their positions, oldest first, read a few at a time: each may be large."""
    position = after or 0
    sql = (
        f"SELECT {', '.join(_CHECKPOINT)}, position FROM checkpoints "  # noqa: S608
        "WHERE task_id = ? AND position > ? ORDER BY position LIMIT ?"
    )
    while rows := reader.query(sql, (task_id, position, ROWS_AT_A_TIME)):
        for row in rows:
            position = row[-1]
            yield position, _from_row(row[:-1])


def give(uow: UnitOfWork, given: Given) -> None:
    """Store a directive that is given."""
    uow.execute(
        f"INSERT INTO directives ({', '.join(_GIVEN)}) VALUES ({', '.join('?' * len(_GIVEN))})",  # noqa: S608
        [value.value if isinstance(value := getattr(given, name), Directive) else value for name in _GIVEN],
    )


def given_count(reader: Reader, task_id: str, epoch: int) -> int:
    """How many directives were given in the epoch."""
    row = reader.one("SELECT count(*) FROM directives WHERE task_id = ? AND epoch = ?", (task_id, epoch))
    assert row is not None
    return int(row[0])


def find_given(reader: Reader, directive_id: str) -> Given | None:
    """The directive, or None."""
    row = reader.one(f"SELECT {', '.join(_GIVEN)} FROM directives WHERE directive_id = ?", (directive_id,))  # noqa: S608
    if row is None:
        return None
    return Given(**{**dict(zip(_GIVEN, row, strict=True)), "kind": Directive(row["kind"])})


def report(
    uow: UnitOfWork, directive_id: str, outcome: str, *, detail: str, inserted_tokens: int, wall_ms: int
) -> None:
    """Store what came of a directive."""
    uow.execute(
        "UPDATE directives SET outcome = ?, detail = ?, inserted_tokens = ?, reported_wall_ms = ? WHERE directive_id = ?",
        (outcome, detail, inserted_tokens, wall_ms, directive_id),
    )


def _from_row(row: Iterable[Any]) -> Checkpoint:
    values: dict[str, Any] = dict(zip(_CHECKPOINT, row, strict=True))
    values["command"] = bool(values["command"])
    values["state"] = CheckpointState(values["state"])
    values["failure"] = Failure(values["failure"]) if values["failure"] else None
    return made(Checkpoint, values)


def _values(checkpoint: Checkpoint, names: Iterable[str]) -> list[object]:
    values = (getattr(checkpoint, name) for name in names)
    return [value.value if isinstance(value, CheckpointState | Failure) else value for value in values]
