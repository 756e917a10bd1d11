"""Bringing stored commands to a runner: the turn, the pace, and what is recorded. Real store, no transport."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from lanewarden.clock import SystemClock
from lanewarden.errors import Reason, Refusal, refuse
from lanewarden.hub import Topic
from lanewarden.ledger import WriteLedger
from lanewarden.store import Store
from lanewarden.telemetry import NoSpan, Telemetry, current_trace_id
from lanewarden.v1 import lane_runner_service_pb2 as runner_pb
from lanewarden.v1 import task_pb2
from supervisor_svc import emitters
from supervisor_svc.bootstrap import Parts, build
from supervisor_svc.config import SupervisorConfig
from supervisor_svc.core.delivery import BACKOFF_MAX_SECONDS
from supervisor_svc.core.holds import Actor
from supervisor_svc.loop.delivery import deliver
from supervisor_svc.store import audit, outbox, runners
from supervisor_svc.store.outbox import Command
from supervisor_svc.store.runners import RunnerRow
from supervisor_svc.store.schema import MIGRATIONS
from supervisor_svc.supervisor import Supervisor
from supervisor_svc.work import commands, intake
from supervisor_svc.work.courier import Courier
from supervisor_svc.work.session import Deed, Session
from tests.databases import empty_database

PATIENCE_SECONDS = 20.0
AWAY = refuse(Reason.RUNNER_UNREACHABLE, "nothing answers")


class SleeplessClock(SystemClock):
    """Sleepers wait until :meth:`wake` is called, however short their sleep."""

    def __init__(self) -> None:
        super().__init__()
        self.sleeps: list[float] = []
        self.asleep = asyncio.Event()
        self._sleepers: list[asyncio.Future[None]] = []

    async def sleep(self, seconds: float) -> None:
        self.sleeps.append(seconds)
        self._sleepers.append(asyncio.get_running_loop().create_future())
        self.asleep.set()
        await self._sleepers[-1]

    def wake(self) -> None:
        for each in self._sleepers:
            if not each.done():
                each.set_result(None)
        self._sleepers.clear()
        self.asleep.clear()


class FakeStub:
    """Answers Steer with what ``answer`` makes of the request."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.traces: list[str] = []
        self.answer: Callable[[Any], Any] = lambda request: runner_pb.SteerResponse(task=task(5))
        self.gate = asyncio.Event()
        self.gate.set()

    async def Steer(self, request: Any, **options: Any) -> Any:
        self.calls.append(request.instruction.text)
        self.traces.append(current_trace_id())
        await self.gate.wait()
        result = self.answer(request)
        if isinstance(result, Refusal):
            raise result
        return result


def task(version: int, task_id: str = "t1") -> task_pb2.Task:
    return task_pb2.Task(task_id=task_id, runner_id="r1", state=task_pb2.TASK_STATE_RUNNING, version=version)


class Bench:
    """A supervisor that knows one runner with two tasks."""

    def __init__(self, parts: Parts, clock: SleeplessClock, stub: FakeStub) -> None:
        self.supervisor: Supervisor = parts.supervisor
        self.clock = clock
        self.stub = stub
        self.courier = Courier(self.supervisor, timeout_seconds=1.0)

    async def do(self, work: Callable[[Session], Any]) -> Any:
        return await self.supervisor.do(work, emitter=emitters.STEER)

    async def instruct(self, text: str, task_id: str = "t1", *, traceparent: str = "") -> Command:
        request = runner_pb.SteerRequest(request_id=str(uuid.uuid4()), task_id=task_id)
        request.instruction.text = text
        deed = Deed(
            actor=Actor(identity="ada", role="operator"),
            action="Steer instruction",
            request_id=request.request_id,
            traceparent=traceparent,
        )
        command: Command = await self.do(lambda session: commands.accept(session, deed, request))
        return command

    def state(self, command: Command) -> str:
        found = self.supervisor.read(lambda reader: outbox.find(reader, command.command_id))
        assert found is not None
        return found.state

    def outcomes(self) -> list[str]:
        entries = self.supervisor.read(lambda reader: audit.page(reader, task_id="", rows_max=99, after=None))
        return [entry.outcome for entry in entries]


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    clock, stub = SleeplessClock(), FakeStub()
    ledger = WriteLedger(clock)
    store = Store.open(
        empty_database(tmp_path / "s.sqlite3", MIGRATIONS), migrations=MIGRATIONS, ledger=ledger, threaded=False
    )
    parts = await build(
        SupervisorConfig(),
        store=store,
        ledger=ledger,
        clock=clock,
        random=Random(7),
        incarnation=str(uuid.uuid4()),
        connect_runner=lambda address: stub,
    )
    made = Bench(parts, clock, stub)
    runner = RunnerRow(
        runner_id="r1",
        incarnation="i1",
        generation=1,
        address="127.0.0.1:1",
        lanes=("a",),
        version="",
        store_id="s1",
        taken_sequence=0,
        registered_wall_ms=1,
    )
    await made.do(lambda session: runners.put(session.uow, runner))
    for task_id in ("t1", "t2"):
        await made.do(lambda session, task_id=task_id: intake.put_task(session, task(1, task_id)))
    yield made
    store.close()


async def test_whoever_waited_for_a_try_in_vain_does_not_try_again(bench: Bench) -> None:
    """Many at once cost a runner that is away one try, not one each."""
    await bench.instruct("one")
    bench.stub.gate.clear()
    bench.stub.answer = lambda request: AWAY
    tries = [asyncio.ensure_future(bench.courier.drain("r1")) for _ in range(5)]
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not bench.stub.calls:
            await asyncio.sleep(0)
        bench.stub.gate.set()
        assert await asyncio.gather(*tries) == [False] * 5
    assert bench.stub.calls == ["one"]
    assert not await bench.courier.drain("r1")
    assert bench.stub.calls == ["one", "one"]


async def test_a_task_that_takes_nothing_delays_only_itself(bench: Bench) -> None:
    """A full inbox holds back its task's later commands, in order, and nobody else's."""
    for text, task_id in (("a1", "t1"), ("b1", "t2"), ("a2", "t1"), ("b2", "t2")):
        await bench.instruct(text, task_id)
    full = refuse(Reason.LIMIT_REACHED, "full")
    response = runner_pb.SteerResponse()
    bench.stub.answer = lambda request: full if request.task_id == "t1" else response
    assert not await bench.courier.drain("r1")
    assert bench.stub.calls == ["a1", "b1", "b2"]
    bench.stub.answer = lambda request: response
    assert await bench.courier.drain("r1")
    assert bench.stub.calls[3:] == ["a1", "a2"]


async def test_what_became_of_a_command_is_recorded_once(bench: Bench) -> None:
    """A late second word on a settled command changes neither its state nor the audit."""
    command = await bench.instruct("one")
    assert await bench.courier.drain("r1")
    late = refuse(Reason.TASK_TERMINAL, "over")
    await bench.do(lambda session: commands.settle(session, command, late))
    assert bench.state(command) == outbox.DELIVERED
    assert bench.outcomes() == ["STORED", "OK"]


async def test_an_old_answer_never_replaces_a_newer_report(bench: Bench) -> None:
    """A runner's answer is learned if it is newer than what was reported, and passed over if it is not."""

    def version() -> int:
        return bench.supervisor.read(lambda reader: commands.find_task(reader, "t1")).version

    await bench.do(lambda session: intake.learn_task(session, task(5)))
    assert version() == 5
    await bench.do(lambda session: intake.learn_task(session, task(4)))
    assert version() == 5
    await bench.do(lambda session: intake.put_task(session, task(2)))
    assert version() == 2


async def test_tries_are_repeated_after_bounded_delays_and_at_once_when_the_runner_shows_itself(bench: Bench) -> None:
    """Delays stay within their bound, each ends in a try, and news of the runner ends one early."""
    bench.stub.answer = lambda request: AWAY
    loop = asyncio.ensure_future(deliver(bench.supervisor, bench.courier))
    command = await bench.instruct("one")
    async with asyncio.timeout(PATIENCE_SECONDS):
        for tries in range(1, 12):
            await bench.clock.asleep.wait()
            assert len(bench.stub.calls) == tries
            bench.clock.wake()
        await bench.clock.asleep.wait()
        assert max(bench.clock.sleeps) <= BACKOFF_MAX_SECONDS
        assert max(bench.clock.sleeps) > 1.0
        bench.stub.answer = lambda request: runner_pb.SteerResponse()
        bench.supervisor.hub.publish([Topic("runner", "r1")])
        while bench.state(command) != outbox.DELIVERED:
            await asyncio.sleep(0)
    loop.cancel()
    await asyncio.gather(loop, return_exceptions=True)
    assert len(bench.stub.calls) == 13


def drops_the_context(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command is stored without the trace of the call that brought it."""
    insert = outbox.insert
    monkeypatch.setattr(outbox, "insert", lambda uow, command: insert(uow, replace(command, traceparent="")))


def drops_the_link(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was stored is carried out in whatever trace carries it out."""
    monkeypatch.setattr(Telemetry, "span", lambda *given, **named: NoSpan())


@pytest.mark.parametrize("mutant", [None, drops_the_context, drops_the_link])
async def test_a_command_is_brought_in_the_trace_that_stored_it(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, mutant: Callable[[pytest.MonkeyPatch], None] | None
) -> None:
    """Whoever brings it, however late; what comes after it is in its own. A supervisor that forgets it is found out."""
    if mutant is not None:
        mutant(monkeypatch)
    await bench.instruct("one", traceparent=f"00-{'1' * 32}-{'b' * 16}-01")
    await bench.instruct("two", traceparent=f"00-{'2' * 32}-{'b' * 16}-00")
    await bench.instruct("three")
    assert await bench.courier.drain("r1")
    assert bench.stub.calls == ["one", "two", "three"]
    assert (bench.stub.traces == ["1" * 32, "2" * 32, ""]) is (mutant is None)
