"""From reports and receive times to what is judged: what is stored of it, and since when a runner is heard."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lanewarden.config import ConfigInvalid, load
from lanewarden.ledger import WriteLedger
from lanewarden.store import Emitter, IntegrityError, Store
from lanewarden.v1 import incident_pb2, task_pb2
from supervisor_svc.config import SupervisorConfig
from supervisor_svc.core import observation
from supervisor_svc.core.leases import Lease
from supervisor_svc.core.observation import Observed
from supervisor_svc.core.supervision import SupervisionConfig
from supervisor_svc.core.verdict import Verdict, classify
from supervisor_svc.core.view import Author, State, Text, View
from supervisor_svc.store import runners, views
from supervisor_svc.store.runners import RunnerRow
from supervisor_svc.store.schema import MIGRATIONS
from supervisor_svc.work import intake, judging
from supervisor_svc.work.presence import STALL_MS, SWEEP_MAX_MS, Presence, ended
from supervisor_svc.work.session import Session
from tests.unit.test_supervisor_leases import EXPIRES_MS, LEASE, TIMING, FakeClock, run_sweeps

EMIT = Emitter("tests.supervision")
CONFIG = SupervisionConfig()
RUNNER = RunnerRow(
    runner_id="r1",
    incarnation="i1",
    generation=7,
    address="127.0.0.1:1",
    lanes=("a",),
    version="1",
    store_id="s1",
    taken_sequence=0,
    registered_wall_ms=1,
)


def task(version: int = 1, **fields: Any) -> task_pb2.Task:
    defaults = {"state": task_pb2.TASK_STATE_RUNNING, "epoch": 1, "attempt": 1, "worker_alive": True}
    return task_pb2.Task(task_id="t1", runner_id="r1", version=version, **{**defaults, **fields})


@pytest.fixture
def store(tmp_path: Path) -> Any:
    path = tmp_path / "supervisor.sqlite3"
    opened = Store.open(path, migrations=MIGRATIONS, ledger=WriteLedger(FakeClock()), threaded=False)
    opened.write_now(lambda uow: runners.put(uow, RUNNER), emitter=EMIT)
    yield opened
    opened.close()


def put(store: Store, told: task_pb2.Task, now_ms: int, work: Any = intake.put_task) -> Observed:
    """Take a report, and return what is stored of it."""
    store.write_now(lambda uow: work(Session(uow=uow, steady_ms=now_ms, wall_ms=-now_ms), told), emitter=EMIT)
    found = store.read(lambda reader: views.task(reader, "t1"))
    assert found is not None
    assert found.observed is not None
    return found.observed


def test_progress_is_dated_when_it_is_told_and_only_when_it_rises(store: Store) -> None:
    """By the supervisor's steady clock, in the task's row; another report of the same, or an older one, moves nothing."""
    assert put(store, task(progress=5), 100) == Observed(progressed_ms=100, running_ms=100, input_ms=None)
    assert put(store, task(2, progress=5, progress_note="still"), 200).progressed_ms == 100
    assert put(store, task(3, progress=4), 300).progressed_ms == 100
    assert put(store, task(4, progress=6), 400).progressed_ms == 400
    assert put(store, task(5, progress=6, attempt=2), 500) == Observed(
        progressed_ms=None, running_ms=500, input_ms=None
    )


def test_the_answer_to_a_command_is_a_report_like_any_other(store: Store) -> None:
    """What a runner answers with dates nothing that has not moved."""
    put(store, task(progress=5), 100)
    assert put(store, task(2, progress=5, pauses=[1]), 200, intake.learn_task).progressed_ms == 100


def test_the_first_cause_is_stored_with_its_author(store: Store) -> None:
    """The supervisor's own sentence over it changes nothing."""
    runner, supervisor = task_pb2.AUTHOR_RUNNER, task_pb2.AUTHOR_SUPERVISOR
    cause = Text(author=Author.RUNNER, text="killed by SIGKILL")
    assert put(store, task(summary="given up", summary_author=supervisor), 1).cause is None
    assert put(store, task(2, summary=cause.text, summary_author=runner), 2).cause == cause
    assert put(store, task(3, summary="given up", summary_author=supervisor), 3).cause == cause
    assert put(store, task(4, epoch=2), 4).cause is None


def test_no_code_can_store_a_cause_in_a_supervisors_name(store: Store) -> None:
    """The schema takes the words of workers and runners only, and no words of nobody."""
    put(store, task(), 1)
    for assignment in ("cause_author = 'SUPERVISOR', cause = 'x'", "cause = 'x'", "cause_author = 'RUNNER'"):
        with pytest.raises(IntegrityError):
            store.write_now(lambda uow, change=assignment: uow.execute(f"UPDATE tasks SET {change}"), emitter=EMIT)


def test_a_row_from_before_counts_from_its_next_report(store: Store) -> None:
    """A task that was stored when nothing was observed yet is not silent since the beginning of time."""
    put(store, task(progress=5), 100)
    store.write_now(lambda uow: uow.execute("UPDATE tasks SET running_ms = NULL, progressed_ms = NULL"), emitter=EMIT)
    found = store.read(lambda reader: views.task(reader, "t1"))
    assert found is not None
    assert found.observed is None
    assert put(store, task(2, progress=5), 900) == Observed(progressed_ms=900, running_ms=900, input_ms=None)


def test_a_task_is_judged_by_everything_that_was_reported() -> None:
    """Every fact of the view is the report's, or the supervisor's own."""
    spec = task_pb2.TaskSpec(kind=task_pb2.TASK_KIND_SESSION, heartbeat={"seconds": 1800})
    spec.progress_from.output_lines = True
    told = task(
        spec=spec,
        epoch=2,
        attempt=3,
        pauses=[task_pb2.PAUSE_CAUSE_TAKEOVER],
        open_holds=["e1"],
        children_open=4,
        progress=9,
        progress_note="step 9",
        relaunches=1,
        woken=True,
        summary="given up",
        summary_author=task_pb2.AUTHOR_SUPERVISOR,
        incidents=[incident_pb2.Incident(key="t1/1/stale", epoch=1), incident_pb2.Incident(key="t1/2/stale", epoch=2)],
    )
    cause = Text(author=Author.RUNNER, text="killed")
    presence = Presence(TIMING, FakeClock())
    presence.put(replace(LEASE, seen_wall_ms=0))
    seen = judging.view(told, Observed(progressed_ms=5, running_ms=4, input_ms=3, cause=cause), presence)
    assert seen == View(
        state=State.RUNNING,
        epoch=2,
        attempt=3,
        session=True,
        worker_alive=True,
        pauses=("takeover",),
        open_holds=("e1",),
        children_open=4,
        sensor=True,
        progress=9,
        progressed_ms=5,
        running_ms=4,
        heartbeat_ms=1_800_000,
        input_ms=3,
        reachable=True,
        heard_ms=LEASE.seen_ms,
        last_seen="1970-01-01T00:00:00.000Z",
        relaunches=1,
        woken=True,
        incident="t1/2/stale",
        mishaps=(cause, Text(author=Author.SUPERVISOR, text="given up")),
        note="step 9",
    )


@pytest.mark.parametrize(
    ("told", "sensor"),
    [
        (task(), False),
        (task(progress=0), True),
        (task(spec=task_pb2.TaskSpec(progress_from=task_pb2.ProgressSource(output_lines=True))), True),
    ],
)
def test_a_sensor_is_a_worker_that_has_reported_or_a_source_that_was_named(told: task_pb2.Task, sensor: bool) -> None:
    """Nothing else makes progress known."""
    observed = judging.observed(None, told, 1)
    assert judging.view(told, observed, Presence(TIMING, FakeClock())).sensor is sensor


def test_an_input_is_dated_when_it_is_first_told_and_never_by_the_runners_clock(store: Store) -> None:
    """A runner whose clock is an hour ahead, or behind, changes nothing."""
    for hour in (-3600, 3600):
        waiting = task(oldest_input_at={"seconds": 1_700_000_000 + hour})
        assert put(store, waiting, 1_000 + hour).input_ms == 1_000 + hour
        assert put(store, waiting, 9_000 + hour).input_ms == 1_000 + hour


SESSION = task_pb2.TaskSpec(kind=task_pb2.TASK_KIND_SESSION)
WAITING = {"spec": SESSION, "oldest_input_at": {"seconds": 7}}
AT_ONCE = [task(**WAITING, input_of_round=True)]
START_FIRST = [task(spec=SESSION), task(2, **WAITING, input_of_round=True)]
NEXT_ROUNDS = [task(**WAITING, input_of_round=False)]
NEXT_ROUNDS_INPUT_FIRST = [task(**WAITING, state=task_pb2.TASK_STATE_QUEUED), task(2, **WAITING, input_of_round=False)]


def verdicts(told: list[task_pb2.Task]) -> tuple[Verdict, Verdict]:
    """Of a task of which this was heard at 1 s, 2 s …: just before the bound of an input that is not taken, and at it."""
    observed = None
    for number, each in enumerate(told, 1):
        before = observed and views.View(
            position=1, runner_id="r1", payload=told[number - 2].SerializeToString(), observed=observed
        )
        observed = judging.observed(before, each, number * 1000)
    assert observed is not None
    seen = judging.view(told[-1], observed, heard(FakeClock(), replace(LEASE, seen_wall_ms=1)))
    bound_ms = observed.running_ms + CONFIG.parked_ms
    return classify(seen, bound_ms - 1, CONFIG), classify(seen, bound_ms, CONFIG)


@pytest.mark.parametrize("told", [AT_ONCE, START_FIRST], ids=["at once", "start first"])
def test_a_rounds_own_input_is_owed_in_whatever_order_both_were_heard_of(told: list[task_pb2.Task]) -> None:
    """Heard of with the start of its round, or after it: PARKED once the round has had the bound to take it."""
    assert verdicts(told) == (Verdict.UNKNOWN, Verdict.PARKED)


@pytest.mark.parametrize("told", [NEXT_ROUNDS, NEXT_ROUNDS_INPUT_FIRST], ids=["at once", "input first"])
def test_an_input_of_the_next_round_is_not_owed_by_this_one(told: list[task_pb2.Task]) -> None:
    """In whatever order both were heard of."""
    assert verdicts(told) == (Verdict.UNKNOWN, Verdict.UNKNOWN)


def test_what_goes_by_the_order_of_hearing_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mutant takes the order in which reports came for that of what they tell. The control needs no order."""
    monkeypatch.setattr(observation, "_in_order", lambda input_ms, running_ms, now: input_ms)
    wrong = (AT_ONCE, START_FIRST, NEXT_ROUNDS_INPUT_FIRST)
    assert [verdicts(told)[1] for told in wrong] == [Verdict.UNKNOWN, Verdict.UNKNOWN, Verdict.PARKED]
    assert verdicts(NEXT_ROUNDS)[1] is Verdict.UNKNOWN


# Since when a runner is heard


def heard(clock: FakeClock, lease: Lease) -> Presence:
    found = Presence(TIMING, clock)
    found.put(lease)
    return found


def test_a_runner_is_heard_from_its_grant_on() -> None:
    """Renewals and repeated registrations of the same grant move nothing."""
    clock = FakeClock()
    found = heard(clock, replace(LEASE, seen_wall_ms=1))
    clock.now_ms = 4_000
    found.renew("r1", "i1", 7)
    found.put(replace(LEASE, seen_ms=4_000, seen_wall_ms=2))
    assert found.heard_ms("r1") == 1_000


def test_a_runner_of_an_earlier_start_is_not_heard_before_it_speaks() -> None:
    """A lease that a restart has extended says nothing; the first renewal, or registration, does."""
    for speak in ("renew", "register"):
        clock = FakeClock()
        found = heard(clock, LEASE)
        assert found.heard_ms("r1") is None
        clock.now_ms = 4_000
        if speak == "renew":
            found.renew("r1", "i1", 7)
        else:
            found.put(replace(LEASE, seen_ms=4_000, seen_wall_ms=2))
        assert found.heard_ms("r1") == 4_000


def test_after_an_expiry_a_runner_is_heard_anew() -> None:
    """From the next grant on."""
    clock = FakeClock()
    found = heard(clock, replace(LEASE, seen_wall_ms=1))
    (ending,) = run_sweeps(found, clock, EXPIRES_MS)
    found.put(ended(ending))
    found.put(replace(LEASE, generation=9, seen_ms=50_000, seen_wall_ms=2))
    assert found.heard_ms("r1") == 50_000


def test_after_a_stall_of_the_supervisor_everybody_is_heard_anew() -> None:
    """What was said while it stood still has not been taken yet."""
    clock = FakeClock()
    found = heard(clock, replace(LEASE, seen_wall_ms=1))
    clock.now_ms += SWEEP_MAX_MS + STALL_MS + 1
    assert found.heard_ms("r1") == clock.now_ms


# Settings


def test_the_bounds_are_settings() -> None:
    """By their defaults those of DESIGN section 13, and each a flag."""
    read = load(SupervisorConfig, service="supervisor", argv=[], environ={})
    assert read.supervision == SupervisionConfig()
    flags = {"parked-seconds": 20, "stale-seconds": 30, "first-progress-seconds": 40, "relaunches-max": 0}
    read = load(SupervisorConfig, service="supervisor", argv=[f"--{k}={v}" for k, v in flags.items()], environ={})
    assert read.supervision == SupervisionConfig(
        parked_ms=20_000, stale_ms=30_000, first_progress_ms=40_000, relaunches_max=0
    )


@pytest.mark.parametrize("name", ["parked", "stale", "first-progress"])
def test_r08_a_bound_that_contradicts_the_lease_is_refused_at_start(name: str) -> None:
    """Naming both, and how long each is."""
    with pytest.raises(ConfigInvalid) as refused:
        load(SupervisorConfig, service="supervisor", argv=[f"--{name}-seconds", "15"], environ={})
    assert f"{name.replace('-', '_')}_seconds (15) must be above lease_ttl_seconds (10)" in str(refused.value)
    with pytest.raises(ConfigInvalid):
        load(SupervisorConfig, service="supervisor", argv=[f"--{name}-seconds", "0"], environ={})
