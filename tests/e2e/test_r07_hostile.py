"""R07: random, truncated, mutated and hostile requests to every method of both services, with every role's credential."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import re
import sys
import uuid
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import grpc
import pytest
from google.protobuf import message_factory
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.duration_pb2 import Duration

from lanewarden import wire
from lanewarden.auth import METHOD_ROLES, Role
from lanewarden.client_sync import connect
from lanewarden.errors import Reason, Refusal
from lanewarden.v1 import (
    escalation_pb2,
    lane_runner_service_pb2,
    operator_service_pb2,
    supervisor_service_pb2,
    worker_service_pb2,
    write_trace_service_pb2,
)
from lanewarden.worker import Worker
from tests.hostile import Forge, Known
from tests.integration.pair import LANE_RUNNER, OPERATOR, SUPERVISOR, Pair, eventually
from tests.integration.supervising import generation, supervise

pb = operator_service_pb2
WORKER = worker_service_pb2.DESCRIPTOR.services_by_name["WorkerService"]
GetWriteRatesRequest = write_trace_service_pb2.GetWriteRatesRequest
WRITE_TRACE = write_trace_service_pb2.DESCRIPTOR.services_by_name["WriteTraceService"]

CALLS_AT_ONCE = 24
UNARY_SECONDS = 20.0
STREAM_SECONDS = 0.1
"""How long a stream is listened to: one that is fine stays open."""
LANES = 3
MORE_ROUNDS = 3
ROUNDS = (
    {"Steer", "Register", "RecordIncident", "ResolveIncident"},
    {"WakeTask", "RelaunchTask"},
    {"SettleTask"},
    {"PauseTask", "TakeOver"},
    {"CancelTask", "Complete"},
    {"ReopenTask"},
)
"""Called after all others, in this order, because little can be asked of a hold that is ruled on, of a runner that has
registered anew, of a worker that was replaced, or of a task that is paused or has ended, and only one that has ended is
reopened."""
ASK = """exec {python} -m lanewarden worker escalate --option keep='leave it' --expects-reply 'May I?'"""
TELL = """printf '%s' "$LANEWARDEN_TOKEN" > token.draft && mv token.draft token && exec sleep 600"""
LEAK = re.compile(
    r"Traceback|Error\b|Exception\b|sqlite|\bat 0x|\.py\b|NoneType|not all arguments|object has no", re.IGNORECASE
)
"""What the text of a foreign exception looks like."""


@dataclass
class Door:
    """A service at an address, with the tokens of those who may knock."""

    service: ServiceDescriptor
    target: str
    tokens: dict[Role, str]
    known: Known


@dataclass
class Verdict:
    """What came of the calls: how often each code, which methods did something, and what must not have been."""

    codes: Counter[str] = field(default_factory=Counter)
    reached: set[str] = field(default_factory=set)
    faults: list[str] = field(default_factory=list)


class Attack:
    """Sends requests as bytes, and judges the answers."""

    def __init__(self, random: Random, per_kind: int) -> None:
        self.verdict = Verdict()
        self._random = random
        self._per_kind = per_kind

    async def everywhere(self, ground: Ground, chosen: Callable[[MethodDescriptor], bool]) -> None:
        """The chosen methods at every door at once, on ground that is made good first."""
        ground.renew()
        await asyncio.gather(*(self.storm(door, chosen) for door in ground.doors))

    async def storm(self, door: Door, chosen: Callable[[MethodDescriptor], bool]) -> None:
        """The chosen methods of the service: the whole lot by the roles that may call them, a few by every role."""
        forge = Forge(self._random, door.known)
        async with grpc.aio.insecure_channel(door.target, options=wire.CLIENT_OPTIONS) as channel:
            for method in door.service.methods:
                if not chosen(method):
                    continue
                allowed = METHOD_ROLES[f"{door.service.full_name}/{method.name}"]
                may = [role for role in door.tokens if role in allowed]
                requests = forge.requests(method.input_type, self._per_kind)
                cases = [(self._random.choice(may), data) for data in requests]
                for role in door.tokens:
                    few = itertools.islice(forge.requests(method.input_type, 1), 6)
                    cases += [(role, data) for data in few]
                await self._send_all(channel, door, method, cases)

    async def _send_all(
        self, channel: grpc.aio.Channel, door: Door, method: MethodDescriptor, cases: list[tuple[Role, bytes]]
    ) -> None:
        kind = channel.unary_stream if method.server_streaming else channel.unary_unary
        rpc: Any = kind(wire.path(method))
        rest = iter(cases)

        async def work() -> None:
            for role, data in rest:
                metadata = (("authorization", f"Bearer {door.tokens[role]}"),)
                call = rpc(
                    data, metadata=metadata, timeout=STREAM_SECONDS if method.server_streaming else UNARY_SECONDS
                )
                try:
                    answers = [each async for each in call] if method.server_streaming else [await call]
                    for answer in answers:
                        message_factory.GetMessageClass(method.output_type).FromString(answer)
                    self.verdict.codes["OK"] += 1
                    self.verdict.reached.add(method.full_name)
                except grpc.aio.AioRpcError as error:
                    self._judge(method, role, data, error)

        await asyncio.gather(*(work() for _ in range(CALLS_AT_ONCE)))

    def _judge(self, method: MethodDescriptor, role: Role, data: bytes, error: grpc.aio.AioRpcError) -> None:
        code = error.code()
        said = error.details() or ""
        self.verdict.codes[code.name] += 1
        if method.server_streaming and code is grpc.StatusCode.DEADLINE_EXCEEDED:
            self.verdict.reached.add(method.full_name)
            return  # it was fine and still open
        has_reason = any(key == wire.STATUS_KEY for key, _ in error.trailing_metadata() or ())
        trailers = error.trailing_metadata()
        refusal = wire.decode(code, said, trailers, target="", unreachable=Reason.SUPERVISOR_UNREACHABLE)
        if refusal.reason is Reason.NOT_BUILT:
            self.verdict.reached.add(method.full_name)
        bad = code in (grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN) or refusal.reason is Reason.UNEXPECTED
        texts = [said, *refusal.metadata.values(), *(each.description for each in refusal.violations)]
        if bad or not has_reason or any(map(LEAK.search, texts)):
            self.verdict.faults.append(f"{method.full_name} as {role.value}: {code.name} {said} for {data[:300]!r}")


class Ground:
    """A pair with a worker that only lives, a held task, a queued one, and an ended one."""

    def __init__(self, pair: Pair, directory: Path) -> None:
        supervise(pair)
        self.pair = pair
        self.directory = directory
        tokens = pair.credentials.tokens
        supervisor, runner = (f"127.0.0.1:{port}" for port in (pair.supervisor_port, pair.runner_port))
        self.supervisor_trace = pair.client(
            pair.supervisor_port, WRITE_TRACE, Role.OPERATOR, Reason.SUPERVISOR_UNREACHABLE
        )
        self.runner_trace = pair.client(pair.runner_port, WRITE_TRACE, Role.OPERATOR, Reason.RUNNER_UNREACHABLE)
        ended = self._submit("true")
        pair.wait_for_state(ended, "SUCCEEDED")
        held = self._submit(ASK)
        pair.wait_for_state(held, "HELD")
        escalation_id = pair.open_escalation(held).escalation_id
        # From here on every lane is taken, so that nothing that is submitted is run.
        worker = self._submit(TELL, lane="lane-1")
        running = [self._submit("exec sleep 600", lane=f"lane-{number}") for number in range(2, LANES + 1)]
        for task_id in running:
            pair.wait_for_state(task_id, "RUNNING")
        self._tasks = [ended, *(4 * [held]), *running]  # the held one has the incident
        self._lasting = len(self._tasks)
        incident = self._claim(held)
        given = lane_runner_service_pb2.SendInputRequest(request_id=str(uuid.uuid4()), task_id=worker, text="more")
        message_id = pair.lane_runner.SendInput(given).message.message_id
        token = directory / "token"
        eventually(token.exists, "the worker's token")
        socket = f"unix:{pair.directory / 'runner' / 'worker.sock'}"
        pressed = Worker(connect(socket, token=token.read_text(), unreachable=Reason.RUNNER_UNREACHABLE))
        directive = pressed.next_directive(45_000, 200_000)
        pressed.close()
        known: Known = {
            "task_id": self._tasks,
            "escalation_id": [escalation_id],
            "message_id": [message_id],
            "runner_id": ["runner"],
            "argv": ["true"],
            "cwd": ["/"],
            "lane": ["lane-1", "lane-2", ""],
            "gate": ["review"],
            "gates": ["review"],
            "option_key": ["keep"],
            "deadline": [Duration(seconds=3600)],
            "supervision_generation": [generation(pair)],
            "epoch": [1],
            "attempt": [1],
            "relaunches_max": [5],
            "key": [incident],
            "claim_generation": [1],
            "checkpoint_id": [directive.checkpoint_id],
            "directive_id": [directive.directive_id],
            "content": ["so far"],
            "tokens": [1_000, 45_000, 190_000],
            "window": [200_000],
            "turn": [0],
            "window_tokens": [200_000],
            "rungs": [20_000, 150_000],
            "reserve_tokens": [13_000],
            "reduced_tokens": [4_096],
            "writer": ["true"],
            "page_token": self._page_tokens(),
            "page_size": [0, 1, 10],
        }
        # A runner of the attack's own, so that the real one stays in step with its supervisor.
        self._stranger, self._store = str(uuid.uuid4()), str(uuid.uuid4())
        self._generations: list[int] = []
        stranger: Known = {
            **known,
            "runner_id": ["stranger"],
            "task_id": ["t-1", "t-2"],
            "escalation_id": ["t-1.1.1.1", "t-2.1.1.1"],
            "incarnation": [self._stranger],
            "lane": ["lane-1", "lane-2"],
            "store_id": [self._store],
            "generation": self._generations,
            "sequence": list(range(1, 50)),
            "address": ["127.0.0.1:1"],
        }
        self.doors = [
            Door(SUPERVISOR, supervisor, dict(tokens), stranger),
            Door(OPERATOR, supervisor, dict(tokens), known),
            Door(WRITE_TRACE, supervisor, dict(tokens), known),
            Door(LANE_RUNNER, runner, dict(tokens), known),
            Door(WRITE_TRACE, runner, dict(tokens), known),
            Door(WORKER, socket, {Role.WORKER: token.read_text()}, known),
        ]

    def renew(self) -> None:
        """Tasks with input that go on, whatever lane has become free, and tasks that have ended, in place of those of the
        last round; and a lease that is live, however long that took.
        """
        spec = {"argv": ["sleep", "600"], "cwd": "/", "gates": ["review"]}
        del self._tasks[self._lasting :]
        runner = self.pair.lane_runner  # itself, for a stranger may have registered at the supervisor
        for number in range(9):
            submit = lane_runner_service_pb2.SubmitTaskRequest(request_id=str(uuid.uuid4()), spec=spec)
            task_id = runner.SubmitTask(submit).task.task_id
            told = lane_runner_service_pb2.SendInputRequest(request_id=str(uuid.uuid4()), task_id=task_id, text="more")
            runner.SendInput(told)
            if number >= 6:
                stop = lane_runner_service_pb2.CancelTaskRequest(request_id=str(uuid.uuid4()), task_id=task_id)
                runner.CancelTask(stop)
            self._tasks.append(task_id)
        with contextlib.suppress(Refusal):  # it may be somebody else's by now, and nobody needs it any more
            self._generations[:] = [self._register("stranger")]

    def _claim(self, task_id: str) -> str:
        """Have an incident claimed; its key."""
        request = lane_runner_service_pb2.ClaimIncidentRequest(
            request_id=str(uuid.uuid4()),
            task_id=task_id,
            supervision_generation=generation(self.pair),
            epoch=1,
            kind="stale",
        )
        stub = self.pair.client(self.pair.runner_port, LANE_RUNNER, Role.SUPERVISOR, Reason.RUNNER_UNREACHABLE)
        return str(stub.ClaimIncident(request).incident.key)

    def _register(self, runner_id: str) -> int:
        """Have the stranger's start registered; the generation of its lease."""
        request = supervisor_service_pb2.RegisterRequest(
            request_id=str(uuid.uuid4()),
            runner_id=runner_id,
            incarnation=self._stranger,
            store_id=self._store,
            address="127.0.0.1:1",
        )
        port = self.pair.supervisor_port
        stub = self.pair.client(port, SUPERVISOR, Role.RUNNER, Reason.SUPERVISOR_UNREACHABLE)
        return int(stub.Register(request).generation)

    def _submit(self, script: str, **spec: Any) -> str:
        return self.pair.submit("sh", "-c", script.format(python=sys.executable), cwd=str(self.directory), **spec)

    def _page_tokens(self) -> list[str]:
        operator, runner = self.pair.operator, self.pair.lane_runner
        pages = [
            operator.ListTasks(pb.OperatorServiceListTasksRequest(page_size=1)),
            runner.ListTasks(lane_runner_service_pb2.ListTasksRequest(page_size=1)),
        ]
        return [page.next_page_token for page in pages]

    def check(self) -> None:
        """Both have logged no exception, can read all they have stored, and account for every row."""
        for service in (self.pair.supervisor, self.pair.runner):
            wrong = [event for event in service.log if event.get("level") == "CRITICAL" or "exception" in event]
            assert not wrong, wrong[:3]
        for trace in (self.supervisor_trace, self.runner_trace):
            rates = eventually(lambda rpc=trace: rpc.GetWriteRates(GetWriteRatesRequest()), "the service answers")
            assert rates.unattributed_rows == 0
        operator, runner = self.pair.operator, self.pair.lane_runner
        states = [state for state in escalation_pb2.HoldState.values() if state]
        own = pages(runner.ListTasks, lane_runner_service_pb2.ListTasksRequest(), "tasks")
        assert len(own) > len(self.doors)
        for task in own:
            runner.GetTask(lane_runner_service_pb2.GetTaskRequest(task_id=task.task_id))
        pages(runner.ListHolds, lane_runner_service_pb2.ListHoldsRequest(states=states), "holds")
        escalations = pb.ListEscalationsRequest(states=states, notices=True)
        for each in pages(operator.ListEscalations, escalations, "escalations"):
            operator.GetEscalation(pb.GetEscalationRequest(escalation_id=each.escalation_id))
        assert pages(operator.ListTasks, pb.OperatorServiceListTasksRequest(), "tasks")
        assert pages(operator.ListAudit, pb.ListAuditRequest(), "entries")


def pages(rpc: Any, request: Any, name: str) -> list[Any]:
    """The rows of every page."""
    rows: list[Any] = []
    while True:
        response = rpc(request)
        rows += getattr(response, name)
        if not response.next_page_token:
            return rows
        request.page_token = response.next_page_token


def own_runner_is_live(ground: Ground) -> bool:
    """The real runner, whatever else has registered."""
    runners = ground.pair.operator.ListRunners(pb.ListRunnersRequest()).runners
    return any(each.runner_id == "runner" and each.state == pb.RUNNER_STATE_LIVE for each in runners)


async def assail(ground: Ground, seed: int, per_kind: int) -> None:
    """Attack every door at once, then see that all is well, also after another start on what was stored."""
    pair = ground.pair
    before = pair.supervisor.pid, pair.runner.pid
    attack = Attack(Random(seed), per_kind)
    late = set().union(*ROUNDS)
    await attack.everywhere(ground, lambda method: method.name not in late)
    for names in ROUNDS:
        await attack.everywhere(ground, lambda method, names=names: method.name in names)
    found = attack.verdict
    methods = {method.full_name for door in ground.doors for method in door.service.methods}
    for _ in range(MORE_ROUNDS):  # what a request can do depends on how far the workers have come, so on the machine
        if unreached := methods - found.reached:
            await attack.everywhere(ground, lambda method, names=unreached: method.full_name in names)
    assert not found.faults, f"seed {seed}: {len(found.faults)} faults:\n" + "\n".join(found.faults[:20])
    unreached = methods - found.reached
    assert not unreached, f"no request was good enough for these to do anything: {sorted(unreached)}"
    assert (pair.supervisor.pid, pair.runner.pid) == before
    eventually(lambda: own_runner_is_live(ground), "the attack has not come between the runner and its supervisor")
    ground.check()
    for service in (pair.runner, pair.supervisor):
        assert service.stop() == 0
        service.start()
    eventually(lambda: own_runner_is_live(ground), "the runner has registered again")
    ground.check()


async def test_r07_no_request_makes_a_service_stumble(tmp_path: Path) -> None:
    """No INTERNAL, no UNKNOWN, no text of an exception, no exception in the log; all rows accounted for and readable."""
    with Pair(tmp_path / "s", lanes=LANES) as pair:
        await assail(Ground(pair, tmp_path), seed=7, per_kind=5)


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", range(1, 9))
async def test_r07_many_more_requests(tmp_path: Path, seed: int) -> None:
    """The same with other seeds and ten times as many random requests."""
    with Pair(tmp_path / "s", lanes=LANES) as pair:
        await assail(Ground(pair, tmp_path), seed=seed, per_kind=50)
