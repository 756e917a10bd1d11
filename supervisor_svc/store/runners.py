"""Runners and their grants as rows. Renewals are memory and never come here."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from typing import Any

from lanewarden.store import Connection, Row, UnitOfWork


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerRow:
    """A runner as it last registered. ``extended_until_ms`` is set from a restart of the supervisor until the runner has
    renewed again. ``supervision_generation_seen`` is the highest generation of the right to act there that it ever told.
    """

    runner_id: str
    incarnation: str
    generation: int
    address: str
    lanes: tuple[str, ...]
    version: str
    store_id: str
    taken_sequence: int
    registered_wall_ms: int
    build: str = ""
    lease_ended: bool = False
    extended_until_ms: int | None = None
    supervision_generation_seen: int = 0


_COLUMNS = tuple(field.name for field in fields(RunnerRow))
_SELECT = f"SELECT {', '.join(_COLUMNS)} FROM runners"  # noqa: S608 - the columns are the dataclass's own
_PUT = (
    f"INSERT INTO runners ({', '.join(_COLUMNS)}) VALUES ({', '.join('?' * len(_COLUMNS))})"  # noqa: S608
    f" ON CONFLICT (runner_id) DO UPDATE SET {', '.join(f'{name} = excluded.{name}' for name in _COLUMNS[1:])}"
)


def _from_row(row: Row) -> RunnerRow:
    values: dict[str, Any] = dict(zip(_COLUMNS, row, strict=True))
    values["lanes"] = tuple(json.loads(values["lanes"]))
    values["lease_ended"] = bool(values["lease_ended"])
    return RunnerRow(**values)


def find(reader: Connection, runner_id: str) -> RunnerRow | None:
    """The runner, or None."""
    row = reader.one(f"{_SELECT} WHERE runner_id = ?", (runner_id,))
    return None if row is None else _from_row(row)


def marks(reader: Connection, runner_id: str) -> tuple[int, int] | None:
    """The ``taken_sequence`` and the ``supervision_generation_seen`` of a runner, or None: what each renewal asks for."""
    row = reader.one(
        "SELECT taken_sequence, supervision_generation_seen FROM runners WHERE runner_id = ?", (runner_id,)
    )
    return None if row is None else (int(row[0]), int(row[1]))


def address(reader: Connection, runner_id: str) -> str:
    """Where a runner that has registered is called."""
    row = reader.one("SELECT address FROM runners WHERE runner_id = ?", (runner_id,))
    assert row is not None, "no runner is ever deleted"
    return str(row[0])


def everyone(reader: Connection) -> list[RunnerRow]:
    """Every runner that has ever registered, by id."""
    return [_from_row(row) for row in reader.query(f"{_SELECT} ORDER BY runner_id")]


def page(reader: Connection, after: str, rows_max: int) -> list[RunnerRow]:
    """The runners whose ids come after one, by id; "" is before all."""
    rows = reader.query(f"{_SELECT} WHERE runner_id > ? ORDER BY runner_id LIMIT ?", (after, rows_max))
    return [_from_row(row) for row in rows]


def put(uow: UnitOfWork, runner: RunnerRow) -> None:
    """Store a runner, new or changed."""
    values = [getattr(runner, name) for name in _COLUMNS]
    values[_COLUMNS.index("lanes")] = json.dumps(runner.lanes)
    uow.execute(_PUT, values)


def end_lease(uow: UnitOfWork, runner_id: str, generation: int) -> bool:
    """End a grant, which raises the generation; False when the grant is not the current one any more."""
    ended = uow.execute(
        "UPDATE runners SET lease_ended = 1, generation = generation + 1, extended_until_ms = NULL"
        " WHERE runner_id = ? AND generation = ? AND lease_ended = 0",
        (runner_id, generation),
    )
    return ended.rowcount == 1


def set_taken(uow: UnitOfWork, runner_id: str, sequence: int) -> None:
    """Remember how far the runner's items have been taken."""
    uow.execute("UPDATE runners SET taken_sequence = ? WHERE runner_id = ?", (sequence, runner_id))


def see_supervision_generation(uow: UnitOfWork, runner_id: str, generation: int) -> None:
    """Remember a generation of the right to act at a runner, unless a higher one is remembered."""
    uow.execute(
        "UPDATE runners SET supervision_generation_seen = ? WHERE runner_id = ? AND supervision_generation_seen < ?",
        (generation, runner_id, generation),
    )


def extend(uow: UnitOfWork, until_ms: int) -> None:
    """Extend every grant that has not ended, once: one that is extended already keeps its moment."""
    uow.execute(
        "UPDATE runners SET extended_until_ms = ? WHERE lease_ended = 0 AND extended_until_ms IS NULL", (until_ms,)
    )


def end_extension(uow: UnitOfWork, runner_id: str) -> None:
    """The runner has renewed since the restart: the next restart extends its grant anew."""
    uow.execute("UPDATE runners SET extended_until_ms = NULL WHERE runner_id = ?", (runner_id,))
