"""Attempts on a real store: budgets, fences, news that comes twice, late or in the wrong order."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lane_runner_svc.core.states import State
from lane_runner_svc.core.task import Exit
from lane_runner_svc.store import tasks
from lane_runner_svc.work import attempts
from lanewarden.auth import Role
from lanewarden.errors import Reason, Refusal
from lanewarden.v1 import lane_runner_service_pb2 as pb
from lanewarden.v1 import task_pb2, worker_service_pb2
from lanewarden.walltime import rfc3339
from tests import runner_checks as checks
from tests.runner_checks import changes_nothing, refused
from tests.runner_kit import KILLED, LOST, NEVER_STARTED, RunnerKit, exit_code, make_runner


@pytest.fixture
def kit(tmp_path: Path) -> Iterator[RunnerKit]:
    """A runner; when it is closed, every row that it wrote had an author (I11)."""
    made = make_runner(tmp_path)
    yield made
    made.close()


def test_p01_a_steer_to_a_killed_worker_says_so(kit: RunnerKit) -> None:
    """WORKER_DEAD with pid, attempt, exit, last seen and remedy; nothing is stored that would look delivered."""
    ref = kit.running()
    kit.exited(ref, KILLED)
    seen = kit.clock.wall_ms()
    kit.clock.advance(5)
    refusal = changes_nothing(kit, Reason.WORKER_DEAD, lambda: kit.instruct(ref.task_id))
    assert {key: refusal.metadata[key] for key in ("pid", "attempt", "last_seen", "exit")} == {
        "pid": "4242",
        "attempt": "1",
        "last_seen": rfc3339(seen),
        "exit": "was killed by SIGKILL",
    }
    assert "input" in refusal.metadata["remedy"]
    kit.ask("SendInput", pb.SendInputRequest(task_id=ref.task_id, text="then so"))
    kit.start()
    kit.instruct(ref.task_id)
    assert [message.kind for message in kit.waiting(ref.task_id)] == ["INPUT", "INSTRUCTION"]


def test_p06_an_attempt_is_counted_before_its_launch_and_occupies_its_lane(kit: RunnerKit) -> None:
    """The runner dies between claim and launch: the attempt is still counted and found; the lane is not given twice."""
    first, _second = kit.submit(), kit.submit()
    launch = kit.claim()
    assert launch is not None
    kit.restart()
    assert kit.claim() is None
    assert kit.task(first.task_id).attempt == 1
    found = kit.runner.read(tasks.unended_attempts)
    assert [(each.task_id, each.attempt) for each in found] == [(first.task_id, 1)]
    assert found[0].token_hash == attempts.token_hash(launch.token)
    assert launch.token not in str(kit.dump())
    kit.exited(launch.ref, NEVER_STARTED)
    assert kit.start().attempt == 2


def test_p07_a_launch_that_always_fails_ends(kit: RunnerKit) -> None:
    """Five launches by default, with growing delays, then FAILED with the cause; the writes are a few per launch."""
    task = kit.submit()
    launches, bound_ms = 0, 1_000
    while not kit.task(task.task_id).terminal:
        launch = kit.claim()
        assert launch is not None
        launches += 1
        left = kit.launch_failed(launch.ref, "no such program").not_before_ms - kit.clock.steady_ms()
        assert left < bound_ms
        bound_ms *= 2
        kit.clock.advance(60)
    assert launches == 5
    assert "no such program" in kit.task(task.task_id).summary
    assert kit.ledger.attributed_rows < 60


def test_p08_the_budget_of_premature_exits_ends_and_good_starts_do_not_refill_it(kit: RunnerKit) -> None:
    """Killed for ever: four attempts by default, across restarts; delays decided by steady time alone."""
    kit.submit()
    ref = kit.start()
    for number in range(1, 4):
        gone = kit.exited(ref, LOST if number % 2 else KILLED)
        assert (gone.state, gone.premature_exits) == (State.QUEUED, number)
        kit.restart()
        ref = kit.start()
    ended = kit.exited(ref, KILLED)
    assert (ended.state, ended.attempt) == (State.FAILED, 4)
    kit.clock.advance(3600)
    assert kit.claim() is None


def test_p08_the_delay_before_a_relaunch_is_kept(kit: RunnerKit) -> None:
    """A claim before the time finds nothing and says when to look again; at the time it finds the task."""
    ref = kit.running()
    due_ms = kit.exited(ref, KILLED).not_before_ms
    assert due_ms > kit.clock.steady_ms()
    assert kit.claim() is None
    kit.clock.advance((due_ms - kit.clock.steady_ms()) / 1000)
    assert kit.claim() is not None


def test_p11_a_stale_attempt_has_no_effect(kit: RunnerKit) -> None:
    """Late Complete, progress, escalation, acknowledgement: ATTEMPT_STALE, nothing changed."""
    checks.check_a_stale_attempt_has_no_effect(kit)


async def test_p11_the_streams_of_a_stale_attempt_end(kit: RunnerKit) -> None:
    """AwaitRuling and ReceiveMessages of an attempt that is over are refused, not answered."""
    ref = kit.running()
    escalation_id = kit.escalate(ref)
    kit.exited(ref)
    ended = kit.running()
    kit.exited(ended)
    for stale, asked in ((ref, ""), (ref, escalation_id), (ended, "")):
        stream = kit.worker_handlers.AwaitRuling(
            worker_service_pb2.AwaitRulingRequest(escalation_id=asked), kit.worker_call(stale)
        )
        with pytest.raises(Refusal) as caught:
            await anext(stream)
        assert caught.value.reason is Reason.ATTEMPT_STALE
    messages = kit.worker_handlers.ReceiveMessages(worker_service_pb2.ReceiveMessagesRequest(), kit.worker_call(ref))
    with pytest.raises(Refusal) as caught:
        await anext(messages)
    assert caught.value.reason is Reason.ATTEMPT_STALE


@pytest.mark.parametrize("end", [exit_code(0), exit_code(1), KILLED, LOST], ids=str)
def test_the_same_end_told_twice_is_told_once(kit: RunnerKit, end: Exit) -> None:
    """A second report of an end changes nothing, also after a restart, also when the next attempt runs."""
    ref = kit.running()
    kit.exited(ref, end)
    for _ in range(2):
        before = kit.dump()
        kit.exited(ref, KILLED)
        kit.launch_failed(ref)
        assert kit.dump() == before
        kit.restart()


def test_a_launch_failure_told_twice_spends_once(kit: RunnerKit) -> None:
    """One failed launch, one unit of budget, also when the next launch is under way."""
    kit.submit()
    launch = kit.claim()
    assert launch is not None
    kit.launch_failed(launch.ref)
    for _ in range(2):
        before = kit.dump()
        kit.launch_failed(launch.ref)
        kit.exited(launch.ref, NEVER_STARTED)
        assert kit.dump() == before
        kit.clock.advance(60)
        kit.claim()


def test_an_end_that_overtakes_the_news_of_its_launch(kit: RunnerKit) -> None:
    """The late news neither revives the attempt nor passes for the launch of the next one."""
    task = kit.submit()
    first = kit.claim()
    assert first is not None
    kit.exited(first.ref, KILLED)
    kit.clock.advance(60)
    second = kit.claim()
    assert second is not None
    late = kit.launched(first.ref)
    assert (late.state, late.attempt, late.worker_alive) == (State.STARTING, 2, False)
    kit.launched(second.ref)
    assert kit.exited(second.ref).state is State.SUCCEEDED
    assert kit.launched(second.ref).state is State.SUCCEEDED
    assert kit.task(task.task_id).worker_alive is False


def test_a_worker_that_speaks_before_the_news_of_its_launch_was_launched(kit: RunnerKit) -> None:
    """It may ask at once; the news that comes later changes nothing of its hold."""
    kit.submit()
    launch = kit.claim()
    assert launch is not None
    kit.escalate(launch.ref)
    assert kit.launched(launch.ref).state is State.HELD


def test_a_launch_that_fails_after_the_worker_spoke_is_a_lost_worker(kit: RunnerKit) -> None:
    """What it asked holds; without a question it is a premature exit. It is never impossible to store."""
    for ask in (True, False):
        kit.submit()
        launch = kit.claim()
        assert launch is not None
        if ask:
            kit.escalate(launch.ref)
        else:
            kit.say(launch.ref, "ReportProgress", worker_service_pb2.ReportProgressRequest(note="begun"))
        after = kit.launch_failed(launch.ref, "no answer from the shim")
        assert after.state is (State.HELD if ask else State.QUEUED)
        assert (after.launch_failures, after.premature_exits) == (0, 0 if ask else 1)


def test_what_the_runner_interrupts_spends_nothing(kit: RunnerKit) -> None:
    """A stop of the runner with its workers: back into the queue, no budget, no delay."""
    ref = kit.running()
    gone = kit.exited(ref, KILLED, interrupted=True)
    assert (gone.state, gone.premature_exits, gone.not_before_ms) == (State.QUEUED, 0, 0)
    launch = kit.claim()
    assert launch is not None
    assert launch.reason == "RETRY"


def test_a_lane_runs_one_worker_and_a_held_task_without_one_leaves_it_free(kit: RunnerKit) -> None:
    """Another lane is not concerned; a held task whose worker waits keeps its lane."""
    ref = kit.running(lane="a")
    kit.submit(lane="a")
    assert kit.claim("a") is None
    assert kit.running(lane="b").task_id != ref.task_id
    kit.escalate(ref)
    assert kit.claim("a") is None
    kit.exited(ref)
    assert kit.claim("a") is not None


def test_tasks_of_a_lane_run_in_the_order_they_came(kit: RunnerKit) -> None:
    """First come, first served, also after a restart."""
    submitted = [kit.submit().task_id for _ in range(4)]
    ran = []
    for _ in submitted:
        kit.restart()
        ref = kit.start()
        ran.append(ref.task_id)
        kit.exited(ref)
    assert ran == submitted


def test_progress_only_rises(kit: RunnerKit) -> None:
    """The default adds one; what is not above the stored sequence changes nothing; the next attempt goes on from it."""
    ref = kit.running()

    def report(sequence: int) -> tuple[int, bool]:
        answer = kit.say(ref, "ReportProgress", worker_service_pb2.ReportProgressRequest(sequence=sequence))
        return answer.sequence, answer.advanced

    assert kit.task(ref.task_id).progress is None
    assert [report(0), report(0), report(10), report(10), report(3), report(0)] == [
        (1, True),
        (2, True),
        (10, True),
        (10, False),
        (10, False),
        (11, True),
    ]
    kit.exited(ref, KILLED)
    ref = kit.start()
    assert report(0) == (12, True)
    assert report(2**63 - 1) == (2**63 - 1, True)
    refused(Reason.REQUEST_INVALID, lambda: report(0))


def test_a_token_is_known_by_its_hash_and_names_its_attempt(kit: RunnerKit) -> None:
    """Another token is not known."""
    kit.submit()
    launch = kit.claim()
    assert launch is not None
    found = kit.runner.read(lambda reader: tasks.attempt_of_token(reader, attempts.token_hash(launch.token)))
    assert found is not None
    assert (found.task_id, found.attempt) == (launch.ref.task_id, 1)
    other = attempts.token_hash(launch.token[:-1])
    assert kit.runner.read(lambda reader: tasks.attempt_of_token(reader, other)) is None


async def test_a_watcher_sees_what_is_and_what_changes(kit: RunnerKit) -> None:
    """The state now, then the latest state after each change; no change is missed between the look and the wait."""
    task = kit.submit()
    stream = kit.handlers.WatchTasks(pb.WatchTasksRequest(task_id=task.task_id), kit.call(Role.VIEWER))
    first = (await anext(stream)).task
    kit.ask("PauseTask", pb.PauseTaskRequest(task_id=task.task_id))
    kit.cancel(task.task_id)
    last = (await anext(stream)).task
    assert (first.state, last.state) == (task_pb2.TASK_STATE_QUEUED, task_pb2.TASK_STATE_CANCELED)
    assert last.version > first.version
