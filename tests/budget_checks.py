"""What must hold of launches that come to nothing, limits of use and late words, as plain functions (as in
:mod:`tests.runner_checks`): the tests call them, and the tests of mutants see them fail.
"""

from __future__ import annotations

from lane_runner_svc.core import budget
from lane_runner_svc.core.states import State
from lane_runner_svc.core.task import PauseCause
from lane_runner_svc.work.session import AttemptRef
from lanewarden.errors import Reason
from lanewarden.v1 import worker_service_pb2
from tests.runner_checks import HOUR, changes_nothing, refused
from tests.runner_kit import KILLED, RunnerKit, exit_code

WINDOW_SECONDS = budget.WINDOW_MS // 1000
KEPT = 100
"""How many late words of a task are kept."""
PATIENT = {"premature_exits_max": 100, "launch_failures_max": 100}


def spend_the_rate(kit: RunnerKit) -> AttemptRef:
    """As many launches that come to nothing as the rate allows, in two minutes at most; the last one."""
    ref = kit.running(**PATIENT)
    for _ in range(budget.LAUNCHES_MAX - 1):
        kit.exited(ref, KILLED)
        kit.clock.advance(30)
        launch = kit.claim()
        assert launch is not None, "a launch within the rate has to wait"
        kit.launched(launch.ref)
        ref = launch.ref
    kit.exited(ref, KILLED)
    return ref


def check_good_starts_refill_no_budget(kit: RunnerKit) -> None:
    """P08: started well, progress made, then killed; again and again → as many attempts as the budget, then FAILED."""
    ref = kit.running(premature_exits_max=2)
    for number in (1, 2):
        kit.say(ref, "ReportProgress", worker_service_pb2.ReportProgressRequest(note="going well"))
        assert kit.exited(ref, KILLED).premature_exits == number, "a good start has refilled the budget"
        ref = kit.start()
    ended = kit.exited(ref, KILLED)
    assert (ended.state, ended.attempt) == (State.FAILED, 3)
    assert "was killed by SIGKILL" in ended.summary


def check_nothing_refills_the_rate(kit: RunnerKit) -> None:
    """P08: after five launches in ten minutes that came to nothing the sixth waits until the first is ten minutes ago,
    whatever the wall clock shows and however often the runner is started again.
    """
    first_ms = kit.clock.steady_ms() + 60_000
    ref = spend_the_rate(kit)
    task = kit.task(ref.task_id)
    assert (task.state, task.attempt) == (State.QUEUED, budget.LAUNCHES_MAX)
    assert task.not_before_ms == first_ms + budget.WINDOW_MS, "a sixth launch within ten minutes"
    assert "5 launches within 10 minutes came to nothing" in task.summary
    for hours in (1, -2, 24):
        kit.clock.jump_wall(hours * HOUR)
        kit.restart()
        assert kit.claim() is None, "a jump of the wall clock or a restart has refilled the rate"
    kit.clock.advance((first_ms + budget.WINDOW_MS - 1 - kit.clock.steady_ms()) / 1000)
    assert kit.claim() is None, "a sixth launch within ten minutes"
    kit.clock.advance(0.001)
    assert kit.claim() is not None, "the rate is not given back after ten minutes"


def check_no_ruling_waits_for_the_rate(kit: RunnerKit) -> None:
    """Ten questions, rulings and launches within ten minutes → each ruling starts its attempt at once."""
    ref = kit.running()
    for _ in range(2 * budget.LAUNCHES_MAX):
        escalation_id = kit.escalate(ref)
        kit.exited(ref)
        ruling = kit.rule(escalation_id)
        launch = kit.claim()
        assert launch is not None, "a ruling has to wait for the rate"
        kit.launched(launch.ref)
        kit.take(launch.ref, ruling.message.message_id)
        ref = launch.ref
    assert kit.exited(ref).state is State.SUCCEEDED


def check_a_limit_of_use_spends_no_budget(kit: RunnerKit) -> None:
    """P09: a worker that names the end of its limit and exits with 75, more often than its budgets last → launched at
    those times, none of which a jump of the wall clock moves, and not FAILED.
    """
    ref = kit.running(premature_exits_max=1, launch_failures_max=1)
    for number in range(1, 5):
        until_ms = kit.clock.steady_ms() + 2 * HOUR * 1000
        waiting = kit.meet_limit(ref, 2 * HOUR)
        assert (waiting.state, waiting.pauses) == (State.QUEUED, {PauseCause.USAGE_LIMIT})
        assert (waiting.premature_exits, waiting.launch_failures) == (0, 0), "a limit of use has spent budget"
        kit.clock.jump_wall(12 * HOUR if number % 2 else -12 * HOUR)
        kit.restart()
        kit.clock.advance((until_ms - 1 - kit.clock.steady_ms()) / 1000)
        assert (kit.lift(), kit.claim()) == (0, None), "the limit was not kept"
        kit.clock.advance(0.001)
        assert kit.lift() == 1
        launch = kit.claim()
        assert launch is not None, "the end of the limit has started nothing"
        kit.launched(launch.ref)
        ref = launch.ref
    assert kit.exited(ref).state is State.SUCCEEDED


def check_a_past_limit_does_not_spin(kit: RunnerKit) -> None:
    """A worker that always names a time that has passed → launched at once, as often as the rate allows."""
    ref = kit.running()
    launches = 1
    while True:
        assert kit.meet_limit(ref, -HOUR).state is State.QUEUED
        assert kit.lift() == 1
        launch = kit.claim()
        if launch is None:
            break
        kit.launched(launch.ref)
        ref, launches = launch.ref, launches + 1
        assert launches <= budget.LAUNCHES_MAX, "it is launched without end"
    assert launches == budget.LAUNCHES_MAX
    kit.clock.advance(WINDOW_SECONDS)
    assert kit.claim() is not None


def check_a_word_of_a_limit_ends_with_its_attempt(kit: RunnerKit) -> None:
    """P09: the limit was named, and the attempt ended in another way → it means nothing, not for the next attempt either."""
    ref = kit.running()
    kit.say_retry(ref, HOUR)
    killed = kit.exited(ref, KILLED)
    assert (killed.state, killed.pauses, killed.premature_exits) == (State.QUEUED, frozenset(), 1)
    ended = kit.exited(kit.start(), exit_code(75))
    assert (ended.state, ended.summary) == (State.FAILED, "the worker exited with code 75")
    ref = kit.running()
    kit.say_retry(ref, HOUR)
    assert kit.exited(ref).state is State.SUCCEEDED


def late(kit: RunnerKit) -> tuple[AttemptRef, str]:
    """An attempt that is over while the next one runs, and an input that waits for either."""
    ref = kit.running(**PATIENT)
    kit.exited(ref, KILLED)
    message_id = kit.on_task("SendInput", ref.task_id, text="more").message.message_id
    assert kit.start().attempt == ref.attempt + 1
    return ref, message_id


def check_late_words_are_kept_and_nothing_else(kit: RunnerKit) -> None:
    """P11: whatever attempt 1 says after attempt 2 has started → ATTEMPT_STALE, no row but the evidence changed; reads
    leave none.
    """
    ref, message_id = late(kit)
    for act in (
        lambda: kit.complete(ref, "all done"),
        lambda: kit.say(ref, "ReportProgress", worker_service_pb2.ReportProgressRequest(sequence=9, note="nearly")),
        lambda: kit.say_retry(ref, HOUR),
        lambda: kit.escalate(ref, "may I?"),
        lambda: kit.take(ref, message_id),
        lambda: kit.say(ref, "GetAssignment", worker_service_pb2.GetAssignmentRequest()),
    ):
        changes_nothing(kit, Reason.ATTEMPT_STALE, act)
    found = kit.evidence(ref.task_id)
    said = ["Complete", "ReportProgress", "ReportProgress", "Escalate", "AcknowledgeMessage"]
    assert [each.method for each in found] == said, "what was said too late is not what was kept"
    assert [each.sequence for each in found] == [1, 2, 3, 4, 5]
    assert {(each.task_id, each.epoch, each.attempt, each.reason) for each in found} == {
        (ref.task_id, 1, 1, "ATTEMPT_STALE")
    }
    for each, word in zip(found, ("all done", "nearly", "retry_at", "may I?", message_id), strict=True):
        assert word in each.content
    assert {each.at.ToMilliseconds() for each in found} == {kit.clock.wall_ms()}
    kit.restart()
    assert kit.evidence(ref.task_id) == found


def check_a_flood_of_late_words_is_bounded(kit: RunnerKit) -> None:
    """P11: three hundred late calls → a hundred are kept, the first ones, each request once; the others write nothing."""
    ref, _ = late(kit)
    again, repeats = kit.fresh_id(), KEPT // 2
    written = kit.ledger.attributed_rows
    for number in range(3 * KEPT):
        request_id = again if number < repeats else ""
        request = worker_service_pb2.CompleteRequest(request_id=request_id, summary=f"done {number}")
        refused(Reason.ATTEMPT_STALE, lambda request=request: kit.say(ref, "Complete", request))
    assert kit.ledger.attributed_rows - written == KEPT, "a flood writes more than its bound"
    summaries = [each.content.partition("done ")[2].partition('"')[0] for each in kit.evidence(ref.task_id)]
    assert summaries == ["0", *map(str, range(repeats, repeats + KEPT - 1))]
