"""Who writes, and about what: the two names that go with every unit of work."""

from __future__ import annotations

import re
from dataclasses import dataclass

_EMITTER = re.compile(r"[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)+")


@dataclass(frozen=True, slots=True)
class Emitter:
    """The named code site that performs a write, e.g. ``lane_runner.attempt.launch``.

    Define each once, as a constant beside the code it names. One that is ``exempt`` is never throttled: holds, acks,
    rulings and leases, and what a service does by itself, which has bounds of its own and nobody to be told to wait.
    Raises :class:`ValueError` unless the name is two or more lower-case words joined by dots.
    """

    name: str
    exempt: bool = False

    def __post_init__(self) -> None:
        if not _EMITTER.fullmatch(self.name):
            raise ValueError(f"an emitter is lower-case words joined by dots, not {self.name!r}")

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Entity:
    """The thing a unit of work is about, e.g. ``Entity("task", task_id)``."""

    kind: str
    id: str
