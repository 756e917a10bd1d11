"""Notifications on a real store: found once, sent in order, tried with patience, never lost to a crash. The clock stands."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pytest

from lanewarden.ledger import WriteLedger
from lanewarden.store import Failpoints, IntegrityError, SimulatedCrash, Store
from lanewarden.telemetry import current_trace_id, within
from lanewarden.v1 import escalation_pb2
from supervisor_svc import emitters
from supervisor_svc.bootstrap import Parts, build
from supervisor_svc.config import SupervisorConfig
from supervisor_svc.core.notify import BACKOFF_MAX_SECONDS, TRIES_MAX
from supervisor_svc.loop.notifier import notify
from supervisor_svc.sinks import Sink, SinkFailed
from supervisor_svc.store import notifications, runners
from supervisor_svc.store.notifications import Notification
from supervisor_svc.store.runners import RunnerRow
from supervisor_svc.store.schema import MIGRATIONS
from supervisor_svc.supervisor import Supervisor
from supervisor_svc.work import intake
from supervisor_svc.work.intake import Item
from tests.databases import empty_database
from tests.standing import StandingClock

PATIENCE_SECONDS = 20.0
OPEN = escalation_pb2.HOLD_STATE_OPEN
RELEASED = escalation_pb2.HOLD_STATE_RELEASED
CANCELED = escalation_pb2.HOLD_STATE_CANCELED
NOTICE = escalation_pb2.HOLD_STATE_UNSPECIFIED
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


class FakeSink:
    """Remembers what it was sent; ``answer`` says whether it takes it."""

    def __init__(self, name: str = "s") -> None:
        self.name = name
        self.keys: list[str] = []
        self.answer: Callable[[Notification], str] = lambda notification: ""
        self.news = asyncio.Event()
        self.traces: list[str] = []

    async def send(self, notification: Notification) -> None:
        self.keys.append(notification.key)
        self.traces.append(current_trace_id())
        self.news.set()
        if cause := self.answer(notification):
            raise SinkFailed(cause)

    async def until(self, count: int) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while len(self.keys) < count:
                self.news.clear()
                await self.news.wait()


class Bench:
    """A supervisor that knows one runner."""

    def __init__(self, parts: Parts, ledger: WriteLedger, clock: StandingClock) -> None:
        self.supervisor: Supervisor = parts.supervisor
        self.ledger = ledger
        self.clock = clock

    async def take(self, *changes: escalation_pb2.Escalation, first: int, new: bool = False) -> int:
        """Take reports from sequence ``first`` on; the highest sequence taken."""
        items = [Item(sequence=first + index, field="", change=change, new=new) for index, change in enumerate(changes)]
        taken: int = await self.supervisor.do(
            lambda session: intake.take(session, "r1", "i1", items), emitter=emitters.REPORT
        )
        return taken

    def stored(self, escalation_id: str = "") -> list[Notification]:
        return self.supervisor.read(
            lambda reader: notifications.page(reader, escalation_id=escalation_id, rows_max=9_999, before=None)
        )

    def keys(self) -> list[str]:
        return [each.key for each in reversed(self.stored())]

    @asynccontextmanager
    async def notifying(self, sink: Sink) -> AsyncIterator[asyncio.Future[None]]:
        loop = asyncio.ensure_future(notify(self.supervisor, sink))
        try:
            yield loop
        finally:
            loop.cancel()
            await asyncio.gather(loop, return_exceptions=True)


@asynccontextmanager
async def bench(
    path: Path, *sinks: Sink, clock: StandingClock | None = None, failpoints: Failpoints | None = None
) -> AsyncIterator[Bench]:
    clock = clock or StandingClock()
    ledger = WriteLedger(clock)
    store = Store.open(
        empty_database(path / "s.sqlite3", MIGRATIONS),
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
        sinks=sinks,
    )
    made = Bench(parts, ledger, clock)
    if made.supervisor.read(lambda reader: runners.find(reader, "r1")) is None:
        await made.supervisor.do(lambda session: runners.put(session.uow, RUNNER), emitter=emitters.GRANT)
    try:
        yield made
    finally:
        store.close()


def hold(escalation_id: str = "e1", state: Any = OPEN, **fields: Any) -> escalation_pb2.Escalation:
    deadline = fields.pop("deadline_ms", None)
    values = {"task_id": "t1", "runner_id": "r1", "hold_state": state, "question": "left or right?", **fields}
    made = escalation_pb2.Escalation(escalation_id=escalation_id, **values)
    if deadline is not None:
        made.deadline_at.FromMilliseconds(deadline)
    return made


async def test_h03_h17_a_report_that_comes_again_tells_nobody_again(tmp_path: Path) -> None:
    """One notice per reminder, one alert for the deadline; redelivered items and unchanged reports add nothing."""
    async with bench(tmp_path, FakeSink()) as b:
        opened = hold(owed_by="ada", deadline_ms=5)
        reminded = hold(owed_by="ada", deadline_ms=5, reminders=2)
        expired = hold(owed_by="ada", deadline_ms=5, reminders=2, expired=True)
        await b.take(opened, first=1, new=True)
        await b.take(opened, first=1, new=True)
        assert await b.take(reminded, reminded, expired, expired, first=2) == 5
        assert await b.take(opened, reminded, reminded, expired, expired, first=1) == 5
        assert await b.take(expired, first=6) == 6
        assert b.keys() == ["e1/opened/1", "e1/reminder/2", "e1/expired/5"]
        assert {each.addressee for each in b.stored()} == {"ada"}


async def test_h17_an_extended_deadline_alerts_once_more(tmp_path: Path) -> None:
    """One alert per deadline that has passed."""
    async with bench(tmp_path, FakeSink()) as b:
        await b.take(hold(deadline_ms=5), hold(deadline_ms=5, expired=True), first=1)
        await b.take(hold(deadline_ms=9), hold(deadline_ms=9, expired=True), first=3)
        assert b.keys() == ["e1/opened/1", "e1/expired/5", "e1/expired/9"]


async def test_every_sink_has_its_own_row(tmp_path: Path) -> None:
    """One row per sink under the same key, stored with the change; without a sink there is none."""
    async with bench(tmp_path, FakeSink("one"), FakeSink("two")) as b:
        await b.take(hold(), hold(state=RELEASED), first=1)
        assert [(each.sink, each.key) for each in reversed(b.stored("e1"))] == [
            ("one", "e1/opened/1"),
            ("two", "e1/opened/1"),
            ("one", "e1/ruled/1"),
            ("two", "e1/ruled/1"),
        ]
        assert b.stored("e2") == []
    async with bench(tmp_path) as b:
        await b.take(hold("e2"), first=3)
        assert len(b.stored()) == 4


async def test_a_supervisor_without_a_past_tells_of_open_holds_only(tmp_path: Path) -> None:
    """What a runner tells anew is news only where a ruling is owed; a notice that it announces as new is."""
    async with bench(tmp_path, FakeSink()) as b:
        await b.take(hold("e1", RELEASED), hold("e2"), hold("e3", CANCELED), hold("e4", NOTICE), first=1)
        assert b.keys() == ["e2/opened/1"]
        await b.take(hold("e5", NOTICE), first=5, new=True)
        assert b.keys() == ["e2/opened/1", "e5/notice/1"]


async def test_what_is_told_of_an_ack_comes_from_reports(tmp_path: Path) -> None:
    """An answer to a command shows its ack at once and makes no news, whatever else it carries."""
    async with bench(tmp_path, FakeSink()) as b:
        await b.take(hold(), first=1)
        answer = hold(acks=1, reminders=7, expired=True)
        answer.ack.note = "on it"
        await b.supervisor.do(lambda session: intake.learn_ack(session, answer), emitter=emitters.DELIVER)
        assert b.keys() == ["e1/opened/1"]
        await b.take(hold(acks=1, reminders=7), first=2)
        assert b.keys() == ["e1/opened/1", "e1/reminder/7"]


async def test_sinks_get_news_in_order_and_once(tmp_path: Path) -> None:
    """In the order in which it was stored, as soon as it is stored; delivered rows are not sent again."""
    sink = FakeSink()
    async with bench(tmp_path, sink) as b, b.notifying(sink):
        await b.take(hold("e1"), hold("e2"), hold("e1", reminders=1), first=1)
        await sink.until(3)
        await b.take(hold("e2", RELEASED), first=4)
        await sink.until(4)
        assert sink.keys == ["e1/opened/1", "e2/opened/1", "e1/reminder/1", "e2/ruled/1"]
        assert {(each.tries, each.next_try_ms, each.failure) for each in b.stored()} == {(1, None, "")}
        assert all(each.delivered_wall_ms for each in b.stored())


async def test_what_fails_holds_back_its_own_escalation_only(tmp_path: Path) -> None:
    """A notification that its sink does not take waits by itself: others go out, but nothing overtakes it about its hold."""
    sink = FakeSink()
    sink.answer = lambda notification: "no" if notification.key == "e1/opened/1" else ""
    async with bench(tmp_path, sink) as b, b.notifying(sink):
        await b.take(hold("e1"), hold("e1", RELEASED), hold("e2"), hold("e3"), first=1)
        await b.clock.until(lambda: {"e2/opened/1", "e3/opened/1"} <= set(sink.keys))
        await b.clock.until(lambda: sink.keys.count("e1/opened/1") == 3)
        assert "e1/ruled/1" not in sink.keys
        sink.answer = lambda notification: ""
        await b.clock.until(lambda: "e1/ruled/1" in sink.keys)
        assert sink.keys[-2:] == ["e1/opened/1", "e1/ruled/1"]


async def test_a_dead_sink_is_tried_with_growing_delays_and_given_up_visibly(tmp_path: Path) -> None:
    """So many tries and no more, under one key, never more than five minutes apart; then the cause is shown."""
    sink = FakeSink()
    async with bench(tmp_path, sink) as b, b.notifying(sink):
        await b.take(hold("e1"), first=1)
        tried_ms: list[int] = []
        sink.answer = lambda notification: tried_ms.append(b.clock.now_ms) or "it is down"
        await b.clock.until(lambda: b.stored()[0].next_try_ms is None)
        pauses = [after - before for before, after in pairwise(tried_ms)]
        assert sink.keys == ["e1/opened/1"] * TRIES_MAX
        assert max(pauses[:3]) <= 4_000
        assert 60_000 < max(pauses) <= BACKOFF_MAX_SECONDS * 1000
        (row,) = b.stored()
        assert (row.tries, row.failure) == (TRIES_MAX, f"given up after {TRIES_MAX} tries: it is down")
        sink.answer = lambda notification: ""
        await b.take(hold("e1", RELEASED), first=2)
        await b.clock.until(lambda: sink.keys[-1] == "e1/ruled/1")
        assert len(sink.keys) == TRIES_MAX + 1


async def test_an_outage_costs_one_try_at_a_time(tmp_path: Path) -> None:
    """However much waits for a sink that is down, each pause ends in one try, taken in turn."""
    sink, times = FakeSink(), list[int]()
    async with bench(tmp_path, sink) as b, b.notifying(sink):
        await b.take(*(hold(f"e{number}") for number in range(20)), first=1)
        sink.answer = lambda notification: times.append(b.clock.now_ms) or "it is down"
        await b.clock.until(lambda: len(sink.keys) == 20)
        assert len(set(times)) == 20
        assert len(set(sink.keys)) == 20


async def test_i02_a_crash_between_send_and_record_repeats_under_the_same_key(tmp_path: Path) -> None:
    """What was sent and not recorded goes out again after the restart, and so does nothing else."""

    def crash(point: str, names: tuple[str, ...]) -> None:
        if point == "before_commit" and emitters.NOTIFY.name in names:
            raise SimulatedCrash

    sink, clock = FakeSink(), StandingClock()
    async with bench(tmp_path, sink, clock=clock) as b, b.notifying(sink):
        await b.take(hold("e1"), first=1)
        await sink.until(1)
    async with bench(tmp_path, sink, clock=clock, failpoints=crash) as b:
        await b.take(hold("e2"), first=2)
        with pytest.raises(SimulatedCrash):
            await notify(b.supervisor, sink)
    async with bench(tmp_path, sink, clock=clock) as b, b.notifying(sink):
        await sink.until(3)
        assert sink.keys == ["e1/opened/1", "e2/opened/1", "e2/opened/1"]
        assert [each.next_try_ms for each in b.stored()] == [None, None]


async def test_a_crash_before_the_report_is_stored_tells_nobody(tmp_path: Path) -> None:
    """The notification and the change that it tells of are stored together or not at all."""

    def crash(point: str, names: tuple[str, ...]) -> None:
        if point == "before_commit" and emitters.REPORT.name in names:
            raise SimulatedCrash

    sink = FakeSink()
    async with bench(tmp_path, sink, failpoints=crash) as b:
        with pytest.raises(SimulatedCrash):
            await b.take(hold(), first=1)
    async with bench(tmp_path, sink) as b:
        assert b.stored() == []
        await b.take(hold(), first=1)
        assert b.keys() == ["e1/opened/1"]


async def test_ten_reminders_among_a_thousand_holds_cost_ten(tmp_path: Path) -> None:
    """What is written and sent depends on what is due, not on what is open; what is due is found by an index."""
    sink = FakeSink()
    async with bench(tmp_path, sink) as b, b.notifying(sink):
        for start in range(0, 1_000, 250):
            await b.take(*(hold(f"e{start + index}") for index in range(250)), first=1 + start)
        await sink.until(1_000)
        await asyncio.sleep(0)
        before = b.ledger.attributed_rows
        await b.take(*(hold(f"e{number}", reminders=1) for number in range(0, 1_000, 100)), first=1_001)
        await sink.until(1_010)
        async with asyncio.timeout(PATIENCE_SECONDS):
            while any(each.next_try_ms is not None for each in b.stored()):
                await asyncio.sleep(0)
        ten_views, ten_notifications, ten_records, one_runner = 10, 10, 10, 1
        assert b.ledger.attributed_rows - before == ten_views + ten_notifications + ten_records + one_runner
        plan = b.supervisor.read(
            lambda reader: reader.query(
                f"EXPLAIN QUERY PLAN {notifications._SELECT} WHERE {notifications._FIRST} AND next_try_ms <= 0"
                " ORDER BY tries, position LIMIT 9",
                ("s",),
            )
        )
        steps = [str(row["detail"]) for row in plan]
        assert all("USING" in step or "CORRELATED" in step for step in steps), steps
        assert not any(step.startswith("SCAN") or "TEMP B-TREE" in step for step in steps), steps


async def test_notifications_are_forgotten_after_a_week(tmp_path: Path) -> None:
    """Finished ones go, oldest first and bounded, and so does what waits for a sink that is gone; what waits stays."""
    sink = FakeSink("s")
    sink.answer = lambda notification: "no" if notification.escalation_id == "e1" else ""
    async with bench(tmp_path, sink, FakeSink("gone")) as b, b.notifying(sink):
        await b.take(hold("e1"), hold("e2"), hold("e3"), first=1)
        await b.clock.until(lambda: {"e2/opened/1", "e3/opened/1"} <= set(sink.keys))

        async def prune(older_than_ms: int, rows_max: int) -> int:
            forgotten: int = await b.supervisor.do(
                lambda session: notifications.prune(session.uow, older_than_ms, rows_max, ["s"]),
                emitter=emitters.PRUNE,
            )
            return forgotten

        assert await prune(0, 99) == 0
        assert await prune(b.clock.now_ms + 1, 2) == 2
        assert await prune(b.clock.now_ms + 1, 99) == 3
        assert [(each.sink, each.escalation_id) for each in b.stored()] == [("s", "e1")]


@contextmanager
def refused_by_schema() -> Any:
    with pytest.raises(IntegrityError):
        yield


async def test_the_schema_keeps_keys_apart_and_states_whole(tmp_path: Path) -> None:
    """One row per sink and key, a known kind, and a finished row was delivered or says why not."""
    async with bench(tmp_path, FakeSink()) as b:
        await b.take(hold(), first=1)
        (row,) = b.stored()

        async def insert(notification: Notification) -> bool:
            stored: bool = await b.supervisor.do(
                lambda session: notifications.insert(session.uow, notification), emitter=emitters.REPORT
            )
            return stored

        assert not await insert(replace(row, kind="ruled"))
        assert await insert(replace(row, sink="other"))
        bad: Sequence[dict[str, Any]] = [
            {"kind": "perhaps"},
            {"next_try_ms": None},
            {"delivered_wall_ms": 1},
            {"escalation_id": "e9"},
            {"payload": "{"},
        ]
        for number, fields in enumerate(bad):
            with refused_by_schema():
                await insert(replace(row, **{"key": f"k{number}", **fields}))


@pytest.mark.parametrize("forgotten", [False, True], ids=["kept", "mutant"])
async def test_people_are_told_in_the_trace_of_the_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, forgotten: bool
) -> None:
    """Whenever they are told; a supervisor that stores a notification without its trace is found out."""
    if forgotten:
        insert = notifications.insert
        monkeypatch.setattr(notifications, "insert", lambda uow, told: insert(uow, replace(told, traceparent="")))
    sink = FakeSink()
    async with bench(tmp_path, sink) as b:
        for number in (1, 2):
            with within(f"00-{str(number) * 32}-{'b' * 16}-01"):
                await b.take(hold(f"e{number}"), first=number)
        with within(""):
            async with b.notifying(sink):
                await sink.until(2)
    assert (sink.traces == ["1" * 32, "2" * 32]) is not forgotten
