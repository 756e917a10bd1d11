"""What runners tell of themselves with each renewal. Memory only, for it is told again; only storms decide anything."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from lanewarden.records import replace
from supervisor_svc.core.view import Storm
from supervisor_svc.work.registry import LANES_MAX

STORM_MS_MAX: Final = 10_000
"""What a runner told longer ago of who writes to its tasks may be over; it tells of that with every renewal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Vitals:
    """A runner as of its last renewal, at ``told_ms``. ``clock_lead_ms`` is negative when its wall clock is behind;
    ``occupants`` are the tasks in its lanes, by lane; ``storms`` are those over its tasks, by task.
    """

    generation: int = 0
    loop_lag_ms: int = 0
    clock_lead_ms: int | None = None
    occupants: Mapping[str, str] = field(default_factory=dict)
    storms: Mapping[str, Storm] = field(default_factory=dict)
    told_ms: int = 0


class VitalsBook:
    """The latest vitals of every runner; used on the event loop's thread only."""

    def __init__(self) -> None:
        self._latest: dict[str, Vitals] = {}

    def of(self, runner_id: str) -> Vitals:
        """What the runner last told; nothing when it has not renewed since this process started."""
        return self._latest.get(runner_id, Vitals())

    def storm(self, runner_id: str, task_id: str, now_ms: int) -> Storm | None:
        """The storm over a task, if its runner has told of one lately."""
        vitals = self.of(runner_id)
        return vitals.storms.get(task_id) if now_ms - vitals.told_ms <= STORM_MS_MAX else None

    def note(self, runner_id: str, told: Vitals) -> None:
        """Take what a renewal told; its ``occupants`` are those lanes only that have changed since the last one.

        A lane without a task is told as such, and so is every lane with the first renewal of a grant.
        """
        known = self.of(runner_id)
        before = known.occupants if known.generation == told.generation else {}
        lanes = {lane: task_id for lane, task_id in {**before, **told.occupants}.items() if task_id}
        if len(lanes) > LANES_MAX:
            lanes = dict(before)
        self._latest[runner_id] = replace(told, occupants=lanes)
