"""What can be seen in the services' files, also while they are down."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any, TypeVar

from lane_runner_svc.core.holds import Hold
from lane_runner_svc.core.states import State
from lane_runner_svc.core.task import Task
from lane_runner_svc.store import holds, tasks
from lanewarden.store import Connection
from lanewarden.store.readers import Readers

SERVICES = ("runner", "supervisor")
T = TypeVar("T")


class Sight:
    """Reads the stores of both services."""

    files: dict[str, Readers]

    def __init__(self) -> None:
        self.states: dict[str, set[State]] = defaultdict(set)
        """Every state in which a task was seen."""

    def read(self, work: Callable[[Connection], T]) -> T:
        """Read in the runner's file."""
        return self.files["runner"].read(work)

    def task(self, task_id: str) -> Task:
        """The task in the runner's file."""
        return self.read(lambda reader: tasks.load(reader, task_id))

    def hold(self, escalation_id: str) -> Hold:
        """The escalation in the runner's file."""
        return self.read(lambda reader: holds.load(reader, escalation_id))

    def holds(self, task_id: str) -> list[Hold]:
        """The task's escalations, oldest first."""
        return self.read(lambda reader: holds.of_task(reader, task_id))

    def audit(self, task_id: str) -> list[str]:
        """The runner's audit of a task: who, what, and what came of it."""
        sql = "SELECT identity, action, outcome FROM audit WHERE task_id = ? ORDER BY sequence"
        return [f"{who} {what}: {outcome}" for who, what, outcome in self.rows("runner", sql, task_id)]

    def rows(self, service: str, sql: str, *values: object) -> list[tuple[Any, ...]]:
        """Rows of a service's file."""
        return self.files[service].read(lambda reader: [tuple(row) for row in reader.query(sql, values)])

    def dump(self) -> list[dict[str, Any]]:
        """Every row about tasks, holds, messages and gates. Without the version, which a restart alone may raise."""

        def look(reader: Connection) -> list[dict[str, Any]]:
            names = ("tasks", "holds", "messages", "gates")
            rows = [dict(row) for name in names for row in reader.query(f"SELECT * FROM {name} ORDER BY 1, 2, 3")]
            return [{name: value for name, value in row.items() if name != "version"} for row in rows]

        return self.read(look)

    def note_states(self) -> None:
        """Add the states in which the tasks are now to ``states``."""
        for task_id, state in self.rows("runner", "SELECT task_id, state FROM tasks"):
            self.states[task_id].add(State[state])

    def progressed_ms(self, task_id: str) -> int:
        """When the supervisor was first told of the task's latest progress, by its own clock, in its own file."""
        ((progressed_ms,),) = self.rows("supervisor", "SELECT progressed_ms FROM tasks WHERE task_id = ?", task_id)
        return int(progressed_ms)

    def all_told(self) -> bool:
        """Whether nothing waits to be told by the supervisor."""
        return not self.rows("supervisor", "SELECT 1 FROM notifications WHERE next_try_ms IS NOT NULL LIMIT 1")

    def agree(self) -> bool:
        """Whether the supervisor has heard everything that the runner has to tell."""
        if self.rows("runner", "SELECT 1 FROM outbox LIMIT 1"):
            return False
        tasks_here, tasks_there = (self.rows(each, "SELECT task_id, state FROM tasks ORDER BY 1") for each in SERVICES)
        escalations = self.rows("supervisor", "SELECT escalation_id, hold_state FROM escalations ORDER BY 1")
        return tasks_here == tasks_there and escalations == self.rows(
            "runner", "SELECT escalation_id, state FROM holds ORDER BY 1"
        )
