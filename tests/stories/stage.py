"""Where a story is played: short words for what people and workers do, and for what can then be seen.

A story is an async generator over a :class:`Stage`: what people and workers do, what must then be true, and a ``yield``
after each step. It is played on the simulator (:mod:`tests.sim.stories`) and on real processes
(:mod:`tests.integration.real_stage`), with a service dying in between; so it says what comes true in the end
(:meth:`Stage.until`) and what is never allowed to be otherwise (plain assertions).
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, TypeVar

import pytest
from google.protobuf.message import Message

from lane_runner_svc.core.states import State
from lane_runner_svc.core.task import Task
from lane_runner_svc.process import AttemptKey
from lanewarden.auth import Identity, Role
from lanewarden.client import Stub
from lanewarden.errors import Reason, Refusal
from lanewarden.v1 import escalation_pb2, lane_runner_service_pb2, operator_service_pb2, task_pb2
from tests.stories.programs import Program, Worker
from tests.stories.sight import Sight

AGAIN = frozenset({Reason.RUNNER_UNREACHABLE, Reason.SUPERVISOR_UNREACHABLE, Reason.DEADLINE_PASSED})
PATIENCE_SECONDS = 120.0
ANSWER_SECONDS = 3.0
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class News:
    """One thing that people were told."""

    key: str
    kind: str
    escalation_id: str
    addressee: str


class Stage(Sight, ABC):
    """Both services and the worker processes. ``directory`` may hold what a story needs besides.

    ``calm`` says that nobody dies and time is exact, so that what has to happen at once can be timed.
    """

    wall_ahead_ms: int
    """How far the runner's wall clock is ahead of its steady one; nobody sets it."""
    clocks_apart_ms_max: int
    """How much time may pass between the reading of one clock and of the other."""
    rest_seconds: float
    """How long a worker waits before it asks again for something that was refused."""
    argv: tuple[str, ...]
    """What every worker and every on_success command is."""

    def __init__(self, directory: Path, *, calm: bool, seed: int) -> None:
        super().__init__()
        self.directory = directory
        self.calm = calm
        self.seed = seed
        self.steps: list[str] = []
        """The names of the steps that were played."""
        self.events: list[str] = []
        self.broken: BaseException | None = None
        self._programs: dict[str, Program] = {}
        self._hook_program: Callable[[], Awaitable[int]] = _succeed
        self._ids = self.stream("ids")

    def stream(self, name: str) -> Random:
        """Randomness of its own for each part."""
        return Random(f"{self.seed}/{name}")

    def fresh_id(self) -> str:
        """A request id."""
        digits = f"{self._ids.getrandbits(128):032x}"
        return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))

    @abstractmethod
    def log(self, text: str) -> None:
        """Add to ``events``, with the time."""

    # What people do

    @abstractmethod
    def stub(self, *, runner: bool, caller: Identity) -> Stub:
        """The supervisor's OperatorService, or the runner's own service, as somebody calls it."""

    async def submit(self, name: str, program: Program, *, by: str = "ann", followed: bool = False, **spec: Any) -> str:
        """Submit a task whose workers run ``program``, ``followed`` by an on_success command; its id."""
        self._programs[name] = program
        on_success = self.argv if followed else ()
        spec = {"name": name, "argv": self.argv, "on_success": on_success, "cwd": str(self.directory), **spec}
        response = await self.ask("SubmitTask", by=by, spec=task_pb2.TaskSpec(**spec))
        return str(response.task.task_id)

    async def ask(
        self, rpc: str, *, by: str = "ann", role: Role = Role.OPERATOR, runner: bool = False, **fields: Any
    ) -> Any:
        """Call the supervisor (or the runner itself) as a good client does: the same request until there is an answer."""
        request = _request(rpc, runner)(**fields)
        if "request_id" in request.DESCRIPTOR.fields_by_name and not request.request_id:
            request.request_id = self.fresh_id()
        stub = self.stub(runner=runner, caller=Identity(name=by, role=role))
        return await self.insist(lambda: getattr(stub, rpc)(request, timeout_seconds=ANSWER_SECONDS))

    async def refused(self, reason: Reason, rpc: str, **asked: Any) -> Refusal:
        """The refusal of a call, which must be for that reason, final, and change nothing of what is stored of tasks."""
        before = self.dump()
        with pytest.raises(Refusal) as caught:
            await self.ask(rpc, **asked)
        assert caught.value.reason is reason, f"{rpc} was refused as {caught.value}, not as {reason.name}"
        assert self.dump() == before, f"{rpc} was refused and has changed something"
        return caught.value

    def ruling(self, escalation_id: str, decision: str = "APPROVE", **more: Any) -> escalation_pb2.Ruling:
        """A valid ruling."""
        said = {"instructions": "go on", **more}
        return escalation_pb2.Ruling(escalation_id=escalation_id, decision=f"DECISION_{decision}", **said)

    async def rule(self, escalation_id: str, decision: str = "APPROVE", *, by: str = "ann", **more: Any) -> Any:
        """Rule through the supervisor."""
        return await self.ask("Steer", by=by, ruling=self.ruling(escalation_id, decision, **more))

    async def insist(self, send: Callable[[], Awaitable[T]]) -> T:
        """Send until there is an answer that is not about somebody being away."""
        while True:
            try:
                return await send()
            except Refusal as refusal:
                if refusal.reason not in AGAIN:
                    raise
            await self.pause()
            self.raise_if_broken()

    # What happens to processes

    @abstractmethod
    async def crash(self, service: str) -> None:
        """The service loses everything but its file, and comes back a little later."""

    @abstractmethod
    def kill_worker(self, task_id: str) -> None:
        """SIGKILL to the task's worker."""

    @abstractmethod
    def let_launches_fail(self, fail: bool) -> None:
        """From here on no worker can be started, or every one can again."""

    def on_success(self, program: Callable[[], Awaitable[int]]) -> None:
        """What every on_success command does from here on; by default it exits with code 0."""
        self._hook_program = program

    async def run_worker(self, worker: Worker) -> int:
        """Run the program of a worker's task. What it finds wrong breaks the story."""
        try:
            return await self._programs[self.task(worker.task_id).name](worker)
        except AssertionError as error:
            self.found_wrong(error)
            return 1

    async def run_hook(self) -> int:
        """Run what an on_success command does. What it finds wrong breaks the story."""
        try:
            return await self._hook_program()
        except AssertionError as error:
            self.found_wrong(error)
            return 1

    # What there is to see besides

    @abstractmethod
    def launches(self, task_id: str | None = None) -> list[AttemptKey]:
        """Every worker process that was ever started, for one task or for all."""

    @abstractmethod
    def hooks(self, task_id: str) -> list[str]:
        """The idempotency key of every on_success command that was ever started for the task."""

    async def inbox(self, escalation_id: str) -> escalation_pb2.Escalation:
        """The escalation as the supervisor shows it."""
        found: escalation_pb2.Escalation = (await self.ask("GetEscalation", escalation_id=escalation_id)).escalation
        return found

    async def explain(self, task_id: str) -> operator_service_pb2.ExplainTaskResponse:
        """What the supervisor makes of the task."""
        explained: operator_service_pb2.ExplainTaskResponse = await self.ask("ExplainTask", task_id=task_id)
        return explained

    async def verdict(self, task_id: str) -> str:
        """The supervisor's verdict on the task."""
        return task_pb2.Verdict.Name((await self.explain(task_id)).verdict).removeprefix("VERDICT_")

    async def news(self, escalation_id: str, *kinds: str) -> list[News]:
        """What people were told about an escalation, of some kinds or of all, in the order in which it came. What comes
        again under the same key is not news.
        """
        await self.until(self.all_told, "people are told what there is to tell")
        told: dict[str, News] = {}
        for each in self.told():
            if each.escalation_id == escalation_id and (not kinds or each.kind in kinds):
                told.setdefault(each.key, each)
        return list(told.values())

    @abstractmethod
    def told(self) -> list[News]:
        """Everything that people were told, as it came."""

    # What time does

    @abstractmethod
    def runner_ms(self) -> int:
        """The runner's steady time."""

    @abstractmethod
    async def sleep(self, seconds: float) -> None:
        """Let time pass."""

    @abstractmethod
    async def pause(self) -> None:
        """Let a moment pass before the next try of something."""

    @abstractmethod
    async def until(self, true: Callable[[], T], what: str, seconds: float = PATIENCE_SECONDS) -> T:
        """Wait until something is so; within its bounds everything that must happen, happens."""

    @abstractmethod
    async def at_commit(self, true: Callable[[], T]) -> T:
        """Wait for the very commit that makes something so."""

    async def state(self, task_id: str, state: State) -> Task:
        """Wait until the task is in that state with no worker alive, and both services know."""
        await self.until(lambda: self.task(task_id).state is state, f"the task is {state.name}")
        await self.until(lambda: not self.task(task_id).worker_alive, "its worker is gone")
        await self.agreed()
        return self.task(task_id)

    async def open_holds(self, task_id: str, number: int = 1) -> list[str]:
        """Wait until that many holds of the task are open, and both services know; their ids, oldest first."""

        def found() -> list[str]:
            ids = [hold.escalation_id for hold in self.holds(task_id) if hold.open]
            return ids if len(ids) == number else []

        ids = await self.until(found, f"{number} holds are open")
        await self.agreed()
        return ids

    async def agreed(self) -> None:
        """Wait until the supervisor has heard everything that the runner has to tell (P13)."""
        await self.until(self.agree, "the supervisor knows what the runner knows")

    # The run

    async def play_steps(self, story: Story, after: Callable[[int], Awaitable[None]]) -> None:
        """Play the story; ``after`` is awaited after each step, counted from 0."""
        async with aclosing(story(self)) as steps:  # type: ignore[type-var]
            async for step in steps:
                number = len(self.steps)
                self.steps.append(step)
                self.log(f"step {number}: {step}")
                self.raise_if_broken()
                await after(number)
        self.raise_if_broken()

    def found_wrong(self, error: AssertionError) -> None:
        """Something that breaks the story, found beside it."""
        self.broken = self.broken or error

    def raise_if_broken(self) -> None:
        """Whatever was found meanwhile."""
        if self.broken is not None:
            raise self.broken


Story = Callable[[Stage], AsyncIterator[str]]


async def _succeed() -> int:
    await asyncio.sleep(0.1)
    return 0


def _request(rpc: str, runner: bool) -> type[Message]:
    module: Any = lane_runner_service_pb2 if runner else operator_service_pb2
    for prefix in ("LaneRunnerService" if runner else "OperatorService", ""):
        if found := getattr(module, f"{prefix}{rpc}Request", None):
            return found  # type: ignore[no-any-return]
    raise AttributeError(rpc)
