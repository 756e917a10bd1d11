"""A lane runner without processes and without gRPC: the real store and handlers, a clock that is moved by hand, seeded
randomness.

The store runs every unit of work at once on the calling thread, so that commands finish without an event loop:
:meth:`RunnerKit.ask` and :meth:`RunnerKit.say` are plain calls. Streams need a loop and the handlers themselves.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import uuid
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, TypeVar

from lane_runner_svc import emitters
from lane_runner_svc.core.holds import Hold
from lane_runner_svc.core.task import Exit, ExitKind, Task
from lane_runner_svc.holder import Holder
from lane_runner_svc.rpc.lane_runner import LaneRunnerHandlers
from lane_runner_svc.rpc.logs import LogReader
from lane_runner_svc.rpc.supervision import SupervisionReader
from lane_runner_svc.rpc.worker import WorkerHandlers
from lane_runner_svc.runner import Runner
from lane_runner_svc.store import holds, messages, supervision, tasks
from lane_runner_svc.store.messages import StoredMessage
from lane_runner_svc.store.meta import ensure_store_id
from lane_runner_svc.store.schema import MIGRATIONS
from lane_runner_svc.store.supervision import Supervision
from lane_runner_svc.work import attempts, hooks, limits, timers
from lane_runner_svc.work.attempts import Launch
from lane_runner_svc.work.hooks import HookRun
from lane_runner_svc.work.session import AttemptRef
from lanewarden import rules
from lanewarden.auth import METHOD_ROLES, AttemptClaim, Identity, Role, check_role
from lanewarden.build import UNKNOWN
from lanewarden.hub import Hub
from lanewarden.ledger import WriteLedger
from lanewarden.loop_lag import LoopLag
from lanewarden.server import Call
from lanewarden.store import Store
from lanewarden.telemetry import OFF, Telemetry
from lanewarden.v1 import escalation_pb2, task_pb2, worker_service_pb2
from lanewarden.v1 import lane_runner_service_pb2 as pb
from tests.databases import empty_database

T = TypeVar("T")

LANES = ("a", "b")
RUNNER_ID = "runner-1"
ENVIRONMENT = {"PATH": "/usr/bin:/bin"}
KILLED = Exit(kind=ExitKind.SIGNALED, signal=9, signal_name="SIGKILL")
LOST = Exit(kind=ExitKind.SHIM_LOST)
NEVER_STARTED = Exit(kind=ExitKind.NEVER_STARTED)


def exit_code(code: int) -> Exit:
    """The end of a program that ended by itself."""
    return Exit(kind=ExitKind.EXITED, code=code)


class ManualClock:
    """Both clocks, moved together by :meth:`advance`; the wall clock alone by :meth:`jump_wall`."""

    def __init__(self, wall_ms: int = 1_800_000_000_000) -> None:
        self._wall_offset_ms = wall_ms - 1_000
        self._steady_ms = 1_000
        self._order = itertools.count()
        self._sleepers: list[tuple[int, int, asyncio.Future[None]]] = []

    def wall_ms(self) -> int:
        """Milliseconds since the Unix epoch."""
        return self._wall_offset_ms + self._steady_ms

    def steady_ms(self) -> int:
        """Milliseconds that only go forward."""
        return self._steady_ms

    async def sleep(self, seconds: float) -> None:
        """Return once the clock was moved by ``seconds``."""
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._steady_ms + round(seconds * 1000), next(self._order), woken))
        await woken

    def jump_wall(self, seconds: float) -> None:
        """Somebody sets the wall clock."""
        self._wall_offset_ms += round(seconds * 1000)

    def advance(self, seconds: float) -> None:
        """Move both clocks and wake whoever has slept long enough, in the order of their deadlines."""
        self._steady_ms += round(seconds * 1000)
        while self._sleepers and self._sleepers[0][0] <= self._steady_ms:
            woken = heapq.heappop(self._sleepers)[2]
            if not woken.done():
                woken.set_result(None)


def finished(work: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that has nothing to wait for."""
    try:
        work.send(None)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
    work.close()
    raise AssertionError("the coroutine waits for something; await it on a loop")


@dataclass(slots=True)
class RunnerKit:
    """A runner, what it is made of, and short words for what happens to it."""

    directory: Path
    clock: ManualClock
    random: Random
    ledger: WriteLedger
    runner: Runner
    handlers: LaneRunnerHandlers
    worker_handlers: WorkerHandlers
    stopped: list[AttemptRef] = field(default_factory=list)
    """Workers that were to be stopped, in order."""
    telemetry: Telemetry = OFF

    # Requests, checked at the door as the server checks them.

    def fresh_id(self) -> str:
        """A request id from the kit's own seed."""
        return str(uuid.UUID(int=self.random.getrandbits(128), version=4))

    def call(self, role: Role, *, name: str = "", method: str = "") -> Call:
        """A call by somebody of that role; ``method`` is a method of LaneRunnerService."""
        return _call(f"lanewarden.v1.LaneRunnerService/{method}", Identity(name=name or role.value, role=role))

    def worker_call(self, ref: AttemptRef, *, method: str = "") -> Call:
        """A call by the worker of that attempt."""
        claim = AttemptClaim(task_id=ref.task_id, epoch=ref.epoch, attempt=ref.attempt)
        worker = Identity(name=f"worker of {ref.task_id}", role=Role.WORKER, attempt=claim)
        return _call(f"lanewarden.v1.WorkerService/{method}", worker)

    def ask(self, method: str, request: Any, *, role: Role = Role.OPERATOR, name: str = "") -> Any:
        """Call a unary method of LaneRunnerService; an empty ``request_id`` is filled in."""
        return self._admitted(self.handlers, method, request, self.call(role, name=name, method=method))

    def say(self, ref: AttemptRef, method: str, request: Any) -> Any:
        """Call a unary method of WorkerService as the worker of an attempt."""
        return self._admitted(self.worker_handlers, method, request, self.worker_call(ref, method=method))

    def _admitted(self, handlers: object, method: str, request: Any, call: Call) -> Any:
        if "request_id" in request.DESCRIPTOR.fields_by_name and not request.request_id:
            request.request_id = self.fresh_id()
        check_role(call.method, call.identity.role, METHOD_ROLES[call.method])
        rules.check(request)
        return finished(getattr(handlers, method)(request, call))

    # What operators do.

    def submit(self, *, lane: str = "a", **spec: Any) -> Task:
        """A queued task."""
        spec = {"argv": ["true"], "cwd": str(self.directory), "lane": lane, **spec}
        submitted = self.ask("SubmitTask", pb.SubmitTaskRequest(spec=task_pb2.TaskSpec(**spec)))
        return self.task(submitted.task.task_id)

    def rule(
        self, escalation_id: str, *, decision: str = "APPROVE", by: str = "operator", task_id: str = "", **more: Any
    ) -> Any:
        """Send a ruling; returns the response."""
        said = {"decision": f"DECISION_{decision}", "instructions": "go on", **more}
        ruling = escalation_pb2.Ruling(escalation_id=escalation_id, **said)
        return self.ask("Steer", pb.SteerRequest(task_id=task_id, ruling=ruling), name=by)

    def instruct(self, task_id: str, text: str = "mind the gap") -> Any:
        """Send an instruction; returns the response."""
        return self.ask("Steer", pb.SteerRequest(task_id=task_id, instruction=escalation_pb2.Instruction(text=text)))

    def cancel(self, task_id: str, cause: str = "not needed") -> Task:
        """Cancel a task; returns it as stored now."""
        self.ask("CancelTask", pb.CancelTaskRequest(task_id=task_id, cause=cause))
        return self.task(task_id)

    def on_task(self, method: str, task_id: str, **more: Any) -> Any:
        """Call a method of LaneRunnerService whose request names a task; returns the response."""
        request = getattr(pb, f"{'LaneRunnerService' if method == 'TakeOver' else ''}{method}Request")
        return self.ask(method, request(task_id=task_id, **more))

    def extend(self, escalation_id: str, seconds: int) -> Any:
        """Give an open hold that long from now; returns the response."""
        return self.ask("ExtendHold", pb.ExtendHoldRequest(escalation_id=escalation_id, deadline={"seconds": seconds}))

    def review(self, task_id: str, gate: str, decision: str, *, role: Role = Role.OPERATOR) -> Any:
        """Record a review of a gate; returns the response."""
        request = pb.RecordGateRequest(task_id=task_id, gate=gate, decision=f"GATE_DECISION_{decision}")
        return self.ask("RecordGate", request, role=role)

    # What a supervisor does by itself.

    def supervise(self, generation: int = 1, *, incarnation: str = "", live: bool = True) -> None:
        """The supervisor of that incarnation supervises the runner (or, not ``live``, does no longer)."""
        granted = Supervision(
            generation=generation,
            supervisor_id="s",
            supervisor_incarnation=incarnation or f"i{generation}",
            live=live,
        )
        finished(self.runner.do(lambda session: supervision.put(session.uow, granted), emitter=emitters.START))

    def act(self, method: str, task_id: str, **more: Any) -> Any:
        """An automatic action under the current generation and on the task's present life; returns the response."""
        task = self.task(task_id)
        known: dict[str, Any] = {
            "task_id": task_id,
            "epoch": task.epoch,
            "supervision_generation": self.runner.read(supervision.load).generation,
        }
        if method == "RelaunchTask":
            known |= {"attempt": task.attempt, "cause": "no progress", "relaunches_max": 2}
        if method == "SettleTask":
            known |= {"summary": "given up: no progress", "diagnosis": "the worker was killed by SIGSEGV"}
        if method == "ClaimIncident":
            known |= {"kind": "stale"}
        return self.ask(method, getattr(pb, f"{method}Request")(**(known | more)), role=Role.SUPERVISOR)

    def send(self, task_id: str, text: str = "more") -> str:
        """Send an input; returns its id."""
        return str(self.ask("SendInput", pb.SendInputRequest(task_id=task_id, text=text)).message.message_id)

    # What the launcher does.

    def claim(self, lane: str = "a") -> Launch | None:
        """What the lane may launch now, with its attempt counted; None when there is nothing."""
        return finished(self.runner.do(lambda session: attempts.claim(session, lane), emitter=emitters.CLAIM)).launch

    def launched(self, ref: AttemptRef) -> Task:
        """The worker is alive."""
        work = lambda session: attempts.launched(session, ref, pid=4242, start_ticks=1, boot_id="boot")  # noqa: E731
        return finished(self.runner.do(work, emitter=emitters.LAUNCH, task_id=ref.task_id))

    def launch_failed(self, ref: AttemptRef, cause: str = "no such program") -> Task:
        """The worker could not be started."""
        work = lambda session: attempts.launch_failed(session, ref, cause)  # noqa: E731
        return finished(self.runner.do(work, emitter=emitters.LAUNCH, task_id=ref.task_id))

    def exited(self, ref: AttemptRef, end: Exit | None = None, *, interrupted: bool = False) -> Task:
        """The worker's process tree is gone; by default it ended by itself with code 0."""
        work = lambda session: attempts.exited(session, ref, end or exit_code(0), interrupted=interrupted)  # noqa: E731
        return finished(self.runner.do(work, emitter=emitters.EXIT, task_id=ref.task_id))

    def start(self, lane: str = "a") -> AttemptRef:
        """Claim and launch what waits in the lane, whatever backoff it is in."""
        self.clock.advance(60)
        launch = self.claim(lane)
        assert launch is not None, f"nothing to launch in lane {lane}"
        self.launched(launch.ref)
        return launch.ref

    def running(self, *, lane: str = "a", **spec: Any) -> AttemptRef:
        """The attempt of a new task whose worker is alive."""
        task = self.submit(lane=lane, **spec)
        ref = self.start(lane)
        assert ref.task_id == task.task_id, "another task was before it in the lane"
        return ref

    # What the timers and the hooks do.

    def fire(self) -> int:
        """Fire what is due on open holds; on how many."""
        return finished(self.runner.do(timers.fire_due, emitter=emitters.TIMER))

    def lift(self) -> int:
        """Clear the pause of every task whose limit of use has ended; of how many."""
        return finished(self.runner.do(limits.lift_due, emitter=emitters.LIMIT))

    def start_hook(self, task_id: str) -> HookRun | None:
        """Count a try of the task's on_success command, if one is due."""
        return finished(self.runner.do(lambda session: hooks.start(session, task_id), emitter=emitters.HOOK))

    def end_hook(self, run: HookRun, *, done: bool = True, interrupted: bool = False) -> Task:
        """A try has ended."""
        ref = AttemptRef(task_id=run.task.task_id, epoch=run.task.epoch, attempt=run.number)
        work = lambda session: hooks.end(session, ref, done=done, interrupted=interrupted, detail="ended")  # noqa: E731
        return finished(self.runner.do(work, emitter=emitters.HOOK, task_id=ref.task_id))

    # What workers do.

    def escalate(self, ref: AttemptRef, question: str = "may I?", **more: Any) -> str:
        """Ask, and hold unless told otherwise; returns the escalation id."""
        asked = {"question": question, "expects_reply": True, **more}
        request = worker_service_pb2.WorkerServiceEscalateRequest(**asked)
        answer = self.say(ref, "Escalate", request)
        return str(answer.escalation.escalation_id)

    def take(self, ref: AttemptRef, message_id: str) -> Any:
        """Acknowledge a message; returns the response."""
        request = worker_service_pb2.AcknowledgeMessageRequest(message_id=message_id)
        return self.say(ref, "AcknowledgeMessage", request)

    def complete(self, ref: AttemptRef, summary: str = "done", *, failed: bool = False) -> Any:
        """Say Complete; returns the response."""
        outcome = worker_service_pb2.OUTCOME_FAILED if failed else worker_service_pb2.OUTCOME_SUCCEEDED
        return self.say(ref, "Complete", worker_service_pb2.CompleteRequest(outcome=outcome, summary=summary))

    def meet_limit(self, ref: AttemptRef, seconds: float) -> Task:
        """Say that a limit of use ends in that long, and exit with 75; returns the task as stored then."""
        self.say_retry(ref, seconds)
        return self.exited(ref, exit_code(75))

    def say_retry(self, ref: AttemptRef, seconds: float, **more: Any) -> Any:
        """Say that a limit of use ends in that long, by the wall clock; returns the response."""
        request = worker_service_pb2.ReportProgressRequest(**more)
        request.retry_at.FromMilliseconds(self.clock.wall_ms() + round(seconds * 1000))
        return self.say(ref, "ReportProgress", request)

    # What is stored.

    def task(self, task_id: str) -> Task:
        """The task as stored."""
        return self.runner.read(lambda reader: tasks.load(reader, task_id))

    def hold(self, escalation_id: str) -> Hold:
        """The escalation as stored."""
        return self.runner.read(lambda reader: holds.load(reader, escalation_id))

    def message(self, message_id: str) -> StoredMessage:
        """The message as stored."""
        found = self.runner.read(lambda reader: messages.load(reader, message_id))
        assert found is not None, f"no message {message_id}"
        return found

    def waiting(self, task_id: str) -> list[StoredMessage]:
        """The messages that no worker has acknowledged, in the order a worker gets them."""
        return self.runner.read(lambda reader: messages.waiting(reader, task_id))

    def evidence(self, task_id: str) -> list[pb.Evidence]:
        """What old attempts of the task have said."""
        return list(self.on_task("ListEvidence", task_id).entries)

    def dump(self) -> dict[str, list[tuple[Any, ...]]]:
        """Every row of every table that a request can change, for "nothing changed"."""
        names = ("tasks", "attempts", "holds", "messages", "gates", "outbox", "incidents", "signals", "contexts")
        names += ("checkpoints", "directives")

        def look(reader: Any) -> dict[str, list[tuple[Any, ...]]]:
            return {name: [tuple(row) for row in reader.query(f"SELECT * FROM {name} ORDER BY 1, 2")] for name in names}

        return self.runner.read(look)

    # Its life.

    def restart(self) -> None:
        """Close the store and open it again, with nothing kept in memory but the clock."""
        stopped = self.stopped
        self.close()
        again = _open(
            self.directory, clock=self.clock, random=self.random, on_stop=stopped.append, telemetry=self.telemetry
        )
        self.runner, self.handlers, self.worker_handlers, self.ledger = again

    def close(self) -> None:
        """Close the store; every row that it wrote must have an author (I11)."""
        unattributed = self.runner.store.unattributed_rows()
        self.runner.store.close()
        assert unattributed == 0, f"{unattributed} rows were written by nobody"


def make_runner(tmp_path: Path, *, seed: int = 0, telemetry: Telemetry = OFF) -> RunnerKit:
    """A runner with lanes ``a`` and ``b`` on a store in ``tmp_path``."""
    clock, random, stopped = ManualClock(), Random(seed), list[AttemptRef]()
    runner, handlers, worker_handlers, ledger = _open(
        tmp_path, clock=clock, random=random, on_stop=stopped.append, telemetry=telemetry
    )
    return RunnerKit(
        directory=tmp_path,
        clock=clock,
        random=random,
        ledger=ledger,
        runner=runner,
        handlers=handlers,
        worker_handlers=worker_handlers,
        stopped=stopped,
        telemetry=telemetry,
    )


def _open(
    directory: Path,
    *,
    clock: ManualClock,
    random: Random,
    on_stop: Callable[[AttemptRef], None],
    telemetry: Telemetry = OFF,
) -> tuple[Runner, LaneRunnerHandlers, WorkerHandlers, WriteLedger]:
    ledger = WriteLedger(clock)
    store = Store.open(
        empty_database(directory / "runner.sqlite3", MIGRATIONS),
        migrations=MIGRATIONS,
        ledger=ledger,
        threaded=False,
        telemetry=telemetry,
    )
    fresh = str(uuid.UUID(int=random.getrandbits(128), version=4))
    store.write_now(lambda uow: ensure_store_id(uow, fresh), emitter=emitters.START)
    runner = Runner(
        runner_id=RUNNER_ID, lanes=LANES, store=store, clock=clock, random=random, hub=Hub(), stop_worker=on_stop
    )
    logs = LogReader(runner, lambda ref: directory / f"{ref.task_id}.{ref.attempt}.log")
    shown = SupervisionReader(
        runner, Holder(runner), incarnation=fresh, build=UNKNOWN, loop_lag=LoopLag(runner.clock), supervisors=()
    )
    return (
        runner,
        LaneRunnerHandlers(runner, environment=ENVIRONMENT, approvers={}, logs=logs, supervision=shown),
        WorkerHandlers(runner),
        ledger,
    )


def _call(method: str, identity: Identity) -> Call:
    return Call(method=method, identity=identity, origin="", traceparent="", deadline_seconds=None)
