"""The main job under faults: tasks whose workers ask, operators who rule, and everything that can go wrong meanwhile.

One seed drives clock, network, processes and crashes. Safety is checked after every commit; liveness once the faults have
stopped (invariants I1-I6, I11, I12 of the design, as far as they exist so far).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, TypeVar

from google.protobuf.message import Message

from lane_runner_svc.bootstrap import LANE_RUNNER, WORKER
from lane_runner_svc.process import LaunchSpec
from lanewarden.errors import Reason, Refusal
from lanewarden.server import Identity, Role
from lanewarden.v1 import escalation_pb2, lane_runner_service_pb2, operator_service_pb2, worker_service_pb2
from lanewarden.v1.task_pb2 import TaskSpec
from tests.sim.network import Network, Stub
from tests.sim.nodes import Node, RunnerNode, SupervisorNode
from tests.sim.processes import Kernel
from tests.sim.virtual import VirtualClock, VirtualLoop

OPERATOR_SERVICE = operator_service_pb2.DESCRIPTOR.services_by_name["OperatorService"]
FAULT_SECONDS = 40.0
SETTLE_SECONDS_MAX = 900.0
TASKS = 3
AGAIN = frozenset({Reason.RUNNER_UNREACHABLE, Reason.SUPERVISOR_UNREACHABLE, Reason.DEADLINE_PASSED})
T = TypeVar("T")


class InvariantBrokenError(AssertionError):
    """An invariant of the design does not hold."""


@dataclass(slots=True)
class Truth:
    """What the world outside of the services knows to have been promised or done."""

    submitted: set[str] = field(default_factory=set)
    asked: dict[str, int] = field(default_factory=dict)
    accepted_escalations: set[str] = field(default_factory=set)
    sent_rulings: dict[str, set[str]] = field(default_factory=dict)
    accepted_rulings: dict[str, set[str]] = field(default_factory=dict)
    applied: dict[str, list[str]] = field(default_factory=dict)
    acks_sent: dict[str, int] = field(default_factory=dict)
    seen_rulings: dict[str, str] = field(default_factory=dict)
    seen_ends: dict[str, tuple[Any, ...]] = field(default_factory=dict)


class World:
    """One run. ``events`` is its log: the same seed gives the same log."""

    def __init__(self, seed: int, directory: Path, loop: VirtualLoop) -> None:
        self.seed = seed
        self.random = Random(seed)
        self.loop = loop
        self.events: list[str] = []
        self.truth = Truth()
        self.broken: InvariantBrokenError | None = None
        self.network = Network(self._stream("network"), self.log)
        self.kernel = Kernel(self._stream("kernel"), self._work, self.log)
        common: dict[str, Any] = {"network": self.network, "on_commit": self._check_safety}
        self.runner = RunnerNode(
            directory / "runner.sqlite3",
            self.kernel,
            ("lane-1", "lane-2"),
            clock=VirtualClock(loop),
            random=self._stream("runner"),
            **common,
        )
        self.supervisor = SupervisorNode(
            directory / "supervisor.sqlite3",
            clock=VirtualClock(loop, skew_ms=3_600_000),
            random=self._stream("supervisor"),
            **common,
        )

    @property
    def nodes(self) -> tuple[Node, ...]:
        return (self.runner, self.supervisor)

    def log(self, text: str) -> None:
        self.events.append(f"{self.loop.time():.4f} {text}")

    def _stream(self, name: str) -> Random:
        """Randomness of its own for each part, so that a change in one does not shift all others."""
        return Random(f"{self.seed}/{name}")

    async def run(self) -> None:
        """The whole story; raises InvariantBrokenError."""
        for node in self.nodes:
            node.start()
        clients = [asyncio.ensure_future(self._submit(number)) for number in range(TASKS)]
        clients += [asyncio.ensure_future(self._operate(f"operator-{number}")) for number in range(2)]
        clients.append(asyncio.ensure_future(self._operate_directly()))
        chaos = asyncio.ensure_future(self._chaos())
        try:
            await asyncio.wait([chaos], timeout=FAULT_SECONDS)
            chaos.cancel()
            self._faults_off()
            await self._settle()
        finally:
            for job in [*clients, chaos]:
                job.cancel()
            await asyncio.gather(*clients, chaos, return_exceptions=True)
        self._raise_if_broken()

    # Faults

    async def _chaos(self) -> None:
        random = self._stream("chaos")
        faults = self.network.faults
        while True:
            faults.lose_request, faults.lose_response = random.choice((0.0, 0.1, 0.3)), random.choice((0.0, 0.1, 0.3))
            faults.repeat, faults.slow = random.choice((0.0, 0.2)), random.choice((0.0, 0.2))
            self.kernel.launch_failure = random.choice((0.0, 0.0, 0.2))
            for node in self.nodes:
                node.crash_chance = random.choice((0.0, 0.02, 0.08))
            await asyncio.sleep(random.uniform(0.5, 4.0))
            match random.randrange(12):
                case 0 | 1:
                    random.choice(self.nodes).crash()
                case 2 | 3:
                    living = [each for each in self.kernel.processes.values() if each.record is None]
                    if living:
                        self.kernel.kill(random.choice(living))
                case 4 | 5:
                    faults.cut.add(frozenset(("runner", "supervisor")))
                case 6 | 7:
                    faults.cut.clear()
                    faults.black_holes.clear()
                case 8:
                    self.supervisor.crash()
                    self.supervisor.forget()
                case 9 | 10:
                    faults.black_holes.add(("supervisor", "runner"))

    def _faults_off(self) -> None:
        self.log("faults off")
        self.network.faults.stop()
        self.kernel.launch_failure = 0.0
        for node in self.nodes:
            node.crash_chance = 0.0

    async def _settle(self) -> None:
        """Liveness (I12): with faults off, every task ends, and every worker has had its ruling."""
        deadline = self.loop.time() + SETTLE_SECONDS_MAX
        while self.loop.time() < deadline:
            self._raise_if_broken()
            if self._all_ended() and self._views_agree():
                self._check_outcome()
                return
            await asyncio.sleep(0.5)
        raise InvariantBrokenError(
            f"I12: not settled {SETTLE_SECONDS_MAX} s after the faults: {self._states()} (seed {self.seed})"
        )

    # The world's inhabitants

    async def _submit(self, number: int) -> None:
        stub = self._operator_stub("client")
        request = operator_service_pb2.OperatorServiceSubmitTaskRequest(
            request_id=_uuid(self._stream(f"submit {number}")),
            spec=TaskSpec(name=f"job-{number}", argv=["true"], premature_exits_max=100, launch_failures_max=100),
        )
        response = await self._insist(lambda: stub.SubmitTask(request, timeout_seconds=3.0))
        self.truth.submitted.add(response.task.task_id)

    async def _operate(self, name: str) -> None:
        random = self._stream(name)
        stub = self._operator_stub(name)
        while True:
            await asyncio.sleep(random.uniform(0.2, 2.5))
            with contextlib.suppress(Refusal):
                listed = await stub.ListEscalations(operator_service_pb2.ListEscalationsRequest(), timeout_seconds=3.0)
                for escalation in listed.escalations:
                    if escalation.hold_state == escalation_pb2.HOLD_STATE_OPEN:
                        await self._answer(stub, random, escalation)

    async def _answer(self, stub: Stub, random: Random, escalation: escalation_pb2.Escalation) -> None:
        escalation_id, request_id = escalation.escalation_id, _uuid(random)
        match random.randrange(4):
            case 0:
                self.truth.acks_sent[escalation_id] = self.truth.acks_sent.get(escalation_id, 0) + 1
                ack = operator_service_pb2.OperatorServiceAcknowledgeRequest(
                    request_id=request_id, escalation_id=escalation_id, note="seen"
                )
                await self._insist(lambda: stub.Acknowledge(ack, timeout_seconds=3.0))
            case 1:
                steer = operator_service_pb2.OperatorServiceSteerRequest(
                    request_id=request_id, task_id=escalation.task_id
                )
                steer.instruction.text = "careful"
                await self._insist(lambda: stub.Steer(steer, timeout_seconds=3.0))
            case _:
                steer = operator_service_pb2.OperatorServiceSteerRequest(request_id=request_id)
                self._fill_ruling(steer, escalation_id, random)
                await self._insist(lambda: stub.Steer(steer, timeout_seconds=3.0))
                self.truth.accepted_rulings.setdefault(escalation_id, set()).add(request_id)

    async def _operate_directly(self) -> None:
        """A person with grpcurl at the runner, who knows nothing of what the supervisor has accepted."""
        random = self._stream("direct")
        identity = Identity(name="direct", role=Role.OPERATOR)
        stub = self.network.stub(LANE_RUNNER, source="direct", target="runner", identity=identity)
        while True:
            await asyncio.sleep(random.uniform(0.5, 5.0))
            with contextlib.suppress(Refusal):
                listed = await stub.ListHolds(lane_runner_service_pb2.ListHoldsRequest(), timeout_seconds=3.0)
                for hold in listed.holds:
                    steer = lane_runner_service_pb2.SteerRequest(request_id=_uuid(random))
                    self._fill_ruling(steer, hold.escalation_id, random)
                    await self._insist(lambda steer=steer: stub.Steer(steer, timeout_seconds=3.0))

    def _fill_ruling(self, steer: Any, escalation_id: str, random: Random) -> None:
        steer.ruling.escalation_id = escalation_id
        steer.ruling.decision = random.choice((escalation_pb2.DECISION_APPROVE, escalation_pb2.DECISION_REJECT))
        steer.ruling.instructions = f"ruling {steer.request_id}"
        self.truth.sent_rulings.setdefault(escalation_id, set()).add(steer.request_id)

    async def _insist(self, send: Callable[[], Awaitable[T]]) -> T:
        """As a good client does: the same request again until there is an answer."""
        while True:
            try:
                return await send()
            except Refusal as refusal:
                if refusal.reason not in AGAIN:
                    raise
            await asyncio.sleep(0.3)

    def _operator_stub(self, name: str) -> Stub:
        identity = Identity(name=name, role=Role.OPERATOR)
        return self.network.stub(OPERATOR_SERVICE, source=name, target="supervisor", identity=identity)

    async def _work(self, spec: LaunchSpec) -> int:
        """What every worker does: ask once, wait or leave, apply the ruling once, complete."""
        random = self._stream(f"worker {spec.key}")
        task_id = spec.key.task_id

        async def call(rpc: str, request: Message) -> Any:
            return await self._insist(lambda: getattr(self._worker_stub(spec), rpc)(request, timeout_seconds=60.0))

        await asyncio.sleep(random.uniform(0.0, 0.5))
        assignment = await call("GetAssignment", worker_service_pb2.GetAssignmentRequest())
        if not assignment.holds and task_id not in self.truth.applied:
            await call("ReportProgress", worker_service_pb2.ReportProgressRequest(request_id=_uuid(random)))
            self.truth.asked[task_id] = self.truth.asked.get(task_id, 0) + 1
            ask = worker_service_pb2.WorkerServiceEscalateRequest(
                request_id=_uuid(random), question="May I?", expects_reply=True
            )
            asked = await call("Escalate", ask)
            self.truth.accepted_escalations.add(asked.escalation.escalation_id)
            if random.random() < 0.5:
                return 0
        if task_id not in self.truth.applied:
            message = await self._await_ruling(spec)
            self._apply(task_id, message.ruling.ruling.escalation_id, message.message_id)
            taken = worker_service_pb2.AcknowledgeMessageRequest(
                request_id=_uuid(random), message_id=message.message_id
            )
            await call("AcknowledgeMessage", taken)
        else:
            for hold in assignment.holds:
                taken = worker_service_pb2.AcknowledgeMessageRequest(
                    request_id=_uuid(random), message_id=hold.ruling.ruling_id
                )
                await call("AcknowledgeMessage", taken)
        await call("Complete", worker_service_pb2.CompleteRequest(request_id=_uuid(random), summary="done"))
        return 0

    async def _await_ruling(self, spec: LaunchSpec) -> Any:
        while True:
            with contextlib.suppress(Refusal):
                async for news in self._worker_stub(spec).AwaitRuling(worker_service_pb2.AwaitRulingRequest()):
                    if news.HasField("message"):
                        return news.message
            await asyncio.sleep(0.3)

    def _apply(self, task_id: str, escalation_id: str, message_id: str) -> None:
        """A worker's effect, keyed as the README tells worker authors to: by the message's id."""
        done = self.truth.applied.setdefault(task_id, [])
        if message_id not in done:
            done.append(message_id)
            self.log(f"applied {message_id} on {escalation_id}")

    def _worker_stub(self, spec: LaunchSpec) -> Stub:
        parts = self.runner.parts
        if parts is None or "runner" not in self.network.servers:
            raise Refusal(Reason.RUNNER_UNREACHABLE, "the socket is gone")
        identity = parts.authenticator.authenticate({"authorization": f"Bearer {spec.env['LANEWARDEN_TOKEN']}"})
        return self.network.stub(WORKER, source=str(spec.key), target="runner", identity=identity, local=True)

    # Invariants

    def _rows(self, sql: str) -> list[Any]:
        store = self.runner.store
        assert store is not None
        return store.read(lambda reader: reader.query(sql))

    def _check_safety(self) -> None:
        """Called after every commit of either service; remembers the first breach."""
        if self.broken is None:
            for name, why in self._breaches():
                self.broken = InvariantBrokenError(f"{name}: {why} (seed {self.seed}, at {self.loop.time():.4f} s)")
                return

    def _raise_if_broken(self) -> None:
        if self.broken is not None:
            raise self.broken

    def _breaches(self) -> Iterator[tuple[str, str]]:
        for node in self.nodes:
            if node.store is not None and (strays := node.store.unattributed_rows()):
                yield "I11", f"{strays} row changes of {node.name} are nobody's"
        for each in self.kernel.double_workers:
            yield "I5", f"two workers of one task: {each}"
        if self.runner.store is None or not self.runner.up:
            return
        for (task_id,) in self._rows(
            "SELECT DISTINCT t.task_id FROM tasks t JOIN holds h USING (task_id)"
            " WHERE t.state = 'SUCCEEDED' AND h.state IN ('OPEN', 'RELEASED')"
        ):
            yield "I1", f"task {task_id} succeeded over a hold"
        if (number := len(self._rows("SELECT 1 FROM tasks"))) > TASKS:
            yield "I2", f"{TASKS} tasks were submitted, {number} are there"
        yield from self._hold_breaches()
        for task_id, *end in self._rows(
            "SELECT task_id, state, summary, version FROM tasks WHERE finished_wall_ms IS NOT NULL"
        ):
            if self.truth.seen_ends.setdefault(task_id, tuple(end)) != tuple(end):
                yield "I9", f"task {task_id} changed after its end: {end}"
        for (task_id,) in self._rows(
            "SELECT task_id FROM attempts WHERE ended IS NULL GROUP BY task_id HAVING count(*) > 1"
        ):
            yield "I5", f"task {task_id} has two attempts that have not ended"

    def _hold_breaches(self) -> Iterator[tuple[str, str]]:
        truth = self.truth
        stored: dict[str, int] = {}
        for hold in self._rows("SELECT escalation_id, task_id, state, ruling_id, acks FROM holds"):
            escalation_id, task_id, state, ruling_id, acks = hold
            stored[task_id] = stored.get(task_id, 0) + 1
            if ruling_id is None:
                if state in ("RELEASED", "ACKNOWLEDGED"):
                    yield "I3", f"{escalation_id} is {state} without a ruling"
            else:
                if ruling_id not in truth.sent_rulings.get(escalation_id, set()):
                    yield "I3", f"{escalation_id} was released by {ruling_id}, which nobody gave on it"
                if truth.seen_rulings.setdefault(escalation_id, ruling_id) != ruling_id:
                    yield "I3", f"{escalation_id} was ruled twice"
            if acks > truth.acks_sent.get(escalation_id, 0):
                yield "I2", f"{escalation_id} has {acks} acks, {truth.acks_sent.get(escalation_id, 0)} were sent"
        known = {row[0] for row in self._rows("SELECT escalation_id FROM holds")}
        if lost := truth.accepted_escalations - known:
            yield "I2", f"accepted escalations are gone: {sorted(lost)}"
        for task_id, number in stored.items():
            if number > truth.asked.get(task_id, 0):
                yield "I2", f"task {task_id} asked {truth.asked.get(task_id, 0)} times and has {number} holds"
        for task_id, applied in truth.applied.items():
            if len(applied) > truth.asked.get(task_id, 0):
                yield "I2", f"task {task_id} applied {len(applied)} rulings for {truth.asked.get(task_id, 0)} questions"

    def _states(self) -> list[tuple[Any, ...]]:
        if "runner" not in self.network.servers:
            return []
        return [tuple(row) for row in self._rows("SELECT task_id, state, attempt, summary FROM tasks")]

    def _all_ended(self) -> bool:
        states = self._states()
        return len(states) == TASKS and all(row[1] in ("SUCCEEDED", "FAILED", "CANCELED") for row in states)

    def _views_agree(self) -> bool:
        """Whether the supervisor has heard everything that the runner has to tell (P13)."""
        if "supervisor" not in self.network.servers or self.supervisor.store is None:
            return False
        read = self.supervisor.store.read
        seen = read(lambda reader: reader.query("SELECT task_id, state FROM tasks ORDER BY 1"))
        held = read(lambda reader: reader.query("SELECT escalation_id, hold_state FROM escalations ORDER BY 1"))
        return [tuple(row) for row in (*seen, *held)] == [
            *(tuple(row) for row in self._rows("SELECT task_id, state FROM tasks ORDER BY 1")),
            *(tuple(row) for row in self._rows("SELECT escalation_id, state FROM holds ORDER BY 1")),
        ]

    def _check_outcome(self) -> None:
        """Every task succeeded, with exactly one application of exactly one ruling."""
        self._check_safety()
        self._raise_if_broken()
        for task_id, state, _, summary in self._states():
            if state != "SUCCEEDED":
                raise InvariantBrokenError(f"I12: task {task_id} is {state}: {summary}")
            if len(self.truth.applied.get(task_id, [])) != 1:
                raise InvariantBrokenError(f"I2: task {task_id} applied {self.truth.applied.get(task_id)}")
        held = {row[0]: row[1] for row in self._rows("SELECT escalation_id, ruling_id FROM holds")}
        for escalation_id, ruling_id in held.items():
            accepted = self.truth.accepted_rulings.get(escalation_id, set())
            if ruling_id not in self.truth.sent_rulings.get(escalation_id, set()):
                raise InvariantBrokenError(f"I3: {escalation_id} closed by {ruling_id}, accepted were {accepted}")


def _uuid(random: Random) -> str:
    digits = f"{random.getrandbits(128):032x}"
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def simulate(seed: int, directory: Path) -> World:
    """One run of the main job under ``seed``; raises InvariantBrokenError, with the seed in its text."""
    loop = VirtualLoop()
    loop.set_exception_handler(lambda _loop, _context: None)
    world = World(seed, directory, loop)
    try:
        loop.run_until_complete(world.run())
    finally:
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(asyncio.sleep(0))
        loop.run_until_complete(loop.shutdown_asyncgens())
        for node in world.nodes:
            if node.store is not None:
                node.store.close()
        loop.close()
    return world
