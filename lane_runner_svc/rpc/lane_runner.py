"""LaneRunnerService: requests become units of work, results become responses."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from typing import TypeVar

from google.protobuf.message import Message as ProtoMessage

from lane_runner_svc import emitters
from lane_runner_svc.core.completion import GateDecision
from lane_runner_svc.core.holds import Actor, HoldState
from lane_runner_svc.core.task import Task
from lane_runner_svc.rpc import convert, specs
from lane_runner_svc.rpc.logs import LogReader
from lane_runner_svc.runner import Runner
from lane_runner_svc.store import holds, messages, tasks
from lane_runner_svc.work import attempts, inbox
from lane_runner_svc.work import tasks as task_work
from lane_runner_svc.work.session import Session
from lanewarden.errors import Reason, invalid, refuse
from lanewarden.hub import ALL, Topic
from lanewarden.paging import page_size, parse_token, token_of
from lanewarden.server import Call, Role
from lanewarden.store import Connection, Emitter
from lanewarden.v1 import lane_runner_service_pb2 as pb
from lanewarden.v1 import task_pb2

T = TypeVar("T")
TaskResponse = TypeVar("TaskResponse", bound=ProtoMessage)


def actor_of(call: Call, on_behalf_of: task_pb2.Actor, *, given: bool) -> Actor:
    """Who acts: the authenticated caller, or, when a supervisor forwards, the one it authenticated.

    Raises:
        Refusal: ROLE_NOT_ALLOWED when anyone but a supervisor names somebody else.
    """
    if not given:
        return Actor(identity=call.identity.name, role=call.identity.role.value)
    if call.identity.role is not Role.SUPERVISOR:
        raise refuse(
            Reason.ROLE_NOT_ALLOWED,
            "only a supervisor may act on behalf of somebody; leave on_behalf_of out",
            role=call.identity.role.value,
            needed=Role.SUPERVISOR.value,
        )
    return Actor(identity=on_behalf_of.identity, role=on_behalf_of.role)


class LaneRunnerHandlers:
    """The authority on lanes, tasks and holds."""

    def __init__(self, runner: Runner, *, environment: Mapping[str, str], logs: LogReader) -> None:
        self._runner = runner
        self._environment = environment
        self._logs = logs

    async def SubmitTask(self, request: pb.SubmitTaskRequest, call: Call) -> pb.SubmitTaskResponse:
        """Store a task and queue it."""
        actor_of(call, request.on_behalf_of, given=request.HasField("on_behalf_of"))
        lane = self._idlest_lane()

        def work(session: Session) -> pb.SubmitTaskResponse:
            # Judged in here, so that a repeat gets the first answer whatever has become of the directory since.
            submission = specs.check(
                request.spec, lanes=self._runner.lanes, default_lane=lane, environment=self._environment
            )
            return pb.SubmitTaskResponse(task=self._shown(session, task_work.submit(session, submission)))

        return await self._runner.command(request, call, pb.SubmitTaskResponse, work, emitter=emitters.SUBMIT)

    def _idlest_lane(self) -> str:
        counts = self._runner.read(tasks.lane_counts)
        return min(self._runner.lanes, key=lambda lane: sum(counts.get(lane, {}).values()))

    async def SendInput(self, request: pb.SendInputRequest, call: Call) -> pb.SendInputResponse:
        """Put an input into a task's inbox."""
        by = actor_of(call, request.on_behalf_of, given=request.HasField("on_behalf_of"))

        def work(session: Session) -> pb.SendInputResponse:
            stored = inbox.send_input(session, request.task_id, message_id=request.request_id, text=request.text, by=by)
            return pb.SendInputResponse(message=convert.stored_message(session.uow, stored))

        return await self._runner.command(
            request, call, pb.SendInputResponse, work, emitter=emitters.INPUT, task_id=request.task_id
        )

    async def GetTask(self, request: pb.GetTaskRequest, call: Call) -> pb.GetTaskResponse:
        """One task and its latest messages."""

        def look(reader: Connection) -> pb.GetTaskResponse:
            task = tasks.load(reader, request.task_id)
            return pb.GetTaskResponse(
                task=convert.task_message(reader, task, self._runner.runner_id),
                messages=[convert.stored_message(reader, each) for each in messages.of_task(reader, task.task_id)],
            )

        return self._runner.read(look)

    async def ListTasks(self, request: pb.ListTasksRequest, call: Call) -> pb.ListTasksResponse:
        """A page of tasks, newest first."""
        states = [task_pb2.TaskState.Name(state).removeprefix("TASK_STATE_") for state in request.states]

        def look(reader: Connection) -> pb.ListTasksResponse:
            found, more = tasks.page(
                reader,
                states=states,
                lane=request.lane,
                rows_max=page_size(request.page_size),
                before=parse_token(request.page_token),
            )
            shown = [convert.task_message(reader, task, self._runner.runner_id) for task in found]
            return pb.ListTasksResponse(tasks=shown, next_page_token=token_of(more))

        return self._runner.read(look)

    async def ListLanes(self, request: pb.ListLanesRequest, call: Call) -> pb.ListLanesResponse:
        """Every lane and what runs in it."""

        def look(reader: Connection) -> pb.ListLanesResponse:
            counts = tasks.lane_counts(reader)
            return pb.ListLanesResponse(
                lanes=[
                    pb.Lane(
                        lane=lane,
                        task_id=tasks.lane_holder(reader, lane) or "",
                        queued=counts.get(lane, {}).get("QUEUED", 0),
                        held=counts.get(lane, {}).get("HELD", 0),
                    )
                    for lane in self._runner.lanes
                ]
            )

        return self._runner.read(look)

    async def WatchTasks(self, request: pb.WatchTasksRequest, call: Call) -> AsyncIterator[pb.WatchTasksResponse]:
        """What is, then what changes."""
        with self._runner.hub.subscribe(Topic("task", request.task_id or ALL)) as news:
            changed = [request.task_id] if request.task_id else self._unfinished_ids()
            while True:
                for task_id in changed:
                    yield pb.WatchTasksResponse(task=self._look(task_id))
                changed = await news.take()

    def _unfinished_ids(self) -> list[str]:
        return [task.task_id for task in self._runner.read(tasks.unfinished)]

    def _look(self, task_id: str) -> task_pb2.Task:
        return self._runner.read(
            lambda reader: convert.task_message(reader, tasks.load(reader, task_id), self._runner.runner_id)
        )

    async def TailLog(self, request: pb.TailLogRequest, call: Call) -> AsyncIterator[pb.TailLogResponse]:
        """The output of an attempt."""
        async for piece in self._logs.tail(request.task_id, request.attempt, follow=request.follow):
            yield piece

    async def ListHolds(self, request: pb.ListHoldsRequest, call: Call) -> pb.ListHoldsResponse:
        """A page of holds, oldest first."""
        wanted = {number: state.value for state, number in convert.HOLD_STATES.items() if state is not HoldState.NONE}
        states = [wanted[state] for state in request.states if state in wanted] or [HoldState.OPEN.value]

        def look(reader: Connection) -> pb.ListHoldsResponse:
            found, more = holds.page(
                reader,
                states=states,
                task_id=request.task_id,
                rows_max=page_size(request.page_size),
                after=parse_token(request.page_token),
            )
            shown = [convert.hold_message(reader, hold, self._runner.runner_id) for hold in found]
            return pb.ListHoldsResponse(holds=shown, next_page_token=token_of(more))

        return self._runner.read(look)

    async def Acknowledge(self, request: pb.AcknowledgeRequest, call: Call) -> pb.AcknowledgeResponse:
        """Stamp a hold; it stays open."""
        by = actor_of(call, request.on_behalf_of, given=request.HasField("on_behalf_of"))
        expected = request.expected_by.ToMilliseconds() if request.HasField("expected_by") else None

        def work(session: Session) -> pb.AcknowledgeResponse:
            hold = inbox.acknowledge(
                session, escalation=request.escalation_id, by=by, expected_by_wall_ms=expected, note=request.note
            )
            return pb.AcknowledgeResponse(escalation=convert.hold_message(session.uow, hold, self._runner.runner_id))

        return await self._runner.command(request, call, pb.AcknowledgeResponse, work, emitter=emitters.ACK)

    async def Steer(self, request: pb.SteerRequest, call: Call) -> pb.SteerResponse:
        """A ruling releases the hold it names; an instruction releases nothing."""
        by = actor_of(call, request.on_behalf_of, given=request.HasField("on_behalf_of"))
        if request.WhichOneof("steer") is None:
            raise invalid(("steer", "a steer carries a ruling or an instruction"))
        is_ruling = request.HasField("ruling")
        if not is_ruling and not request.task_id:
            raise invalid(("task_id", "an instruction needs a task"))

        def work(session: Session) -> pb.SteerResponse:
            if is_ruling:
                ruling = convert.ruling(
                    request.ruling, ruling_id=request.request_id, by=by, wall_ms=session.now.wall_ms
                )
                stored, task = inbox.rule(session, ruling, named_task_id=request.task_id)
            else:
                stored, task = inbox.instruct(
                    session, request.task_id, message_id=request.request_id, text=request.instruction.text, by=by
                )
            return pb.SteerResponse(
                message=convert.stored_message(session.uow, stored), task=self._shown(session, task)
            )

        emitter = emitters.RULE if is_ruling else emitters.INSTRUCT
        return await self._runner.command(
            request, call, pb.SteerResponse, work, emitter=emitter, task_id=request.task_id
        )

    async def CancelTask(self, request: pb.CancelTaskRequest, call: Call) -> pb.CancelTaskResponse:
        """End a task."""
        by = actor_of(call, request.on_behalf_of, given=request.HasField("on_behalf_of"))
        return await self._task_command(
            request,
            call,
            pb.CancelTaskResponse,
            lambda session: task_work.cancel(session, request.task_id, cause=request.cause, by=by),
            emitters.CANCEL,
        )

    async def PauseTask(self, request: pb.PauseTaskRequest, call: Call) -> pb.PauseTaskResponse:
        """Add the operator's pause."""
        actor_of(call, request.on_behalf_of, given=request.HasField("on_behalf_of"))
        return await self._task_command(
            request,
            call,
            pb.PauseTaskResponse,
            lambda session: task_work.pause(session, request.task_id),
            emitters.PAUSE,
        )

    async def ResumeTask(self, request: pb.ResumeTaskRequest, call: Call) -> pb.ResumeTaskResponse:
        """Clear the operator's pause."""
        actor_of(call, request.on_behalf_of, given=request.HasField("on_behalf_of"))
        return await self._task_command(
            request,
            call,
            pb.ResumeTaskResponse,
            lambda session: task_work.resume(session, request.task_id),
            emitters.RESUME,
        )

    async def RecordGate(self, request: pb.RecordGateRequest, call: Call) -> pb.RecordGateResponse:
        """Store the decision of a review."""
        by = actor_of(call, request.on_behalf_of, given=request.HasField("on_behalf_of"))
        decision = GateDecision[task_pb2.GateDecision.Name(request.decision).removeprefix("GATE_DECISION_")]
        return await self._task_command(
            request,
            call,
            pb.RecordGateResponse,
            lambda session: task_work.record_gate(
                session, request.task_id, request.gate, decision, by=by, note=request.note
            ),
            emitters.GATE,
        )

    async def CheckCompletion(self, request: pb.CheckCompletionRequest, call: Call) -> pb.CheckCompletionResponse:
        """The one judge's word."""

        def look(reader: Connection) -> pb.CheckCompletionResponse:
            task = tasks.load(reader, request.task_id)
            return pb.CheckCompletionResponse(
                blockers=[convert.blocker_message(blocker) for blocker in attempts.blockers(reader, task)],
                state=f"TASK_STATE_{task.state.value}",
            )

        return self._runner.read(look)

    async def _task_command(
        self,
        request: ProtoMessage,
        call: Call,
        response_type: type[TaskResponse],
        work: Callable[[Session], Task],
        emitter: Emitter,
    ) -> TaskResponse:
        """A command whose response is the task as it is then."""
        task_id: str = request.task_id  # type: ignore[attr-defined]

        def unit(session: Session) -> TaskResponse:
            return response_type(task=self._shown(session, work(session)))

        return await self._runner.command(request, call, response_type, unit, emitter=emitter, task_id=task_id)

    def _shown(self, session: Session, task: Task) -> task_pb2.Task:
        return convert.task_message(session.uow, task, self._runner.runner_id)
