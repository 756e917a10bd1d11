"""Stories of tasks that are taken over, given back, canceled and reopened (H13, H14)."""

from __future__ import annotations

import asyncio
import hashlib
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

from lane_runner_svc.core.holds import HoldState
from lane_runner_svc.core.states import TERMINAL, State
from lane_runner_svc.core.task import PauseCause
from lanewarden.errors import Reason
from lanewarden.v1 import task_pb2
from tests.stories.programs import Worker, asks_and_leaves, done, never_ends
from tests.stories.stage import Stage

MINUTE = 60.0
OPERATOR, DEADLINE, TAKEOVER = PauseCause.OPERATOR, PauseCause.HOLD_DEADLINE, PauseCause.TAKEOVER


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
    task_id = await stage.submit("asker", asks_and_leaves, cwd=str(tree), followed=True)
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
    await stage.crash("runner")
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


async def taken_over_while_it_works(stage: Stage) -> AsyncIterator[str]:
    """The worker runs on and ends well; what would follow its success is held back."""
    go = asyncio.Event()

    async def worker(worker: Worker) -> int:
        await go.wait()
        return await done(worker)

    task_id = await stage.submit("worker", worker, followed=True)
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
    stage.let_launches_fail(True)
    delayed = await stage.submit("delayed", done, launch_failures_max=100)
    await stage.until(lambda: stage.task(delayed).launch_failures >= 3, "it backs off")
    await stage.ask("PauseTask", task_id=delayed)
    await stage.until(lambda: stage.task(delayed).state is State.QUEUED, "no launch is under way")
    await stage.ask("ResumeTask", task_id=delayed)
    await stage.ask("PauseTask", task_id=delayed)
    await stage.until(lambda: stage.task(delayed).state is State.QUEUED, "no launch is under way")
    answer = await stage.ask("CancelTask", task_id=delayed, cause="not needed")
    assert answer.task.state == task_pb2.TASK_STATE_CANCELED
    stage.let_launches_fail(False)
    yield "delayed one canceled"
    launches = len(stage.launches())
    for escalation_id in (hold_of_held, hold_of_late):
        closed = stage.hold(escalation_id)
        assert (closed.state, closed.cancel_cause) == (HoldState.CANCELED, "not needed")
        refusal = await stage.refused(Reason.HOLD_NOT_OPEN, "Steer", ruling=stage.ruling(escalation_id))
        assert refusal.metadata["cause"] == "not needed"
    await stage.sleep(30 * MINUTE)
    assert len(stage.launches()) == launches, "a late answer or a timer has started something"
    assert not stage.hold(hold_of_held).expired, "the timer of a closed hold has fired"
    assert await stage.news(hold_of_held, "expired") == []
    yield "late answers"
    plain = await stage.submit("plain", done)
    await stage.state(plain, State.SUCCEEDED)
    await stage.refused(Reason.TASK_TERMINAL, "CancelTask", task_id=plain)
    yield "ended"
    await stage.ask("ReopenTask", task_id=late)
    await stage.state(late, State.HELD)
    assert stage.task(late).pauses == frozenset()
    yield "reopened after its deadline"
