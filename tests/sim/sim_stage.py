"""The simulator as a stage: both services in one process on virtual time, and a service that dies."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from sqlite_utils import Migrations

from lane_runner_svc.bootstrap import LANE_RUNNER, WORKER
from lane_runner_svc.loop.hooks import SUFFIX, is_hook
from lane_runner_svc.process import AttemptKey, LaunchSpec
from lane_runner_svc.store.schema import MIGRATIONS as RUNNER_MIGRATIONS
from lanewarden.auth import Identity
from lanewarden.errors import Reason, Refusal
from lanewarden.ledger import WriteLedger
from lanewarden.store import SimulatedCrash, Store
from lanewarden.store.readers import Readers
from supervisor_svc.bootstrap import OPERATOR
from supervisor_svc.bootstrap import build as build_supervisor
from supervisor_svc.config import SupervisorConfig
from supervisor_svc.sinks.tracker import Tracker
from supervisor_svc.store.notifications import Notification
from supervisor_svc.store.schema import MIGRATIONS as SUPERVISOR_MIGRATIONS
from tests.databases import empty_database
from tests.runner_invariants import Watch
from tests.sim.network import Network, Server, Stub
from tests.sim.nodes import SUPERVISOR_IDENTITY, Node, RunnerNode, SupervisorNode
from tests.sim.processes import Kernel
from tests.sim.virtual import WALL_MS_AT_START, VirtualClock, VirtualLoop
from tests.stories.programs import Worker
from tests.stories.sight import SERVICES
from tests.stories.stage import PATIENCE_SECONDS, News, Stage, Story

LOOK_SECONDS = 0.5
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

    steps: list[str]
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
    tracker: Tracker | None = None

    def __init__(self, path: Path, told: Told, **common: Any) -> None:
        super().__init__(path, **common)
        self.told = told

    async def assemble(self, store: Store, ledger: WriteLedger, server: Server) -> None:
        parts = self.parts = await build_supervisor(
            self.config,
            store=store,
            ledger=ledger,
            clock=self.clock,
            random=self.random,
            incarnation=self.fresh_uuid(),
            connect_runner=lambda address: self.network.stub(
                LANE_RUNNER, source=self.name, target=address.partition(":")[0], identity=SUPERVISOR_IDENTITY
            ),
            sinks=[self.told],
            tracker=self.tracker,
        )
        server.services |= {service.full_name: handlers for service, handlers in parts.handlers.items()}
        for loop in parts.loops:
            self.run(loop())


class Told:
    """The people who are told, as a sink."""

    name = "people"

    def __init__(self) -> None:
        self.news: list[News] = []

    async def send(self, notification: Notification) -> None:
        self.news.append(
            News(
                key=notification.key,
                kind=notification.kind,
                escalation_id=notification.escalation_id,
                addressee=notification.addressee,
            )
        )


class SimStage(Stage):
    """Both services in this process on virtual time, looked at after every commit. One service may die, once."""

    argv = ("true",)
    wall_ahead_ms = WALL_MS_AT_START
    clocks_apart_ms_max = 0
    rest_seconds = 1.0

    def __init__(self, directory: Path, loop: VirtualLoop, death: Death | None, seed: int = 0) -> None:
        super().__init__(directory, calm=death is None, seed=seed)
        self.loop = loop
        self.death = death
        self.played = Played(self.steps)
        self.people = Told()
        self.network = Network(self.stream("network"), self.log)
        self.kernel = Kernel(self.stream("kernel"), self._run_program, self.log)
        self._watch = Watch()
        self._committed = asyncio.Event()
        self._jobs: list[asyncio.Task[Any]] = []
        runner_file, supervisor_file = directory / "runner.sqlite3", directory / "supervisor.sqlite3"
        self.files = {
            "runner": _readers(runner_file, RUNNER_MIGRATIONS),
            "supervisor": _readers(supervisor_file, SUPERVISOR_MIGRATIONS),
        }
        common: dict[str, Any] = {"network": self.network, "on_commit": self._look}
        self.runner = _Runner(
            runner_file, self.kernel, ("lane-1",), clock=VirtualClock(loop), random=self.stream("runner"), **common
        )
        self.supervisor = _Supervisor(
            supervisor_file,
            self.people,
            clock=VirtualClock(loop, skew_ms=3_600_000),
            random=self.stream("supervisor"),
            **common,
        )
        self.nodes: dict[str, _Mortal] = {"runner": self.runner, "supervisor": self.supervisor}
        for node in self.nodes.values():
            node.played, node.restart_seconds = self.played, (0.05, 1.0)
        if death is not None and death.point is not None:
            self.nodes[death.service].dies_at = death.point

    def log(self, text: str) -> None:
        self.events.append(f"{self.loop.time():.3f} {text}")

    def stub(self, *, runner: bool, caller: Identity) -> Stub:
        service, target = (LANE_RUNNER, "runner") if runner else (OPERATOR, "supervisor")
        return self.network.stub(service, source=caller.name, target=target, identity=caller)

    async def crash(self, service: str) -> None:
        self.nodes[service].crash()

    def kill_worker(self, task_id: str) -> None:
        for process in self.kernel.alive(task_id):
            self.kernel.kill(process)

    def let_launches_fail(self, fail: bool) -> None:
        self.kernel.launch_failure = float(fail)

    def launches(self, task_id: str | None = None) -> list[AttemptKey]:
        return [key for key in self.kernel.processes if not is_hook(key) and task_id in (None, key.task_id)]

    def hooks(self, task_id: str) -> list[str]:
        started = [each.spec for key, each in self.kernel.processes.items() if key.task_id == task_id + SUFFIX]
        return [spec.env["LANEWARDEN_IDEMPOTENCY_KEY"] for spec in started]

    def told(self) -> list[News]:
        return self.people.news

    # What time does

    def runner_ms(self) -> int:
        return self.runner.clock.steady_ms()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        self.raise_if_broken()

    async def pause(self) -> None:
        await asyncio.sleep(0.1)

    async def until(self, true: Callable[[], T], what: str, seconds: float = PATIENCE_SECONDS) -> T:
        deadline = self.loop.time() + seconds
        while not (found := true()):
            if self.loop.time() > deadline:
                states = self.rows("runner", "SELECT name, state, summary FROM tasks")
                raise AssertionError(f"in {seconds} s it did not come true that {what}; {states}")
            await self._next_commit(LOOK_SECONDS)
            self.raise_if_broken()
        return found

    async def at_commit(self, true: Callable[[], T]) -> T:
        while not (found := true()):
            await self._next_commit(PATIENCE_SECONDS)
        return found

    async def _next_commit(self, seconds: float) -> None:
        self._committed.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._committed.wait()

    # Processes

    async def _run_program(self, spec: LaunchSpec) -> int:
        if is_hook(spec.key):
            return await self.run_hook()

        def stub() -> Stub:
            parts = self.runner.parts
            if parts is None or "runner" not in self.network.servers:
                raise Refusal(Reason.RUNNER_UNREACHABLE, "the socket is gone")
            token = spec.env["LANEWARDEN_TOKEN"]
            identity = parts.authenticator.authenticate({"authorization": f"Bearer {token}"})
            return self.network.stub(WORKER, source=str(spec.key), target="runner", identity=identity, local=True)

        return await self.run_worker(Worker(self, spec.key, reason=spec.env["LANEWARDEN_REASON"], stub=stub))

    # Safety, after every commit of either service

    def _look(self) -> None:
        self._committed.set()
        try:
            for node in self.nodes.values():
                if node.store is not None:
                    assert node.store.unattributed_rows() == 0, f"{node.name} has written without a name (I11)"
            assert not self.kernel.double_workers, f"two workers of one task (I5): {self.kernel.double_workers}"
            self.read(self._watch.look_at_rows)
            self.note_states()
        except AssertionError as error:
            self.found_wrong(error)

    # The run

    def beside(self, job: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Do something while the story goes on; it ends with the story."""
        task = asyncio.ensure_future(job)
        self._jobs.append(task)
        return task

    async def play(self, story: Story) -> None:
        """Play the story, with the death that was chosen."""
        for node in self.nodes.values():
            node.start()
        await self.play_steps(story, self._after)

    async def _after(self, step: int) -> None:
        if self.death is not None and self.death.step == step:
            await self.crash(self.death.service)
            self.played.died = True

    def close(self) -> None:
        """Let go of the files."""
        for readers in self.files.values():
            readers.close()
        for node in self.nodes.values():
            if node.store is not None:
                node.store.close()


def _readers(path: Path, migrations: Migrations) -> Readers:
    """Readers of a service's file, which is made here, so that it can be read before the service has started."""
    return Readers(empty_database(path, migrations))
