"""Launches that come to nothing, limits of use, and what attempts say too late, on a real store."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lane_runner_svc.core import budget
from lane_runner_svc.core.limits import AHEAD_MS_MAX
from lane_runner_svc.core.states import State
from lane_runner_svc.core.task import PauseCause
from lanewarden.errors import Reason
from lanewarden.v1 import worker_service_pb2
from tests import budget_checks as checks
from tests.budget_checks import PATIENT, late, spend_the_rate
from tests.runner_checks import HOUR, OTHER_HANDS, changes_nothing, refused
from tests.runner_kit import KILLED, NEVER_STARTED, RunnerKit, exit_code, make_runner

LIMIT, OPERATOR, DEADLINE = PauseCause.USAGE_LIMIT, PauseCause.OPERATOR, PauseCause.HOLD_DEADLINE
LIMIT_CAUSE = {"cause": "PAUSE_CAUSE_USAGE_LIMIT"}


@pytest.fixture
def kit(tmp_path: Path) -> Iterator[RunnerKit]:
    """A runner; when it is closed, every row that it wrote had an author (I11)."""
    made = make_runner(tmp_path)
    yield made
    made.close()


# The rate of launches that come to nothing


@pytest.mark.parametrize(
    "check",
    [
        checks.check_good_starts_refill_no_budget,
        checks.check_nothing_refills_the_rate,
        checks.check_no_ruling_waits_for_the_rate,
    ],
    ids=lambda check: check.__name__,
)
def test_p08_the_budgets_end(kit: RunnerKit, check: Callable[[RunnerKit], None]) -> None:
    """Nothing refills what mishaps have spent, and nothing but mishaps spends it."""
    check(kit)


@pytest.mark.parametrize("mishap", ["launch failed", "never started", "killed"])
def test_p08_no_ten_minutes_see_more_than_five_mishaps(kit: RunnerKit, mishap: str) -> None:
    """Twenty mishaps of one kind, each launch at the first moment allowed: at most five launches in any ten minutes."""
    kit.submit(**PATIENT)
    launches_ms: list[int] = []
    for _ in range(20):
        launch = kit.claim()
        assert launch is not None
        launches_ms.append(kit.clock.steady_ms())
        if mishap == "launch failed":
            task = kit.launch_failed(launch.ref)
        elif mishap == "never started":
            task = kit.exited(launch.ref, NEVER_STARTED)
        else:
            kit.launched(launch.ref)
            task = kit.exited(launch.ref, KILLED)
        assert task.state is State.QUEUED
        kit.clock.advance(max(0, task.not_before_ms - kit.clock.steady_ms()) / 1000)
    for earlier, later in zip(launches_ms, launches_ms[budget.LAUNCHES_MAX :], strict=False):
        assert later - earlier >= budget.WINDOW_MS
    assert launches_ms[-1] - launches_ms[0] < 4 * budget.WINDOW_MS, "it waits for longer than it has to"


def test_the_rate_is_a_tasks_own(kit: RunnerKit) -> None:
    """While one task waits for its rate, the next one in the lane is launched."""
    spent = spend_the_rate(kit)
    other = kit.submit()
    launch = kit.claim()
    assert launch is not None
    assert launch.ref.task_id == other.task_id != spent.task_id


def test_a_person_starts_a_task_that_waits_for_its_rate(kit: RunnerKit) -> None:
    """RetryTask launches at once, and once: the next mishap waits again. The next epoch begins with an empty rate."""
    ref = spend_the_rate(kit)
    kit.on_task("RetryTask", ref.task_id)
    launch = kit.claim()
    assert launch is not None
    kit.launched(launch.ref)
    waiting = kit.exited(launch.ref, KILLED)
    assert waiting.not_before_ms - kit.clock.steady_ms() > 60_000
    assert kit.claim() is None
    kit.cancel(ref.task_id)
    kit.on_task("ReopenTask", ref.task_id)
    launch = kit.claim()
    assert launch is not None
    kit.launched(launch.ref)
    assert kit.exited(launch.ref, KILLED).not_before_ms - kit.clock.steady_ms() < 1_000


def test_the_runners_own_stops_are_no_mishaps(kit: RunnerKit) -> None:
    """Down and up more often than the rate allows: launched at once each time."""
    ref = kit.running()
    for _ in range(2 * budget.LAUNCHES_MAX):
        assert kit.exited(ref, KILLED, interrupted=True).state is State.QUEUED
        kit.restart()
        launch = kit.claim()
        assert launch is not None
        kit.launched(launch.ref)
        ref = launch.ref


def test_s12_a_launch_that_always_fails_ends_and_writes_in_proportion(kit: RunnerKit) -> None:
    """Whatever the budget, FAILED after as many launches, with delays that grow; a few rows for each launch."""
    rows = {}
    for launches_max in (4, 16):
        task = kit.submit(launch_failures_max=launches_max)
        before, launches = kit.ledger.attributed_rows, 0
        while not kit.task(task.task_id).terminal:
            launch = kit.claim()
            if launch is None:
                kit.clock.advance(30)
                continue
            launches += 1
            failed = kit.launch_failed(launch.ref, "no such directory")
            assert failed.not_before_ms - kit.clock.steady_ms() < max(1_000 << launches, budget.WINDOW_MS)
        assert launches == launches_max
        assert "no such directory" in kit.task(task.task_id).summary
        rows[launches_max] = kit.ledger.attributed_rows - before
    assert rows[16] <= rows[4] * 4


def test_s11_an_end_that_two_see_is_charged_once(kit: RunnerKit) -> None:
    """A dead worker is told of twice, in whatever words, before and after the next launch: one attempt ended, one charge,
    one version of the task.
    """
    ref = kit.running()
    once = kit.exited(ref, KILLED)
    for _ in range(2):
        assert kit.exited(ref, KILLED).version == once.version
        assert kit.launch_failed(ref).version == once.version
    assert (once.premature_exits, len(once.fruitless_ms)) == (1, 1)
    launch = kit.claim() or kit.start()
    assert launch is not None
    before = kit.task(ref.task_id)
    kit.exited(ref, KILLED)
    assert kit.task(ref.task_id) == before


# Limits of use


@pytest.mark.parametrize(
    "check",
    [
        checks.check_a_limit_of_use_spends_no_budget,
        checks.check_a_past_limit_does_not_spin,
        checks.check_a_word_of_a_limit_ends_with_its_attempt,
    ],
    ids=lambda check: check.__name__,
)
def test_p09_limits_of_use(kit: RunnerKit, check: Callable[[RunnerKit], None]) -> None:
    """Waited for, at no cost but the rate, and only when the worker exits with 75."""
    check(kit)


def test_p09_75_without_a_time_is_a_code_like_any_other(kit: RunnerKit) -> None:
    """FAILED, as with 1."""
    ended = kit.exited(kit.running(), exit_code(75))
    assert (ended.state, ended.summary) == (State.FAILED, "the worker exited with code 75")


def test_p09_the_bounds_of_the_time(kit: RunnerKit) -> None:
    """Thirty days are taken, a millisecond more is refused and changes nothing; the latest word counts."""
    ref = kit.running()
    too_far = lambda: kit.say_retry(ref, (AHEAD_MS_MAX + 1) / 1000)  # noqa: E731
    refusal = changes_nothing(kit, Reason.REQUEST_INVALID, too_far)
    assert refusal.metadata["field"] == "retry_at"
    kit.say_retry(ref, AHEAD_MS_MAX / 1000)
    waiting = kit.meet_limit(ref, HOUR)
    assert waiting.limited_until_ms == kit.clock.steady_ms() + HOUR * 1000


def test_p09_to_name_a_limit_is_no_progress(kit: RunnerKit) -> None:
    """Without a sequence nothing rises, and UNKNOWN stays so; with one it does."""
    ref = kit.running()
    answer = kit.say_retry(ref, HOUR)
    assert (answer.sequence, answer.advanced, kit.task(ref.task_id).progress) == (0, False, None)
    answer = kit.say_retry(ref, HOUR, sequence=3, note="read a third")
    assert (answer.sequence, answer.advanced) == (3, True)
    answer = kit.say_retry(ref, HOUR)
    assert (answer.sequence, answer.advanced) == (3, False)


def test_p09_a_limit_is_one_pause_among_others(kit: RunnerKit) -> None:
    """Operator and limit: each is cleared by its own and leaves the other; a person may end the wait; its end is shown."""
    ref = kit.running()
    kit.meet_limit(ref, HOUR)
    shown = kit.on_task("PauseTask", ref.task_id).task
    assert shown.not_before.ToMilliseconds() == kit.clock.steady_ms() + HOUR * 1000
    kit.on_task("ResumeTask", ref.task_id)
    assert kit.task(ref.task_id).pauses == {LIMIT}
    kit.on_task("RetryTask", ref.task_id)
    assert kit.claim() is None, "a retry has started a paused task"
    kit.on_task("PauseTask", ref.task_id)
    resumed = kit.on_task("ResumeTask", ref.task_id, **LIMIT_CAUSE).task
    assert not resumed.HasField("not_before")
    assert (kit.task(ref.task_id).pauses, kit.task(ref.task_id).limited_until_ms) == ({OPERATOR}, None)
    before = kit.dump()
    kit.on_task("ResumeTask", ref.task_id, **LIMIT_CAUSE)
    assert kit.dump()["tasks"] == before["tasks"], "a pause that is not there was cleared"
    kit.clock.advance(2 * HOUR)
    assert (kit.lift(), kit.claim()) == (0, None)
    kit.on_task("ResumeTask", ref.task_id)
    assert kit.claim() is not None


@pytest.mark.parametrize("ruled", ["before the end", "after the end"])
def test_p09_a_held_task_has_its_limit_too(kit: RunnerKit, ruled: str) -> None:
    """Asked, then met the limit: HELD and paused. Neither the ruling nor the end of the limit alone starts it."""
    ref = kit.running()
    escalation_id = kit.escalate(ref)
    held = kit.meet_limit(ref, HOUR)
    assert (held.state, held.pauses, held.premature_exits) == (State.HELD, {LIMIT}, 0)
    if ruled == "before the end":
        kit.rule(escalation_id)
        assert (kit.task(ref.task_id).state, kit.claim()) == (State.QUEUED, None)
    kit.clock.advance(HOUR)
    assert kit.lift() == 1
    if ruled == "after the end":
        assert (kit.task(ref.task_id).state, kit.claim()) == (State.HELD, None)
        kit.rule(escalation_id)
    launch = kit.claim()
    assert launch is not None
    assert launch.reason == "RULING"


def test_p09_a_limit_before_the_ruling_was_taken_is_no_premature_exit(kit: RunnerKit) -> None:
    """The ruling waits for the next attempt, which starts when the limit ends."""
    ref = kit.running(premature_exits_max=0)
    kit.rule(kit.escalate(ref))
    waiting = kit.meet_limit(ref, HOUR)
    assert (waiting.state, waiting.premature_exits) == (State.QUEUED, 0)
    kit.clock.advance(HOUR)
    kit.lift()
    launch = kit.claim()
    assert launch is not None
    assert launch.reason == "RULING"


def test_p09_a_deadline_and_a_limit_are_two_pauses(kit: RunnerKit) -> None:
    """A hold past its deadline parks the task that waits for its limit; the ruling clears the park alone."""
    ref = kit.running(hold_deadline={"seconds": HOUR})
    escalation_id = kit.escalate(ref)
    kit.meet_limit(ref, 3 * HOUR)
    kit.clock.advance(2 * HOUR)
    kit.fire()
    assert kit.task(ref.task_id).pauses == {LIMIT, DEADLINE}
    kit.rule(escalation_id)
    assert kit.task(ref.task_id).pauses == {LIMIT}


def test_p09_the_end_of_a_task_ends_its_limit(kit: RunnerKit) -> None:
    """Canceled while it waits: nothing is left of the limit, and the next epoch starts at once."""
    ref = kit.running()
    kit.meet_limit(ref, HOUR)
    ended = kit.cancel(ref.task_id)
    assert (ended.state, ended.pauses, ended.limited_until_ms) == (State.CANCELED, frozenset(), None)
    kit.on_task("ReopenTask", ref.task_id)
    assert kit.claim() is not None


def test_p09_what_a_worker_said_of_its_task_goes_first(kit: RunnerKit) -> None:
    """Complete, then 75 with a time: done, as it said. A cancel that waits for it is a cancel."""
    ref = kit.running()
    kit.complete(ref)
    assert kit.meet_limit(ref, HOUR).state is State.SUCCEEDED
    ref = kit.running()
    kit.cancel(ref.task_id)
    assert kit.meet_limit(ref, HOUR).state is State.CANCELED


# What attempts say too late


@pytest.mark.parametrize(
    "check",
    [checks.check_late_words_are_kept_and_nothing_else, checks.check_a_flood_of_late_words_is_bounded],
    ids=lambda check: check.__name__,
)
def test_p11_late_words_are_evidence(kit: RunnerKit, check: Callable[[RunnerKit], None]) -> None:
    """Kept, without an effect, within a bound."""
    check(kit)


def test_p11_a_long_word_is_cut_and_no_token_is_in_it(kit: RunnerKit) -> None:
    """At most 4 KiB of UTF-8, between characters; what authenticated the call is not part of what was said."""
    kit.submit()
    launch = kit.claim()
    assert launch is not None
    kit.launched(launch.ref)
    kit.exited(launch.ref, KILLED)
    refused(Reason.ATTEMPT_STALE, lambda: kit.escalate(launch.ref, "ü" * 30_000))
    (found,) = kit.evidence(launch.ref.task_id)
    assert 4090 <= len(found.content.encode()) <= 4096
    assert found.content.endswith("ü…")
    assert launch.token not in str(found)


def test_p11_evidence_outlives_the_end_and_comes_in_pages(kit: RunnerKit) -> None:
    """Late words about a task that has ended, and of an epoch that is over, are kept too; listed oldest first."""
    ref = kit.running()
    kit.complete(ref)
    kit.exited(ref)
    refused(Reason.ATTEMPT_STALE, lambda: kit.escalate(ref, "one more thing"))
    kit.on_task("ReopenTask", ref.task_id)
    kit.start()
    for number in range(4):
        refused(Reason.ATTEMPT_STALE, lambda number=number: kit.complete(ref, f"word {number}"))
    seen, token = [], ""
    while True:
        page = kit.on_task("ListEvidence", ref.task_id, page_size=2, page_token=token)
        assert len(page.entries) <= 2
        seen += [(each.sequence, each.epoch, each.attempt, each.method) for each in page.entries]
        token = page.next_page_token
        if not token:
            break
    assert seen == [(1, 1, 1, "Escalate"), *((number, 1, 1, "Complete") for number in range(2, 6))]
    refused(Reason.TASK_UNKNOWN, lambda: kit.on_task("ListEvidence", "nothing"))
    refused(Reason.REQUEST_INVALID, lambda: kit.on_task("ListEvidence", ref.task_id, page_token="x"))


def test_p11_an_answer_that_was_lost_is_no_late_word(kit: RunnerKit) -> None:
    """What an attempt said in time and repeats after its end gets its first answer, and leaves no evidence."""
    ref = kit.running()
    request = worker_service_pb2.ReportProgressRequest(request_id=kit.fresh_id(), sequence=7)
    first = kit.say(ref, "ReportProgress", request)
    kit.exited(ref, KILLED)
    kit.start()
    assert kit.say(ref, "ReportProgress", request) == first
    assert kit.evidence(ref.task_id) == []


def test_p11_evidence_cannot_be_changed(kit: RunnerKit) -> None:
    """The schema refuses it, whoever tries."""
    ref, _ = late(kit)
    refused(Reason.ATTEMPT_STALE, lambda: kit.complete(ref))
    for sql in ("UPDATE evidence SET content = ''", "DELETE FROM evidence"):
        with pytest.raises(Exception, match="append-only"):
            kit.runner.store.write_now(lambda uow, sql=sql: uow.execute(sql), emitter=OTHER_HANDS)
