"""What a supervisor does about a task by itself, asked of the runner that owns it.

An action is named by what it says, so that a repeat is one, whoever repeats it: also a restarted supervisor, under another
generation. A claim never is: its answer is about whoever asks, now.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any, Final

from google.protobuf.message import Message

from lanewarden.errors import Reason, Refusal, refuse
from lanewarden.store import Emitter, Entity
from lanewarden.v1 import incident_pb2, task_pb2
from lanewarden.v1 import lane_runner_service_pb2 as pb
from supervisor_svc import emitters
from supervisor_svc.core.diagnosis import Settlement
from supervisor_svc.core.filing import Filing
from supervisor_svc.store import runners
from supervisor_svc.supervisor import Supervisor
from supervisor_svc.work import intake

KIND: Final = "settled"
"""The one kind of incident about a task: it was given up."""
_REQUESTS: Final = uuid.UUID("5f0c2d2e-6a53-4d0e-9a0c-6f5a3c1d7b42")


class RunnerActions:
    """Each raises the runner's refusal, or SUPERVISION_FENCED without asking while nothing may be done there."""

    def __init__(self, supervisor: Supervisor, *, timeout_seconds: float) -> None:
        self._supervisor = supervisor
        self._timeout_seconds = timeout_seconds

    async def wake(self, task: task_pb2.Task) -> None:
        """Have it look at its input."""
        await self._act(task, "WakeTask", pb.WakeTaskRequest(task_id=task.task_id, epoch=task.epoch), emitters.WAKE)

    async def relaunch(self, task: task_pb2.Task, *, cause: str, relaunches_max: int) -> None:
        """Replace its attempt. Another ``cause`` makes another request, so it has no times in it."""
        request = pb.RelaunchTaskRequest(
            task_id=task.task_id,
            epoch=task.epoch,
            attempt=task.attempt,
            cause=cause,
            relaunches_max=relaunches_max,
        )
        await self._act(task, "RelaunchTask", request, emitters.RELAUNCH)

    async def settle(self, task: task_pb2.Task, settlement: Settlement) -> None:
        """Give it up."""
        request = pb.SettleTaskRequest(
            task_id=task.task_id, epoch=task.epoch, summary=settlement.summary, diagnosis=settlement.diagnosis
        )
        await self._act(task, "SettleTask", request, emitters.SETTLE)

    async def claim(self, task: task_pb2.Task) -> incident_pb2.Incident:
        """The incident of a task that was given up, its claim ours."""
        return await self._claim(task.runner_id, task.task_id, task.epoch, KIND)

    async def confirm(self, filing: Filing) -> None:
        """Return if the claim is still ours.

        Raises:
            Refusal: CLAIM_LOST when it has another generation by now, or the runner's own.
        """
        incident = await self._claim(filing.runner_id, filing.task_id, filing.epoch, filing.kind)
        if (incident.key, incident.claim_generation) != (filing.key, filing.claim_generation):
            raise refuse(
                Reason.CLAIM_LOST,
                f"the claim on incident {filing.key} is another's",
                key=filing.key,
                holder=incident.holder,
                generation=incident.claim_generation,
            )

    async def record(self, filing: Filing, *, also_task_ids: Sequence[str]) -> None:
        """Tell the runner what came of filing."""
        request = pb.RecordIncidentRequest(
            task_id=filing.task_id,
            epoch=filing.epoch,
            key=filing.key,
            claim_generation=filing.claim_generation,
            external_id=filing.external_id,
            url=filing.url,
            failure="" if filing.external_id else f"try {filing.tries}: {filing.failure}",
            also_task_ids=also_task_ids,
        )
        await self._ask(filing.runner_id, "RecordIncident", request, emitters.FILE)

    async def _claim(self, runner_id: str, task_id: str, epoch: int, kind: str) -> incident_pb2.Incident:
        request = pb.ClaimIncidentRequest(task_id=task_id, epoch=epoch, kind=kind)
        request.request_id = str(uuid.UUID(int=self._supervisor.random.getrandbits(128), version=4))
        answer = await self._ask(runner_id, "ClaimIncident", request, emitters.CLAIM)
        incident: incident_pb2.Incident = answer.incident
        return incident

    async def _act(self, task: task_pb2.Task, rpc: str, request: Message, emitter: Emitter) -> None:
        answer = await self._ask(task.runner_id, rpc, request, emitter)
        await self._supervisor.do(
            lambda session: intake.learn_task(session, answer.task),
            emitter=emitter,
            entity=Entity("task", task.task_id),
        )

    async def _ask(self, runner_id: str, rpc: str, request: Message, emitter: Emitter) -> Any:
        generation = self._supervisor.presence.supervision_generation(runner_id)
        if not generation:
            raise refuse(
                Reason.SUPERVISION_FENCED,
                f"runner {runner_id} has not said that this supervisor may act there",
                generation=0,
            )
        runner = self._supervisor.read(lambda reader: runners.find(reader, runner_id))
        assert runner is not None, "tasks are only ever taken from runners that have registered"
        asked: Any = request
        asked.request_id = asked.request_id or _name(rpc, request)
        asked.supervision_generation = generation
        call = getattr(self._supervisor.connect_runner(runner.address), rpc)
        try:
            answer = await call(request, timeout_seconds=self._timeout_seconds, emitter=emitter.name)
        except Refusal as refusal:
            self._supervisor.reach.note(runner_id, refusal)
            raise
        self._supervisor.reach.note(runner_id)
        return answer


def _name(rpc: str, request: Message) -> str:
    return str(uuid.uuid5(_REQUESTS, f"{rpc} {request.SerializeToString(deterministic=True).hex()}"))
