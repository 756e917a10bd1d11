"""What is written while nothing happens (W02), what is lost while nothing can be (W05): both services on virtual time."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any
from unittest import mock

import pytest

import supervisor_svc.emitters
from lane_runner_svc.core.states import State
from lane_runner_svc.loop.reporter import Reporter
from lane_runner_svc.work import tasks as task_work
from lanewarden.auth import Identity, Role
from lanewarden.client import Stub
from lanewarden.store import UnitOfWork
from lanewarden.v1 import lane_runner_service_pb2 as runner_pb
from lanewarden.v1 import operator_service_pb2 as operator_pb
from lanewarden.v1 import worker_service_pb2, write_trace_service_pb2
from supervisor_svc.core.leases import LeaseState
from supervisor_svc.rpc.leases import LeaseHandlers
from supervisor_svc.rpc.supervisor import SupervisorHandlers
from tests.sim.lease_stage import LeaseStage
from tests.sim.nodes import Node
from tests.sim.sim_stage import Death, SimStage
from tests.sim.stories import play
from tests.sim.virtual import VirtualLoop
from tests.stories.programs import Worker, asks_and_leaves

WRITE_TRACE = write_trace_service_pb2.DESCRIPTOR.services_by_name["WriteTraceService"]
HOUR = 3600.0
HELD, SESSIONS, RUNNING = 5, 3, 2
READS = ("ListTasks", "ListEscalations", "ListRunners", "ListAudit", "ListIncidents")
LOOK_SECONDS = 20.0
HELD_SECONDS = 20.0
REACTIONS_MAX = 3
REMINDER_HOURS = 4
REMINDING = {"lane_runner.hold.timer", "lane_runner.outbox.report", "supervisor.intake.report", "supervisor.notify"}
"""Who has to write when people are reminded; and then the minutes are summed up."""
ROWS_PER_REMINDER = 10
MINUTES = "write_minutes"


class IdleStage(SimStage):
    """A heartbeat each second, and figures in it that never come twice."""

    def __init__(self, directory: Path, loop: VirtualLoop, death: Death | None = None, seed: int = 0) -> None:
        super().__init__(directory, loop, death, seed)
        self.quiet = False
        self.runner.config = replace(self.runner.config, lanes=("lane-1", "lane-2", "lane-3"))
        self.supervisor.config = replace(self.supervisor.config, lease_ttl_seconds=10, lease_renew_seconds=1)
        self.beats = self.lag_ms = 0

    def log(self, text: str) -> None:
        if not self.quiet:  # a day of heartbeats is no story
            super().log(text)

    async def heartbeats(self, worker: Worker) -> int:
        """A worker that says each second where it is, in other words each time, and comes no further."""
        while True:
            self.beats += 1
            note = f"at {self.loop.time():.3f}, {self.beats} beats"
            await worker.call("ReportProgress", worker_service_pb2.ReportProgressRequest(sequence=1, note=note))
            await asyncio.sleep(1.0)

    def changes(self) -> dict[str, int]:
        """SQLite's own counter of changed rows, of each service."""
        return {name: node.store._connection.total_changes for name, node in self.nodes.items() if node.store}

    def sizes(self) -> dict[str, int]:
        """How many rows each table has."""
        tables = {
            (service, name)
            for service in self.files
            for (name,) in self.rows(service, "SELECT name FROM sqlite_master WHERE type = 'table'")
        }
        return {
            f"{service} {name}": self.rows(service, f"SELECT count(*) FROM {name}")[0][0] for service, name in tables
        }

    async def emitters(self) -> dict[str, int]:
        """How many rows each emitter of either service has written."""
        found: dict[str, int] = {}
        for target in self.nodes:
            listed = await self._trace(target).ListEmitters(write_trace_service_pb2.ListEmittersRequest())
            found |= {each.emitter: each.rows for each in listed.emitters}
        return found

    def _trace(self, target: str) -> Stub:
        viewer = Identity(name="eve", role=Role.VIEWER)
        return self.network.stub(WRITE_TRACE, source="eve", target=target, identity=viewer)

    async def look(self) -> None:
        """Read whatever can be read, as dashboards and probes do."""
        for rpc in READS:
            await self.ask(rpc, role=Role.VIEWER)
        for rpc in ("ListTasks", "ListHolds", "ListLanes"):
            await self.ask(rpc, role=Role.VIEWER, runner=True)
        for target in self.nodes:
            await self._trace(target).GetWriteRates(write_trace_service_pb2.GetWriteRatesRequest())
            await self._trace(target).ListFindings(write_trace_service_pb2.ListFindingsRequest())

    async def idle(self, seconds: float, random: Random) -> None:
        """Let time pass, with clocks that are never twice as far apart, and people who look."""
        end = self.loop.time() + seconds
        while self.loop.time() < end:
            self.runner.clock.skew_ms = random.randrange(-2_000, 2_000)
            self.lag_ms = random.randrange(200)
            await self.look()
            await self.sleep(LOOK_SECONDS)


async def ten_idle_tasks(stage: IdleStage, *, hours: float) -> AsyncIterator[str]:
    for number in range(HELD):
        reminder = {"seconds": REMINDER_HOURS * 3600}
        task_id = await stage.submit(f"asker-{number}", asks_and_leaves, reminder=reminder)
        await stage.state(task_id, State.HELD)
    for number in range(SESSIONS):
        await stage.submit(f"session-{number}", asks_and_leaves, kind="TASK_KIND_SESSION")
    for number in range(RUNNING):
        task_id = await stage.submit(f"worker-{number}", stage.heartbeats, heartbeat={"seconds": 2 * 86_400})
        await stage.until(lambda task_id=task_id: stage.task(task_id).progress, "it has said where it is")
    await stage.agreed()
    yield "ten tasks"
    stage.quiet = True
    assert stage.runner.parts is not None
    stage.runner.parts.loop_lag.ms = lambda: stage.lag_ms  # type: ignore[method-assign]
    random = stage.stream("jitter")
    await stage.idle(180, random)  # what all of that was is rolled up
    changes, sizes, emitters, beats = stage.changes(), stage.sizes(), await stage.emitters(), stage.beats
    yield "settled"
    await stage.idle(hours * HOUR, random)
    assert stage.beats - beats >= hours * HOUR * RUNNING * 0.9, "the workers' heartbeats came"
    if hours < REMINDER_HOURS:
        assert stage.changes() == changes, "something has written, and nothing has happened"
    told = {emitter: rows - emitters.get(emitter, 0) for emitter, rows in (await stage.emitters()).items()}
    wrote = {emitter: rows for emitter, rows in told.items() if rows and "roll_up" not in emitter}
    reminders = HELD * int(hours // REMINDER_HOURS)
    assert wrote.keys() <= REMINDING, "a day of heartbeats has been written down"
    assert sum(wrote.values()) <= reminders * ROWS_PER_REMINDER
    grown = {name: size - sizes[name] for name, size in stage.sizes().items() if MINUTES not in name}
    assert {name: rows for name, rows in grown.items() if rows} == (
        {"supervisor notifications": reminders} if reminders else {}
    )
    yield "idle"


def some_minutes(stage: IdleStage) -> AsyncIterator[str]:
    return ten_idle_tasks(stage, hours=0.15)


def a_minute(stage: IdleStage) -> AsyncIterator[str]:
    return ten_idle_tasks(stage, hours=1 / 60)


def a_day(stage: IdleStage) -> AsyncIterator[str]:
    return ten_idle_tasks(stage, hours=24)


@pytest.mark.parametrize(
    "story", [some_minutes, pytest.param(a_day, marks=[pytest.mark.long, pytest.mark.timeout(1800)])]
)
def test_w02_heartbeats_of_idle_tasks_write_nothing(
    directory: Path, story: Callable[[IdleStage], AsyncIterator[str]]
) -> None:
    """Five held tasks, three idle sessions, two workers that say each second where they are; renewals each second, clocks
    that jitter, people and probes that look: no row changes. In a day only what reminds people is written.
    """
    play(story, directory, make=IdleStage)


def repeats_are_logged(patch: pytest.MonkeyPatch) -> None:
    """A report that raises nothing is a request like any other."""
    patch.setattr(task_work, "progress_told", lambda *_: None)


def renewals_are_stored(patch: pytest.MonkeyPatch) -> None:
    """When a runner was last heard of is written down."""

    def store(self: SupervisorHandlers, request: object) -> None:
        note(self, request)  # type: ignore[arg-type]
        self._supervisor.store.write_now(_touch, emitter=supervisor_svc.emitters.GRANT)

    note = SupervisorHandlers._note_vitals
    patch.setattr(SupervisorHandlers, "_note_vitals", store)


def looking_is_noted(patch: pytest.MonkeyPatch) -> None:
    """Whoever lists runners is written down."""

    async def listed(self: LeaseHandlers, *given: Any) -> Any:
        self._supervisor.store.write_now(_touch, emitter=supervisor_svc.emitters.GRANT)
        return await answer(self, *given)

    answer = LeaseHandlers.ListRunners
    patch.setattr(LeaseHandlers, "ListRunners", listed)


def _touch(uow: UnitOfWork) -> None:
    uow.execute("UPDATE runners SET address = address")


@pytest.mark.parametrize("mutant", [repeats_are_logged, renewals_are_stored, looking_is_noted])
def test_w02_a_heartbeat_that_writes_is_found(
    directory: Path, mutant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The test above fails on a build that writes for a repeat, a renewal or a look."""
    mutant(monkeypatch)
    with pytest.raises(AssertionError, match="nothing has happened"):
        play(a_minute, directory, make=IdleStage)


@contextmanager
def store_of_the_supervisor_held() -> Iterator[None]:
    """Until the block is left whatever a runner tells waits to be stored, as does its registration; reads go on."""
    free = asyncio.Event()

    def waits(method: Callable[..., Any]) -> Callable[..., Any]:
        async def call(*given: Any) -> Any:
            await free.wait()
            return await method(*given)

        return call

    told = {name: waits(getattr(SupervisorHandlers, name)) for name in ("Register", "Escalate", "Report")}
    with mock.patch.multiple(SupervisorHandlers, **told):
        try:
            yield
        finally:
            free.set()


async def a_store_is_held(stage: LeaseStage) -> AsyncIterator[str]:
    first = await stage.submit("first", asks_and_leaves)
    await stage.open_holds(first)
    await stage.supervised("alpha")
    lease, right = stage.row("alpha").generation, stage.right("alpha")
    yield "asked"
    with store_of_the_supervisor_held():
        second = await stage.submit_at_runner("second", asks_and_leaves)
        await stage.throughout(HELD_SECONDS, lambda: stage.lease("alpha") is LeaseState.LIVE, "the runner is live")
    await stage.open_holds(second)
    assert (stage.row("alpha").generation, stage.right("alpha")) == (lease, right)
    ((asked,),) = stage.rows("supervisor", "SELECT count(*) FROM escalations WHERE task_id = ?", second)
    assert asked == 1
    yield "told"


def test_w05_a_supervisor_whose_store_is_held_loses_no_lease_and_no_question(directory: Path) -> None:
    """For 20 s nothing that the runner tells is answered: it renews all the while, and then tells it once."""
    play(a_store_is_held, directory, make=LeaseStage)


def test_w05_a_runner_that_registers_anew_instead_of_waiting_is_found(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A report that is not answered in time is no reason to give the lease up."""

    async def once(_: Reporter, work: Callable[[], Awaitable[Any]]) -> Any:
        return await work()

    monkeypatch.setattr(Reporter, "_until_answered", once)
    with pytest.raises(AssertionError, match="the runner is live"):
        play(a_store_is_held, directory, make=LeaseStage)


async def one_change_is_watched(stage: SimStage) -> AsyncIterator[str]:
    task_id = await stage.submit("asker", asks_and_leaves, reminder={"seconds": 4 * 3600})
    await stage.state(task_id, State.HELD)
    heard: Counter[str] = Counter()

    async def watch(name: str, stream: AsyncIterator[Any]) -> None:
        async for _ in stream:
            heard[name] += 1

    viewer = Identity(name="eve", role=Role.VIEWER)
    for runner in (True, False):
        stub = stage.stub(runner=runner, caller=viewer)
        asked = runner_pb.WatchTasksRequest() if runner else operator_pb.OperatorServiceWatchTasksRequest()
        stage.beside(watch("runner" if runner else "supervisor", stub.WatchTasks(asked)))
    inbox = stage.stub(runner=False, caller=viewer).WatchInbox(operator_pb.WatchInboxRequest())
    stage.beside(watch("inbox", inbox))
    await stage.sleep(180)
    shown, changes = heard.copy(), {name: changed(node) for name, node in stage.nodes.items()}
    await stage.sleep(HOUR)
    assert heard == shown, "nothing has happened"
    assert {name: changed(node) for name, node in stage.nodes.items()} == changes
    yield "watched"
    await stage.ask("PauseTask", task_id=task_id)
    await stage.sleep(180)
    reacted = heard - shown
    assert set(reacted) >= {"runner", "supervisor"}, "everybody who watches tasks has heard of it"
    assert max(reacted.values()) <= REACTIONS_MAX
    await stage.sleep(6 * HOUR - 400)
    told = heard - shown - reacted
    assert sum(told.values()) <= REACTIONS_MAX, "of the reminder, and of nothing else"
    yield "changed once"


def changed(node: Node) -> int:
    """Rows that a service has changed since its start, by SQLite's own count."""
    assert node.store is not None
    return node.store._connection.total_changes


def test_w06_whoever_watches_hears_of_one_change_once(directory: Path) -> None:
    """Streams of tasks of both services and of the inbox are open for hours: nothing is said while nothing happens, a pause
    is told and leads to nothing more, and neither service writes because of what it has written.
    """
    play(one_change_is_watched, directory)
