"""Commands of OperatorService about the life of a task and the deadline of a hold; their runner carries them out."""

from __future__ import annotations

from typing import Any

from google.protobuf.message import Message

from lanewarden.server import Call
from lanewarden.v1 import lane_runner_service_pb2 as runner_pb
from lanewarden.v1 import operator_service_pb2 as pb
from lanewarden.v1 import task_pb2
from supervisor_svc.rpc.forward import Forwarder
from supervisor_svc.rpc.inbox import actor_message, deed


class ControlHandlers:
    """Cancel, pause, resume, retry, reopen, take over, extend."""

    def __init__(self, forwarder: Forwarder) -> None:
        self._forwarder = forwarder

    async def CancelTask(
        self, request: pb.OperatorServiceCancelTaskRequest, call: Call
    ) -> pb.OperatorServiceCancelTaskResponse:
        """End a task."""
        forwarded = runner_pb.CancelTaskRequest(
            request_id=request.request_id,
            task_id=request.task_id,
            cause=request.cause,
            on_behalf_of=actor_message(call),
        )
        answer = await self._command("CancelTask", forwarded, call)
        return pb.OperatorServiceCancelTaskResponse(task=answer.task)

    async def PauseTask(
        self, request: pb.OperatorServicePauseTaskRequest, call: Call
    ) -> pb.OperatorServicePauseTaskResponse:
        """Add the operator's pause."""
        forwarded = runner_pb.PauseTaskRequest(
            request_id=request.request_id, task_id=request.task_id, on_behalf_of=actor_message(call)
        )
        answer = await self._command("PauseTask", forwarded, call)
        return pb.OperatorServicePauseTaskResponse(task=answer.task)

    async def ResumeTask(
        self, request: pb.OperatorServiceResumeTaskRequest, call: Call
    ) -> pb.OperatorServiceResumeTaskResponse:
        """Clear one pause and no other."""
        forwarded = runner_pb.ResumeTaskRequest(
            request_id=request.request_id,
            task_id=request.task_id,
            on_behalf_of=actor_message(call),
            cause=request.cause,
        )
        cause = task_pb2.PauseCause.Name(request.cause).removeprefix("PAUSE_CAUSE_") if request.cause else ""
        answer = await self._command("ResumeTask", forwarded, call, detail=cause)
        return pb.OperatorServiceResumeTaskResponse(task=answer.task)

    async def RetryTask(
        self, request: pb.OperatorServiceRetryTaskRequest, call: Call
    ) -> pb.OperatorServiceRetryTaskResponse:
        """Try a failed task, or what of it is delayed or has failed, again."""
        forwarded = runner_pb.RetryTaskRequest(
            request_id=request.request_id, task_id=request.task_id, on_behalf_of=actor_message(call)
        )
        answer = await self._command("RetryTask", forwarded, call)
        return pb.OperatorServiceRetryTaskResponse(task=answer.task)

    async def ReopenTask(
        self, request: pb.OperatorServiceReopenTaskRequest, call: Call
    ) -> pb.OperatorServiceReopenTaskResponse:
        """Give a terminal task another life."""
        forwarded = runner_pb.ReopenTaskRequest(
            request_id=request.request_id, task_id=request.task_id, on_behalf_of=actor_message(call)
        )
        answer = await self._command("ReopenTask", forwarded, call)
        return pb.OperatorServiceReopenTaskResponse(task=answer.task)

    async def TakeOver(self, request: pb.TakeOverRequest, call: Call) -> pb.TakeOverResponse:
        """Make the caller the owner. The audit names who it was before."""
        forwarded = runner_pb.LaneRunnerServiceTakeOverRequest(
            request_id=request.request_id,
            task_id=request.task_id,
            cause=request.cause,
            on_behalf_of=actor_message(call),
        )
        asked = deed(call, "TakeOver", request_id=request.request_id, task_id=request.task_id)
        answer = await self._forwarder.command(asked, "TakeOver", forwarded, call, detail_of=_previous_owner)
        return pb.TakeOverResponse(task=answer.task, previous_owner=answer.previous_owner)

    async def ExtendHold(
        self, request: pb.OperatorServiceExtendHoldRequest, call: Call
    ) -> pb.OperatorServiceExtendHoldResponse:
        """Move the deadline of an open hold. The inbox shows it once the runner has reported it."""
        forwarded = runner_pb.ExtendHoldRequest(
            request_id=request.request_id,
            escalation_id=request.escalation_id,
            deadline=request.deadline,
            on_behalf_of=actor_message(call),
        )
        action = f"ExtendHold {request.deadline.ToMilliseconds() // 1000} s"
        asked = deed(call, action, request_id=request.request_id, escalation_id=request.escalation_id)
        answer = await self._forwarder.command(asked, "ExtendHold", forwarded, call)
        return pb.OperatorServiceExtendHoldResponse(escalation=answer.escalation)

    async def _command(self, rpc: str, forwarded: Message, call: Call, *, detail: str = "") -> Any:
        asked = deed(
            call,
            f"{rpc} {detail}".rstrip(),
            request_id=forwarded.request_id,  # type: ignore[attr-defined]
            task_id=forwarded.task_id,  # type: ignore[attr-defined]
        )
        return await self._forwarder.command(asked, rpc, forwarded, call)


def _previous_owner(answer: Any) -> str:
    identity = answer.previous_owner.identity
    return f"from {identity}" if identity else ""
