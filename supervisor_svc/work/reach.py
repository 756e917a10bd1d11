"""Whether calls to runners get through, which a renewal does not say: it comes the other way. Memory only."""

from __future__ import annotations

from typing import Final

from lanewarden.clock import Clock
from lanewarden.errors import Refusal
from lanewarden.hub import Hub, Topic
from supervisor_svc.core.delivery import is_away
from supervisor_svc.core.leases import LeaseState
from supervisor_svc.work.presence import Presence

DEGRADED: Final = Topic("degraded")
"""Calls to a runner have begun to fail."""


class Reach:
    """Takes note of every call to a runner; used on the event loop's thread only.

    A runner whose calls fail while its lease is live is degraded: it works, and hears
    nothing but the answers to its renewals.
    """

    def __init__(self, presence: Presence, clock: Clock, hub: Hub) -> None:
        self._presence = presence
        self._clock = clock
        self._hub = hub
        self._failing: dict[str, int | None] = {}
        """Since when, by the wall clock, calls fail though the lease is live; None where it has not been live since."""

    def note(self, runner_id: str, refusal: Refusal | None = None) -> None:
        """A call was answered, if only by a refusal of the runner's own, or was not."""
        if refusal is None or not is_away(refusal):
            if runner_id in self._failing:
                del self._failing[runner_id]
                self._hub.publish([Topic("runner", runner_id)])
            return
        since_ms = (self._failing.get(runner_id) or self._clock.wall_ms()) if self._live(runner_id) else None
        self._failing[runner_id] = since_ms
        if since_ms is not None:
            self._hub.publish([Topic(DEGRADED.kind, runner_id)])

    def failing(self, runner_id: str) -> bool:
        """Whether the last call to the runner came to nothing."""
        return runner_id in self._failing

    def degraded_since_wall_ms(self, runner_id: str) -> int | None:
        """Since when calls fail while the runner renews its lease; None when they do not, or when it does not."""
        return self._failing.get(runner_id) if self._live(runner_id) else None

    def degraded(self) -> list[str]:
        """Every runner that is degraded now."""
        return [runner_id for runner_id in self._failing if self.degraded_since_wall_ms(runner_id) is not None]

    def _live(self, runner_id: str) -> bool:
        return self._presence.state(runner_id) is LeaseState.LIVE
