"""The loop that acts, on a real store, against a runner that answers as it is told. The clock stands.

Each check passes on the loop as it is (the control), and fails as soon as its guard is patched away.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from lanewarden.errors import Reason, Refusal, refuse
from lanewarden.ledger import WriteLedger
from lanewarden.store import Store
from lanewarden.v1 import incident_pb2, task_pb2
from lanewarden.v1 import lane_runner_service_pb2 as pb
from supervisor_svc import emitters
from supervisor_svc.bootstrap import build
from supervisor_svc.config import SupervisorConfig
from supervisor_svc.core import observation
from supervisor_svc.core.leases import Lease, Right
from supervisor_svc.core.verdict import Verdict, classify
from supervisor_svc.loop import supervise
from supervisor_svc.loop.agenda import SUPERSEDED_MIN, Agenda
from supervisor_svc.loop.supervise import Supervise, Wait
from supervisor_svc.store import filings, runners, views
from supervisor_svc.store.runners import RunnerRow
from supervisor_svc.store.schema import MIGRATIONS
from supervisor_svc.supervisor import Supervisor
from supervisor_svc.work import actions, intake, judging
from supervisor_svc.work.actions import RunnerActions
from tests.databases import empty_database
from tests.standing import StandingClock

CONFIG = SupervisorConfig(lease_ttl_seconds=300, lease_renew_seconds=100)
RUNNER = RunnerRow(
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
Patch = pytest.MonkeyPatch


def dead(task_id: str, *, version: int = 1, attempt: int = 1, **fields: Any) -> task_pb2.Task:
    """A task whose worker is gone though it has not ended: to be relaunched at once."""
    said = {"state": task_pb2.TASK_STATE_RUNNING, "epoch": 1, "attempt": attempt, "version": version, **fields}
    return task_pb2.Task(task_id=task_id, runner_id="r1", **said)


class FakeRunner:
    """Keeps what it was asked; ``answers`` may refuse or wait."""

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.answer: Callable[[Any], Awaitable[None]] | None = None

    def __getattr__(self, rpc: str) -> Any:
        async def call(request: Any, *, timeout_seconds: float, emitter: str) -> Any:
            asked = type(request)()
            asked.CopyFrom(request)
            self.asked.append(asked)
            if self.answer is not None:
                await self.answer(request)
            if rpc == "ClaimIncident":
                key = f"{request.task_id}/1/settled"
                return pb.ClaimIncidentResponse(incident=incident_pb2.Incident(key=key, claim_generation=1))
            return getattr(pb, f"{rpc}Response")()

        return call

    def about(self, task_id: str) -> list[Any]:
        return [each for each in self.asked if each.task_id == task_id]


class Bench:
    def __init__(self, supervisor: Supervisor, runner: FakeRunner, clock: StandingClock) -> None:
        self.supervisor = supervisor
        self.runner = runner
        self.clock = clock
        self.actions = RunnerActions(supervisor, timeout_seconds=1.0)
        self.loop = Supervise(supervisor, self.actions, gather_seconds=60)

    def heard(self, generation: int = 7) -> None:
        """The runner renews its lease, and tells under which generation this supervisor may act; 0: it may not."""
        presence, now_ms = self.supervisor.presence, self.clock.now_ms
        presence.put(Lease(runner_id="r1", incarnation="i1", generation=1, seen_ms=now_ms, seen_wall_ms=now_ms))
        presence.registered("r1")
        presence.hear_right("r1", Right(generation=generation, heard_ms=now_ms))

    async def report(self, *tasks: task_pb2.Task) -> None:
        for task in tasks:
            await self.supervisor.do(
                lambda session, task=task: intake.put_task(session, task),  # type: ignore[misc]
                emitter=emitters.REPORT,
            )

    async def asked(self, task_id: str, number: int = 1) -> None:
        """Wait until the runner has been asked so often about a task."""
        await self.clock.until(lambda: len(self.runner.about(task_id)) >= number)

    async def tick(self, seconds: float) -> None:
        """So much time passes."""
        await self.settle_down()
        self.clock.now_ms += round(seconds * 1000)
        for due_ms, sleeper in self.clock.sleepers:
            if due_ms <= self.clock.now_ms and not sleeper.done():
                sleeper.set_result(None)
        self.clock.sleepers = [(due_ms, each) for due_ms, each in self.clock.sleepers if not each.done()]
        await self.settle_down()

    async def settle_down(self) -> None:
        """Let everybody run, and no time pass."""
        for _ in range(20):
            await asyncio.sleep(0)

    @asynccontextmanager
    async def acting(self) -> AsyncIterator[None]:
        job = asyncio.ensure_future(self.loop.run())
        try:
            yield
        finally:
            assert not job.done(), "the loop has ended by itself"
            job.cancel()
            await asyncio.gather(job, return_exceptions=True)


@asynccontextmanager
async def bench(path: Path) -> AsyncIterator[Bench]:
    clock, runner = StandingClock(), FakeRunner()
    ledger = WriteLedger(clock)
    store = Store.open(
        empty_database(path / "s.sqlite3", MIGRATIONS), migrations=MIGRATIONS, ledger=ledger, threaded=False
    )
    parts = await build(
        CONFIG,
        store=store,
        ledger=ledger,
        clock=clock,
        random=Random(7),
        incarnation=str(uuid.uuid4()),
        connect_runner=lambda address: runner,
    )
    await parts.supervisor.do(lambda session: runners.put(session.uow, RUNNER), emitter=emitters.GRANT)
    made = Bench(parts.supervisor, runner, clock)
    made.heard()
    try:
        yield made
    finally:
        store.close()


# The checks


async def s15_one_bad_row(b: Bench) -> None:
    """S15: a row that cannot be read is skipped, also at a restart; the tasks after it are recovered."""
    await b.report(dead("t1"), dead("t2"))
    await b.supervisor.do(
        lambda session: session.uow.execute("UPDATE tasks SET payload = x'ff' WHERE task_id = 't1'"),
        emitter=emitters.REPORT,
    )
    async with b.acting():
        await b.asked("t2")
        assert b.runner.about("t1") == []


async def s15_a_database_error(b: Bench) -> None:
    """S15: what cannot be read now is read again, and every task is recovered then."""
    await b.report(dead("t1"), dead("t2"))
    read, failures = views.supervised_ids, [OSError("disk I/O error")]

    def fails_once(*args: Any, **named: Any) -> list[str]:
        if failures:
            raise failures.pop()
        return read(*args, **named)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(views, "supervised_ids", fails_once)
        async with b.acting():
            await b.asked("t1")
            await b.asked("t2")


async def s15_an_error_in_an_action(b: Bench) -> None:
    """S15: whatever goes wrong with one task's action, the others have theirs, and it is tried again."""

    async def fail(request: Any) -> None:
        if request.task_id == "t1" and len(b.runner.about("t1")) == 1:
            raise RuntimeError("a defect")

    b.runner.answer = fail
    await b.report(dead("t1"), dead("t2"))
    async with b.acting():
        await b.asked("t2")
        await b.asked("t1", 2)


async def refusals_are_not_a_storm(b: Bench) -> None:
    """A report every three seconds for ten minutes of a task whose relaunch is refused: few tries, with growing delays."""

    async def no(request: Any) -> None:
        raise refuse(Reason.ILLEGAL_TRANSITION, "not now")

    b.runner.answer = no
    async with b.acting():
        for number in range(200):
            b.heard()
            await b.report(dead("t1", version=number + 1))
            await b.tick(3.0)
    assert 3 <= len(b.runner.asked) <= 12, len(b.runner.asked)


async def news_during_an_action(b: Bench) -> None:
    """A report that comes while the runner is asked is looked at afterwards, without another event."""
    may_answer = asyncio.Event()

    async def wait(request: Any) -> None:
        if request.attempt == 1:
            await may_answer.wait()

    b.runner.answer = wait
    await b.report(dead("t1"))
    async with b.acting():
        await b.asked("t1")
        await b.report(dead("t1", version=2, attempt=2))
        await b.settle_down()
        assert len(b.runner.asked) == 1, "one action at a time for each task"
        may_answer.set()
        await b.settle_down()
        assert [each.attempt for each in b.runner.asked] == [1, 2]


async def fenced_until_told_otherwise(b: Bench) -> None:
    """Without the right to act nobody is asked, however long; with it everything is, unfiled tasks too."""
    b.heard(generation=0)
    await b.report(dead("t1"), dead("t2", state=task_pb2.TASK_STATE_SETTLED))
    async with b.acting():
        for _ in range(100):
            b.heard(generation=0)
            await b.tick(1.0)
        assert b.runner.asked == []
        b.heard(generation=8)
        b.supervisor.announce("r1")
        await b.settle_down()
        assert {(each.task_id, each.supervision_generation) for each in b.runner.asked} == {("t1", 8), ("t2", 8)}


async def what_is_given_up_is_filed(b: Bench) -> None:
    """A settled task without an incident is claimed and waits for the tracker, once."""
    await b.report(dead("t1", state=task_pb2.TASK_STATE_SETTLED, summary="given up", diagnosis="no route"))
    async with b.acting():
        await b.settle_down()
        filed = b.supervisor.read(lambda reader: filings.find(reader, "t1/1/settled"))
        assert filed is not None, "nothing is to be filed"
        assert (filed.diagnosis, filed.claim_generation) == ("no route", 1)
        holder = f"{b.supervisor.supervisor_id}/{b.supervisor.incarnation}"
        incident = {"key": filed.key, "epoch": 1, "holder": holder, "claim_generation": 1}
        await b.report(dead("t1", version=2, state=task_pb2.TASK_STATE_SETTLED, incidents=[incident]))
        for _ in range(5):
            await b.clock.step()
        assert len(b.runner.asked) == 1


async def repeats_are_one_request(b: Bench) -> None:
    """P10: what is asked again, under another generation by another start, has the id of the first; a claim never has."""
    task = dead("t1")
    for generation in (7, 8):
        b.heard(generation)
        await b.actions.relaunch(task, cause="EXITED", relaunches_max=2)
        await b.actions.claim(task)
    relaunch, claim, relaunch_again, claim_again = b.runner.asked
    assert (relaunch.supervision_generation, relaunch_again.supervision_generation) == (7, 8)
    assert relaunch.request_id == relaunch_again.request_id
    assert claim.request_id != claim_again.request_id
    await b.actions.relaunch(dead("t1", attempt=2), cause="EXITED", relaunches_max=2)
    assert b.runner.asked[-1].request_id != relaunch.request_id


async def a_push_has_its_time(b: Bench) -> None:
    """A wake, and each relaunch, has the whole bound to show its effect before the next arm."""
    spec = task_pb2.TaskSpec(kind=task_pb2.TASK_KIND_SESSION)
    told = task_pb2.Task(task_id="t1", runner_id="r1", epoch=1, attempt=1, spec=spec, oldest_input_at={"seconds": 1})
    config = b.supervisor.supervision
    for state in (task_pb2.TASK_STATE_IDLE, task_pb2.TASK_STATE_RUNNING):
        alive = state == task_pb2.TASK_STATE_RUNNING
        waits = task_pb2.Task(state=state, worker_alive=alive, version=1)
        waits.MergeFrom(told)
        pushed = task_pb2.Task(woken=True, version=2)
        pushed.MergeFrom(waits)
        start = observation.Observed(progressed_ms=None, running_ms=2 if alive else 0, input_ms=1)
        row = views.View(position=1, runner_id="r1", payload=waits.SerializeToString(), observed=start)
        at_ms = b.clock.now_ms + config.parked_ms + config.catch_up_ms
        known = judging.observed(row, pushed, at_ms)

        def verdict(task: task_pb2.Task, known: observation.Observed, now_ms: int) -> Verdict:
            return classify(judging.view(task, known, b.supervisor.presence), now_ms, config)

        assert verdict(waits, start, at_ms) is Verdict.PARKED
        assert verdict(pushed, known, at_ms + config.parked_ms - 1) is not Verdict.PARKED
        assert verdict(pushed, known, at_ms + config.parked_ms) is Verdict.PARKED


# The mutants


def stops_at_a_bad_row(patch: Patch) -> None:
    """Nobody catches what is wrong with one task."""

    def look(self: Any, task_id: str, group: asyncio.TaskGroup) -> None:
        step, _ = self._judge(task_id)
        if step is not None and task_id not in self._busy:
            self._busy[task_id] = group.create_task(self._carry_out(task_id, step))

    patch.setattr(Supervise, "_look", look)


def reads_once(patch: Patch) -> None:
    """What cannot be read at the start is not read again."""

    async def look_at_all(self: Any, runner_id: str = "") -> None:
        self._agenda.add(self._supervisor.read(lambda reader: views.supervised_ids(reader, runner_id)))

    patch.setattr(Supervise, "_look_at_all", look_at_all)


def actions_may_end_it(patch: Patch) -> None:
    """Only refusals are expected of an action."""

    async def carry_out(self: Any, task_id: str, step: supervise.Step) -> None:
        try:
            await step.do()
        except Refusal:
            pass
        finally:
            del self._busy[task_id]

    patch.setattr(Supervise, "_carry_out", carry_out)


def every_report_is_a_try(patch: Patch) -> None:
    """What was refused is asked for again at the next report."""
    patch.setattr(supervise, "Wait", lambda **said: replace(Wait(**said), until_ms=0))


def news_is_dropped(patch: Patch) -> None:
    """What is reported while something is done is not looked at again."""
    init = Supervise.__init__

    class Forgetful(set[str]):
        def add(self, _task_id: str) -> None:
            pass

    def mutant(self: Any, *args: Any, **named: Any) -> None:
        init(self, *args, **named)
        self._again = Forgetful()

    patch.setattr(Supervise, "__init__", mutant)


def runners_are_not_followed(patch: Patch) -> None:
    """A right that comes back is no reason to look at what is to be filed."""

    async def never(self: Any) -> None:
        await asyncio.Event().wait()

    patch.setattr(Supervise, "_follow_runners", never)


def settled_and_not_claimed(patch: Patch) -> None:
    """A task is given up, and nobody is told."""
    patch.setattr(Supervise, "_owes_filing", lambda self, task: False)


def names_have_the_generation(patch: Patch) -> None:
    """A restarted supervisor's repeat is another request."""
    name = actions._name
    numbers = iter(range(100))
    patch.setattr(actions, "_name", lambda rpc, request: name(f"{rpc}{next(numbers)}", request))


def claims_have_names(patch: Patch) -> None:
    """A claim is a repeat too: whoever asks gets the answer that the first one got."""

    async def claim(self: Any, runner_id: str, task_id: str, epoch: int, kind: str) -> incident_pb2.Incident:
        request = pb.ClaimIncidentRequest(task_id=task_id, epoch=epoch, kind=kind)
        incident: incident_pb2.Incident = (
            await self._ask(runner_id, "ClaimIncident", request, emitters.CLAIM)
        ).incident
        return incident

    patch.setattr(RunnerActions, "_claim", claim)


def no_grace(patch: Patch) -> None:
    """A wake or relaunch that has just been answered is judged like none."""
    reported = judging._reported
    patch.setattr(judging, "_reported", lambda task: replace(reported(task), pushes=0))


Check = Callable[[Bench], Awaitable[None]]
MUTANTS: list[tuple[Callable[[Patch], None], Check]] = [
    (stops_at_a_bad_row, s15_one_bad_row),
    (reads_once, s15_a_database_error),
    (actions_may_end_it, s15_an_error_in_an_action),
    (every_report_is_a_try, refusals_are_not_a_storm),
    (news_is_dropped, news_during_an_action),
    (runners_are_not_followed, fenced_until_told_otherwise),
    (settled_and_not_claimed, what_is_given_up_is_filed),
    (names_have_the_generation, repeats_are_one_request),
    (claims_have_names, repeats_are_one_request),
    (no_grace, a_push_has_its_time),
]


@pytest.mark.parametrize(("mutate", "check"), MUTANTS, ids=lambda each: each.__name__)
async def test_each_guard_of_the_loop_is_guarded(
    tmp_path: Path, monkeypatch: Patch, mutate: Callable[[Patch], None], check: Check
) -> None:
    """The check passes on the loop as it is, and fails on the mutant."""
    (tmp_path / "control").mkdir()
    async with bench(tmp_path / "control") as control:
        await check(control)
    with monkeypatch.context() as patch:
        patch.setattr("tests.standing.PATIENCE_SECONDS", 0.3)
        mutate(patch)
        with pytest.raises((AssertionError, TimeoutError, BaseExceptionGroup)):
            async with bench(tmp_path) as mutant:
                await check(mutant)


async def test_what_was_put_forward_does_not_pile_up() -> None:
    """A task that is reported for ever, each time to be looked at later, leaves a bounded number of old times behind."""
    clock = StandingClock()
    agenda = Agenda(clock)
    for number in range(10_000):
        clock.now_ms += 1
        agenda.add(["t1"], clock.now_ms + 900_000)
        agenda.add(["t1"])
        assert await agenda.take() == ["t1"]
        assert len(agenda._heap) <= SUPERSEDED_MIN + 4, number
