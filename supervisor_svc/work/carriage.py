"""Stored commands that travel with renewals, while calls to their runner come to nothing.

A renewal waits for nothing: what a runner answers is taken note of here, and stored by a loop of its own. A command that is
not stored as settled by then goes out again, and its id gives it one effect at the runner.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from functools import partial
from typing import Final

from lanewarden.errors import Reason, Refusal
from lanewarden.telemetry import span_names
from lanewarden.v1 import lane_runner_service_pb2 as runner_pb
from lanewarden.v1 import supervisor_service_pb2 as pb
from supervisor_svc.core.delivery import Outcome, judge
from supervisor_svc.store import outbox
from supervisor_svc.supervisor import Supervisor
from supervisor_svc.work import commands
from supervisor_svc.work.commands import RunnerResponse
from supervisor_svc.work.courier import Courier

log = logging.getLogger(__name__)

COMMANDS_MAX: Final = 16
COMMANDS_BYTES_MAX: Final = 1 << 20
ANSWERS_MAX: Final = 4096
"""Answers that wait to be stored, of all runners; more are left out and come again."""


class Carriage:
    """Gives renewals their commands and takes the answers; used on the event loop's thread only."""

    def __init__(self, supervisor: Supervisor, courier: Courier) -> None:
        self._supervisor = supervisor
        self._courier = courier
        self._answers: dict[tuple[str, str], RunnerResponse | Refusal] = {}
        self._news = asyncio.Event()

    def commands(self, runner_id: str) -> list[pb.Command]:
        """What goes out with a renewal now: the oldest command of each task that waits, so that a task's stay in order.

        Nothing, without a look at the store, while the runner can be called.
        """
        if not self._supervisor.reach.failing(runner_id):
            return []
        found: list[pb.Command] = []
        size = 0
        done = [key[1] for key, answer in self._answers.items() if key[0] == runner_id and _final(key[1], answer)]
        look = partial(outbox.oldest_of_tasks, runner_id=runner_id, without=done, rows_max=COMMANDS_MAX)
        for stored in self._supervisor.read(look):
            command = pb.Command(command_id=stored.command_id, traceparent=stored.traceparent)
            request = commands.request_of(stored)
            if isinstance(request, runner_pb.SteerRequest):
                command.steer.CopyFrom(request)
            else:
                command.acknowledge.CopyFrom(request)
            size += command.ByteSize()
            if found and size > COMMANDS_BYTES_MAX:
                break
            found.append(command)
        return found

    def answered(self, runner_id: str, answers: Iterable[pb.CommandAnswer]) -> None:
        """Take note of what a runner made of its commands."""
        for each in answers:
            if (answer := _answer(each)) is not None and len(self._answers) < ANSWERS_MAX:
                self._answers[runner_id, each.command_id] = answer
                self._news.set()

    async def settle(self) -> None:
        """Store the answers, oldest first; never returns."""
        while True:
            await self._news.wait()
            self._news.clear()
            while self._answers:
                (runner_id, command_id), answer = next(iter(self._answers.items()))
                try:
                    await self._settle(runner_id, command_id, answer)
                finally:
                    del self._answers[runner_id, command_id]

    async def _settle(self, runner_id: str, command_id: str, answer: RunnerResponse | Refusal) -> None:
        try:
            stored = self._supervisor.read(lambda reader: outbox.find(reader, command_id))
        except Refusal as refusal:  # of our own store; the command comes again
            log.error("cannot look at the outbox", extra={"reason": refusal.reason.name})
            return
        if stored is None or stored.runner_id != runner_id:
            log.warning("a runner answered a command that it never had", extra={"runner": runner_id})
        elif stored.state == outbox.STORED:
            telemetry, about = self._supervisor.telemetry, commands.span_of(stored)
            with telemetry.span(span_names.ANSWERED, about, continues=stored.traceparent):
                await self._courier.record(stored, answer)


def _final(command_id: str, answer: RunnerResponse | Refusal) -> bool:
    """Whether the command is through, so that the next one of its task may follow."""
    return not isinstance(answer, Refusal) or judge(answer, command_id) in (Outcome.DELIVERED, Outcome.REFUSED)


def _answer(each: pb.CommandAnswer) -> RunnerResponse | Refusal | None:
    match each.WhichOneof("answer"):
        case "steered":
            return each.steered
        case "acknowledged":
            return each.acknowledged
        case "refused":
            reason = Reason.__members__.get(each.refused.reason, Reason.UNEXPECTED)
            return Refusal(reason, each.refused.message, dict(each.refused.metadata))
    return None
