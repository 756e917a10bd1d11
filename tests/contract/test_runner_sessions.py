"""Sessions and families of tasks, on a real store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lane_runner_svc.core.states import State
from lane_runner_svc.rpc import convert
from lanewarden.errors import Reason
from lanewarden.v1 import lane_runner_service_pb2 as pb
from tests import action_checks as checks
from tests.action_checks import session_with
from tests.runner_checks import changes_nothing, refused
from tests.runner_kit import KILLED, RunnerKit, exit_code, make_runner


@pytest.fixture
def kit(tmp_path: Path) -> Iterator[RunnerKit]:
    """A runner; when it is closed, every row that it wrote had an author (I11)."""
    made = make_runner(tmp_path)
    yield made
    made.close()


def test_s13_inputs_make_rounds(kit: RunnerKit) -> None:
    """N inputs while one round runs → one next round with all N in order; input during the claim is not lost."""
    checks.check_inputs_make_rounds(kit)


def test_s13_a_cancel_inside_the_claim_is_honoured(kit: RunnerKit) -> None:
    """Between claim and launch: the worker that comes is stopped, and the session is CANCELED."""
    task_id, _inputs = session_with(kit, "go")
    launch = kit.claim()
    assert launch is not None
    kit.cancel(task_id)
    kit.stopped.clear()
    kit.launched(launch.ref)
    assert kit.stopped == [launch.ref]
    assert kit.exited(launch.ref, KILLED).state is State.CANCELED


def test_a_session_says_whose_round_its_oldest_input_is(kit: RunnerKit) -> None:
    """Owed by the round that was begun with it, not by one that ran when it came; nothing is said while no round runs."""

    def of_round() -> bool | None:
        told = kit.runner.read(lambda reader: convert.task_message(reader, kit.task(task_id), "r1"))
        return told.input_of_round if told.HasField("input_of_round") else None

    task_id, (first,) = session_with(kit, "go")
    assert of_round() is None
    ref = kit.start()
    assert of_round() is True
    second = kit.send(task_id)
    assert of_round() is True
    kit.take(ref, first)
    assert of_round() is False
    kit.exited(ref)
    ref = kit.start()
    assert of_round() is True
    kit.take(ref, second)
    assert of_round() is False
    kit.exited(ref)
    assert of_round() is None


def test_a_round_takes_its_inputs(kit: RunnerKit) -> None:
    """Input that a round leaves is delivered again, within the budget of premature exits."""
    checks.check_a_round_takes_its_inputs(kit)


def test_a_round_that_fails_with_its_input_taken_fails_the_session(kit: RunnerKit) -> None:
    """The program's own word: FAILED, as for any task."""
    _task_id, (only,) = session_with(kit, "go")
    ref = kit.start()
    kit.take(ref, only)
    assert kit.exited(ref, exit_code(3)).state is State.FAILED


def test_a_killed_round_runs_again(kit: RunnerKit) -> None:
    """Within the budget, though its input was taken: the worker's word on the round is missing."""
    _task_id, (only,) = session_with(kit, "go")
    ref = kit.start()
    kit.take(ref, only)
    again = kit.exited(ref, KILLED)
    assert (again.state, again.premature_exits) == (State.QUEUED, 1)


def test_complete_ends_a_session_when_nothing_blocks(kit: RunnerKit) -> None:
    """COMPLETION_BLOCKED as long as a gate is open; a round that ends without Complete asks no judge."""
    task = kit.submit(kind="TASK_KIND_SESSION", gates=["review"])
    first = kit.send(task.task_id)
    ref = kit.start()
    kit.take(ref, first)
    refused(Reason.COMPLETION_BLOCKED, lambda: kit.complete(ref))
    assert kit.exited(ref).state is State.IDLE
    kit.review(task.task_id, "review", "APPROVED")
    kit.send(task.task_id)
    ref = kit.start()
    kit.complete(ref, "all done")
    ended = kit.exited(ref)
    assert (ended.state, ended.summary) == (State.SUCCEEDED, "all done")


def test_an_instruction_starts_no_round(kit: RunnerKit) -> None:
    """It waits for the next one, behind whatever ruling there is."""
    task_id, _none = session_with(kit)
    kit.instruct(task_id, "mind the gap")
    assert (kit.task(task_id).state, kit.claim()) == (State.IDLE, None)
    kit.send(task_id)
    kit.start()
    assert [message.kind for message in kit.waiting(task_id)] == ["INSTRUCTION", "INPUT"]


def test_a_paused_session_rests_with_its_input(kit: RunnerKit) -> None:
    """H16 for sessions: input starts nothing in a pause, and everything once it is over."""
    task_id, _none = session_with(kit)
    kit.on_task("PauseTask", task_id)
    kit.send(task_id)
    assert kit.claim() is None
    kit.on_task("ResumeTask", task_id)
    assert kit.claim() is not None


def test_a_session_that_asks_is_held(kit: RunnerKit) -> None:
    """A round may leave a question: HELD, and the ruling starts the round that takes it."""
    _task_id, (only,) = session_with(kit, "go")
    ref = kit.start()
    kit.take(ref, only)
    escalation_id = kit.escalate(ref)
    assert kit.exited(ref).state is State.HELD
    ruling = kit.rule(escalation_id).message.message_id
    launch = kit.claim()
    assert launch is not None
    assert launch.reason == "RULING"
    kit.launched(launch.ref)
    kit.take(launch.ref, ruling)
    assert kit.exited(launch.ref).state is State.IDLE


def test_a_round_that_the_runner_cuts_short_runs_again_at_no_cost(kit: RunnerKit) -> None:
    """The runner goes down in the middle of a round."""
    _task_id, (only,) = session_with(kit, "go")
    ref = kit.start()
    kit.take(ref, only)
    again = kit.exited(ref, KILLED, interrupted=True)
    assert (again.state, again.premature_exits) == (State.QUEUED, 0)


@pytest.mark.parametrize("parked", [False, True], ids=["nothing", "input"])
def test_s07_a_settled_session_is_reopened_to_rest_or_to_run(kit: RunnerKit, parked: bool) -> None:
    """Epoch + 1: IDLE without input, and with parked input the round that takes it."""
    kit.supervise(1)
    task_id, inputs = session_with(kit, *(["go"] if parked else []))
    kit.act("SettleTask", task_id)
    assert kit.task(task_id).state is State.SETTLED
    changes_nothing(kit, Reason.TASK_SETTLED, lambda: kit.send(task_id))
    kit.on_task("ReopenTask", task_id)
    task = kit.task(task_id)
    assert (task.state, task.epoch) == (State.QUEUED if parked else State.IDLE, 2)
    assert [message.message_id for message in kit.waiting(task_id)] == inputs


def test_the_oldest_input_is_shown(kit: RunnerKit) -> None:
    """What a supervisor measures patience by; unset when nothing waits."""
    task_id, (first,) = session_with(kit, "first")
    stored = kit.message(first).sent_wall_ms
    kit.clock.advance(30)
    kit.send(task_id, "second")
    look = lambda: kit.runner.read(lambda reader: convert.task_message(reader, kit.task(task_id), "r"))  # noqa: E731
    assert look().oldest_input_at.ToMilliseconds() == stored
    ref = kit.start()
    for message in kit.waiting(task_id):
        kit.take(ref, message.message_id)
    assert not look().HasField("oldest_input_at")


def test_s14_a_child_tells_its_parent(kit: RunnerKit) -> None:
    """In the transaction of its end; marked unless it succeeded."""
    checks.check_a_child_tells_its_parent(kit)


def test_s14_a_child_that_ends_twice_tells_twice(kit: RunnerKit) -> None:
    """Failed, retried, canceled: two ends, two messages, each with its own id."""
    parent = kit.submit(lane="b").task_id
    child = kit.running(parent_task_id=parent)
    kit.exited(child, exit_code(1))
    kit.on_task("RetryTask", child.task_id)
    assert kit.ask("GetTask", pb.GetTaskRequest(task_id=parent)).task.children_open == 1
    kit.cancel(child.task_id)
    bodies = [message.body for message in kit.waiting(parent)]
    assert [body.split(")")[1].split(":")[0].strip() for body in bodies] == ["FAILED", "CANCELED"]


def test_s14_a_full_inbox_turns_no_child_away(kit: RunnerKit, monkeypatch: pytest.MonkeyPatch) -> None:
    """The end of a child must not fail because its parent does not read."""
    monkeypatch.setattr("lane_runner_svc.work.inbox.WAITING_MAX", 1)
    parent = kit.submit(lane="b").task_id
    kit.send(parent)
    refused(Reason.LIMIT_REACHED, lambda: kit.send(parent))
    kit.exited(kit.running(parent_task_id=parent))
    assert len(kit.waiting(parent)) == 2


def test_s14_a_settled_parent_keeps_it_parked(kit: RunnerKit) -> None:
    """And its next epoch has it; a parent that has ended in another way needs it no more."""
    kit.supervise(1)
    settled, canceled = (kit.submit(kind="TASK_KIND_SESSION", lane="b").task_id for _ in range(2))
    children = [kit.submit(parent_task_id=parent).task_id for parent in (settled, canceled)]
    kit.act("SettleTask", settled)
    kit.cancel(canceled)
    for child in children:
        kit.cancel(child)
    shown = kit.ask("GetTask", pb.GetTaskRequest(task_id=settled)).messages
    assert [message.input.text.split(" (")[0] for message in shown] == [f"ERROR: child task {children[0]}"]
    assert kit.waiting(settled) == []
    assert not kit.ask("GetTask", pb.GetTaskRequest(task_id=canceled)).messages
    kit.on_task("ReopenTask", settled)
    assert kit.task(settled).state is State.QUEUED


def test_a_parent_must_be_here_and_alive(kit: RunnerKit) -> None:
    """TASK_UNKNOWN, TASK_TERMINAL; nothing is submitted."""
    changes_nothing(kit, Reason.TASK_UNKNOWN, lambda: kit.submit(parent_task_id="tnobody"))
    ended = kit.submit().task_id
    kit.cancel(ended)
    changes_nothing(kit, Reason.TASK_TERMINAL, lambda: kit.submit(parent_task_id=ended))
