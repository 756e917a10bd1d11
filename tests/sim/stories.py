"""Scenarios written as steps, played on the simulator, and played again with a service dying after each step and at each
commit.

A story is an async generator over a :class:`Stage`: what people and workers do, what must then be true, and a ``yield``
after each step. :func:`play` runs it once. :func:`deaths` are all the ways in which one service can lose everything but
its file in between: after each step, and just before and just after each commit. The story must hold in every one of them,
so it says what comes true in the end (:meth:`Stage.until`) and what is never allowed to be otherwise (plain assertions).
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, TypeVar

import pytest
from google.protobuf.message import Message
from sqlite_utils import Migrations

from lane_runner_svc.bootstrap import LANE_RUNNER
from lane_runner_svc.core.holds import Hold
from lane_runner_svc.core.states import State
from lane_runner_svc.core.task import Task
from lane_runner_svc.loop.hooks import SUFFIX, is_hook
from lane_runner_svc.process import AttemptKey, LaunchSpec
from lane_runner_svc.store import holds, tasks
from lane_runner_svc.store.schema import MIGRATIONS as RUNNER_MIGRATIONS
from lanewarden.errors import Reason, Refusal
from lanewarden.ledger import WriteLedger
from lanewarden.server import Identity, Role
from lanewarden.store import SimulatedCrash, Store
from lanewarden.store.readers import Readers
from lanewarden.v1 import escalation_pb2, lane_runner_service_pb2, operator_service_pb2, task_pb2
from supervisor_svc.bootstrap import build as build_supervisor
from supervisor_svc.config import SupervisorConfig
from supervisor_svc.store.notifications import Notification
from supervisor_svc.store.schema import MIGRATIONS as SUPERVISOR_MIGRATIONS
from tests.runner_invariants import Watch
from tests.sim.network import Network, Server
from tests.sim.nodes import SUPERVISOR_IDENTITY, Node, RunnerNode, SupervisorNode
from tests.sim.processes import Kernel
from tests.sim.virtual import VirtualClock, VirtualLoop
from tests.sim.workers import Worker

OPERATOR = operator_service_pb2.DESCRIPTOR.services_by_name["OperatorService"]
SERVICES = ("runner", "supervisor")
AGAIN = frozenset({Reason.RUNNER_UNREACHABLE, Reason.SUPERVISOR_UNREACHABLE, Reason.DEADLINE_PASSED})
PATIENCE_SECONDS = 120.0
LOOK_SECONDS = 0.5
EVERY_POINT = 9
"""In the default suite a ninth of the commit points: just before some commits and just after others."""
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Death:
    """When a service dies: after a step, counted from 0, or at a commit point of its own, counted from 0."""

    service: str
    step: int | None = None
    point: int | None = None

    def __str__(self) -> str:
        when = f"after step {self.step}" if self.step is not None else f"at its commit point {self.point}"
        return f"{self.service} dies {when}"


@dataclass(slots=True)
class Played:
    """What a run came to: the names of its steps, and the commit points of each service with their emitters."""

    steps: list[str] = field(default_factory=list)
    points: dict[str, list[str]] = field(default_factory=lambda: {service: [] for service in SERVICES})
    died: bool = False


class _Mortal(Node):
    """A node that counts its commit points and dies at one of them."""

    played: Played
    dies_at: int | None = None

    def failpoint(self, point: str, emitter_names: tuple[str, ...]) -> None:
        number = len(self.played.points[self.name])
        self.played.points[self.name].append(f"{point} {','.join(emitter_names)}")
        if point == "after_commit":
            self._on_commit()
        if number == self.dies_at:
            self.played.died = True
            self.network.log(f"{self.name} dies {point} of {','.join(emitter_names)}")
            asyncio.get_running_loop().call_soon(self.crash)
            raise SimulatedCrash


class _Runner(_Mortal, RunnerNode):
    pass


class _Supervisor(_Mortal, SupervisorNode):
    # Leases as long as they may be: in hours of silence a heartbeat every three seconds is nothing but work.
    config = SupervisorConfig(supervisor_id="supervisor", lease_ttl_seconds=300, lease_renew_seconds=100)

    def __init__(self, path: Path, told: Told, **common: Any) -> None:
        super().__init__(path, **common)
        self.told = told

    async def assemble(self, store: Store, ledger: WriteLedger, server: Server) -> None:
        parts = await build_supervisor(
            self.config,
            store=store,
            ledger=ledger,
            clock=self.clock,
            random=self.random,
            incarnation=self.fresh_uuid(),
            connect_runner=lambda address: self.network.stub(
                LANE_RUNNER, source="supervisor", target=address.partition(":")[0], identity=SUPERVISOR_IDENTITY
            ),
            sinks=[self.told],
        )
        server.services |= {service.full_name: handlers for service, handlers in parts.handlers.items()}
        for loop in parts.loops:
            self.run(loop())


class Told:
    """The people who are told, as a sink. What comes again under the same key is not news."""

    name = "people"

    def __init__(self) -> None:
        self.news: dict[str, Notification] = {}

    async def send(self, notification: Notification) -> None:
        self.news.setdefault(notification.key, notification)

    def of(self, escalation_id: str, kind: str) -> list[Notification]:
        """The news of one kind about an escalation, in the order in which it came."""
        return [each for each in self.news.values() if (each.escalation_id, each.kind) == (escalation_id, kind)]


class Stage:
    """Both services, their network, the worker processes, and short words for what happens on it.

    ``directory`` may hold what a story needs besides the databases. What is read here is read in the services' files, so
    that it can be seen while they are down.
    """

    def __init__(self, directory: Path, loop: VirtualLoop, death: Death | None, seed: int = 0) -> None:
        self.directory = directory
        self.loop = loop
        self.death = death
        self.seed = seed
        self.played = Played()
        self.told = Told()
        self.events: list[str] = []
        self.broken: BaseException | None = None
        self.states: dict[str, set[State]] = defaultdict(set)
        """Every state in which a task was committed."""
        self.network = Network(self.stream("network"), self._log)
        self.kernel = Kernel(self.stream("kernel"), self._run_program, self._log)
        self._programs: dict[str, Callable[[Worker], Awaitable[int]]] = {}
        self._hook_program: Callable[[LaunchSpec], Awaitable[int]] = _succeed
        self._watch = Watch()
        self._ids = self.stream("ids")
        self._jobs: list[asyncio.Task[Any]] = []
        self._committed = asyncio.Event()
        runner_file, supervisor_file = directory / "runner.sqlite3", directory / "supervisor.sqlite3"
        self._readers = _readers(runner_file, RUNNER_MIGRATIONS)
        self._supervisor_readers = _readers(supervisor_file, SUPERVISOR_MIGRATIONS)
        common: dict[str, Any] = {"network": self.network, "on_commit": self._look}
        self.runner = _Runner(
            runner_file, self.kernel, ("lane-1",), clock=VirtualClock(loop), random=self.stream("runner"), **common
        )
        self.supervisor = _Supervisor(
            supervisor_file,
            self.told,
            clock=VirtualClock(loop, skew_ms=3_600_000),
            random=self.stream("supervisor"),
            **common,
        )
        self.nodes: dict[str, _Mortal] = {"runner": self.runner, "supervisor": self.supervisor}
        for node in self.nodes.values():
            node.played, node.restart_seconds = self.played, (0.05, 1.0)
        if death is not None and death.point is not None:
            self.nodes[death.service].dies_at = death.point

    def stream(self, name: str) -> Random:
        """Randomness of its own for each part."""
        return Random(f"{self.seed}/{name}")

    def fresh_id(self) -> str:
        """A request id."""
        digits = f"{self._ids.getrandbits(128):032x}"
        return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))

    def _log(self, text: str) -> None:
        self.events.append(f"{self.loop.time():.3f} {text}")

    # What people do

    async def submit(
        self, name: str, program: Callable[[Worker], Awaitable[int]], *, by: str = "ann", **spec: Any
    ) -> str:
        """Submit a task whose workers run ``program``; its id."""
        self._programs[name] = program
        spec = {"name": name, "argv": ["true"], "cwd": str(self.directory), **spec}
        response = await self.ask("SubmitTask", by=by, spec=task_pb2.TaskSpec(**spec))
        return str(response.task.task_id)

    async def ask(
        self, rpc: str, *, by: str = "ann", role: Role = Role.OPERATOR, runner: bool = False, **fields: Any
    ) -> Any:
        """Call the supervisor (or the runner itself) as a good client does: the same request until there is an answer."""
        request = _request(rpc, runner)(**fields)
        if "request_id" in request.DESCRIPTOR.fields_by_name and not request.request_id:
            request.request_id = self.fresh_id()
        service, target = (LANE_RUNNER, "runner") if runner else (OPERATOR, "supervisor")
        stub = self.network.stub(service, source=by, target=target, identity=Identity(name=by, role=role))
        return await self.insist(lambda: getattr(stub, rpc)(request, timeout_seconds=3.0))

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
            await self.sleep(0.1)

    def beside(self, job: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Do something while the story goes on."""
        task = asyncio.ensure_future(job)
        self._jobs.append(task)
        return task

    def crash(self, service: str) -> None:
        """The service loses everything but its file, and comes back a little later."""
        self.nodes[service].crash()

    def kill_worker(self, task_id: str) -> None:
        """SIGKILL to the task's worker."""
        for process in self.kernel.alive(task_id):
            self.kernel.kill(process)

    # What there is to see

    def task(self, task_id: str) -> Task:
        """The task in the runner's file."""
        return self._readers.read(lambda reader: tasks.load(reader, task_id))

    def hold(self, escalation_id: str) -> Hold:
        """The escalation in the runner's file."""
        return self._readers.read(lambda reader: holds.load(reader, escalation_id))

    def holds(self, task_id: str) -> list[Hold]:
        """The task's escalations, oldest first."""
        return self._readers.read(lambda reader: holds.of_task(reader, task_id))

    def audit(self, task_id: str) -> list[str]:
        """The runner's audit of a task: who, what, and what came of it."""
        rows = self._readers.read(
            lambda reader: reader.query("SELECT * FROM audit WHERE task_id = ? ORDER BY sequence", (task_id,))
        )
        return [f"{row['identity']} {row['action']}: {row['outcome']}" for row in rows]

    def dump(self) -> list[dict[str, Any]]:
        """Every row about tasks, holds, messages and gates. Without the version, which a restart alone may raise."""

        def look(reader: Any) -> list[dict[str, Any]]:
            names = ("tasks", "holds", "messages", "gates")
            rows = [dict(row) for name in names for row in reader.query(f"SELECT * FROM {name} ORDER BY 1, 2, 3")]
            return [{name: value for name, value in row.items() if name != "version"} for row in rows]

        return self._readers.read(look)

    def launches(self, task_id: str) -> list[AttemptKey]:
        """Every worker process that was ever started for the task."""
        return [key for key in self.kernel.processes if key.task_id == task_id]

    def hooks(self, task_id: str) -> list[LaunchSpec]:
        """Every on_success command that was ever started for the task."""
        return [each.spec for key, each in self.kernel.processes.items() if key.task_id == task_id + SUFFIX]

    async def inbox(self, escalation_id: str) -> escalation_pb2.Escalation:
        """The escalation as the supervisor shows it."""
        found: escalation_pb2.Escalation = (await self.ask("GetEscalation", escalation_id=escalation_id)).escalation
        return found

    def progressed_ms(self, task_id: str) -> int:
        """When the supervisor was first told of the task's latest progress, by its own clock, in its own file."""
        row = self._supervisor_readers.read(
            lambda reader: reader.one("SELECT progressed_ms FROM tasks WHERE task_id = ?", (task_id,))
        )
        assert row is not None
        return int(row[0])

    async def explain(self, task_id: str) -> operator_service_pb2.ExplainTaskResponse:
        """What the supervisor makes of the task."""
        explained: operator_service_pb2.ExplainTaskResponse = await self.ask("ExplainTask", task_id=task_id)
        return explained

    async def verdict(self, task_id: str) -> str:
        """The supervisor's verdict on the task."""
        return task_pb2.Verdict.Name((await self.explain(task_id)).verdict).removeprefix("VERDICT_")

    # What time does

    async def sleep(self, seconds: float) -> None:
        """Let virtual time pass."""
        await asyncio.sleep(seconds)
        self.raise_if_broken()

    async def until(self, true: Callable[[], T], what: str, seconds: float = PATIENCE_SECONDS) -> T:
        """Wait until something is so; within its bounds everything that must happen, happens."""
        deadline = self.loop.time() + seconds
        while not (found := true()):
            if self.loop.time() > deadline:
                states = self._readers.read(lambda reader: reader.query("SELECT name, state, summary FROM tasks"))
                raise AssertionError(
                    f"in {seconds} s it did not come true that {what}; {[tuple(row) for row in states]}"
                )
            await self._next_commit(LOOK_SECONDS)
            self.raise_if_broken()
        return found

    async def at_commit(self, true: Callable[[], T]) -> T:
        """Wait for the very commit that makes something so."""
        while not (found := true()):
            await self._next_commit(PATIENCE_SECONDS)
        return found

    async def _next_commit(self, seconds: float) -> None:
        self._committed.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._committed.wait()

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
        await self.until(self._agree, "the supervisor knows what the runner knows")

    def _agree(self) -> bool:
        read = self._supervisor_readers.read
        here = [
            *read(lambda reader: reader.query("SELECT task_id, state FROM tasks ORDER BY 1")),
            *read(lambda reader: reader.query("SELECT escalation_id, hold_state FROM escalations ORDER BY 1")),
        ]
        there = [
            *self._readers.read(lambda reader: reader.query("SELECT task_id, state FROM tasks ORDER BY 1")),
            *self._readers.read(lambda reader: reader.query("SELECT escalation_id, state FROM holds ORDER BY 1")),
        ]
        waiting = self._readers.read(lambda reader: reader.query("SELECT 1 FROM outbox LIMIT 1"))
        return not waiting and [tuple(row) for row in here] == [tuple(row) for row in there]

    # Processes

    def on_success(self, program: Callable[[LaunchSpec], Awaitable[int]]) -> None:
        """What every on_success command does from here on; by default it exits with code 0."""
        self._hook_program = program

    async def _run_program(self, spec: LaunchSpec) -> int:
        if is_hook(spec.key):
            return await self._hook_program(spec)
        worker = Worker(self, spec)
        try:
            return await self._programs[self.task(spec.key.task_id).name](worker)
        except AssertionError as error:
            self.broken = self.broken or error
            return 1

    # Safety, after every commit of either service

    def _look(self) -> None:
        self._committed.set()
        try:
            for node in self.nodes.values():
                if node.store is not None:
                    assert node.store.unattributed_rows() == 0, f"{node.name} has written without a name (I11)"
            assert not self.kernel.double_workers, f"two workers of one task (I5): {self.kernel.double_workers}"
            self._readers.read(self._watch.look_at_rows)
            for task in self._readers.read(tasks.unfinished):
                self.states[task.task_id].add(task.state)
        except AssertionError as error:
            self.broken = self.broken or error

    def raise_if_broken(self) -> None:
        """Whatever was found meanwhile."""
        if self.broken is not None:
            raise self.broken

    # The run

    async def play(self, story: Callable[[Stage], AsyncIterator[str]]) -> None:
        """Play the story, with the death that was chosen."""
        for node in self.nodes.values():
            node.start()
        try:
            async with aclosing(story(self)) as steps:  # type: ignore[type-var]
                async for step in steps:
                    number = len(self.played.steps)
                    self.played.steps.append(step)
                    self._log(f"step {number}: {step}")
                    self.raise_if_broken()
                    if self.death is not None and self.death.step == number:
                        self.crash(self.death.service)
                        self.played.died = True
            self.raise_if_broken()
        finally:
            for job in self._jobs:
                job.cancel()
            await asyncio.gather(*self._jobs, return_exceptions=True)

    def close(self) -> None:
        """Let go of the files."""
        self._readers.close()
        self._supervisor_readers.close()
        for node in self.nodes.values():
            if node.store is not None:
                node.store.close()


Story = Callable[[Stage], AsyncIterator[str]]


def play(story: Story, directory: Path, death: Death | None = None, *, seed: int = 0) -> Played:
    """Run a story once; raises what it raises, with the death and the end of the log added to it."""
    loop = VirtualLoop()
    loop.set_exception_handler(lambda _loop, _context: None)
    directory.mkdir(parents=True, exist_ok=True)
    stage = Stage(directory, loop, death, seed)
    try:
        loop.run_until_complete(stage.play(story))
    except BaseException as error:
        error.add_note(f"{story.__name__}: {death or 'nobody dies'}, seed {seed}")
        error.add_note("\n".join(stage.events[-40:]))
        raise
    finally:
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(asyncio.sleep(0))
        with contextlib.suppress(BaseException):
            loop.run_until_complete(loop.shutdown_asyncgens())
        stage.close()
        loop.close()
    return stage.played


def deaths(played: Played, *, every_point: int) -> Iterator[Death]:
    """Each service after each step, and at each ``every_point``-th of its commit points, as a run without a death had
    them. At every commit of a timer, which acts when nobody looks, always; and never where old rows are forgotten, which no
    story is about.
    """
    for service in SERVICES:
        for step in range(len(played.steps)):
            yield Death(service=service, step=step)
        telling = [number for number, point in enumerate(played.points[service]) if "prune" not in point]
        for place, number in enumerate(telling):
            if place % every_point == 0 or "timer" in played.points[service][number]:
                yield Death(service=service, point=number)


def survives(story: Story, directory: Path, *, every_point: int = EVERY_POINT, seed: int = 0) -> Played:
    """Play a story once without a death, and once with each of its deaths; what the run without one came to."""
    played = play(story, directory / "calm", seed=seed)
    for number, death in enumerate(deaths(played, every_point=every_point)):
        place = directory / str(number)
        assert play(story, place, death, seed=seed).died, f"{death}: it did not"
        shutil.rmtree(place)
    return played


async def _succeed(spec: LaunchSpec) -> int:
    del spec
    await asyncio.sleep(0.1)
    return 0


def _request(rpc: str, runner: bool) -> type[Message]:
    module: Any = lane_runner_service_pb2 if runner else operator_service_pb2
    for prefix in ("LaneRunnerService" if runner else "OperatorService", ""):
        if found := getattr(module, f"{prefix}{rpc}Request", None):
            return found  # type: ignore[no-any-return]
    raise AttributeError(rpc)


def _readers(path: Path, migrations: Migrations) -> Readers:
    """Readers of a service's file, which is made here, so that it can be read before the service has started."""
    Store.open(path, migrations=migrations, ledger=WriteLedger(_NoClock()), threaded=False).close()
    return Readers(path)


class _NoClock:
    def wall_ms(self) -> int:
        return 0

    def steady_ms(self) -> int:
        return 0

    async def sleep(self, seconds: float) -> None:
        raise NotImplementedError
