"""Carries out the commands that come with the answers to renewals, exactly as if the supervisor had called."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import Final

from lane_runner_svc.rpc.commands import CommandHandlers
from lanewarden import rules
from lanewarden.errors import Reason, Refusal, refuse
from lanewarden.server import Call, Identity, Role
from lanewarden.telemetry import OFF, TRACEPARENT, Telemetry, Value, span_names, valid_traceparent
from lanewarden.v1 import lane_runner_service_pb2 as runner_pb
from lanewarden.v1 import supervisor_service_pb2 as pb

log = logging.getLogger(__name__)

WAITING_MAX: Final = 64
ANSWERS_MAX: Final = 64
TEXT_BYTES_MAX: Final = 4096
FACTS_MAX: Final = 64
ORIGIN: Final = "supervisor.command.deliver"
"""The emitter at the supervisor, which a direct call names in its baggage."""
_LANE_RUNNER: Final = runner_pb.DESCRIPTOR.services_by_name["LaneRunnerService"]
_SUPERVISOR: Final = Identity(name=Role.SUPERVISOR.value, role=Role.SUPERVISOR)


class Carrier:
    """One command after the other, in the order in which they came, beside the renewals that bring them.

    A command that comes again, with a later renewal or by a call, has its effect once: its id is its request_id either way.
    """

    def __init__(self, handlers: CommandHandlers, *, telemetry: Telemetry = OFF) -> None:
        self._handlers = handlers
        self._telemetry = telemetry
        self._waiting: dict[str, pb.Command] = {}
        self._answers: dict[str, pb.CommandAnswer] = {}
        self._news = asyncio.Event()

    def take(self, commands: Iterable[pb.Command]) -> None:
        """Have commands carried out. Those that do not fit come again."""
        for command in commands:
            known = command.WhichOneof("command") is not None  # a newer supervisor's may not be
            if known and len(self._waiting) < WAITING_MAX and command.command_id not in self._answers:
                self._waiting.setdefault(command.command_id, command)
                self._news.set()

    def answers(self) -> list[pb.CommandAnswer]:
        """What commands came to, for the next renewal; kept until :meth:`told`."""
        return list(self._answers.values())

    def told(self, answers: Iterable[pb.CommandAnswer]) -> None:
        """The supervisor has these answers."""
        for answer in answers:
            self._answers.pop(answer.command_id, None)

    async def run(self) -> None:
        """Carry out what waits; never returns."""
        while True:
            await self._news.wait()
            self._news.clear()
            while self._waiting and len(self._answers) < ANSWERS_MAX:
                command = self._waiting[next(iter(self._waiting))]
                self._answers[command.command_id] = await self._carry_out(command)
                del self._waiting[command.command_id]

    async def _carry_out(self, command: pb.Command) -> pb.CommandAnswer:
        """In the trace of the operator's call, which the command has kept."""
        continues = valid_traceparent(command.traceparent)
        with self._telemetry.span(span_names.CARRIED, _about(command), continues=continues) as span:
            answer = await self._answer(command)
            if answer.HasField("refused"):
                span.set("reason", answer.refused.reason)
            return answer

    async def _answer(self, command: pb.Command) -> pb.CommandAnswer:
        """The answer, without what it shows of task and hold: that comes with the reports, and keeps renewals small."""
        answer = pb.CommandAnswer(command_id=command.command_id)
        steers = command.HasField("steer")
        request: runner_pb.SteerRequest | runner_pb.AcknowledgeRequest
        rpc, request = ("Steer", command.steer) if steers else ("Acknowledge", command.acknowledge)
        call = Call(
            method=f"{_LANE_RUNNER.full_name}/{rpc}",
            identity=_SUPERVISOR,
            origin=ORIGIN,
            traceparent=TRACEPARENT.get(),
            deadline_seconds=None,
        )
        try:
            rules.check(request)
            await getattr(self._handlers, rpc)(request, call)
        except Refusal as refusal:
            answer.refused.CopyFrom(_refusal(refusal))
        except Exception as error:
            log.error("unexpected error in a command", exc_info=error, extra={"command": command.command_id})
            answer.refused.CopyFrom(_refusal(refuse(Reason.UNEXPECTED, "internal error; see the log of the runner")))
        else:
            (answer.steered if steers else answer.acknowledged).SetInParent()
        return answer


def _about(command: pb.Command) -> dict[str, Value]:
    escalation_id = command.steer.ruling.escalation_id or command.acknowledge.escalation_id
    return {"escalation.id": escalation_id} if escalation_id else {"task.id": command.steer.task_id}


def _refusal(refusal: Refusal) -> pb.CommandRefusal:
    """The refusal within the contract's bounds: a renewal that is refused for its size would cost the lease."""
    facts = list(refusal.metadata.items())[:FACTS_MAX]
    return pb.CommandRefusal(
        reason=refusal.reason.name,
        message=_clipped(refusal.message),
        metadata={name: _clipped(value) for name, value in facts},
    )


def _clipped(text: str) -> str:
    return text.encode()[:TEXT_BYTES_MAX].decode(errors="ignore")
