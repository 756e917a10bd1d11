"""``classify``: every combination of what matters against an oracle, the bounds to the millisecond, and S09 and S10."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from supervisor_svc.core.leases import Timing
from supervisor_svc.core.observation import Observed, Reported, observe
from supervisor_svc.core.supervision import SupervisionConfig
from supervisor_svc.core.verdict import Verdict, classify, judge
from supervisor_svc.core.view import Author, State, Storm, Text, View
from tests import supervision_oracle

CONFIG = SupervisionConfig()
NOW_MS = 10_000_000
MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
STORM = Storm(emitter="lane_runner.progress", rows_per_second=640.0, since_ms=NOW_MS - 10_000)
LIVE = View(
    state=State.RUNNING,
    attempt=1,
    worker_alive=True,
    sensor=True,
    progress=7,
    progressed_ms=NOW_MS - 1_000,
    running_ms=NOW_MS - HOUR_MS,
)
SILENT = replace(LIVE, progressed_ms=NOW_MS - CONFIG.stale_ms)
SENSORLESS = replace(LIVE, sensor=False, progress=None, progressed_ms=None)
RESTING = View(state=State.IDLE, session=True, attempt=1)


def ago(*spans_ms: int) -> list[int]:
    """Those times, and just after each."""
    return [NOW_MS - span_ms + late for span_ms in spans_ms for late in (0, 1)]


def test_every_combination_has_the_verdict_of_the_oracle() -> None:
    """State, life, hold, reach, sensor, progress, input, storm, children, heartbeat and whether the runner has had time to
    tell, each with each, bounds included.
    """
    progressed = [None, NOW_MS - 1_000, *ago(CONFIG.stale_ms, 20 * MINUTE_MS)]
    running = [*ago(CONFIG.first_progress_ms, CONFIG.parked_ms), NOW_MS - HOUR_MS]
    inputs = [None, NOW_MS - 1_000, *ago(CONFIG.parked_ms), NOW_MS - 2 * HOUR_MS]
    checked = 0
    for state, alive, session, sensor in product(State, *[(False, True)] * 3):
        for moved, since, waits in product(progressed, running, inputs):
            view = replace(
                LIVE,
                state=state,
                worker_alive=alive,
                session=session,
                sensor=sensor,
                progressed_ms=moved if sensor else None,
                running_ms=since,
                input_ms=waits,
            )
            for variant in variants(view) if state in (State.RUNNING, State.IDLE) else (view,):
                assert classify(variant, NOW_MS, CONFIG).name == supervision_oracle.verdict(variant, NOW_MS, CONFIG)
                checked += 1
    assert checked > 20_000


def variants(view: View) -> list[View]:
    """The view with what else may be so."""
    return [
        view,
        replace(view, reachable=False),
        replace(view, open_holds=("e1",)),
        replace(view, pauses=("OPERATOR",)),
        replace(view, children_open=1),
        replace(view, heartbeat_ms=20 * MINUTE_MS),
        replace(view, storm=STORM),
        replace(view, storm=STORM, children_open=1),
        replace(view, storm=replace(STORM, since_ms=NOW_MS - HOUR_MS)),
        replace(view, heard_ms=None),
        *(replace(view, heard_ms=heard_ms) for heard_ms in ago(CONFIG.catch_up_ms)),
    ]


def test_the_oracle_knows_every_verdict() -> None:
    """A control: the comparison above would pass if both said the same of everything."""
    found = {
        supervision_oracle.verdict(view, NOW_MS, CONFIG)
        for base in (LIVE, SILENT, SENSORLESS, replace(RESTING, input_ms=0), replace(LIVE, state=State.QUEUED))
        for view in [*variants(base), replace(base, worker_alive=False)]
    }
    assert found == {verdict.name for verdict in Verdict}


times = st.one_of(st.none(), st.integers(-(10**15), 10**15))
texts = st.builds(Text, author=st.sampled_from(Author), text=st.text(max_size=20))
views = st.builds(
    View,
    state=st.sampled_from(State),
    epoch=st.integers(1, 3),
    session=st.booleans(),
    worker_alive=st.booleans(),
    pauses=st.lists(st.sampled_from(["OPERATOR", "TAKEOVER"]), max_size=2).map(tuple),
    open_holds=st.lists(st.text(max_size=4), max_size=2).map(tuple),
    children_open=st.integers(0, 3),
    sensor=st.booleans(),
    progress=st.one_of(st.none(), st.integers(0, 2**63)),
    progressed_ms=times,
    running_ms=st.integers(-(10**15), 10**15),
    heartbeat_ms=st.integers(0, 10**12),
    input_ms=times,
    storm=st.one_of(
        st.none(), st.builds(Storm, emitter=st.text(), rows_per_second=st.floats(), since_ms=st.integers())
    ),
    reachable=st.booleans(),
    heard_ms=times,
    relaunches=st.integers(0, 200),
    woken=st.booleans(),
    incident=st.sampled_from(["", "t1/1/stale"]),
    mishaps=st.lists(texts, max_size=3).map(tuple),
    note=st.text(max_size=10),
)
configs = st.builds(
    SupervisionConfig,
    version=st.integers(1, 9),
    parked_ms=st.integers(1, 10**9),
    stale_ms=st.integers(1, 10**9),
    first_progress_ms=st.integers(1, 10**9),
    catch_up_ms=st.integers(1, 10**9),
    relaunches_max=st.integers(0, 100),
)


@settings(max_examples=300, deadline=None)
@given(views, st.integers(-(10**15), 10**15), configs)
def test_classify_is_total_and_a_function(view: View, now_ms: int, config: SupervisionConfig) -> None:
    """Whatever the facts, however absurd: a verdict, the same each time, with a reason, and the oracle's."""
    judgement = judge(view, now_ms, config)
    assert judgement == judge(view, now_ms, config)
    assert judgement.because
    assert classify(view, now_ms, config) is judgement.verdict
    assert judgement.verdict.name == supervision_oracle.verdict(view, now_ms, config)


@settings(max_examples=300, deadline=None)
@given(views, st.integers(-(10**15), 10**15), configs)
def test_without_a_sensor_nothing_is_stale_or_churning(view: View, now_ms: int, config: SupervisionConfig) -> None:
    """STALE and CHURNING need a known progress sensor, whatever else is so."""
    assert classify(replace(view, sensor=False), now_ms, config) not in (Verdict.STALE, Verdict.CHURNING)


@settings(max_examples=300, deadline=None)
@given(views, st.integers(-(10**15), 10**15), st.integers(0, 10**12))
def test_a_held_task_is_held_however_long(view: View, now_ms: int, later_ms: int) -> None:
    """No time, storm or silence makes anything else of an open hold on a runner that can be heard."""
    held = replace(view, open_holds=("e1",), reachable=True, state=State.RUNNING)
    assert classify(held, now_ms + later_ms, CONFIG) is Verdict.HELD


@pytest.mark.parametrize(
    ("view", "bound_ms", "before", "after"),
    [
        (replace(LIVE, progressed_ms=0), 900_000, Verdict.HEALTHY, Verdict.STALE),
        (replace(LIVE, progressed_ms=0, heartbeat_ms=1_800_000), 1_800_000, Verdict.HEALTHY, Verdict.STALE),
        (replace(LIVE, progressed_ms=0, heartbeat_ms=60_000), 900_000, Verdict.HEALTHY, Verdict.STALE),
        (replace(LIVE, progressed_ms=None, progress=None, running_ms=0), 60_000, Verdict.HEALTHY, Verdict.STALE),
        (
            replace(LIVE, progressed_ms=None, running_ms=0, heartbeat_ms=300_000),
            300_000,
            Verdict.HEALTHY,
            Verdict.STALE,
        ),
        (replace(RESTING, input_ms=0), 120_000, Verdict.HEALTHY, Verdict.PARKED),
        (replace(SENSORLESS, session=True, input_ms=-1, running_ms=0), 120_000, Verdict.UNKNOWN, Verdict.PARKED),
    ],
)
def test_bounds_are_exact(view: View, bound_ms: int, before: Verdict, after: Verdict) -> None:
    """One millisecond before its bound a silence is nothing, at the bound it is a verdict (DESIGN section 13)."""
    view = replace(view, running_ms=min(view.running_ms, 0), heard_ms=-HOUR_MS)
    assert classify(view, bound_ms - 1, CONFIG) is before
    assert classify(view, bound_ms, CONFIG) is after


def test_a_runner_that_comes_back_is_listened_to_first() -> None:
    """A silence that began while the runner was out of reach is held against nobody until the runner has had time to tell;
    then it counts from its beginning, so that a supervisor that restarts again and again still notices.
    """
    back = replace(SILENT, heard_ms=NOW_MS)
    assert classify(back, NOW_MS + CONFIG.catch_up_ms - 1, CONFIG) is Verdict.HEALTHY
    assert classify(back, NOW_MS + CONFIG.catch_up_ms, CONFIG) is Verdict.STALE
    assert classify(replace(SILENT, heard_ms=None), NOW_MS + HOUR_MS, CONFIG) is Verdict.HEALTHY


@pytest.mark.parametrize("field", ["parked_ms", "stale_ms", "first_progress_ms", "catch_up_ms", "version"])
def test_no_bound_is_zero(field: str) -> None:
    """Bounds and the version are above 0; relaunches may be 0."""
    assert replace(CONFIG, relaunches_max=0).relaunches_max == 0
    with pytest.raises(AssertionError):
        replace(CONFIG, **{field: 0})


@pytest.mark.parametrize(("field", "setting"), [("parked_ms", "parked"), ("stale_ms", "stale")])
def test_r08_a_bound_within_the_lease_names_both_settings(field: str, setting: str) -> None:
    """A runner that is only out of reach would make its workers look silent."""
    lease = Timing()
    assert list(CONFIG.conflicts(lease)) == []
    assert list(replace(CONFIG, **{field: 15_001}).conflicts(lease)) == []
    (sentence,) = replace(CONFIG, **{field: 15_000}).conflicts(lease)
    assert f"{setting}_seconds (15)" in sentence
    assert "lease_ttl_seconds (10)" in sentence


# S09


def test_s09_a_storm_without_progress_is_churning_and_names_its_emitter() -> None:
    """As soon as the ledger tells of the storm, not when 15 minutes are over; and also then it is not 'no progress'."""
    view = replace(LIVE, storm=STORM, progressed_ms=STORM.since_ms - 1)
    judgement = judge(view, NOW_MS, CONFIG)
    assert judgement.verdict is Verdict.CHURNING
    assert "lane_runner.progress writes 640 rows/s" in judgement.because
    assert judge(view, NOW_MS + HOUR_MS, CONFIG) == judgement


def test_s09_progress_within_the_storm_is_not_churning() -> None:
    """A control: a worker that writes fast and progresses is at work."""
    assert classify(replace(LIVE, storm=STORM, progressed_ms=STORM.since_ms), NOW_MS, CONFIG) is Verdict.HEALTHY


# S09 and S10: what moves the clock of silence, and what does not

RUNNING = Reported(epoch=1, attempt=1, running=True, progress=5)


def told(*reports: tuple[int, Reported]) -> Observed:
    """What is known after these reports."""
    last: tuple[Reported, Observed] | None = None
    for now_ms, report in reports:
        last = report, observe(last, report, now_ms)
    assert last is not None
    return last[1]


def at_work(report: Reported, known: Observed) -> View:
    """The view of a task that reports so."""
    return replace(
        LIVE,
        sensor=report.progress is not None,
        progress=report.progress,
        progressed_ms=known.progressed_ms,
        running_ms=known.running_ms,
        heard_ms=0,
    )


def test_s09_a_storm_of_writes_keeps_no_clock_of_silence_quiet() -> None:
    """A report every second for 15 minutes, each with the same progress: stale at its bound all the same."""
    known = told(*((second * 1_000, RUNNING) for second in range(901)))
    assert known.progressed_ms == 0
    assert classify(at_work(RUNNING, known), 899_999, CONFIG) is Verdict.HEALTHY
    assert classify(at_work(RUNNING, known), 900_000, CONFIG) is Verdict.STALE


def test_s09_steady_progress_is_never_stale() -> None:
    """25 minutes of one step a minute, asked every second: healthy each time."""
    last: tuple[Reported, Observed] | None = None
    for second in range(25 * 60):
        now_ms = second * 1_000
        if second % 60 == 0:
            report = replace(RUNNING, progress=second // 60)
            last = report, observe(last, report, now_ms)
        assert last is not None
        assert classify(at_work(*last), now_ms, CONFIG) is Verdict.HEALTHY


def test_s10_what_a_supervisor_writes_moves_no_clock_of_silence() -> None:
    """Notes, touches and summaries of the supervisor come back as reports of the task; none of them is progress."""
    touched = [replace(RUNNING, summary=Text(author=Author.SUPERVISOR, text=f"note {n}")) for n in range(100)]
    known = told((0, RUNNING), *((9_000 * n, report) for n, report in enumerate(touched, start=1)))
    assert known == observe(None, RUNNING, 0)
    assert classify(at_work(RUNNING, known), 900_000, CONFIG) is Verdict.STALE


def test_s10_a_worker_without_a_sensor_is_unknown_for_hours() -> None:
    """Silence of what cannot be heard says nothing: UNKNOWN after a second and after a week, never STALE."""
    for span_ms in (1_000, HOUR_MS, 24 * HOUR_MS, 7 * 24 * HOUR_MS):
        assert classify(SENSORLESS, SENSORLESS.running_ms + span_ms, CONFIG) is Verdict.UNKNOWN


def test_s10_a_parent_that_waits_for_a_child_is_healthy() -> None:
    """However long its child takes; once the child has ended, its own silence counts."""
    assert classify(SILENT, NOW_MS + HOUR_MS, CONFIG) is Verdict.STALE
    assert classify(replace(SILENT, children_open=1), NOW_MS + HOUR_MS, CONFIG) is Verdict.HEALTHY


def test_s10_first_progress_has_its_own_budget_in_each_attempt() -> None:
    """A new attempt has 60 s for its first step, whatever the last one had reached, and 900 s for each after."""
    second = replace(RUNNING, attempt=2)
    known = told((0, RUNNING), (500_000, second))
    assert (known.progressed_ms, known.running_ms) == (None, 500_000)
    assert classify(at_work(second, known), 559_999, CONFIG) is Verdict.HEALTHY
    assert classify(at_work(second, known), 560_000, CONFIG) is Verdict.STALE
    stepped = replace(second, progress=6)
    known = told((0, RUNNING), (500_000, second), (550_000, stepped))
    assert classify(at_work(stepped, known), 1_449_999, CONFIG) is Verdict.HEALTHY
    assert classify(at_work(stepped, known), 1_450_000, CONFIG) is Verdict.STALE


def test_s10_time_in_a_hold_is_not_silence() -> None:
    """A worker that has waited five hours for its ruling has 900 s from then on."""
    held = replace(RUNNING, running=False)
    known = told((0, RUNNING), (1_000, held), (5 * HOUR_MS, RUNNING))
    assert (known.progressed_ms, known.running_ms) == (0, 5 * HOUR_MS)
    assert classify(at_work(RUNNING, known), 5 * HOUR_MS + 899_999, CONFIG) is Verdict.HEALTHY
    assert classify(at_work(RUNNING, known), 5 * HOUR_MS + 900_000, CONFIG) is Verdict.STALE


def test_input_waits_since_it_is_the_oldest() -> None:
    """A report that names the same oldest input moves nothing; another oldest one begins anew; none is none."""
    waiting = replace(RUNNING, oldest_input=111)
    assert told((0, RUNNING), (5, waiting), (9, waiting)).input_ms == 5
    assert told((0, RUNNING), (5, waiting), (9, replace(waiting, oldest_input=222))).input_ms == 9
    assert told((0, waiting), (5, RUNNING)).input_ms is None


def test_input_that_came_during_a_round_waits_for_the_next() -> None:
    """A session without a sensor that works for an hour while input arrives is not parked; one that does not take what it
    was launched for is.
    """
    session = replace(SENSORLESS, session=True, running_ms=0)
    assert classify(replace(session, input_ms=1), HOUR_MS, CONFIG) is Verdict.UNKNOWN
    assert classify(replace(session, input_ms=-1), HOUR_MS, CONFIG) is Verdict.PARKED
    assert classify(replace(session, input_ms=-1, session=False), HOUR_MS, CONFIG) is Verdict.UNKNOWN


def test_s05_the_first_cause_of_an_epoch_is_kept_and_the_next_begins_anew() -> None:
    """A later mishap, and whatever a supervisor writes over it, change nothing; after a settle and a reopen the next genuine
    failure is the one that is known.
    """
    first, second = (Text(author=Author.RUNNER, text=text) for text in ("killed by SIGKILL", "killed again"))
    ours = Text(author=Author.SUPERVISOR, text="given up")
    reports = [replace(RUNNING, summary=summary) for summary in (ours, first, ours, second, None)]
    assert told(*enumerate(reports)).cause == first
    reopened = replace(RUNNING, epoch=2, attempt=1)
    assert told(*enumerate([*reports, reopened])).cause is None
    assert told(*enumerate([*reports, reopened, replace(reopened, summary=second)])).cause == second
