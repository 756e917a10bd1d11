"""LaneRunnerService: what a lane runner tells about its lanes, tasks and holds."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Final

from lane_runner_svc.core.holds import HoldState
from lane_runner_svc.core.timers import Approver
from lane_runner_svc.rpc import contexts, convert
from lane_runner_svc.rpc.actions import ActionHandlers
from lane_runner_svc.rpc.logs import LogReader
from lane_runner_svc.rpc.supervision import SupervisionReader
from lane_runner_svc.runner import Runner
from lane_runner_svc.store import audit, evidence, holds, messages, tasks
from lane_runner_svc.store import contexts as store_contexts
from lane_runner_svc.work import attempts
from lanewarden.hub import ALL, Topic
from lanewarden.paging import fitting, page_size, parse_token
from lanewarden.server import Call
from lanewarden.store import Connection, Row
from lanewarden.v1 import lane_runner_service_pb2 as pb
from lanewarden.v1 import task_pb2

MESSAGES_SHOWN_MAX: Final = 100


class LaneRunnerHandlers(ActionHandlers):
    """The authority on lanes, tasks and holds: what it tells; what it does is in :mod:`.commands`
    and :mod:`.actions`."""

    def __init__(
        self,
        runner: Runner,
        *,
        environment: Mapping[str, str],
        approvers: Mapping[str, tuple[Approver, ...]],
        logs: LogReader,
        supervision: SupervisionReader,
    ) -> None:
        super().__init__(runner, environment=environment, approvers=approvers)
        self._logs = logs
        self._supervision = supervision

    async def GetTask(self, request: pb.GetTaskRequest, call: Call) -> pb.GetTaskResponse:
        """One task and its latest messages."""

        def look(reader: Connection) -> pb.GetTaskResponse:
            task = tasks.load(reader, request.task_id)
            latest = (
                (each.sequence, convert.stored_message(reader, each)) for each in messages.of_task(reader, task.task_id)
            )
            shown, _ = fitting(latest, MESSAGES_SHOWN_MAX)
            return pb.GetTaskResponse(task=convert.task_message(reader, task, self._runner.runner_id), messages=shown)

        return self._runner.read(look)

    async def ListTasks(self, request: pb.ListTasksRequest, call: Call) -> pb.ListTasksResponse:
        """A page of tasks, newest first."""
        states = [task_pb2.TaskState.Name(state).removeprefix("TASK_STATE_") for state in request.states]

        def look(reader: Connection) -> pb.ListTasksResponse:
            found = tasks.page(reader, states=states, lane=request.lane, before=parse_token(request.page_token))
            shown, token = fitting(
                ((position, convert.task_message(reader, task, self._runner.runner_id)) for position, task in found),
                page_size(request.page_size),
            )
            return pb.ListTasksResponse(tasks=shown, next_page_token=token)

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
            found = holds.page(reader, states=states, task_id=request.task_id, after=parse_token(request.page_token))
            shown, token = fitting(
                ((position, convert.hold_message(reader, hold, self._runner.runner_id)) for position, hold in found),
                page_size(request.page_size),
            )
            return pb.ListHoldsResponse(holds=shown, next_page_token=token)

        return self._runner.read(look)

    async def ListEvidence(self, request: pb.ListEvidenceRequest, call: Call) -> pb.ListEvidenceResponse:
        """A page of what attempts said after they were over, oldest first."""
        rows_max = page_size(request.page_size)
        after = parse_token(request.page_token)

        def look(reader: Connection) -> list[Row]:
            task = tasks.load(reader, request.task_id)
            return evidence.page(reader, task_id=task.task_id, rows_max=rows_max + 1, after=after)

        rows = self._runner.read(look)
        entries, token = fitting(((row["sequence"], convert.evidence_message(row)) for row in rows), rows_max)
        return pb.ListEvidenceResponse(entries=entries, next_page_token=token)

    async def ListCheckpoints(self, request: pb.ListCheckpointsRequest, call: Call) -> pb.ListCheckpointsResponse:
        """A page of a task's checkpoints, oldest first."""

        def look(reader: Connection) -> pb.ListCheckpointsResponse:
            task = tasks.load(reader, request.task_id)
            found = store_contexts.page(reader, task.task_id, after=parse_token(request.page_token))
            shown, token = fitting(
                ((position, contexts.checkpoint_message(each)) for position, each in found),
                page_size(request.page_size),
            )
            return pb.ListCheckpointsResponse(checkpoints=shown, next_page_token=token)

        return self._runner.read(look)

    async def GetCheckpoint(self, request: pb.GetCheckpointRequest, call: Call) -> pb.GetCheckpointResponse:
        """One checkpoint and what was written."""
        found = self._runner.read(lambda reader: store_contexts.load_checkpoint(reader, request.checkpoint_id))
        return pb.GetCheckpointResponse(checkpoint=contexts.checkpoint_message(found, content=True))

    async def CheckCompletion(self, request: pb.CheckCompletionRequest, call: Call) -> pb.CheckCompletionResponse:
        """The one judge's word."""

        def look(reader: Connection) -> pb.CheckCompletionResponse:
            task = tasks.load(reader, request.task_id)
            return pb.CheckCompletionResponse(
                blockers=[convert.blocker_message(blocker) for blocker in attempts.blockers(reader, task)],
                state=f"TASK_STATE_{task.state.value}",
            )

        return self._runner.read(look)

    async def GetSupervision(self, request: pb.GetSupervisionRequest, call: Call) -> pb.GetSupervisionResponse:
        """This runner and who supervises it."""
        return self._supervision.look()

    async def ListAudit(
        self, request: pb.LaneRunnerServiceListAuditRequest, call: Call
    ) -> pb.LaneRunnerServiceListAuditResponse:
        """A page of the audit, oldest first."""
        rows_max = page_size(request.page_size)
        after = parse_token(request.page_token)
        rows = self._runner.read(
            lambda reader: audit.page(reader, task_id=request.task_id, rows_max=rows_max + 1, after=after)
        )
        entries, token = fitting(((row["sequence"], convert.audit_message(row)) for row in rows), rows_max)
        return pb.LaneRunnerServiceListAuditResponse(entries=entries, next_page_token=token)
