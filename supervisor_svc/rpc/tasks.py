"""The tasks of OperatorService: views of what runners reported, and what a task is given."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Collection

from lanewarden.errors import Reason, Refusal
from lanewarden.hub import ALL, Topic
from lanewarden.paging import fitting, page_size, parse_token
from lanewarden.server import Call
from lanewarden.store import Connection
from lanewarden.store.requests import once
from lanewarden.v1 import lane_runner_service_pb2 as runner_pb
from lanewarden.v1 import operator_service_pb2 as pb
from lanewarden.v1 import task_pb2
from supervisor_svc import emitters
from supervisor_svc.core.leases import LeaseState
from supervisor_svc.core.routing import Candidate, choose_runner
from supervisor_svc.rpc import verdicts
from supervisor_svc.rpc.forward import Forwarder
from supervisor_svc.rpc.inbox import actor_message, deed
from supervisor_svc.store import runners, views
from supervisor_svc.supervisor import Supervisor
from supervisor_svc.work import commands
from supervisor_svc.work.session import Session


class TaskHandlers:
    """Tasks as last reported, and their runners' own answers."""

    def __init__(self, supervisor: Supervisor, forwarder: Forwarder) -> None:
        self._supervisor = supervisor
        self._forwarder = forwarder

    async def ListTasks(
        self, request: pb.OperatorServiceListTasksRequest, call: Call
    ) -> pb.OperatorServiceListTasksResponse:
        """A page of tasks as last reported, newest first."""
        states = [task_pb2.TaskState.Name(state).removeprefix("TASK_STATE_") for state in request.states if state]
        rows_max = page_size(request.page_size)

        def look(reader: Connection) -> pb.OperatorServiceListTasksResponse:
            found = views.tasks(
                reader,
                states=states,
                runner_id=request.runner_id,
                rows_max=rows_max + 1,
                before=parse_token(request.page_token),
            )
            shown, token = fitting(
                ((view.position, verdicts.shown(self._supervisor, view)) for view in found), rows_max
            )
            return pb.OperatorServiceListTasksResponse(tasks=shown, next_page_token=token)

        return self._supervisor.read(look)

    async def GetTask(self, request: pb.OperatorServiceGetTaskRequest, call: Call) -> pb.OperatorServiceGetTaskResponse:
        """One task from its runner; as last reported when the runner does not answer."""
        known = self._stored(request.task_id)
        shown = verdicts.shown(self._supervisor, known)
        if shown.runner_forgot:  # which the runner would say with TASK_UNKNOWN
            return pb.OperatorServiceGetTaskResponse(task=shown)
        asked = runner_pb.GetTaskRequest(task_id=request.task_id)
        try:
            answer = await self._forwarder.ask(known.runner_id, "GetTask", asked)
        except Refusal as refusal:
            if refusal.reason is not Reason.RUNNER_UNREACHABLE:
                raise
            verdicts.mark(self._supervisor, shown)
            return pb.OperatorServiceGetTaskResponse(task=shown)
        task = verdicts.answered(self._supervisor, known, answer.task)
        return pb.OperatorServiceGetTaskResponse(task=task, messages=answer.messages)

    async def ExplainTask(self, request: pb.ExplainTaskRequest, call: Call) -> pb.ExplainTaskResponse:
        """What the supervisor makes of a task as it knows it, and would do about it."""
        return verdicts.explanation(self._supervisor, self._stored(request.task_id))

    async def WatchTasks(
        self, request: pb.OperatorServiceWatchTasksRequest, call: Call
    ) -> AsyncIterator[pb.OperatorServiceWatchTasksResponse]:
        """What is, then what changes."""
        with self._supervisor.hub.subscribe(Topic("task", request.task_id or ALL)) as news:
            changed = [request.task_id] if request.task_id else self._supervisor.read(views.unfinished_ids)
            while True:
                for task_id in changed:
                    shown = verdicts.shown(self._supervisor, self._stored(task_id))
                    yield pb.OperatorServiceWatchTasksResponse(task=shown)
                changed = await news.take()

    async def TailLog(
        self, request: pb.OperatorServiceTailLogRequest, call: Call
    ) -> AsyncIterator[pb.OperatorServiceTailLogResponse]:
        """The output of an attempt, as its runner sends it."""
        asked = runner_pb.TailLogRequest(task_id=request.task_id, attempt=request.attempt, follow=request.follow)
        async for piece in self._forwarder.stream(self._forwarder.owner(request.task_id), "TailLog", asked):
            yield pb.OperatorServiceTailLogResponse(piece=piece)

    async def ListEvidence(
        self, request: pb.OperatorServiceListEvidenceRequest, call: Call
    ) -> pb.OperatorServiceListEvidenceResponse:
        """A page of what earlier attempts of a task said too late, from its runner."""
        asked = runner_pb.ListEvidenceRequest(
            task_id=request.task_id, page_size=request.page_size, page_token=request.page_token
        )
        answer = await self._forwarder.ask(self._forwarder.owner(request.task_id), "ListEvidence", asked)
        return pb.OperatorServiceListEvidenceResponse(entries=answer.entries, next_page_token=answer.next_page_token)

    async def ListCheckpoints(
        self, request: pb.OperatorServiceListCheckpointsRequest, call: Call
    ) -> pb.OperatorServiceListCheckpointsResponse:
        """A page of a task's checkpoints, from its runner."""
        asked = runner_pb.ListCheckpointsRequest(
            task_id=request.task_id, page_size=request.page_size, page_token=request.page_token
        )
        answer = await self._forwarder.ask(self._forwarder.owner(request.task_id), "ListCheckpoints", asked)
        return pb.OperatorServiceListCheckpointsResponse(
            checkpoints=answer.checkpoints, next_page_token=answer.next_page_token
        )

    async def GetCheckpoint(
        self, request: pb.OperatorServiceGetCheckpointRequest, call: Call
    ) -> pb.OperatorServiceGetCheckpointResponse:
        """One checkpoint with its content, from the runner of its task."""
        owner = self._forwarder.owner(request.checkpoint_id.partition(".")[0])
        asked = runner_pb.GetCheckpointRequest(checkpoint_id=request.checkpoint_id)
        answer = await self._forwarder.ask(owner, "GetCheckpoint", asked)
        return pb.OperatorServiceGetCheckpointResponse(checkpoint=answer.checkpoint)

    async def SubmitTask(
        self, request: pb.OperatorServiceSubmitTaskRequest, call: Call
    ) -> pb.OperatorServiceSubmitTaskResponse:
        """Give a task to a runner. The choice is stored, so that a repeat goes to the same one."""
        asked = deed(call, "SubmitTask", request_id=request.request_id)
        presence = self._supervisor.presence
        live = {each for each in presence.runner_ids() if presence.state(each) is LeaseState.LIVE}
        runner_id = await self._supervisor.do_audited(
            asked, lambda session: _choose(session, request, call, live), emitter=emitters.ROUTE, call=call
        )
        forwarded = runner_pb.SubmitTaskRequest(
            request_id=request.request_id, spec=request.spec, on_behalf_of=actor_message(call)
        )
        answer = await self._forwarder.command(asked, "SubmitTask", forwarded, call, runner_id=runner_id)
        return pb.OperatorServiceSubmitTaskResponse(task=answer.task)

    async def SendInput(
        self, request: pb.OperatorServiceSendInputRequest, call: Call
    ) -> pb.OperatorServiceSendInputResponse:
        """Put a text into a task's inbox."""
        forwarded = runner_pb.SendInputRequest(
            request_id=request.request_id,
            task_id=request.task_id,
            text=request.text,
            on_behalf_of=actor_message(call),
        )
        asked = deed(call, "SendInput", request_id=request.request_id, task_id=request.task_id)
        answer = await self._forwarder.command(asked, "SendInput", forwarded, call)
        return pb.OperatorServiceSendInputResponse(message=answer.message)

    async def RecordGate(
        self, request: pb.OperatorServiceRecordGateRequest, call: Call
    ) -> pb.OperatorServiceRecordGateResponse:
        """Store the decision of a review."""
        forwarded = runner_pb.RecordGateRequest(
            request_id=request.request_id,
            task_id=request.task_id,
            gate=request.gate,
            decision=request.decision,
            note=request.note,
            on_behalf_of=actor_message(call),
        )
        decision = task_pb2.GateDecision.Name(request.decision).removeprefix("GATE_DECISION_")
        action = f"RecordGate {request.gate} {decision}"
        asked = deed(call, action, request_id=request.request_id, task_id=request.task_id)
        answer = await self._forwarder.command(asked, "RecordGate", forwarded, call)
        return pb.OperatorServiceRecordGateResponse(task=answer.task)

    async def CheckCompletion(
        self, request: pb.OperatorServiceCheckCompletionRequest, call: Call
    ) -> pb.OperatorServiceCheckCompletionResponse:
        """The runner's word on what blocks completion."""
        asked = runner_pb.CheckCompletionRequest(task_id=request.task_id)
        answer = await self._forwarder.ask(self._forwarder.owner(request.task_id), "CheckCompletion", asked)
        return pb.OperatorServiceCheckCompletionResponse(blockers=answer.blockers, state=answer.state)

    def _stored(self, task_id: str) -> views.View:
        return self._supervisor.read(lambda reader: commands.find_task_view(reader, task_id))


def _choose(session: Session, request: pb.OperatorServiceSubmitTaskRequest, call: Call, live: Collection[str]) -> str:
    """The runner of a new task: chosen once, then remembered under the request."""
    who = f"{call.identity.role.value}\0{call.identity.name}\0".encode()

    def choose() -> bytes:
        counts = views.unfinished_counts(session.uow)
        candidates = [
            Candidate(
                runner_id=row.runner_id,
                lanes=row.lanes,
                live=row.runner_id in live,
                unfinished=counts.get(row.runner_id, 0),
            )
            for row in runners.everyone(session.uow)
        ]
        parent = request.spec.parent_task_id
        named = request.runner_id or (commands.owner(session.uow, parent) if parent else "")  # families stay together
        return choose_runner(candidates, named=named, lane=request.spec.lane).encode()

    return once(
        session.uow,
        request_id=request.request_id,
        method=call.method,
        digest=hashlib.sha256(who + request.SerializeToString(deterministic=True)).digest(),
        respond=choose,
        now_ms=session.steady_ms,
    ).decode()
