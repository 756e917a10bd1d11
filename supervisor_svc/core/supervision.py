"""The budgets and times of supervision, as one versioned input of its decisions; pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from supervisor_svc.core.leases import Timing


@dataclass(frozen=True, slots=True, kw_only=True)
class SupervisionConfig:
    """How long silence may last and how often a task is tried (DESIGN section 13).

    ``version`` rises with every change of the others, so that a decision can name what it was made by. ``catch_up_ms`` is
    how long a runner that has just been heard (again) may take to tell what has happened meanwhile.
    """

    version: int = 1
    parked_ms: int = 120_000
    stale_ms: int = 900_000
    first_progress_ms: int = 60_000
    catch_up_ms: int = 30_000
    relaunches_max: int = 2

    def __post_init__(self) -> None:
        assert min(self.version, self.parked_ms, self.stale_ms, self.first_progress_ms, self.catch_up_ms) > 0
        assert self.relaunches_max >= 0

    def conflicts(self, lease: Timing) -> Iterator[str]:
        """Sentences about times that contradict each other, in the names of the settings."""
        unheard_ms = lease.ttl_ms + lease.grace_ms
        bounds = {"parked": self.parked_ms, "stale": self.stale_ms, "first_progress": self.first_progress_ms}
        for name, bound_ms in bounds.items():
            if bound_ms <= unheard_ms:
                yield (
                    f"{name}_seconds ({bound_ms / 1000:g}) must be above lease_ttl_seconds ({lease.ttl_ms / 1000:g}) +"
                    f" lease_grace_seconds ({lease.grace_ms / 1000:g}): the silence of a runner that is only out of reach"
                    " would be taken for that of its workers"
                )
