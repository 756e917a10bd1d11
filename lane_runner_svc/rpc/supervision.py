"""What the runner tells about itself and about who supervises it."""

from __future__ import annotations

from collections.abc import Sequence

from lane_runner_svc.holder import Holder
from lane_runner_svc.runner import Runner
from lane_runner_svc.store import supervision
from lanewarden.build import Build
from lanewarden.loop_lag import LoopLag
from lanewarden.stamps import duration, timestamp
from lanewarden.v1 import lane_runner_service_pb2 as pb


class SupervisionReader:
    """Answers GetSupervision; ``supervisors`` are the addresses that the runner may turn to, in order."""

    def __init__(
        self,
        runner: Runner,
        holder: Holder,
        *,
        incarnation: str,
        build: Build,
        loop_lag: LoopLag,
        supervisors: Sequence[str],
    ) -> None:
        self._runner = runner
        self._holder = holder
        self._incarnation = incarnation
        self._build = build
        self._loop_lag = loop_lag
        self._supervisors = supervisors

    def look(self) -> pb.GetSupervisionResponse:
        """What is so now. A lease that has lapsed by the clock is not shown as live, whatever is stored."""
        stored = self._runner.read(supervision.load)
        state = pb.SUPERVISION_STATE_LIVE if self._holder.generation else pb.SUPERVISION_STATE_LAPSED
        return pb.GetSupervisionResponse(
            runner_id=self._runner.runner_id,
            incarnation=self._incarnation,
            version=self._build.version,
            build=self._build.hash,
            loop_lag=duration(self._loop_lag.ms()),
            supervisors=self._supervisors,
            supervision=pb.Supervision(
                state=state if stored.generation else pb.SUPERVISION_STATE_NONE,
                generation=stored.generation,
                supervisor_id=stored.supervisor_id,
                supervisor_incarnation=stored.supervisor_incarnation,
                address=stored.address,
                lease_remaining=duration(self._holder.remaining_ms),
                renewed_at=timestamp(self._holder.renewed_wall_ms),
            ),
        )
