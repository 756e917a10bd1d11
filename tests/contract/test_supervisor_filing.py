"""Incidents on a real store: one item each, whatever dies, lies or answers late in between. The clock stands."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from lanewarden.errors import Reason, Refusal, refuse
from lanewarden.ledger import WriteLedger
from lanewarden.store import Failpoints, SimulatedCrash, Store
from lanewarden.telemetry import current_trace_id, within
from supervisor_svc import emitters
from supervisor_svc.bootstrap import build
from supervisor_svc.config import SupervisorConfig
from supervisor_svc.core.filing import MEMBERS_MAX, RETRY_MAX_SECONDS, Filing, Stage, cause_of
from supervisor_svc.loop.filer import Filer
from supervisor_svc.sinks import SinkFailed
from supervisor_svc.sinks.tracker import Filed, FilingFailed, Report
from supervisor_svc.store import filings, runners
from supervisor_svc.store.runners import RunnerRow
from supervisor_svc.store.schema import MIGRATIONS
from supervisor_svc.supervisor import Supervisor
from supervisor_svc.work import filing as work
from tests.databases import empty_database
from tests.standing import PATIENCE_SECONDS, StandingClock

GATHER_MS = 60_000
LAG_MS = 60_000
DAY_MS = 86_400_000
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


COMMIT_POINTS_MAX = 40
FILING_COMMITS = ("creating", "filed", "recorded t1", "recorded t2")


class CrashAt:
    """Ends the store at its ``number``-th point before or after a commit of the filer."""

    def __init__(self, number: int) -> None:
        self.left = number
        self.crashed = False

    def __call__(self, point: str, names: tuple[str, ...]) -> None:
        if emitters.FILE.name not in names:
            return
        if self.left == 0:
            self.crashed = True
            raise SimulatedCrash
        self.left -= 1


class FakeTracker:
    """Keeps what it is told to create. ``visible_after_ms`` is how late a look-up finds it; the hooks may raise, before and
    after the item is made.
    """

    name = "fake"
    lag_seconds = LAG_MS / 1000

    def __init__(self, clock: StandingClock) -> None:
        self.clock = clock
        self.items: list[tuple[int, Report]] = []
        self.creates: list[int] = []
        self.traces: list[str] = []
        self.visible_after_ms = 0
        self.on_find: Callable[[], None] = lambda: None
        self.before_create: Callable[[], None] = lambda: None
        self.after_create: Callable[[], None] = lambda: None

    async def find(self, key: str) -> Filed | None:
        self.on_find()
        for number, (made_ms, report) in enumerate(self.items, 1):
            named = {each.key for each in report.subjects}
            if key in named and self.clock.now_ms >= made_ms + self.visible_after_ms:
                return Filed(external_id=f"#{number}")
        return None

    async def create(self, report: Report) -> Filed:
        self.traces.append(current_trace_id())
        self.creates.append(self.clock.now_ms)
        self.before_create()
        self.items.append((self.clock.now_ms, report))
        self.after_create()
        return Filed(external_id=f"#{len(self.items)}")


class FakeClaims:
    """A runner that gives a claim to whoever holds its latest generation."""

    def __init__(self) -> None:
        self.generations: dict[str, int] = {}
        self.told: list[Filing] = []
        self.also: dict[str, Sequence[str]] = {}
        self.refusal: Refusal | None = None

    async def confirm(self, filing: Filing) -> None:
        if self.refusal is not None:
            raise self.refusal
        if self.generations.get(filing.key, filing.claim_generation) != filing.claim_generation:
            raise refuse(Reason.CLAIM_LOST, "somebody else's")

    async def record(self, filing: Filing, *, also_task_ids: Sequence[str]) -> None:
        await self.confirm(filing)
        self.told.append(filing)
        self.also[filing.key] = also_task_ids

    def ends(self) -> dict[str, str]:
        """What each incident's runner was told last: its item, or its failure."""
        return {each.key: each.external_id or f"failed: {each.failure}" for each in self.told}


class Bench:
    def __init__(self, supervisor: Supervisor, tracker: FakeTracker, claims: FakeClaims, clock: StandingClock) -> None:
        self.supervisor = supervisor
        self.tracker = tracker
        self.claims = claims
        self.clock = clock
        self.filer = Filer(supervisor, tracker, claims)

    async def claim(self, *task_ids: str, generation: int = 1, diagnosis: str = "no route to host") -> list[Filing]:
        return [
            await self.supervisor.do(
                lambda session, task_id=task_id: work.claimed(  # type: ignore[misc]
                    session, claim(task_id, generation, diagnosis), gather_ms=GATHER_MS
                ),
                emitter=emitters.CLAIM,
            )
            for task_id in task_ids
        ]

    def stage(self, task_id: str) -> Stage:
        found = self.supervisor.read(lambda reader: filings.find(reader, f"{task_id}/1/stale"))
        assert found is not None
        return found.stage

    @asynccontextmanager
    async def filing(self) -> AsyncIterator[None]:
        loop = asyncio.ensure_future(self.filer.run())
        try:
            yield
        finally:
            loop.cancel()
            ended = await asyncio.gather(loop, return_exceptions=True)
            assert isinstance(ended[0], asyncio.CancelledError | SimulatedCrash), ended

    async def until_recorded(self, *task_ids: str) -> None:
        await self.clock.until(lambda: all(self.stage(each) is Stage.RECORDED for each in task_ids))


def claim(task_id: str, generation: int = 1, diagnosis: str = "no route to host") -> Filing:
    key = f"{task_id}/1/stale"
    return Filing(
        key=key,
        task_id=task_id,
        runner_id="r1",
        epoch=1,
        kind="stale",
        cause=cause_of("stale", diagnosis),
        claim_generation=generation,
        summary=f"gave {task_id} up",
        diagnosis=diagnosis,
        claimed_wall_ms=1,
        due_ms=0,
        leader_key=key,
    )


@asynccontextmanager
async def bench(
    path: Path,
    *,
    tracker: FakeTracker | None = None,
    claims: FakeClaims | None = None,
    failpoints: Failpoints | None = None,
    name: str = "s",
) -> AsyncIterator[Bench]:
    clock = tracker.clock if tracker else StandingClock()
    ledger = WriteLedger(clock)
    store = Store.open(
        empty_database(path / f"{name}.sqlite3", MIGRATIONS),
        migrations=MIGRATIONS,
        ledger=ledger,
        threaded=False,
        failpoints=failpoints,
    )
    parts = await build(
        SupervisorConfig(),
        store=store,
        ledger=ledger,
        clock=clock,
        random=Random(7),
        incarnation=str(uuid.uuid4()),
        connect_runner=lambda address: None,  # type: ignore[arg-type, return-value]
    )
    if parts.supervisor.read(lambda reader: runners.find(reader, "r1")) is None:
        await parts.supervisor.do(lambda session: runners.put(session.uow, RUNNER), emitter=emitters.GRANT)
    try:
        yield Bench(parts.supervisor, tracker or FakeTracker(clock), claims or FakeClaims(), clock)
    finally:
        store.close()


async def test_one_cause_within_a_minute_is_one_incident_that_lists_its_tasks(tmp_path: Path) -> None:
    """Numbers and ids in a diagnosis make no difference; another cause, and the same after the minute, are others."""
    async with bench(tmp_path) as b, b.filing():
        await b.claim("t1", diagnosis="attempt 3: no route to 10.0.0.1")
        await b.claim("t2", diagnosis="attempt 1: no route to 10.0.0.2")
        await b.claim("t3", diagnosis="the disk is full")
        await b.until_recorded("t1", "t2", "t3")
        await b.claim("t4", diagnosis="attempt 3: no route to 10.0.0.1")
        await b.until_recorded("t4")
        listed = [[each.task_id for each in report.subjects] for _, report in b.tracker.items]
        assert listed == [["t1", "t2"], ["t3"], ["t4"]]
        assert b.claims.ends() == {"t1/1/stale": "#1", "t2/1/stale": "#1", "t3/1/stale": "#2", "t4/1/stale": "#3"}
        assert b.claims.also["t2/1/stale"] == ["t1"]


async def test_the_same_claim_twice_is_one(tmp_path: Path) -> None:
    """A claim that is answered twice is filed once, also after it has been filed."""
    async with bench(tmp_path) as b, b.filing():
        await b.claim("t1", "t1")
        await b.until_recorded("t1")
        await b.claim("t1")
        assert b.stage("t1") is Stage.RECORDED
        assert len(b.tracker.items) == 1


async def test_an_incident_lists_so_many_tasks_and_no_more(tmp_path: Path) -> None:
    """The next one of the cause begins another item; none is lost."""
    names = [f"t{number}" for number in range(MEMBERS_MAX + 1)]
    async with bench(tmp_path) as b, b.filing():
        await b.claim(*names)
        await b.until_recorded(*names)
        assert [len(report.subjects) for _, report in b.tracker.items] == [MEMBERS_MAX, 1]


async def test_s02_a_crash_at_each_commit_makes_one_item(tmp_path: Path) -> None:
    """Dying at any commit of the filing, before or after it is durable, and going on from what is stored: one item."""
    for number in range(COMMIT_POINTS_MAX):
        path = tmp_path / str(number)
        path.mkdir()
        crash = CrashAt(number)
        async with bench(path) as b:
            await b.claim("t1", "t2")
            tracker, claims = b.tracker, b.claims
        tracker.visible_after_ms = LAG_MS // 2
        async with bench(path, tracker=tracker, claims=claims, failpoints=crash) as b:
            with suppress(SimulatedCrash):
                await _file_all(b)
        async with bench(path, tracker=tracker, claims=claims) as b, b.filing():
            await b.until_recorded("t1", "t2")
        assert len(tracker.items) == 1
        assert claims.ends() == {"t1/1/stale": "#1", "t2/1/stale": "#1"}
        if not crash.crashed:
            assert number > len(FILING_COMMITS)
            return
    raise AssertionError("there is no end of commit points")


async def _file_all(b: Bench) -> None:
    """Step the loop until everything is recorded, or it dies."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not all(b.stage(each) is Stage.RECORDED for each in ("t1", "t2")):
            await b.filer.file_due()
            b.clock.now_ms += 10_000


async def test_s02_created_then_timed_out_then_limited_then_listed_late(tmp_path: Path) -> None:
    """The create works and its answer is lost, the look-up is refused by a rate limit, and the list shows the item after
    half a minute: one item, which is found.
    """
    async with bench(tmp_path) as b, b.filing():
        b.tracker.visible_after_ms = 30_000
        limits = [FilingFailed("answered HTTP 429", retry_after_seconds=2.0)]

        def lose_the_answer() -> None:
            def limit() -> None:
                if limits:
                    raise limits.pop()

            b.tracker.on_find = limit
            raise SinkFailed("timed out")

        b.tracker.after_create = lose_the_answer
        await b.claim("t1")
        await b.until_recorded("t1")
        assert len(b.tracker.items) == len(b.tracker.creates) == 1
        assert limits == []
        assert b.claims.ends() == {"t1/1/stale": "#1"}


async def test_s02_a_create_that_surely_failed_is_repeated_without_the_lag(tmp_path: Path) -> None:
    """A refusal before anything was made costs the delay of a retry, not the time that a list may lag."""
    async with bench(tmp_path) as b, b.filing():
        refusals = [FilingFailed("Connection refused")]

        def refuse_once() -> None:
            if refusals:
                raise refusals.pop()

        b.tracker.before_create = refuse_once
        await b.claim("t1")
        await b.until_recorded("t1")
        first, second = b.tracker.creates
        assert second - first < LAG_MS
        assert len(b.tracker.items) == 1


async def test_s02_a_claim_taken_over_adopts_what_its_first_holder_made(tmp_path: Path) -> None:
    """The first holder creates the item and dies before it records it; the second finds it by its key, and files nothing."""
    async with bench(tmp_path, name="first") as first:
        await first.claim("t1")
        tracker, claims = first.tracker, first.claims
        tracker.visible_after_ms = 30_000

        def die() -> None:
            raise SimulatedCrash

        tracker.after_create = die
        with pytest.raises(SimulatedCrash):
            await _file_all(first)
    tracker.after_create = lambda: None
    claims.generations["t1/1/stale"] = 2
    async with bench(tmp_path, tracker=tracker, claims=claims, name="second") as second, second.filing():
        await second.claim("t1", generation=2)
        await second.until_recorded("t1")
    async with bench(tmp_path, tracker=tracker, claims=claims, name="first") as first, first.filing():
        await first.clock.until(lambda: first.stage("t1") is Stage.LOST)
    assert len(tracker.items) == len(tracker.creates) == 1
    assert [each.claim_generation for each in claims.told if each.external_id] == [2]


async def test_s02_a_claim_taken_over_from_one_who_made_nothing_is_filed(tmp_path: Path) -> None:
    """Once the tracker has had its time to show what it has, nothing found means that there is nothing."""
    async with bench(tmp_path) as b, b.filing():
        start_ms = b.clock.now_ms
        await b.claim("t1", generation=2)
        await b.until_recorded("t1")
        assert len(b.tracker.items) == 1
        assert b.tracker.creates[0] - start_ms >= LAG_MS


async def test_a_holder_that_was_replaced_creates_nothing(tmp_path: Path) -> None:
    """The claim is confirmed before each create; those of the group that are still ours are filed without it."""
    async with bench(tmp_path) as b, b.filing():
        await b.claim("t1", "t2", "t3")
        b.claims.generations["t1/1/stale"] = 2
        await b.until_recorded("t2", "t3")
        assert b.stage("t1") is Stage.LOST
        assert [[each.task_id for each in report.subjects] for _, report in b.tracker.items] == [["t2", "t3"]]


async def test_a_fenced_supervisor_waits_and_files_once_it_may(tmp_path: Path) -> None:
    """SUPERVISION_FENCED and an unreachable runner are not the end of a claim: it is tried again, with growing delays."""
    async with bench(tmp_path) as b, b.filing():
        b.claims.refusal = refuse(Reason.SUPERVISION_FENCED, "not you")
        await b.claim("t1")
        await b.clock.until(lambda: b.clock.now_ms > 10 * GATHER_MS)
        assert b.tracker.creates == []
        b.claims.refusal = None
        await b.until_recorded("t1")
        assert len(b.tracker.items) == 1


async def test_s03_a_tracker_that_is_down_costs_few_tries_and_gets_the_incident_when_it_is_back(tmp_path: Path) -> None:
    """A day of a tracker that is down: some forty tries with growing delays, each seen at the runner with its cause, nothing
    that grows; within the hour after it is back there is one item.
    """
    async with bench(tmp_path) as b, b.filing():

        def down() -> None:
            raise FilingFailed("Connection refused")

        b.tracker.before_create = down
        await b.claim("t1", diagnosis="x" * 4096)
        start_ms = b.clock.now_ms
        await b.clock.until(lambda: b.clock.now_ms - start_ms > DAY_MS)
        assert 20 <= len(b.tracker.creates) <= 60
        assert b.claims.ends() == {"t1/1/stale": "failed: Connection refused"}
        assert {len(each.diagnosis) for each in b.claims.told} == {4096}
        b.tracker.before_create = lambda: None
        back_ms = b.clock.now_ms
        await b.until_recorded("t1")
        assert b.clock.now_ms - back_ms <= RETRY_MAX_SECONDS * 1000
        assert len(b.tracker.items) == 1


async def test_what_a_runner_cannot_be_told_now_is_told_later(tmp_path: Path) -> None:
    """An item that is made is made once, however long its runner is away."""
    async with bench(tmp_path) as b, b.filing():

        def away() -> None:
            b.claims.refusal = refuse(Reason.RUNNER_UNREACHABLE, "away")

        b.tracker.after_create = away
        await b.claim("t1")
        await b.clock.until(lambda: b.stage("t1") is Stage.FILED and b.clock.now_ms > 20 * GATHER_MS)
        assert b.claims.told == []
        b.claims.refusal = None
        await b.until_recorded("t1")
        assert len(b.tracker.creates) == 1


def test_a_cause_is_the_kind_and_the_words() -> None:
    """Numbers, ids and hashes vary between tasks with one cause; words do not."""
    same = ("attempt 3: exit 1 of 0f3a9c77", "attempt 12: exit 1 of deadbeef01")
    assert cause_of("stale", same[0]) == cause_of("stale", same[1])
    assert cause_of("stale", "left") != cause_of("stale", "right")
    assert cause_of("stale", "left") != cause_of("exited", "left")
    assert replace(claim("t1"), tries=1).cause == claim("t2").cause


@pytest.mark.parametrize("forgotten", [False, True], ids=["kept", "mutant"])
async def test_an_incident_is_filed_in_the_trace_of_its_claim(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, forgotten: bool
) -> None:
    """Whenever it is filed; a supervisor that stores a claim without its trace is found out."""
    if forgotten:
        put = filings.put
        monkeypatch.setattr(filings, "put", lambda uow, filing, **was: put(uow, replace(filing, traceparent=""), **was))
    async with bench(tmp_path) as b:
        with within(f"00-{'1' * 32}-{'b' * 16}-01"):
            await b.claim("t1")
        with within(""):
            async with b.filing():
                await b.until_recorded("t1")
    assert (b.tracker.traces == ["1" * 32]) is not forgotten
