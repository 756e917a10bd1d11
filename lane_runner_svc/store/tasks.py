"""Tasks and their attempts as rows."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any, Final

from lane_runner_svc.core.states import TERMINAL, State
from lane_runner_svc.core.task import Author, HookState, Kind, Outcome, PauseCause, Task
from lane_runner_svc.core.timers import Approver, Patience
from lanewarden.errors import Reason, refuse
from lanewarden.records import made
from lanewarden.store import Connection, UnitOfWork

ROWS_AT_A_TIME: Final = 50
POSITION_MAX: Final = 2**63 - 1
_FIXED = frozenset(
    {
        *("task_id", "name", "lane", "gates", "spec", "submitted_wall_ms", "patience", "on_success"),
        *("kind", "parent_task_id", "hold_on_supervisor_loss"),
    }
)
_COLUMNS = tuple(field.name for field in fields(Task))
_SELECT = f"SELECT {', '.join(_COLUMNS)} FROM tasks"  # noqa: S608 - the columns are the dataclass's own
_INSERT = (
    f"INSERT INTO tasks (position, {', '.join(_COLUMNS)}) "  # noqa: S608
    f"VALUES ((SELECT coalesce(max(position), 0) + 1 FROM tasks), {', '.join('?' * len(_COLUMNS))})"
)
UNFINISHED = f"state NOT IN ({', '.join(repr(state.value) for state in State if state in TERMINAL)})"
_LISTS_MAX = 256

Reader = Connection | UnitOfWork


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One launch of the worker for a task in an epoch. ``ended`` is None while it may be alive; ``inputs_through`` is the
    last input that waited for the task when it was claimed, by its sequence; ``sensed`` is the last reading of its sensor.
    """

    task_id: str
    epoch: int
    attempt: int
    token_hash: bytes
    reason: str
    claimed_wall_ms: int
    pid: int | None = None
    start_ticks: int | None = None
    boot_id: str | None = None
    stop_cause: str | None = None
    ended: str | None = None
    ended_detail: str | None = None
    ended_wall_ms: int | None = None
    retry_ms: int | None = None
    inputs_through: int = 0
    sensed: int | None = None


_ATTEMPT_COLUMNS = tuple(field.name for field in fields(Attempt))
_ATTEMPT_SELECT = f"SELECT {', '.join(_ATTEMPT_COLUMNS)} FROM attempts"  # noqa: S608


@lru_cache(maxsize=_LISTS_MAX)
def _names(stored: str) -> tuple[str, ...]:
    """A stored list of names; nearly all tasks share a few."""
    return tuple(json.loads(stored))


def _from_row(row: Iterable[Any]) -> Task:
    values: dict[str, Any] = dict(zip(_COLUMNS, row, strict=True))
    values["gates"] = _names(values["gates"])
    values["patience"] = _patience(values["patience"])
    values["on_success"] = _names(values["on_success"])
    values["kind"] = Kind(values["kind"])
    values["state"] = State[values["state"]]
    values["worker_alive"] = bool(values["worker_alive"])
    values["hold_on_supervisor_loss"] = bool(values["hold_on_supervisor_loss"])
    values["pauses"] = frozenset(map(PauseCause, _names(values["pauses"])))
    values["fruitless_ms"] = tuple(json.loads(values["fruitless_ms"]))
    values["hook_state"] = HookState(values["hook_state"])
    values["hook_running"] = bool(values["hook_running"])
    values["woken"] = bool(values["woken"])
    values["outcome"] = Outcome(values["outcome"]) if values["outcome"] else None
    values["summary_author"] = Author(values["summary_author"]) if values["summary_author"] else None
    return made(Task, values)


def _to_values(task: Task, names: Iterable[str]) -> list[object]:
    def stored(name: str) -> object:
        value = getattr(task, name)
        if name in ("gates", "on_success", "fruitless_ms"):
            return json.dumps(value)
        if isinstance(value, Patience):
            return json.dumps(
                [value.reminder_ms, value.deadline_ms, [[each.identity, each.after_ms] for each in value.approvers]]
            )
        if name == "pauses":
            return json.dumps(sorted(cause.value for cause in value))
        if isinstance(value, State | Outcome | Author | HookState | Kind):
            return value.value
        return value

    return [stored(name) for name in names]


@lru_cache(maxsize=_LISTS_MAX)
def _patience(stored: str) -> Patience:
    """Most tasks wait alike, so few texts are ever read."""
    reminder_ms, deadline_ms, approvers = json.loads(stored)
    return Patience(
        reminder_ms=reminder_ms,
        deadline_ms=deadline_ms,
        approvers=tuple(Approver(identity=identity, after_ms=after_ms) for identity, after_ms in approvers),
    )


def load(reader: Reader, task_id: str) -> Task:
    """The task.

    Raises:
        Refusal: TASK_UNKNOWN.
    """
    row = reader.one(f"{_SELECT} WHERE task_id = ?", (task_id,))
    if row is None:
        raise refuse(Reason.TASK_UNKNOWN, f"no task {task_id!r} here; `lanewarden tasks` lists them", task_id=task_id)
    return _from_row(row)


def insert(uow: UnitOfWork, task: Task) -> None:
    """Store a new task at the end of its lane's queue."""
    uow.execute(_INSERT, _to_values(task, _COLUMNS))


def update(uow: UnitOfWork, before: Task, after: Task) -> None:
    """Store what has changed of a task; few columns change at a time, and each costs."""
    known = vars(before)
    # Most values are the very ones that were copied, so that identity answers for them.
    changed = [name for name, value in vars(after).items() if value is not known[name] and value != known[name]]
    assert not _FIXED.intersection(changed), f"never changes of a task: {changed}"
    sets = ", ".join(f"{name} = ?" for name in changed)
    uow.execute(f"UPDATE tasks SET {sets} WHERE task_id = ?", [*_to_values(after, changed), after.task_id])  # noqa: S608


def unfinished(reader: Reader) -> list[Task]:
    """Every task that is not terminal, oldest first."""
    return [_from_row(row) for row in reader.query(f"{_SELECT} WHERE {UNFINISHED} ORDER BY position")]


def held_on_supervisor_loss(reader: Reader) -> list[Task]:
    """Every task that asked to be held while nobody supervises the runner, oldest first; of those that have ended, the ones
    whose on_success command is due, or that are still said to be held.
    """
    return [
        _from_row(row)
        for row in reader.query(
            f"{_SELECT} WHERE hold_on_supervisor_loss = 1"
            f" AND ({UNFINISHED} OR hook_state = 'PENDING' OR pauses LIKE '%SUPERVISOR_LOSS%') ORDER BY position"
        )
    ]


def queued(reader: Reader, lane: str) -> list[Task]:
    """The lane's queued tasks, oldest first."""
    sql = f"{_SELECT} WHERE lane = ? AND {UNFINISHED} AND state = 'QUEUED' ORDER BY position"
    return [_from_row(row) for row in reader.query(sql, (lane,))]


def page(reader: Reader, *, states: Iterable[str], lane: str, before: int | None) -> Iterator[tuple[int, Task]]:
    """Tasks with their positions, newest first, read a few at a time: each may be large."""
    wanted = list(states)
    where, values = ["1"], list[object]()
    if wanted:
        where.append(f"state IN ({', '.join('?' * len(wanted))})")
        values += wanted
    if lane:
        where.append("lane = ?")
        values.append(lane)
    sql = (
        f"SELECT {', '.join(_COLUMNS)}, position FROM tasks "  # noqa: S608
        f"WHERE {' AND '.join(where)} AND position < ? ORDER BY position DESC LIMIT ?"
    )
    position = POSITION_MAX if before is None else before
    while rows := reader.query(sql, (*values, position, ROWS_AT_A_TIME)):
        for row in rows:
            position = row[-1]
            yield position, _from_row(row[:-1])


def due_hooks(reader: Reader, now_ms: int) -> tuple[list[Task], int | None]:
    """Tasks whose on_success command is due and does not run, and when the next one will be; a paused task has none."""
    rows = reader.query(
        f"{_SELECT} WHERE hook_state = 'PENDING' AND NOT hook_running AND pauses = '[]'"
        " ORDER BY hook_not_before_ms LIMIT 100"
    )
    found = [_from_row(row) for row in rows]
    due = [task for task in found if task.hook_not_before_ms <= now_ms]
    return due, min((task.hook_not_before_ms for task in found if task not in due), default=None)


def running_hooks(reader: Reader) -> list[Task]:
    """Tasks whose on_success command was started and has not been seen to end."""
    return [_from_row(row) for row in reader.query(f"{_SELECT} WHERE hook_running")]


def due_limits(reader: Reader, now_ms: int) -> list[Task]:
    """Tasks whose limit of use has ended, a bounded number."""
    sql = f"{_SELECT} WHERE limited_until_ms <= ? ORDER BY limited_until_ms LIMIT {ROWS_AT_A_TIME}"
    return [_from_row(row) for row in reader.query(sql, (now_ms,))]


def next_limit_ms(reader: Reader) -> int | None:
    """When the next limit of use ends, or None."""
    row = reader.one("SELECT min(limited_until_ms) FROM tasks WHERE limited_until_ms IS NOT NULL")
    return None if row is None else row[0]


def lane_counts(reader: Reader) -> dict[str, dict[str, int]]:
    """Per lane, how many unfinished tasks are in each state."""
    counts: dict[str, dict[str, int]] = {}
    for lane, state, number in reader.query(
        f"SELECT lane, state, count(*) FROM tasks WHERE {UNFINISHED} GROUP BY lane, state"  # noqa: S608
    ):
        counts.setdefault(lane, {})[state] = number
    return counts


def lane_holder(reader: Reader, lane: str) -> str | None:
    """The task whose attempt occupies the lane: launched or about to be, and not known to have ended."""
    row = reader.one(
        "SELECT a.task_id FROM attempts a JOIN tasks t ON t.task_id = a.task_id WHERE a.ended IS NULL AND t.lane = ?",
        (lane,),
    )
    return None if row is None else str(row[0])


def lane_holders(reader: Reader) -> dict[str, str]:
    """The tasks whose attempts occupy lanes, by lane."""
    rows = reader.query("SELECT t.lane, a.task_id FROM attempts a JOIN tasks t USING (task_id) WHERE a.ended IS NULL")
    return {str(lane): str(task_id) for lane, task_id in rows}


def insert_attempt(uow: UnitOfWork, attempt: Attempt) -> None:
    """Store an attempt before its launch."""
    values = [getattr(attempt, name) for name in _ATTEMPT_COLUMNS]
    uow.execute(
        f"INSERT INTO attempts ({', '.join(_ATTEMPT_COLUMNS)}) VALUES ({', '.join('?' * len(values))})",  # noqa: S608
        values,
    )


def set_attempt(uow: UnitOfWork, task_id: str, epoch: int, attempt: int, **columns: object) -> None:
    """Change columns of one attempt."""
    sets = ", ".join(f"{name} = ?" for name in columns)
    uow.execute(
        f"UPDATE attempts SET {sets} WHERE task_id = ? AND epoch = ? AND attempt = ?",  # noqa: S608
        (*columns.values(), task_id, epoch, attempt),
    )


def load_attempt(reader: Reader, task_id: str, epoch: int, attempt: int) -> Attempt | None:
    """One attempt, or None."""
    row = reader.one(f"{_ATTEMPT_SELECT} WHERE task_id = ? AND epoch = ? AND attempt = ?", (task_id, epoch, attempt))
    return None if row is None else Attempt(**dict(zip(_ATTEMPT_COLUMNS, row, strict=True)))


def attempt_of_token(reader: Reader, token_hash: bytes) -> Attempt | None:
    """The attempt whose token has this SHA-256, or None."""
    row = reader.one(f"{_ATTEMPT_SELECT} WHERE token_hash = ?", (token_hash,))
    return None if row is None else Attempt(**dict(zip(_ATTEMPT_COLUMNS, row, strict=True)))


def unended_attempts(reader: Reader) -> list[Attempt]:
    """Attempts that have not been seen to end: what recovery looks after."""
    rows = reader.query(f"{_ATTEMPT_SELECT} WHERE ended IS NULL ORDER BY claimed_wall_ms")
    return [Attempt(**dict(zip(_ATTEMPT_COLUMNS, row, strict=True))) for row in rows]
