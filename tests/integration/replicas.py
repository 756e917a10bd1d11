"""Five supervisors as processes, each with a store of its own, behind one door; a runner and its workers as processes; and a
tracker that makes an item each time it is asked to.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any, TypeVar

from lane_runner_svc.bootstrap import DATABASE as RUNNER_FILE
from lane_runner_svc.bootstrap import LANE_RUNNER, WORKER
from lane_runner_svc.store import supervision
from lanewarden import client
from lanewarden.auth import Credentials, Identity, Role
from lanewarden.errors import Reason, Refusal
from lanewarden.store.readers import Readers
from lanewarden.v1 import lane_runner_service_pb2, task_pb2, worker_service_pb2
from supervisor_svc.bootstrap import DATABASE as SUPERVISOR_FILE
from supervisor_svc.store import runners, views
from tests.integration.gate import Arrival, Door, Gate
from tests.integration.handed_over import Processes, Started
from tests.integration.moved_clock import ClockFile
from tests.integration.moved_service import token_of
from tests.integration.pair import PASSING, Service
from tests.ports import free_port
from tests.unit.test_incident_sinks import FakeGithub, serving

NAMES = ("s1", "s2", "s3", "s4", "s5")
RUNNER = "runner"
TTL_SECONDS = 300
STALE_SECONDS = 305
"""More than the TTL and its grace, as it has to be."""
REAL_SECONDS_MAX = 30.0
QUIET_SECONDS = 0.05
"""What has not come by itself in this time needs the clock: from then on it is moved."""
LOOK_SECONDS = 0.01
STEP_SECONDS = 0.5
MOVES_MAX = 60
PATIENCE_SECONDS = 20.0
"""Of moved time. What waits longer than all five could lose their right to act."""
T = TypeVar("T")


class Replicas:
    """What is there, and what can happen to it. ``plan`` says what happens at which point of
    ``task_id``'s way, once each.
    """

    def __init__(self, directory: Path, door: Door, random: Random, *, tracker_url: str, tracker: FakeGithub) -> None:
        self.tracker = tracker
        self.door = door
        self.random = random
        self.plan: dict[str, str] = {}
        self.task_id = ""
        self.happened: list[str] = []
        self.current = ""
        self.clock = ClockFile.create(directory / "clock")
        self.gate = Gate(self._at)
        self.ports = {name: free_port() for name in (*NAMES, RUNNER)}
        self.lives = dict.fromkeys(self.ports, 0)
        self.services: dict[str, Service] = {}
        self.files = {name: Readers(directory / name / SUPERVISOR_FILE) for name in NAMES}
        self.files[RUNNER] = Readers(directory / RUNNER / RUNNER_FILE)
        self._directory = directory
        self._clock = str(directory / "clock")
        self._tracker_url = tracker_url
        self._starts: dict[str, asyncio.Task[None]] = {}
        self._wrong: list[BaseException] = []
        self._processes = Processes(directory, self._work, self._wrong.append)
        caller = token_of(Identity(name="ann", role=Role.OPERATOR))
        target = f"127.0.0.1:{self.ports[RUNNER]}"
        self._connection = client.connect(target, token=caller, unreachable=Reason.RUNNER_UNREACHABLE)
        self.runner = self._connection.stub(LANE_RUNNER)

    # Processes

    def make_supervisor(self, name: str) -> Service:
        """The process of one of the five."""
        token = self._directory / "github.token"
        token.write_text("token\n")
        return Service(
            *("tests.integration.gated_supervisor", str(self.gate.port), name, self._clock, "supervisor_svc"),
            *("--state-dir", str(self._directory / name), "--listen-port", str(self.ports[name])),
            *("--supervisor-id", name, "--relaunches-max", "0", "--incident-gather-seconds", "0"),
            *("--lease-ttl-seconds", str(TTL_SECONDS), "--lease-renew-seconds", "0.1", "--lease-grace-seconds", "4"),
            *("--stale-seconds", str(STALE_SECONDS), "--first-progress-seconds", str(STALE_SECONDS)),
            *("--parked-seconds", str(STALE_SECONDS), "--forward-seconds", "20"),
            *("--incidents", "github:o/r", "--github-api", self._tracker_url, "--github-token-file", str(token)),
            *("--credentials-dir", str(self._directory / "credentials")),
        )

    def make_runner(self, *through: str) -> Service:
        """The process of the runner; ``through`` is the module that runs it, with its first arguments."""
        return Service(
            *(*(through or ("tests.integration.moved_service",)), self._clock, "lane_runner_svc"),
            *("--state-dir", str(self._directory / RUNNER), "--listen-port", str(self.ports[RUNNER])),
            *("--supervisor", f"127.0.0.1:{self.door.port}", "--runner-id", RUNNER, "--stop-workers-on-exit"),
            *("--lanes", "a", "--lanes", "b", "--lanes", "c"),
            *("--credentials-dir", str(self._directory / "credentials")),
        )

    async def begin(self) -> None:
        """Start every process."""
        Credentials.ensure(self._directory / "credentials")
        self.services = {**{name: self.make_supervisor(name) for name in NAMES}, RUNNER: self.make_runner()}
        for name in self.services:
            self.start(name)
        await self.all_up()

    def start(self, name: str) -> None:
        """Start a process, beside what else goes on."""
        self.lives[name] += 1
        self._starts[name] = asyncio.ensure_future(asyncio.to_thread(self.services[name].start))

    async def all_up(self) -> None:
        """Return when every process serves."""
        await asyncio.gather(*self._starts.values())

    async def kill(self, name: str) -> None:
        """SIGKILL, and another start."""
        await self._starts[name]
        self.services[name].kill()
        self.start(name)

    async def replace_runner(self, *through: str) -> None:
        """Run the runner through another module from here on."""
        await self.all_up()
        self.services[RUNNER].kill()
        self.services[RUNNER] = self.make_runner(*through)
        self.start(RUNNER)

    async def close(self) -> None:
        """Leave no process behind."""
        await asyncio.gather(*self._starts.values(), return_exceptions=True)
        await self._connection.close()
        try:
            await asyncio.gather(*(asyncio.to_thread(service.stop) for service in self.services.values()))
        finally:
            for service in self.services.values():
                service.kill()
            await self._processes.close()
        for readers in self.files.values():
            readers.close()

    # What happens on the way

    async def _at(self, point: str, arrival: Arrival) -> None:
        if arrival.task_id == self.task_id:
            await self.happen(point, arrival.who)

    async def happen(self, point: str, who: str = "") -> None:
        """Do what the plan has for this point, to whoever has come there or to somebody else."""
        match self.plan.pop(point, ""):
            case "":
                return
            case "hand over":
                self.lead_to(self.random.choice(NAMES))
                self.happened.append(f"{point}: {self.current} gets the runner")
            case deed:
                victim = {"runner": RUNNER, "whoever is there": who or self.current}.get(
                    deed, self.random.choice(NAMES)
                )
                self.happened.append(f"{point}: {victim} is killed")
                await self.kill(victim)

    def lead_to(self, name: str) -> None:
        """From now on the runner reaches this supervisor."""
        if name != self.current:
            self.current = name
            self.door.lead_to(self.ports[name])

    async def supervise_by(self, name: str, *task_ids: str) -> None:
        """Let the runner out at one supervisor, until that one may act there and knows these tasks as they are."""
        await self._starts[name]
        self.lead_to(name)
        await self.until(lambda: self._knows(name, task_ids), f"{name} supervises the runner and knows its tasks")

    def _knows(self, name: str, task_ids: tuple[str, ...]) -> bool:
        self.lead_to(name)  # also when somebody else has got the runner meanwhile
        now = self.files[RUNNER].read(supervision.load)
        row = self.files[name].read(lambda reader: runners.find(reader, RUNNER))
        if (
            row is None
            or not now.live
            or (name, row.supervision_generation_seen) != (now.supervisor_id, now.generation)
        ):
            return False
        return all(self.version(name, each) == self.version(RUNNER, each) for each in task_ids)

    async def until(self, true: Callable[[], T], what: str, seconds: float = PATIENCE_SECONDS) -> T:
        """Wait for something, and move the clock, by so many seconds at most, where it does not come by itself."""
        began, moved, step = time.monotonic(), 0.0, max(STEP_SECONDS, seconds / MOVES_MAX)
        while not (found := true()):
            waited = time.monotonic() - began
            if waited > REAL_SECONDS_MAX and moved >= seconds:
                raise AssertionError(f"in {seconds} s it did not come true that {what}")
            starting = not all(job.done() for job in self._starts.values())
            if waited > QUIET_SECONDS and moved < seconds and not starting:
                self.clock.move(step)
                moved += step
            await asyncio.sleep(LOOK_SECONDS)
            self._processes.look()
            for job in self._starts.values():
                if job.done():
                    job.result()  # who cannot start does not come back
            if self._wrong:
                raise self._wrong[0]
        return found

    # Tasks

    async def submit(self) -> str:
        """A task whose worker has made one step and makes no other."""
        spec = task_pb2.TaskSpec(argv=self._processes.argv, cwd=str(self._directory), stop_grace={"seconds": 5})
        request = lane_runner_service_pb2.SubmitTaskRequest(request_id=str(uuid.uuid4()), spec=spec)
        task_id = str((await self.insist(lambda: self.runner.SubmitTask(request))).task.task_id)
        sql = "SELECT 1 FROM tasks WHERE task_id = ? AND state = 'RUNNING' AND progress = 1"
        await self.until(lambda: self.rows(RUNNER, sql, task_id), "the worker has made its step")
        return task_id

    async def send_input(self, task_id: str) -> None:
        """Give the task another version."""
        request = lane_runner_service_pb2.SendInputRequest(request_id=str(uuid.uuid4()), task_id=task_id, text="go on")
        await self.insist(lambda: self.runner.SendInput(request))

    async def _work(self, process: Started) -> int:
        connection = client.connect(
            f"unix:{process.socket}", token=process.token, unreachable=Reason.RUNNER_UNREACHABLE
        )
        async with connection:
            stub = connection.stub(WORKER)
            step = worker_service_pb2.ReportProgressRequest(request_id=str(uuid.uuid4()), sequence=1, note="1 of 9")
            with contextlib.suppress(Refusal):  # it is stopped before it could
                await self.insist(lambda: stub.ReportProgress(step))
        await process.gone.wait()
        return 0

    async def insist(self, send: Callable[[], Awaitable[Any]]) -> Any:
        """Send until there is an answer that is not about somebody being away."""
        deadline = time.monotonic() + REAL_SECONDS_MAX
        while True:
            try:
                return await send()
            except Refusal as refusal:
                if refusal.reason not in PASSING or time.monotonic() > deadline:
                    raise
            await asyncio.sleep(LOOK_SECONDS)

    # What there is to see

    def rows(self, name: str, sql: str, *values: object) -> list[tuple[Any, ...]]:
        """Rows of a process's store."""
        return [tuple(row) for row in self.files[name].read(lambda reader: reader.query(sql, values))]

    def version(self, name: str, task_id: str) -> int:
        """The version of a task in a process's store."""
        if name != RUNNER:
            return self.files[name].read(lambda reader: views.task_version(reader, task_id))
        return int(self.rows(RUNNER, "SELECT version FROM tasks WHERE task_id = ?", task_id)[0][0])

    def worker_alive(self, task_id: str) -> bool:
        """By the kernel's word."""
        return any(each.alive() for each in self._processes.of(task_id))

    def items(self, key: str) -> int:
        """How many items the tracker has for an incident."""
        return sum(f"lanewarden-incident: {key} " in issue["body"] for issue in self.tracker.issues)


@asynccontextmanager
async def replicas(directory: Path, seed: int) -> AsyncIterator[Replicas]:
    """All processes, started; ended when the block is left."""
    async with AsyncExitStack() as stack:
        tracker = FakeGithub()
        url = stack.enter_context(serving(tracker.answer))
        door = await stack.enter_async_context(Door())
        five = Replicas(directory, door, Random(seed), tracker_url=url, tracker=tracker)
        await stack.enter_async_context(five.gate)
        stack.push_async_callback(five.close)
        await five.begin()
        yield five
