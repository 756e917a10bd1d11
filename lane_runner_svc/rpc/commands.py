"""LaneRunnerService: what a lane runner is told to do. Every command is durable, idempotent and audited."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from google.protobuf.message import Message as ProtoMessage

from lane_runner_svc import emitters
from lane_runner_svc.core.completion import GateDecision
from lane_runner_svc.core.holds import Actor
from lane_runner_svc.core.task import PauseCause, Task
from lane_runner_svc.core.timers import Approver
from lane_runner_svc.rpc import convert, specs
from lane_runner_svc.runner import Runner
from lane_runner_svc.store import tasks
from lane_runner_svc.store.audit import Deed
from lane_runner_svc.work import inbox, lives, timers
from lane_runner_svc.work import tasks as task_work
from lane_runner_svc.work.session import Session
from lanewarden.auth import METHOD_ROLES
from lanewarden.errors import Reason, invalid, refuse
from lanewarden.server import Call, Role
from lanewarden.store import Emitter
from lanewarden.v1 import escalation_pb2, task_pb2
from lanewarden.v1 import lane_runner_service_pb2 as pb

Response = TypeVar("Response", bound=ProtoMessage)
TaskResponse = TypeVar("TaskResponse", bound=ProtoMessage)


def actor_of(call: Call, request: ProtoMessage) -> Actor:
    """Who acts: the authenticated caller, or, when a supervisor forwards, the one it authenticated.

    Raises:
        Refusal: ROLE_NOT_ALLOWED when anyone but a supervisor names somebody else, or it names one who may not do this.
    """
    if "on_behalf_of" not in request.DESCRIPTOR.fields_by_name or not request.HasField("on_behalf_of"):
        return Actor(identity=call.identity.name, role=call.identity.role.value)
    if call.identity.role is not Role.SUPERVISOR:
        raise refuse(
            Reason.ROLE_NOT_ALLOWED,
            "only a supervisor may act on behalf of somebody; leave on_behalf_of out",
            role=call.identity.role.value,
            needed=Role.SUPERVISOR.value,
        )
    person: task_pb2.Actor = request.on_behalf_of  # type: ignore[attr-defined]
    if not person.identity:
        raise invalid(("on_behalf_of.identity", "must be set"))
    if person.role not in {role.value for role in METHOD_ROLES.get(call.method, frozenset())}:
        raise refuse(
            Reason.ROLE_NOT_ALLOWED,
            f"{call.method} is not for the role {person.role!r}, on whose behalf it was called",
            role=person.role,
            needed=", ".join(sorted(role.value for role in METHOD_ROLES.get(call.method, frozenset()))),
        )
    return Actor(identity=person.identity, role=person.role)


class CommandHandlers:
    """Each translates its request, has the unit of work carried out once, and translates the result."""

    def __init__(
        self, runner: Runner, *, environment: Mapping[str, str], approvers: Mapping[str, tuple[Approver, ...]]
    ) -> None:
        self._runner = runner
        self._environment = environment
        self._approvers = approvers

    async def SubmitTask(self, request: pb.SubmitTaskRequest, call: Call) -> pb.SubmitTaskResponse:
        """Store a task and queue it."""
        lane = self._idlest_lane()

        def work(session: Session, by: Actor) -> pb.SubmitTaskResponse:
            # Judged in here, so that a repeat gets the first answer whatever has become of the directory since.
            submission = specs.check(
                request.spec,
                lanes=self._runner.lanes,
                default_lane=lane,
                environment=self._environment,
                approvers=self._approvers,
            )
            task = task_work.submit(session, submission, by)
            session.subject = task.task_id
            return pb.SubmitTaskResponse(task=self._shown(session, task))

        return await self._command(request, call, pb.SubmitTaskResponse, work, emitters.SUBMIT)

    def _idlest_lane(self) -> str:
        counts = self._runner.read(tasks.lane_counts)
        return min(self._runner.lanes, key=lambda lane: sum(counts.get(lane, {}).values()))

    async def SendInput(self, request: pb.SendInputRequest, call: Call) -> pb.SendInputResponse:
        """Put an input into a task's inbox."""

        def work(session: Session, by: Actor) -> pb.SendInputResponse:
            stored = inbox.send_input(session, request.task_id, message_id=request.request_id, text=request.text, by=by)
            return pb.SendInputResponse(message=convert.stored_message(session.uow, stored))

        return await self._command(request, call, pb.SendInputResponse, work, emitters.INPUT, task_id=request.task_id)

    async def Acknowledge(self, request: pb.AcknowledgeRequest, call: Call) -> pb.AcknowledgeResponse:
        """Stamp a hold; it stays open."""
        expected = request.expected_by.ToMilliseconds() if request.HasField("expected_by") else None

        def work(session: Session, by: Actor) -> pb.AcknowledgeResponse:
            hold = inbox.acknowledge(
                session, escalation=request.escalation_id, by=by, expected_by_wall_ms=expected, note=request.note
            )
            return pb.AcknowledgeResponse(escalation=convert.hold_message(session.uow, hold, self._runner.runner_id))

        return await self._command(
            request, call, pb.AcknowledgeResponse, work, emitters.ACK, escalation_id=request.escalation_id
        )

    async def ExtendHold(self, request: pb.ExtendHoldRequest, call: Call) -> pb.ExtendHoldResponse:
        """Move the deadline of an open hold."""
        deadline_ms = request.deadline.ToMilliseconds()
        if problems := specs.deadline_problems(deadline_ms, "deadline"):
            raise invalid(*problems)

        def work(session: Session, by: Actor) -> pb.ExtendHoldResponse:
            hold = timers.extend_hold(session, request.escalation_id, deadline_ms=deadline_ms)
            return pb.ExtendHoldResponse(escalation=convert.hold_message(session.uow, hold, self._runner.runner_id))

        return await self._command(
            request, call, pb.ExtendHoldResponse, work, emitters.EXTEND, escalation_id=request.escalation_id
        )

    async def Steer(self, request: pb.SteerRequest, call: Call) -> pb.SteerResponse:
        """A ruling releases the hold it names; an instruction releases nothing."""
        if request.WhichOneof("steer") is None:
            raise invalid(("steer", "a steer carries a ruling or an instruction"))
        if not request.HasField("ruling") and not request.task_id:
            raise invalid(("task_id", "an instruction needs a task"))
        return await (self._rule if request.HasField("ruling") else self._instruct)(request, call)

    async def _rule(self, request: pb.SteerRequest, call: Call) -> pb.SteerResponse:
        def work(session: Session, by: Actor) -> pb.SteerResponse:
            ruling = convert.ruling(request.ruling, ruling_id=request.request_id, by=by, wall_ms=session.now.wall_ms)
            stored, task = inbox.rule(session, ruling, named_task_id=request.task_id)
            message = convert.stored_message(session.uow, stored, ruling=ruling)
            return pb.SteerResponse(message=message, task=self._shown(session, task))

        decision = escalation_pb2.Decision.Name(request.ruling.decision).removeprefix("DECISION_")
        return await self._command(
            request,
            call,
            pb.SteerResponse,
            work,
            emitters.RULE,
            task_id=request.task_id,
            escalation_id=request.ruling.escalation_id,
            action=f"Steer ruling {decision}",
        )

    async def _instruct(self, request: pb.SteerRequest, call: Call) -> pb.SteerResponse:
        def work(session: Session, by: Actor) -> pb.SteerResponse:
            stored, task = inbox.instruct(
                session, request.task_id, message_id=request.request_id, text=request.instruction.text, by=by
            )
            return pb.SteerResponse(
                message=convert.stored_message(session.uow, stored), task=self._shown(session, task)
            )

        return await self._command(
            request,
            call,
            pb.SteerResponse,
            work,
            emitters.INSTRUCT,
            task_id=request.task_id,
            action="Steer instruction",
        )

    async def CancelTask(self, request: pb.CancelTaskRequest, call: Call) -> pb.CancelTaskResponse:
        """End a task."""
        return await self._task_command(
            request,
            call,
            pb.CancelTaskResponse,
            lambda session, by: task_work.cancel(session, request.task_id, cause=request.cause, by=by),
            emitters.CANCEL,
        )

    async def PauseTask(self, request: pb.PauseTaskRequest, call: Call) -> pb.PauseTaskResponse:
        """Add the operator's pause."""
        return await self._task_command(
            request,
            call,
            pb.PauseTaskResponse,
            lambda session, by: task_work.pause(session, request.task_id),
            emitters.PAUSE,
        )

    async def ResumeTask(self, request: pb.ResumeTaskRequest, call: Call) -> pb.ResumeTaskResponse:
        """Clear one cause of a pause."""
        cause = PauseCause.OPERATOR
        if request.cause:
            cause = PauseCause[task_pb2.PauseCause.Name(request.cause).removeprefix("PAUSE_CAUSE_")]
        return await self._task_command(
            request,
            call,
            pb.ResumeTaskResponse,
            lambda session, by: task_work.resume(session, request.task_id, cause),
            emitters.RESUME,
            action=f"ResumeTask {cause.value}",
        )

    async def RetryTask(self, request: pb.RetryTaskRequest, call: Call) -> pb.RetryTaskResponse:
        """Another attempt in the same epoch."""
        return await self._task_command(
            request,
            call,
            pb.RetryTaskResponse,
            lambda session, by: lives.retry(session, request.task_id),
            emitters.RETRY,
        )

    async def ReopenTask(self, request: pb.ReopenTaskRequest, call: Call) -> pb.ReopenTaskResponse:
        """The next epoch of a task that has ended."""
        return await self._task_command(
            request,
            call,
            pb.ReopenTaskResponse,
            lambda session, by: lives.reopen(session, request.task_id),
            emitters.REOPEN,
        )

    async def TakeOver(
        self, request: pb.LaneRunnerServiceTakeOverRequest, call: Call
    ) -> pb.LaneRunnerServiceTakeOverResponse:
        """Make the caller the owner and launch nothing new."""

        def work(session: Session, by: Actor) -> pb.LaneRunnerServiceTakeOverResponse:
            task, before = lives.take_over(session, request.task_id, by, cause=request.cause)
            return pb.LaneRunnerServiceTakeOverResponse(
                task=self._shown(session, task), previous_owner=convert.actor_message(before)
            )

        return await self._command(
            request,
            call,
            pb.LaneRunnerServiceTakeOverResponse,
            work,
            emitters.TAKE_OVER,
            task_id=request.task_id,
        )

    async def RecordGate(self, request: pb.RecordGateRequest, call: Call) -> pb.RecordGateResponse:
        """Store the decision of a review."""
        decision = GateDecision[task_pb2.GateDecision.Name(request.decision).removeprefix("GATE_DECISION_")]
        return await self._task_command(
            request,
            call,
            pb.RecordGateResponse,
            lambda session, by: task_work.record_gate(
                session, request.task_id, request.gate, decision, by=by, note=request.note
            ),
            emitters.GATE,
            action=f"RecordGate {request.gate} {decision.value}",
        )

    async def _task_command(
        self,
        request: ProtoMessage,
        call: Call,
        response_type: type[TaskResponse],
        work: Callable[[Session, Actor], Task],
        emitter: Emitter,
        action: str = "",
    ) -> TaskResponse:
        """A command whose response is the task as it is then."""

        def respond(session: Session, by: Actor) -> TaskResponse:
            return response_type(task=self._shown(session, work(session, by)))

        task_id: str = request.task_id  # type: ignore[attr-defined]
        return await self._command(request, call, response_type, respond, emitter, task_id=task_id, action=action)

    async def _command(
        self,
        request: ProtoMessage,
        call: Call,
        response_type: type[Response],
        work: Callable[[Session, Actor], Response],
        emitter: Emitter,
        *,
        task_id: str = "",
        escalation_id: str = "",
        action: str = "",
    ) -> Response:
        by = actor_of(call, request)
        deed = Deed(
            by=by,
            action=action or call.method.rpartition("/")[2],
            task_id=task_id or escalation_id.partition(".")[0],
            escalation_id=escalation_id,
            request_id=request.request_id,  # type: ignore[attr-defined]
            trace_id=call.traceparent[3:35],
        )

        def respond(session: Session) -> Response:
            session.by = by
            return work(session, by)

        return await self._runner.command(
            request,
            call,
            response_type,
            respond,
            emitter=emitter,
            task_id=deed.task_id,
            deed=deed,
        )

    def _shown(self, session: Session, task: Task) -> task_pb2.Task:
        return convert.task_message(session.uow, task, self._runner.runner_id)
