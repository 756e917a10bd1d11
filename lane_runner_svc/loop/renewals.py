"""What each renewal tells the supervisor, and what its answer tells the runner."""

from __future__ import annotations

import logging
from typing import Final

from lane_runner_svc.loop.carrier import Carrier
from lane_runner_svc.runner import Runner
from lane_runner_svc.store import tasks
from lanewarden.errors import Reason, Refusal
from lanewarden.loop_lag import LoopLag
from lanewarden.stamps import duration, timestamp
from lanewarden.v1 import supervisor_service_pb2 as pb

log = logging.getLogger(__name__)

SWEEP_STILL_MS_MAX: Final = 15_000
"""A supervisor sweeps every five seconds; one whose count stands still for three of them does not work."""
SWEEP_STILL_ANSWERS_MIN: Final = 3
"""So many answers in a row must say so: one that comes after a suspend tells nothing of the time before it."""


class Renewals:
    """The renewals of one grant to one start of the runner.

    ``supervisor_works`` is false while the supervisor answers and its own sweep does not advance: then nobody ends leases,
    or acts on what is reported there.
    """

    def __init__(
        self, runner: Runner, loop_lag: LoopLag, carrier: Carrier, grant: pb.RegisterResponse, *, incarnation: str
    ) -> None:
        self._runner = runner
        self._loop_lag = loop_lag
        self._carrier = carrier
        self._grant = grant
        self._incarnation = incarnation
        self._told_lanes: dict[str, str] = {}
        self._taken = grant.taken_sequence
        self._sweep = 0
        self._still = 0
        self._advanced_ms = runner.clock.steady_ms()
        self.supervisor_works = True

    def request(self) -> pb.KeepAliveRequest:
        """The next renewal. Lanes and answers are told until a renewal that carried them was answered."""
        lanes = self._runner.read(tasks.lane_holders)
        return pb.KeepAliveRequest(
            runner_id=self._runner.runner_id,
            incarnation=self._incarnation,
            generation=self._grant.generation,
            loop_lag=duration(self._loop_lag.ms()),
            wall_time=timestamp(self._runner.clock.wall_ms()),
            changed_lanes=[
                pb.LaneOccupant(lane=lane, task_id=lanes.get(lane, ""))
                for lane in self._runner.lanes
                if self._told_lanes.get(lane) != lanes.get(lane, "")
            ],
            answers=self._carrier.answers(),
        )

    def answered(self, request: pb.KeepAliveRequest, response: pb.KeepAliveResponse) -> None:
        """Take the answer to a renewal.

        Raises:
            Refusal: LEASE_EXPIRED when the supervisor has lost what it had in memory or in its store, so that it has to be
                registered with, and told, anew.
        """
        self._told_lanes |= {each.lane: each.task_id for each in request.changed_lanes}
        self._carrier.told(request.answers)
        self._carrier.take(response.commands)
        self._note_sweep(response.sweep)
        if response.supervisor_incarnation not in ("", self._grant.supervisor_incarnation):
            raise Refusal(Reason.LEASE_EXPIRED, "the supervisor was started anew")
        if response.taken_sequence < self._taken:
            raise Refusal(Reason.LEASE_EXPIRED, f"the supervisor had taken {self._taken} and has lost some of it")
        self._taken = response.taken_sequence

    def _note_sweep(self, sweep: int) -> None:
        now_ms = self._runner.clock.steady_ms()
        if sweep != self._sweep:
            self._sweep, self._advanced_ms, self._still = sweep, now_ms, 0
        else:
            self._still += 1
        works = self._still < SWEEP_STILL_ANSWERS_MIN or now_ms - self._advanced_ms <= SWEEP_STILL_MS_MAX
        if works != self.supervisor_works:
            self.supervisor_works = works
            log.warning("the supervisor works again" if works else "the supervisor answers and does not work")
