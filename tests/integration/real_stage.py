"""Stories played on real processes: both services, their stores, gRPC between them, and a process for every worker.

What a worker's program does is done here, over the worker socket, with the token of its process. Time is the real one, moved
forward where a story waits.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from lane_runner_svc.bootstrap import DATABASE as RUNNER_FILE
from lane_runner_svc.bootstrap import LANE_RUNNER, WORKER
from lane_runner_svc.loop.hooks import SUFFIX, is_hook
from lane_runner_svc.process import AttemptKey
from lane_runner_svc.store import holds
from lanewarden import client
from lanewarden.auth import Identity, Role
from lanewarden.client import Connection, Stub
from lanewarden.errors import Reason, Refusal
from lanewarden.store.readers import Readers
from lanewarden.v1 import write_trace_service_pb2
from supervisor_svc.bootstrap import DATABASE as SUPERVISOR_FILE
from supervisor_svc.bootstrap import OPERATOR
from tests.integration.handed_over import Processes, Started
from tests.integration.moved_clock import ClockFile
from tests.integration.moved_service import token_of
from tests.integration.pair import Pair, Service
from tests.runner_invariants import Watch
from tests.stories.programs import Worker
from tests.stories.sight import SERVICES
from tests.stories.stage import PATIENCE_SECONDS, News, Stage, Story

REAL_SECONDS_MAX = 30.0
"""How long anything may take on a loaded machine, whatever the clock of the story says."""
QUIET_SECONDS = 0.3
"""What has not come by itself in this time needs the clock: from then on it is moved."""
LOOK_SECONDS = 0.01
SERVICE = "tests.integration.moved_service"
TRACE = write_trace_service_pb2.DESCRIPTOR.services_by_name["WriteTraceService"]
T = TypeVar("T")


class RealStage(Stage):
    """Both services as processes of their own. ``kill`` says which of them is killed after which step, counted from 0;
    ``through`` is the module that runs them.
    """

    wall_ahead_ms = 0
    clocks_apart_ms_max = 100  # the wall clock is read last, and a machine may be busy
    rest_seconds = 0.1

    def __init__(self, directory: Path, kill: Callable[[int], str | None], *, through: str = SERVICE) -> None:
        super().__init__(directory, calm=False, seed=0)
        self._kill = kill
        self.kills: list[str] = []
        self._processes = Processes(directory, self._exit_code, self.found_wrong)
        self.argv = self._processes.argv
        self._told = directory / "told.jsonl"
        self.clock = ClockFile.create(directory / "clock")
        self._pair = Pair(
            directory,
            lanes=1,
            through=(through, str(directory / "clock")),
            # Leases as long as they may be, as on the simulator.
            supervisor_flags=(
                *("--lease-ttl-seconds", "300", "--lease-renew-seconds", "100"),
                *("--parked-seconds", "600", "--first-progress-seconds", "600"),
                *("--notify", f"jsonl:{self._told}"),
            ),
        )
        self.services: dict[str, Service] = {"runner": self._pair.runner, "supervisor": self._pair.supervisor}
        self.files = {
            "runner": Readers(directory / "runner" / RUNNER_FILE),
            "supervisor": Readers(directory / "supervisor" / SUPERVISOR_FILE),
        }
        self._starts: dict[str, asyncio.Task[None]] = {}
        self._connections: dict[str, Connection] = {}
        self._began = time.monotonic()

    def runner_ms(self) -> int:
        return self.clock.steady_ms()

    def log(self, text: str) -> None:
        self.events.append(f"{time.monotonic() - self._began:.3f} +{self.clock.get('moved') / 1000:.0f} {text}")

    def stub(self, *, runner: bool, caller: Identity) -> Stub:
        return self._connect("runner" if runner else "supervisor", caller).stub(LANE_RUNNER if runner else OPERATOR)

    def _connect(self, service: str, caller: Identity) -> Connection:
        port, unreachable = {
            "runner": (self._pair.runner_port, Reason.RUNNER_UNREACHABLE),
            "supervisor": (self._pair.supervisor_port, Reason.SUPERVISOR_UNREACHABLE),
        }[service]
        return self._connection(f"127.0.0.1:{port}", token_of(caller), unreachable)

    def _connection(self, target: str, token: str, unreachable: Reason) -> Connection:
        name = f"{target} {token}"
        if name not in self._connections:
            self._connections[name] = client.connect(target, token=token, unreachable=unreachable)
        return self._connections[name]

    # What happens to processes

    def _start(self, service: str) -> None:
        self._starts[service] = asyncio.ensure_future(asyncio.to_thread(self.services[service].start))

    async def crash(self, service: str) -> None:
        await self._starts[service]
        self.log(f"{service} is killed")
        self.kills.append(service)
        self.services[service].kill()
        self._check_invariants()
        self._start(service)

    def kill_worker(self, task_id: str) -> None:
        for process in self._processes.of(task_id):
            process.kill()

    def let_launches_fail(self, fail: bool) -> None:
        self._processes.let_launches_fail(fail)

    def launches(self, task_id: str | None = None) -> list[AttemptKey]:
        keys = [process.key for process in self._processes.look()]
        return [key for key in keys if not is_hook(key) and task_id in (None, key.task_id)]

    def hooks(self, task_id: str) -> list[str]:
        return [each.idempotency_key for each in self._processes.look() if each.key.task_id == task_id + SUFFIX]

    async def _exit_code(self, process: Started) -> int:
        self.log(f"{process.key} has started")
        if is_hook(process.key):
            return await self.run_hook()
        stub = self._connection(f"unix:{process.socket}", process.token, Reason.RUNNER_UNREACHABLE).stub(WORKER)
        try:
            return await self.run_worker(Worker(self, process.key, reason=process.reason, stub=lambda: stub))
        except Refusal as refusal:  # a worker that is told no ends in error, as a real one would
            self.log(f"{process.key} was refused: {refusal}")
            return 1

    # What there is to see

    def said(self) -> list[str]:
        """What the services have logged, by service."""
        return [f"{name}: {event}" for name, service in self.services.items() for event in service.log[-10:]]

    def told(self) -> list[News]:
        lines = [json.loads(line) for line in self._told.read_text().splitlines() if line]
        return [
            News(
                key=line["key"],
                kind=line["kind"],
                escalation_id=line["escalation"]["escalation_id"],
                addressee=line["to"],
            )
            for line in lines
        ]

    def _check_invariants(self) -> None:
        """What must hold of the runner's store at every moment, as it is now."""
        self.read(Watch().look_at_rows)

    # What time does

    async def sleep(self, seconds: float) -> None:
        await asyncio.gather(*self._starts.values())
        while seconds > 0:
            due_ms = self.read(holds.next_timer_ms)
            step = seconds if due_ms is None else min(seconds, (due_ms - self.clock.steady_ms() + 1) / 1000)
            self.clock.move(max(0.0, step))
            seconds -= step
            await self.until(self._has_settled, "both services have done and told what was due")

    def _has_settled(self) -> bool:
        due_ms = self.read(holds.next_timer_ms)
        come = all(self.clock.get(service) == self.clock.get("moved") for service in SERVICES)
        return come and (due_ms is None or due_ms > self.clock.steady_ms()) and self.agree() and self.all_told()

    async def pause(self) -> None:
        for start in self._starts.values():
            if start.done():
                start.result()  # who cannot start does not come back
        await asyncio.sleep(LOOK_SECONDS)
        self.clock.move(0.1)

    async def until(self, true: Callable[[], T], what: str, seconds: float = PATIENCE_SECONDS) -> T:
        began, moved = time.monotonic(), 0.0
        while not (found := true()):
            waited = time.monotonic() - began
            if waited > REAL_SECONDS_MAX:
                states = self.rows("runner", "SELECT name, state, summary FROM tasks")
                raise AssertionError(f"in {seconds} s it did not come true that {what}; {states}")
            if waited > QUIET_SECONDS and moved < seconds:
                self.clock.move(1.0)
                moved += 1.0
            await self._look()
        return found

    async def at_commit(self, true: Callable[[], T]) -> T:
        return await self.until(true, "it was committed", seconds=0.0)

    async def _look(self) -> None:
        await asyncio.sleep(LOOK_SECONDS)
        self._processes.look()
        self.note_states()
        self.raise_if_broken()

    # The run

    async def play(self, story: Story) -> None:
        """Play the story. What must hold of the runner's store is checked whenever a service is dead, and at the end."""
        for service in SERVICES:
            self._start(service)
        await asyncio.gather(*self._starts.values())
        await self.play_steps(story, self._after)
        await asyncio.gather(*self._starts.values())
        for service in SERVICES:
            await self._check_ledger(service)
        self._check_invariants()

    async def _after(self, step: int) -> None:
        if service := self._kill(step):
            await self.crash(service)

    async def _check_ledger(self, service: str) -> None:
        stub = self._connect(service, Identity(name="ann", role=Role.OPERATOR)).stub(TRACE)
        rates = await self.insist(lambda: stub.GetWriteRates(write_trace_service_pb2.GetWriteRatesRequest()))
        assert rates.unattributed_rows == 0, f"{service} has written without a name (I11)"

    async def close(self) -> None:
        """Stop everything: the services, and with the runner its workers."""
        await asyncio.gather(*self._starts.values(), return_exceptions=True)
        for connection in self._connections.values():
            await connection.close()
        try:
            self._pair.__exit__()
        finally:
            await self._processes.close()
            for readers in self.files.values():
                readers.close()
