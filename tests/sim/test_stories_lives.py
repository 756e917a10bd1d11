"""Pauses, takeovers, cancels, gates and deadlines (H06, H13 to H17) as stories, with every service dying in between."""

from __future__ import annotations

import asyncio
import hashlib
import subprocess
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from lane_runner_svc.core.holds import HoldState
from lane_runner_svc.core.states import TERMINAL, State
from lane_runner_svc.core.task import PauseCause
from lanewarden.errors import Reason, Refusal
from lanewarden.server import Role
from lanewarden.v1 import task_pb2
from tests.sim import test_stories as holding
from tests.sim.stories import Stage, Story, play, survives
from tests.sim.workers import Worker, asks_and_leaves, asks_and_waits, done, never_ends

MINUTE = 60.0
OPERATOR, DEADLINE, TAKEOVER = PauseCause.OPERATOR, PauseCause.HOLD_DEADLINE, PauseCause.TAKEOVER
SEEDS = 200


def at_the_same_instant(outcomes: Counter[str]) -> Story:
    """Ann rules through the supervisor, Bob at the runner, and the deadline passes: all within a few milliseconds."""

    async def story(stage: Stage) -> AsyncIterator[str]:
        random = stage.stream("instants")
        task_id = await stage.submit("asker", asks_and_waits, hold_deadline={"seconds": 60})
        (escalation_id,) = await stage.open_holds(task_id)
        yield "asked"
        hold = stage.hold(escalation_id)
        assert hold.deadline_ms is not None
        await stage.sleep((hold.deadline_ms - stage.runner.clock.steady_ms()) / 1000 - 0.01)
        said = {"ann": "APPROVE", "bob": "REJECT"}

        async def person(name: str, *, runner: bool) -> str | Refusal:
            await stage.sleep(random.uniform(0.0, 0.015))
            try:
                answer = await stage.ask(
                    "Steer", by=name, runner=runner, ruling=stage.ruling(escalation_id, said[name])
                )
            except Refusal as refusal:
                return refusal
            return str(answer.message.ruling.ruling_id if runner else answer.message_id)

        told = await asyncio.gather(person("ann", runner=False), person("bob", runner=True))
        yield "ruled by both"
        await stage.state(task_id, State.SUCCEEDED)
        hold = stage.hold(escalation_id)
        assert hold.ruling is not None
        winners = {name for name, each in zip(said, told, strict=True) if each == hold.ruling.ruling_id}
        refused = [each for each in told if isinstance(each, Refusal)]
        assert len(winners) == 1, "exactly one of the two has won, and knows it"
        (winner,) = winners
        assert (hold.ruling.ruled_by.identity, hold.ruling.decision.name) == (winner, said[winner])
        (refusal,) = refused
        assert refusal.reason is Reason.ALREADY_RULED
        facts = {key: refusal.metadata[key] for key in ("ruled_by", "decision", "ruling_id")}
        assert facts == {"ruled_by": winner, "decision": said[winner], "ruling_id": hold.ruling.ruling_id}
        assert refusal.metadata["ruled_at"]
        assert stage.task(task_id).pauses == frozenset(), "the deadline has parked a task that was ruled on"
        alerts = len(stage.told.of(escalation_id, "expired"))
        assert alerts == int(hold.expired), "an alert is about a hold that was open at its deadline"
        outcomes[winner] += 1
        outcomes["expired first" if hold.expired else "ruled first"] += 1

    return story


def test_h06_two_rulings_and_a_deadline_at_the_same_instant(directory: Path) -> None:
    """200 seeds: one ruling wins, the other learns who, what and when; and the deadline came before it or not at all."""
    outcomes: Counter[str] = Counter()
    for seed in range(SEEDS):
        play(at_the_same_instant(outcomes), directory / str(seed), seed=seed)
    assert sum(outcomes.values()) == 2 * SEEDS
    assert min(outcomes[each] for each in ("ann", "bob", "expired first", "ruled first")) > SEEDS // 20, outcomes


def worktree(path: Path) -> None:
    """A repository with a commit, a modified file and an untracked one."""
    path.mkdir()
    (path / "kept").write_text("kept\n")
    (path / "changed").write_text("before\n")
    git = ("git", "-C", str(path), "-c", "user.name=a", "-c", "user.email=a@example.org")
    for step in (("init", "-q"), ("add", "."), ("commit", "-q", "-m", "first")):
        subprocess.run([*git, *step], check=True)
    (path / "changed").write_text("after\n")
    (path / "untracked").write_text("not yet added\n")


def digest(path: Path) -> str:
    """Everything below a directory: names, modes, bytes."""
    found = hashlib.sha256()
    for each in sorted(path.rglob("*")):
        found.update(f"{each.relative_to(path)} {each.lstat().st_mode}\0".encode())
        found.update(each.read_bytes() if each.is_file() else b"")
    return found.hexdigest()


async def taken_over(stage: Stage) -> AsyncIterator[str]:
    tree = stage.directory / "worktree"
    worktree(tree)
    before = digest(tree)
    task_id = await stage.submit("asker", asks_and_leaves, cwd=str(tree), on_success=["true"])
    (escalation_id,) = await stage.open_holds(task_id)
    await stage.state(task_id, State.HELD)

    def is_as_it_was(*pauses: PauseCause) -> None:
        task = stage.task(task_id)
        assert (task.state, task.pauses) == (State.HELD, frozenset(pauses))
        assert stage.hold(escalation_id).open
        assert len(stage.launches(task_id)) == 1
        assert digest(tree) == before

    is_as_it_was()
    yield "held"
    await stage.ask("PauseTask", task_id=task_id)
    is_as_it_was(OPERATOR)
    yield "paused"
    taken = await stage.ask("TakeOver", by="bob", task_id=task_id, cause="ann is away")
    assert (taken.previous_owner.identity, taken.task.owner.identity) == ("ann", "bob")
    is_as_it_was(OPERATOR, TAKEOVER)
    assert "bob TakeOver from ann: ann is away: OK" in stage.audit(task_id), "the audit names the old and the new owner"
    yield "taken over"
    await stage.ask("RetryTask", by="bob", task_id=task_id)
    is_as_it_was(OPERATOR, TAKEOVER)
    yield "retried"
    stage.crash("runner")
    await stage.sleep(10 * MINUTE)
    is_as_it_was(OPERATOR, TAKEOVER)
    assert [each.name for each in (await stage.ask("CheckCompletion", task_id=task_id)).blockers] == [escalation_id]
    assert not stage.states[task_id] & TERMINAL, "a batch whose only task is held reads as complete"
    assert stage.hooks(task_id) == []
    yield "restarted"
    await stage.rule(escalation_id)
    await stage.until(lambda: stage.task(task_id).state is State.QUEUED, "it is ruled on")
    await stage.ask("ResumeTask", task_id=task_id)
    yield "ruled, resumed by ann"
    await stage.sleep(10 * MINUTE)
    assert stage.task(task_id).pauses == {TAKEOVER}
    assert len(stage.launches(task_id)) == 1, "a task that was taken over was started"
    await stage.ask("ResumeTask", by="bob", task_id=task_id, cause=task_pb2.PAUSE_CAUSE_TAKEOVER)
    yield "given back"
    await stage.state(task_id, State.SUCCEEDED)
    assert stage.task(task_id).owner == "bob"
    assert digest(tree) == before
    yield "done"


def test_h13_pause_takeover_retry_and_restart_keep_the_hold(directory: Path) -> None:
    """Still HELD by the same escalation, the worktree byte-identical, nothing completed, and the audit names the old owner
    and the new one.
    """
    survives(taken_over, directory)


async def taken_over_while_it_works(stage: Stage) -> AsyncIterator[str]:
    """The worker runs on and ends well; what would follow its success is held back."""
    go = asyncio.Event()

    async def worker(worker: Worker) -> int:
        await go.wait()
        return await done(worker)

    task_id = await stage.submit("worker", worker, on_success=["true"])
    await stage.until(lambda: stage.task(task_id).state is State.RUNNING, "it runs")
    yield "running"
    await stage.ask("TakeOver", by="bob", task_id=task_id)
    yield "taken over"
    go.set()
    await stage.state(task_id, State.SUCCEEDED)
    await stage.sleep(10 * MINUTE)
    assert stage.hooks(task_id) == [], "what was taken over was merged"
    yield "succeeded"
    await stage.ask("ResumeTask", by="bob", task_id=task_id, cause=task_pb2.PAUSE_CAUSE_TAKEOVER)
    await stage.until(lambda: stage.hooks(task_id), "the command is run")
    yield "given back"


def test_h13_a_takeover_holds_the_on_success_command_back(directory: Path) -> None:
    """TakeOver launches nothing new: neither an attempt nor the command that follows a success, until it is given back."""
    survives(taken_over_while_it_works, directory)


async def canceled_everywhere(stage: Stage) -> AsyncIterator[str]:
    async def cancel(task_id: str, state: State) -> None:
        answers = [await stage.ask("CancelTask", task_id=task_id, cause="not needed") for _ in range(2)]
        if state is not State.RUNNING:
            assert answers[0].task.state == task_pb2.TASK_STATE_CANCELED, "without a process it is over at once"
            assert answers[0] == answers[1], "a second cancel has the same result"
        canceled = await stage.state(task_id, State.CANCELED)
        assert (canceled.summary, canceled.pauses, canceled.not_before_ms) == ("not needed", frozenset(), 0)

    held = await stage.submit("held", asks_and_leaves, hold_deadline={"seconds": 600})
    (hold_of_held,) = await stage.open_holds(held)
    await stage.state(held, State.HELD)
    late = await stage.submit("late", asks_and_leaves, hold_deadline={"seconds": 60})
    (hold_of_late,) = await stage.open_holds(late)
    await stage.until(lambda: stage.task(late).pauses == {DEADLINE}, "it is parked")
    running = await stage.submit("running", never_ends)
    await stage.until(lambda: stage.task(running).state is State.RUNNING, "it runs")
    queued = await stage.submit("queued", done)
    yield "set up"
    await cancel(queued, State.QUEUED)
    yield "queued one canceled"
    await cancel(held, State.HELD)
    await cancel(late, State.HELD)
    yield "held ones canceled"
    await cancel(running, State.RUNNING)
    yield "running one canceled"
    stage.kernel.launch_failure = 1.0
    delayed = await stage.submit("delayed", done, launch_failures_max=100)
    await stage.until(lambda: stage.task(delayed).launch_failures >= 3, "it backs off")
    await stage.ask("PauseTask", task_id=delayed)
    await stage.until(lambda: stage.task(delayed).state is State.QUEUED, "no launch is under way")
    await stage.ask("ResumeTask", task_id=delayed)
    await stage.ask("PauseTask", task_id=delayed)
    await stage.until(lambda: stage.task(delayed).state is State.QUEUED, "no launch is under way")
    answer = await stage.ask("CancelTask", task_id=delayed, cause="not needed")
    assert answer.task.state == task_pb2.TASK_STATE_CANCELED
    stage.kernel.launch_failure = 0.0
    yield "delayed one canceled"
    launches = len(stage.kernel.processes)
    for escalation_id in (hold_of_held, hold_of_late):
        closed = stage.hold(escalation_id)
        assert (closed.state, closed.cancel_cause) == (HoldState.CANCELED, "not needed")
        refusal = await stage.refused(Reason.HOLD_NOT_OPEN, "Steer", ruling=stage.ruling(escalation_id))
        assert refusal.metadata["cause"] == "not needed"
    await stage.sleep(30 * MINUTE)
    assert len(stage.kernel.processes) == launches, "a late answer or a timer has started something"
    assert not stage.hold(hold_of_held).expired, "the timer of a closed hold has fired"
    assert stage.told.of(hold_of_held, "expired") == []
    yield "late answers"
    plain = await stage.submit("plain", done)
    await stage.state(plain, State.SUCCEEDED)
    await stage.refused(Reason.TASK_TERMINAL, "CancelTask", task_id=plain)
    yield "ended"
    await stage.ask("ReopenTask", task_id=late)
    await stage.state(late, State.HELD)
    assert stage.task(late).pauses == frozenset()
    yield "reopened after its deadline"


def test_h14_cancel_ends_a_task_in_every_state(directory: Path) -> None:
    """Queued, held, parked, delayed: at once; running: when its worker is stopped. Its timers and holds are closed with the
    cause, a late answer starts nothing, a second cancel has the same result; and a reopened task is not parked by the
    deadline of its last life.
    """
    survives(canceled_everywhere, directory)


async def gated(stage: Stage) -> AsyncIterator[str]:
    silent = await stage.submit("silent", done, gates=["review"])
    failed = await stage.state(silent, State.FAILED)
    assert "gate review: never reviewed" in failed.summary, "missing evidence is not success"
    yield "never reviewed"
    own_gate: list[Reason] = []

    async def worker(worker: Worker) -> int:
        if worker.epoch > 1:
            return await never_ends(worker)
        message = await worker.await_ruling(await worker.escalate())
        await worker.take(message)
        refusal = await stage.refused(
            Reason.ROLE_NOT_ALLOWED,
            "RecordGate",
            by="worker",
            role=Role.WORKER,
            runner=True,
            **review("two", "APPROVED"),
        )
        own_gate.append(refusal.reason)
        while True:
            try:
                await worker.complete()
            except Refusal:
                await asyncio.sleep(1.0)
            else:
                return 0

    def review(gate: str, decision: str) -> dict[str, str]:
        return {"task_id": task_id, "gate": gate, "decision": f"GATE_DECISION_{decision}"}

    async def blockers() -> list[str]:
        return [each.name for each in (await stage.ask("CheckCompletion", task_id=task_id)).blockers]

    task_id = await stage.submit("gated", worker, gates=["one", "two"])
    (escalation_id,) = await stage.open_holds(task_id)
    assert await blockers() == [escalation_id, "one", "two"]
    yield "asked"
    await stage.rule(escalation_id, ratifies=["one"])
    await stage.until(lambda: own_gate, "the ruling is taken, and the worker has tried its own gate")
    assert await blockers() == ["two"], "a ruling ratifies the gates that it names"
    yield "one ratified"
    # The other gate is kept shut meanwhile: the worker tries to complete all the time.
    await stage.ask("RecordGate", **review("one", "REVISE"))
    for decision, blocked in (("APPROVED", []), ("REVISE", ["two"])):
        await stage.ask("RecordGate", **review("two", decision))
        assert await blockers() == ["one", *blocked]
        yield f"two {decision}"
    await stage.sleep(MINUTE)
    assert stage.task(task_id).state is State.RUNNING, "REVISE after APPROVED blocks"
    await stage.ask("RecordGate", by="bob", **review("two", "WAIVED"))
    await stage.ask("RecordGate", **review("one", "APPROVED"))
    yield "waived"
    await stage.state(task_id, State.SUCCEEDED)
    assert "bob RecordGate two WAIVED: OK" in stage.audit(task_id), "a waiver is visible in the audit"
    shown = (await stage.ask("GetTask", task_id=task_id)).task.gates
    assert {gate.gate: gate.decided_by.identity for gate in shown} == {"one": "ann", "two": "bob"}
    await stage.ask("ReopenTask", task_id=task_id)
    assert await blockers() == ["one", "two"], "a review is of one life of the task"
    yield "reopened"


def test_h15_a_gate_blocks_until_it_is_reviewed_well(directory: Path) -> None:
    """Never reviewed blocks; REVISE after APPROVED blocks; a ruling ratifies the gates it names and no other; a worker
    cannot review; a waiver passes and stays visible; a reopened task is reviewed anew.
    """
    survives(gated, directory)


async def paused_twice(stage: Stage) -> AsyncIterator[str]:
    task_id = await stage.submit("asker", asks_and_leaves, hold_deadline={"seconds": 60})
    (escalation_id,) = await stage.open_holds(task_id)
    await stage.state(task_id, State.HELD)
    await stage.ask("PauseTask", task_id=task_id)
    yield "paused"
    await stage.until(lambda: stage.task(task_id).pauses == {OPERATOR, DEADLINE}, "the deadline parks it as well")
    yield "parked"
    await stage.refused(Reason.REQUEST_INVALID, "ResumeTask", task_id=task_id, cause=task_pb2.PAUSE_CAUSE_HOLD_DEADLINE)
    await stage.ask("ResumeTask", task_id=task_id)
    assert stage.task(task_id).pauses == {DEADLINE}, "clearing one cause leaves the other"
    yield "resumed"
    await stage.ask("PauseTask", task_id=task_id)
    await stage.ask("ExtendHold", escalation_id=escalation_id, deadline={"seconds": 600})
    assert stage.task(task_id).pauses == {OPERATOR}, "clearing one cause leaves the other"
    yield "extended"
    await stage.ask("SendInput", task_id=task_id, text="more")
    await stage.ask("Steer", task_id=task_id, instruction={"text": "quickly"})
    await stage.rule(escalation_id)
    await stage.until(lambda: stage.task(task_id).state is State.QUEUED, "it is ruled on")
    await stage.ask("RetryTask", task_id=task_id)
    yield "answered, told and retried"
    await stage.sleep(30 * MINUTE)
    assert stage.task(task_id).pauses == {OPERATOR}
    assert len(stage.launches(task_id)) == 1, "a paused task was started"
    yield "still paused"
    await stage.ask("ResumeTask", task_id=task_id)
    await stage.state(task_id, State.SUCCEEDED)
    assert len(stage.launches(task_id)) == 2
    yield "done"


def test_h16_pauses_are_apart_and_nothing_starts_in_one(directory: Path) -> None:
    """An operator's pause and the park of a deadline: clearing one leaves the other; while one is there, neither ruling,
    instruction, input, retry, timer nor restart starts anything; and it survives every restart.
    """
    survives(paused_twice, directory)


async def deadline_passed(stage: Stage) -> AsyncIterator[str]:
    task_id = await stage.submit("asker", asks_and_leaves, hold_deadline={"seconds": 60}, on_success=["true"])
    (escalation_id,) = await stage.open_holds(task_id)
    yield "held"

    async def expired(alerts: int) -> None:
        await stage.until(lambda: stage.task(task_id).pauses == {DEADLINE}, "it is parked", seconds=5 * MINUTE)
        await stage.agreed()
        await stage.sleep(10 * MINUTE)
        hold = stage.hold(escalation_id)
        assert (hold.state, hold.expired, hold.ruling) == (HoldState.OPEN, True, None), "a deadline decides nothing"
        assert stage.task(task_id).state is State.HELD
        assert len(stage.launches(task_id)) == 1
        assert len(stage.told.of(escalation_id, "expired")) == alerts, "one alert for each deadline that passed"
        assert not stage.states[task_id] & TERMINAL

    await expired(1)
    yield "parked"
    shown = await stage.inbox(escalation_id)
    assert shown.expired
    await stage.ask("ExtendHold", by="bob", escalation_id=escalation_id, deadline={"seconds": 120})
    assert stage.task(task_id).pauses == frozenset()
    hold = stage.hold(escalation_id)
    assert (hold.open, hold.expired) == (True, False)
    yield "extended"
    await expired(2)
    yield "parked again"
    await stage.rule(escalation_id)
    yield "ruled"
    await stage.state(task_id, State.SUCCEEDED)
    await stage.until(lambda: stage.hooks(task_id), "what follows a success follows")
    assert stage.task(task_id).pauses == frozenset()
    assert len(stage.launches(task_id)) == 2
    yield "done"


def test_h17_a_deadline_parks_and_alerts_and_decides_nothing(directory: Path) -> None:
    """Parked, still open, one alert, never approved nor done; ExtendHold un-parks; a ruling after it works. A timer whose
    process dies just before or after it has acted, acts once.
    """
    played = survives(deadline_passed, directory)
    timers = [point for point in played.points["runner"] if "hold.timer" in point]
    assert len(timers) >= 4, "no death can have come between a timer and what it does"


STORIES: list[Story] = [
    *(holding.asked_and_left, holding.waited_on_the_stream, holding.hours_of_silence, holding.acknowledged_three_times),
    *(holding.answered_before_the_wait, holding.answered_at_once, holding.ruled_in_vain, holding.ruled_badly),
    *(holding.supervisor_dies_over_a_question, holding.killed_between_receive_and_acknowledge),
    *(holding.completed_too_early, holding.one_of_two_ruled, holding.a_late_ruling_in_a_reused_lane),
    *(holding.nothing_asked, taken_over, taken_over_while_it_works, canceled_everywhere, gated, paused_twice),
    deadline_passed,
]


@pytest.mark.long
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_every_story_with_a_death_at_every_commit(directory: Path, story: Story, seed: int) -> None:
    """Just before and just after every single commit of either service, under other seeds than the default suite's."""
    survives(story, directory, every_point=1, seed=seed)
