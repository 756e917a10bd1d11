"""Requests that a runner answers: forwarded, never stored."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from typing import Any

from google.protobuf.message import Message

from lanewarden.client import Stub
from lanewarden.errors import Reason, Refusal, refuse
from lanewarden.records import replace
from lanewarden.server import Call
from lanewarden.store import Entity
from lanewarden.v1 import incident_pb2, task_pb2
from supervisor_svc import emitters
from supervisor_svc.store import runners
from supervisor_svc.supervisor import Supervisor
from supervisor_svc.work import commands, intake
from supervisor_svc.work.session import Deed, Session

_NO_ANSWER = frozenset({Reason.RUNNER_UNREACHABLE, Reason.DEADLINE_PASSED})


class Forwarder:
    """Reaches the runner that owns a task. A refusal of the runner passes through unchanged."""

    def __init__(self, supervisor: Supervisor, *, timeout_seconds: float) -> None:
        self._supervisor = supervisor
        self._timeout_seconds = timeout_seconds

    async def ask(self, runner_id: str, rpc: str, request: Message) -> Any:
        """The runner's answer.

        Raises:
            Refusal: RUNNER_UNREACHABLE when it gave none, or whatever it refused with.
        """
        call = getattr(self._stub(runner_id), rpc)
        try:
            answer = await call(request, timeout_seconds=self._timeout_seconds, emitter=emitters.FORWARD.name)
        except Refusal as refusal:
            self._supervisor.reach.note(runner_id, refusal)
            raise self._told(runner_id, refusal) from refusal
        self._supervisor.reach.note(runner_id)
        return answer

    async def stream(self, runner_id: str, rpc: str, request: Message) -> AsyncIterator[Any]:
        """The runner's answers, for as long as they come."""
        call = getattr(self._stub(runner_id), rpc)
        try:
            async with aclosing(call(request, emitter=emitters.FORWARD.name)) as responses:
                async for response in responses:
                    yield response
        except Refusal as refusal:
            raise self._told(runner_id, refusal) from refusal

    async def command(
        self,
        deed: Deed,
        rpc: str,
        request: Message,
        call: Call,
        *,
        runner_id: str = "",
        detail_of: Callable[[Any], str] = lambda answer: "",
    ) -> Any:
        """Have the owner of the deed's escalation or task (or ``runner_id``) carry out a command; record what came of it.

        The runner knows a repeat by the request's own id. ``detail_of`` reads from the answer what the audit adds to the
        action.
        """
        outcome, response = Reason.DEADLINE_PASSED.name, None
        try:
            if not runner_id:
                deed, runner_id = self._addressed(deed)
            response = await self.ask(runner_id, rpc, request)
        except Refusal as refusal:
            outcome = refusal.reason.name
            raise
        else:
            outcome = "OK"
            deed = replace(deed, action=f"{deed.action} {detail_of(response)}".rstrip())
            return response
        finally:  # also when the caller has given up: the runner may have carried it out
            await self._record(deed, outcome, response, call)

    def _addressed(self, deed: Deed) -> tuple[Deed, str]:
        """The deed with its task, and the runner that owns both.

        Raises:
            Refusal: ESCALATION_UNKNOWN, TASK_UNKNOWN.
        """
        if not deed.escalation_id:
            return deed, self.owner(deed.task_id)
        found = self._supervisor.read(lambda reader: commands.find_escalation(reader, deed.escalation_id))
        return replace(deed, task_id=found.task_id), found.runner_id

    async def _record(self, deed: Deed, outcome: str, answer: Any, call: Call) -> None:
        task: task_pb2.Task | None = getattr(answer, "task", None)
        incident: incident_pb2.Incident | None = getattr(answer, "incident", None)
        task_id = task.task_id if task is not None else deed.task_id

        def work(session: Session) -> None:
            session.record(deed, outcome, task_id=task_id)
            if task is not None:
                intake.learn_task(session, task)
            if incident is not None:
                intake.put_incident(session, task_id, incident)

        entity = Entity("task", task_id) if task_id else None
        await self._supervisor.do(work, emitter=emitters.FORWARD, entity=entity, call=call)

    def owner(self, task_id: str) -> str:
        """The runner that owns a task, or the refusal TASK_UNKNOWN."""
        return self._supervisor.read(lambda reader: commands.owner(reader, task_id))

    def _stub(self, runner_id: str) -> Stub:
        runner = self._supervisor.read(lambda reader: runners.find(reader, runner_id))
        assert runner is not None, "tasks are only ever taken from runners that have registered"
        return self._supervisor.connect_runner(runner.address)

    def _told(self, runner_id: str, refusal: Refusal) -> Refusal:
        if refusal.reason not in _NO_ANSWER:
            return refusal
        return refuse(
            Reason.RUNNER_UNREACHABLE,
            f"runner {runner_id} gave no answer, and the request is not stored here; send it again with the same"
            " request_id: if the runner did carry it out, it says so and does it no second time",
            runner=runner_id,
            lease_expired_at=self._supervisor.presence.expired_wall_ms(runner_id),
            stored="false",
        )
