"""Brings stored commands to their runners: in order, each until the runner has it or has finally refused it."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field
from typing import Final

from lanewarden.errors import Refusal
from lanewarden.store import Connection, Entity
from lanewarden.telemetry import span_names
from supervisor_svc import emitters
from supervisor_svc.core.delivery import Outcome, judge
from supervisor_svc.store import outbox, runners
from supervisor_svc.store.outbox import Command
from supervisor_svc.supervisor import Supervisor
from supervisor_svc.work import commands
from supervisor_svc.work.commands import RunnerResponse

log = logging.getLogger(__name__)

BATCH_MAX: Final = 100


@dataclass(slots=True)
class _Slot:
    """One runner's turn: one delivery at a time, and how often it came to nothing."""

    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    failures: int = 0


class Courier:
    """Delivers for handlers, at once, and for the delivery loop, again and again. A command delivered twice has one effect,
    because its id is the request_id at the runner.
    """

    def __init__(self, supervisor: Supervisor, *, timeout_seconds: float) -> None:
        self._supervisor = supervisor
        self._timeout_seconds = timeout_seconds
        self._slots: dict[str, _Slot] = {}

    async def drain(self, runner_id: str) -> bool:
        """Deliver what a runner has not had yet, oldest first; False when something has to wait.

        Whoever waited for another's try that came to nothing does not try again at once: a hundred operators cost a runner
        that is away one timeout, not a hundred.
        """
        slot = self._slots.setdefault(runner_id, _Slot())
        failures = slot.failures
        async with slot.turn:
            if slot.failures != failures:
                return False
            done = await self._drain(runner_id)
            slot.failures += not done
            return done

    async def _drain(self, runner_id: str) -> bool:
        waiting_tasks: set[str] = set()
        after = 0
        while True:
            address, batch = self._look(runner_id, after)
            if not batch:
                return not waiting_tasks
            for command in batch:
                after = command.position
                if command.task_id in waiting_tasks:
                    continue
                outcome = await self._deliver(command, address)
                if outcome is Outcome.AWAY:
                    return False
                if outcome is Outcome.BUSY:
                    waiting_tasks.add(command.task_id)

    def _look(self, runner_id: str, after: int) -> tuple[str, list[Command]]:
        """Where the runner is, and what it has not had yet."""

        def look(reader: Connection) -> tuple[str, list[Command]]:
            batch = outbox.waiting(reader, runner_id, after=after, rows_max=BATCH_MAX)
            return runners.address(reader, runner_id) if batch else "", batch

        return self._supervisor.read(look)

    async def _deliver(self, command: Command, address: str) -> Outcome:
        """In the trace of the call that stored the command, whoever brings it now."""
        answer: RunnerResponse | Refusal
        about = commands.span_of(command)
        with self._supervisor.telemetry.span(span_names.DELIVER, about, continues=command.traceparent) as span:
            try:
                answer = await self._call(command, address)
            except Refusal as refusal:
                answer = refusal
                span.set("reason", refusal.reason.name)
            self._supervisor.reach.note(command.runner_id, answer if isinstance(answer, Refusal) else None)
            outcome = await self.record(command, answer)
            span.set("outcome", outcome.name)
            return outcome

    async def record(self, command: Command, answer: RunnerResponse | Refusal) -> Outcome:
        """Store what a runner made of a command, whichever way it had it; what is not final leaves it stored."""
        refusal = answer if isinstance(answer, Refusal) else None
        outcome = Outcome.DELIVERED if refusal is None else judge(refusal, command.command_id)
        facts = {"command": command.command_id, "runner": command.runner_id, "outcome": outcome.name}
        if refusal is not None:
            facts["reason"] = refusal.reason.name
        log.info("command tried", extra=facts)
        if outcome in (Outcome.DELIVERED, Outcome.REFUSED):
            had_before = outcome is Outcome.DELIVERED and refusal is not None
            return await self._settle(command, None if had_before else answer, outcome)
        return outcome

    async def _call(self, command: Command, address: str) -> RunnerResponse:
        stub = self._supervisor.connect_runner(address)
        rpc = stub.Acknowledge if command.kind == outbox.ACKNOWLEDGE else stub.Steer
        answer: RunnerResponse = await rpc(
            commands.request_of(command),
            timeout_seconds=self._timeout_seconds,
            emitter=emitters.DELIVER.name,
        )
        return answer

    async def _settle(self, command: Command, answer: RunnerResponse | Refusal | None, outcome: Outcome) -> Outcome:
        try:
            await self._supervisor.do(
                lambda session: commands.settle(session, command, answer),
                emitter=emitters.DELIVER,
                entity=Entity("task", command.task_id),
            )
        except Refusal as refusal:
            # The runner has had it, but that cannot be stored now: it gets it once more, without effect.
            log.error("cannot store what became of a command", extra={"reason": refusal.reason.name})
            return Outcome.AWAY
        return outcome
