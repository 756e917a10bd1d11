"""The two services as nodes that can crash at any commit and start again from their files.

Everything inside a node is the real thing: core, store, units of work, handlers, loops. Only the clock, the transport and
the processes are the simulator's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from random import Random
from typing import Any

import lane_runner_svc.bootstrap
import supervisor_svc.bootstrap
from lane_runner_svc.bootstrap import LANE_RUNNER, SUPERVISOR, WORKER
from lane_runner_svc.config import RunnerConfig
from lane_runner_svc.process import AttemptKey, ExitRecord, OutputTotals
from lane_runner_svc.store.schema import MIGRATIONS as RUNNER_MIGRATIONS
from lanewarden.ledger import WriteLedger
from lanewarden.server import Identity, Role
from lanewarden.store import SimulatedCrash, Store
from supervisor_svc.config import SupervisorConfig
from supervisor_svc.store.schema import MIGRATIONS as SUPERVISOR_MIGRATIONS
from tests.databases import empty_database
from tests.sim.network import Network, Server
from tests.sim.processes import Kernel, SimWorkers
from tests.sim.virtual import VirtualClock

SUPERVISOR_IDENTITY = Identity(name="supervisor", role=Role.SUPERVISOR)
RUNNER_IDENTITY = Identity(name="runner", role=Role.RUNNER)


class Node:
    """One service: starts from its file, crashes, starts again.

    ``crash_chance`` is the chance of a crash at each commit point; ``on_commit`` is called after every commit.
    """

    name = ""

    def __init__(
        self,
        path: Path,
        *,
        network: Network,
        clock: VirtualClock,
        random: Random,
        on_commit: Callable[[], None],
    ) -> None:
        self.path = path
        self.network = network
        self.clock = clock
        self.random = random
        self.crash_chance = 0.0
        self.restart_seconds = (0.05, 4.0)
        self.starts = 0
        self.store: Store | None = None
        self.server: Server | None = None
        self._on_commit = on_commit
        self._jobs: list[asyncio.Task[Any]] = []

    @property
    def up(self) -> bool:
        return self.server is not None

    def start(self) -> None:
        self.starts += 1
        self.network.log(f"{self.name} starts, {self.starts}")
        self.run(self._boot())

    def run(self, job: Coroutine[Any, Any, Any]) -> None:
        task = asyncio.ensure_future(job)
        self._jobs.append(task)

    def crash(self) -> None:
        """Lose everything but the file, and come back a little later."""
        if self.server is None:
            return
        self.network.log(f"{self.name} crashes")
        self.server.crashed.set()
        self.network.servers.pop(self.name, None)
        self.server = None
        for job in self._jobs:
            job.cancel()
        self._jobs.clear()
        self.lose()
        if self.store is not None:
            self.store.close()
        asyncio.get_running_loop().call_later(self.random.uniform(*self.restart_seconds), self.start)

    def lose(self) -> None:
        """What a crash takes besides the node's own jobs."""

    def forget(self) -> None:
        """The disk is gone as well: the next start begins with nothing."""
        self.network.log(f"{self.name} loses its store")
        for each in self.path.parent.glob(f"{self.path.name}*"):
            each.unlink()

    async def _boot(self) -> None:
        server = self.server = Server(self.name)
        try:
            ledger = WriteLedger(self.clock)
            self.store = self.open(ledger)
            await self.assemble(self.store, ledger, server)
        except SimulatedCrash:
            return  # the failpoint has arranged the crash
        if self.server is server:
            self.network.servers[self.name] = server

    def open(self, ledger: WriteLedger) -> Store:
        raise NotImplementedError

    async def assemble(self, store: Store, ledger: WriteLedger, server: Server) -> None:
        raise NotImplementedError

    def fresh_uuid(self) -> str:
        digits = f"{self.random.getrandbits(128):032x}"
        return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))

    def failpoint(self, point: str, emitter_names: tuple[str, ...]) -> None:
        if point == "after_commit":
            self._on_commit()
        if self.random.random() < self.crash_chance:
            self.network.log(f"{self.name} dies {point} of {','.join(emitter_names)}")
            asyncio.get_running_loop().call_soon(self.crash)
            raise SimulatedCrash


class RunnerNode(Node):
    """A lane runner whose workers live in ``kernel``."""

    name = "runner"
    supervisors: tuple[str, ...] = ("supervisor",)
    """The nodes that it may turn to, in order."""

    def __init__(self, path: Path, kernel: Kernel, lanes: tuple[str, ...], **common: Any) -> None:
        super().__init__(path, **common)
        self.kernel = kernel
        self.config = RunnerConfig(state_dir=Path("/sim"), runner_id="runner", lanes=lanes)
        self.parts: lane_runner_svc.bootstrap.Parts | None = None

    def open(self, ledger: WriteLedger) -> Store:
        return Store.open(
            empty_database(self.path, RUNNER_MIGRATIONS),
            migrations=RUNNER_MIGRATIONS,
            ledger=ledger,
            threaded=False,
            failpoints=self.failpoint,
        )

    async def assemble(self, store: Store, ledger: WriteLedger, server: Server) -> None:
        supervisors = {
            f"{name}:7811": self.network.stub(SUPERVISOR, source=self.name, target=name, identity=RUNNER_IDENTITY)
            for name in self.supervisors
        }
        parts = self.parts = await lane_runner_svc.bootstrap.build(
            self.config,
            store=store,
            ledger=ledger,
            clock=self.clock,
            random=self.random,
            fresh_uuid=self.fresh_uuid,
            make_workers=self._make_workers,
            log_path=lambda ref: Path("/nonexistent"),
            environment={"PATH": "/bin:/usr/bin"},
            address=f"{self.name}:7812",
            supervisors=supervisors,
        )
        server.services |= {service.full_name: handlers for service, handlers in parts.handlers.items()}
        server.services[WORKER.full_name] = parts.worker_handlers
        for loop in parts.loops:
            self.run(loop())

    def _make_workers(
        self, on_exit: Callable[[ExitRecord], None], on_output: Callable[[AttemptKey, OutputTotals], None]
    ) -> SimWorkers:
        self.kernel.listener, self.kernel.reader = on_exit, on_output
        return SimWorkers(self.kernel)

    def lose(self) -> None:
        self.kernel.listener = self.kernel.reader = None
        if self.parts is not None:
            self.network.later(self.parts.launcher.close())
            self.network.later(self.parts.hooks.close())


class SupervisorNode(Node):
    """A supervisor."""

    name = "supervisor"
    config = SupervisorConfig(supervisor_id="supervisor")
    parts: supervisor_svc.bootstrap.Parts | None = None

    def open(self, ledger: WriteLedger) -> Store:
        return Store.open(
            empty_database(self.path, SUPERVISOR_MIGRATIONS),
            migrations=SUPERVISOR_MIGRATIONS,
            ledger=ledger,
            threaded=False,
            failpoints=self.failpoint,
        )

    async def assemble(self, store: Store, ledger: WriteLedger, server: Server) -> None:
        parts = self.parts = await supervisor_svc.bootstrap.build(
            self.config,
            store=store,
            ledger=ledger,
            clock=self.clock,
            random=self.random,
            incarnation=self.fresh_uuid(),
            connect_runner=lambda address: self.network.stub(
                LANE_RUNNER, source=self.name, target=address.partition(":")[0], identity=SUPERVISOR_IDENTITY
            ),
        )
        server.services |= {service.full_name: handlers for service, handlers in parts.handlers.items()}
        for loop in parts.loops:
            self.run(loop())
