"""Where incidents are filed. A tracker is a small class: a name, a look-up by key, and a create."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Protocol

from supervisor_svc.sinks import SinkFailed


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """One task of an incident."""

    key: str
    task_id: str
    runner_id: str
    epoch: int
    summary: str
    diagnosis: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """An incident as it is told: the same at each try but for subjects that have joined. ``key`` is that of the first."""

    key: str
    kind: str
    at: str
    subjects: tuple[Subject, ...]

    @property
    def title(self) -> str:
        """One line for people."""
        first, others = self.subjects[0], len(self.subjects) - 1
        return f"{self.kind}: task {first.task_id}" + (f" and {others} more" if others else "")

    def json(self) -> str:
        """The report as one line of JSON."""
        told = {"key": self.key, "kind": self.kind, "at": self.at, "title": self.title}
        return json.dumps({**told, "subjects": [asdict(each) for each in self.subjects]})


@dataclass(frozen=True, slots=True, kw_only=True)
class Filed:
    """An item at a tracker."""

    external_id: str
    url: str = ""


class FilingFailed(SinkFailed):
    """A try came to nothing, and surely so: no item was made. ``retry_after_seconds`` is what the tracker asks for, if it
    does. A :class:`SinkFailed` that is not one of these leaves open whether there is an item.
    """

    def __init__(self, cause: str, *, retry_after_seconds: float = 0.0) -> None:
        super().__init__(cause)
        self.retry_after_seconds = retry_after_seconds


class Tracker(Protocol):
    """One place where incidents are filed."""

    @property
    def name(self) -> str:
        """What it is called in logs and listings."""
        ...

    @property
    def lag_seconds(self) -> float:
        """How long after a create a look-up may still miss it."""
        ...

    async def find(self, key: str) -> Filed | None:
        """The item that was made for this key, alone or with others, or None.

        Raises:
            SinkFailed: it cannot be told now.
        """
        ...

    async def create(self, report: Report) -> Filed:
        """Make the item; raise :class:`SinkFailed` within a bounded time otherwise."""
        ...
