"""The runners of OperatorService: what their leases say, what they last told, and whether calls reach them."""

from __future__ import annotations

from functools import partial
from typing import Final

from google.protobuf.duration_pb2 import Duration

from lanewarden.server import Call
from lanewarden.stamps import duration, timestamp
from lanewarden.v1 import operator_service_pb2 as pb
from lanewarden.v1 import supervisor_service_pb2 as supervisor_pb
from supervisor_svc.core.leases import LeaseState
from supervisor_svc.store import outbox, runners
from supervisor_svc.store.runners import RunnerRow
from supervisor_svc.supervisor import Supervisor

AT_ONCE_MAX: Final = 32
"""How many runners are read and shown at once; it is a few milliseconds' work."""
PAUSE_SECONDS: Final = 0.002
"""Then renewals get their turn. A turn of the loop is not enough: gRPC's own thread has to get the interpreter, too."""
_STATES: Final = {
    LeaseState.LIVE: pb.RUNNER_STATE_LIVE,
    LeaseState.SUSPECT: pb.RUNNER_STATE_SUSPECT,
    LeaseState.UNREACHABLE: pb.RUNNER_STATE_UNREACHABLE,
}


class LeaseHandlers:
    """Who holds what, as this supervisor knows it."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor

    async def ListRunners(self, request: pb.ListRunnersRequest, call: Call) -> pb.ListRunnersResponse:
        """Every runner and what its lease says, and this supervisor itself."""
        response = pb.ListRunnersResponse(supervisor=self._own())
        waiting, last_id = self._supervisor.read(outbox.waiting_counts), ""
        while rows := self._supervisor.read(partial(runners.page, after=last_id, rows_max=AT_ONCE_MAX)):
            response.runners.extend(self._runner(row, waiting.get(row.runner_id, 0)) for row in rows)
            if len(rows) < AT_ONCE_MAX:
                break
            last_id = rows[-1].runner_id
            await self._supervisor.clock.sleep(PAUSE_SECONDS)
        return response

    def _own(self) -> pb.SupervisorInfo:
        return pb.SupervisorInfo(
            supervisor_id=self._supervisor.supervisor_id,
            incarnation=self._supervisor.incarnation,
            version=self._supervisor.build.version,
            build=self._supervisor.build.hash,
            sweeps=self._supervisor.presence.sweeps,
            loop_lag=duration(self._supervisor.loop_lag.ms()),
        )

    def _runner(self, row: RunnerRow, commands_waiting: int) -> pb.Runner:
        presence, vitals = self._supervisor.presence, self._supervisor.vitals.of(row.runner_id)
        return pb.Runner(
            runner_id=row.runner_id,
            incarnation=row.incarnation,
            generation=row.generation,
            state=_STATES[presence.state(row.runner_id)],
            address=row.address,
            lanes=row.lanes,
            last_seen=timestamp(presence.seen_wall_ms(row.runner_id)),
            lease_remaining=duration(presence.remaining_ms(row.runner_id)),
            taken_sequence=row.taken_sequence,
            version=row.version,
            build=row.build,
            loop_lag=duration(vitals.loop_lag_ms),
            clock_lead=_signed(vitals.clock_lead_ms),
            supervision_generation=presence.supervision_generation(row.runner_id),
            degraded_since=timestamp(self._supervisor.reach.degraded_since_wall_ms(row.runner_id)),
            commands_waiting=commands_waiting,
            occupants=[
                supervisor_pb.LaneOccupant(lane=lane, task_id=task_id) for lane, task_id in vitals.occupants.items()
            ],
        )


def _signed(ms: int | None) -> Duration | None:
    if ms is None:
        return None
    made = Duration()
    made.FromMilliseconds(ms)
    return made
