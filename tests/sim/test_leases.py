"""Leases, fencing and failover over minutes of virtual time: one runner, two supervisors, both services as they are."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from lane_runner_svc.core.states import State
from lane_runner_svc.core.task import PauseCause
from lanewarden.errors import Reason, Refusal
from lanewarden.v1 import operator_service_pb2, task_pb2
from supervisor_svc import emitters as supervisor_emitters
from supervisor_svc.core.leases import LeaseState
from supervisor_svc.store import runners
from supervisor_svc.work.session import Session
from tests.sim.lease_stage import GRACE_SECONDS, RENEW_SECONDS, TTL_SECONDS, LeaseStage
from tests.sim.nodes import RunnerNode
from tests.sim.stories import play
from tests.sim.virtual import VirtualClock
from tests.stories.lives import digest, worktree
from tests.stories.programs import asks_and_leaves, done, never_ends

HOUR_MS = 3_600_000
GIVEN_UP_SECONDS = TTL_SECONDS + GRACE_SECONDS + 1.0
BACK_SECONDS = 20.0
"""How long a heal may take: the longest pause between two tries, and a renewal."""
HOLD = task_pb2.SUPERVISOR_LOSS_HOLD


async def short_partition(stage: LeaseStage) -> AsyncIterator[str]:
    before = await stage.supervised("alpha")
    row = stage.row("alpha")
    for _ in range(20):
        stage.cut("supervisor", "beta")
        await stage.throughout(4.5, lambda: stage.lease("alpha") is LeaseState.LIVE, "the runner is live")
        stage.heal()
        await stage.throughout(
            RENEW_SECONDS + 1.0, lambda: stage.lease("alpha") is LeaseState.LIVE, "the runner is live"
        )
    assert stage.supervision() == before
    assert stage.row("alpha") == row
    assert stage.calls("runner -> supervisor Register") == 1
    yield "nothing was seen"


def test_p13_a_partition_shorter_than_the_ttl_is_not_seen(directory: Path) -> None:
    """Twenty cuts of 4.5 s, up to 9.5 s of silence under a TTL of 10 s: no state changes, no generation, no registration."""
    play(short_partition, directory, make=LeaseStage)


async def long_partition(stage: LeaseStage) -> AsyncIterator[str]:
    stage.runner.supervisors = ("supervisor",)
    before = await stage.supervised("alpha")
    ids = [await stage.submit(f"asker-{number}", asks_and_leaves) for number in range(3)]
    await stage.open_holds(ids[0])
    stage.cut("supervisor")
    cut_ms = stage.supervisor.clock.wall_ms()
    await stage.sleep(GIVEN_UP_SECONDS)
    shown = await stage.shown()
    assert shown.state == operator_service_pb2.RUNNER_STATE_UNREACHABLE
    assert cut_ms - 1000 * (RENEW_SECONDS + 1) <= shown.last_seen.ToMilliseconds() <= cut_ms
    yield "unreachable, with when it was last seen"
    held = [await stage.until(lambda task_id=task_id: stage.holds(task_id), "workers go on") for task_id in ids]
    for (hold,) in held:
        await stage.ask("Steer", by="bob", runner=True, ruling=stage.ruling(hold.escalation_id))
    await stage.until(lambda: all(stage.task(each).state is State.SUCCEEDED for each in ids), "the work is done")
    assert not stage.supervision().live
    assert stage.right("alpha") == 0
    yield "the work went on"
    stage.heal()
    await stage.until(lambda: stage.views_agree("alpha"), "the supervisor has heard everything", BACK_SECONDS)
    after = await stage.supervised("alpha")
    assert after.generation == before.generation + 2, "one end, one grant"
    kinds = [[each.kind for each in stage.people.news if each.escalation_id == hold.escalation_id] for (hold,) in held]
    assert kinds[0] == ["opened", "ruled"], "people are told of both, in order"
    assert all(each in ([], ["ruled"], ["opened", "ruled"]) for each in kinds[1:]), kinds
    yield "healed"


def test_p13_a_partition_longer_than_the_ttl_heals_in_order(directory: Path) -> None:
    """Shown as UNREACHABLE with when it was last seen; workers go on; on heal every report arrives once and in order, and
    the versions on both sides are the same.
    """
    play(long_partition, directory, make=LeaseStage)


async def one_way(stage: LeaseStage) -> AsyncIterator[str]:
    stage.runner.supervisors = ("supervisor",)
    before = await stage.supervised("alpha")
    stage.network.faults.mute.add(("runner", "supervisor"))
    await stage.sleep(TTL_SECONDS + 1.0)
    assert not stage.supervision().live, "the runner knows"
    await stage.sleep(RENEW_SECONDS)
    await stage.throughout(
        120.0 - TTL_SECONDS, lambda: stage.right("alpha") == 0, "the supervisor does not take itself for heard"
    )
    assert stage.supervision().generation == before.generation + 1, "nothing but the end was stored"
    stage.heal()
    yield "two minutes"
    after = await stage.until(lambda: stage.supervision() if stage.supervision().live else None, "healed", BACK_SECONDS)
    await stage.until(lambda: stage.right("alpha") == after.generation, "the supervisor knows", RENEW_SECONDS)
    yield "healed"


def test_p14_answers_lost_one_way_are_known_to_both(directory: Path) -> None:
    """Two minutes in which the runner is heard and hears nothing: both know that nobody supervises; it heals by itself."""
    play(one_way, directory, make=LeaseStage)


async def crash_loop(stage: LeaseStage) -> AsyncIterator[str]:
    await stage.supervised("alpha")
    stage.runner.restart_seconds = (1e9, 1e9)
    await stage.crash("runner")
    stage.supervisor.restart_seconds = (0.3, 0.3)
    begun = stage.loop.time()
    while stage.loop.time() - begun < 60.0:
        await stage.sleep(2.0)
        if stage.supervisor.up and stage.row("alpha").lease_ended:
            break
        await stage.crash("supervisor")
        await stage.sleep(1.0)
    assert stage.loop.time() - begun <= GIVEN_UP_SECONDS + 10.0, "a lease outlives a dead runner"
    yield "expired"


def test_p15_a_supervisor_that_keeps_crashing_ends_the_lease_of_a_dead_runner(directory: Path) -> None:
    """The lease is extended once, however often the supervisor starts, and then it ends."""
    play(crash_loop, directory, make=LeaseStage)


async def restarts(stage: LeaseStage) -> AsyncIterator[str]:
    first = await stage.supervised("alpha")
    lease = stage.row("alpha").generation
    for number in range(5):
        await stage.crash("supervisor")
        await stage.until(lambda: stage.supervisor.up and stage.supervisor.parts, "it is back")
        assert stage.right("alpha") == 0, "a new start acts under the generation of the one before"
        now = await stage.supervised("alpha")
        assert now.generation == first.generation + number + 1, "each start has a generation of its own"
        with pytest.raises(Refusal, match="SUPERVISION_FENCED"):
            await stage.act(now.generation - 1)
    assert stage.row("alpha").generation == lease, "a lease that was being renewed has ended"
    yield "restarted"
    stage.supervisor.clock.suspended_ms += 60_000
    await stage.throughout(
        30.0, lambda: stage.lease("alpha") is not LeaseState.UNREACHABLE, "the lease outlives the stall"
    )
    assert stage.row("alpha").generation == lease
    yield "stood still"


def test_p15_restarts_and_stalls_end_no_lease_that_is_renewed(directory: Path) -> None:
    """Five restarts and a minute in which the supervisor stood still: the runner's lease goes on under its generation, and
    each start of the supervisor acts under one of its own.
    """
    play(restarts, directory, make=LeaseStage)


async def replaced(stage: LeaseStage) -> AsyncIterator[str]:
    tree = stage.directory / "worktree"
    worktree(tree)
    before = digest(tree)
    old = await stage.supervised("alpha")
    task_id = await stage.submit("asker", asks_and_leaves, cwd=str(tree), on_success=["true"])
    (escalation_id,) = await stage.open_holds(task_id)
    held = await stage.state(task_id, State.HELD)
    await stage.act(old.generation)
    stage.cut("supervisor")
    new = await stage.supervised("beta")
    assert new.generation > old.generation
    yield "taken over"
    stage.heal()
    with pytest.raises(Refusal) as caught:
        await stage.act(old.generation)
    assert caught.value.reason is Reason.SUPERVISION_FENCED
    assert caught.value.metadata == {
        "generation": str(old.generation),
        "current_generation": str(new.generation),
    }
    await stage.act(new.generation)
    await stage.throughout(60.0, lambda: stage.right("alpha") == 0, "the old one takes itself for replaced")
    assert stage.right("beta") == new.generation
    (first, second) = stage.supervisions()
    assert first.startswith("runner Supervise by alpha at supervisor:7811")
    assert "Supervise by beta at beta:7811" in second
    assert "from alpha at supervisor:7811" in second
    assert "lapsed" in second
    yield "the old one is back"
    assert stage.task(task_id) == held
    assert stage.hold(escalation_id).open
    assert len(stage.launches(task_id)) == 1
    assert stage.hooks(task_id) == []
    assert digest(tree) == before
    await stage.until(lambda: stage.views_agree("beta"), "the new one has the inbox")
    yield "nothing was completed"


def test_p16_h13_a_replacement_fences_the_old_supervisor_and_keeps_the_hold(directory: Path) -> None:
    """The old one still runs and gets SUPERVISION_FENCED; no file was edited; the task is HELD as it was, its worktree
    byte-identical, and the audit names the old owner and the new one.
    """
    play(replaced, directory, make=LeaseStage)


async def stalled(stage: LeaseStage) -> AsyncIterator[str]:
    before = await stage.supervised("alpha")
    stage.presence("alpha").sweep = list  # type: ignore[method-assign]  # it answers, and ends no lease
    after = await stage.supervised("beta")
    assert after.generation == before.generation + 1
    with pytest.raises(Refusal, match="SUPERVISION_FENCED"):
        await stage.act(before.generation)
    yield "the next one supervises"


def test_p15_a_supervisor_that_answers_and_does_not_sweep_is_left(directory: Path) -> None:
    """Nobody would end a lease there or act on a report, so the runner turns to the next in its list, and its actions are
    fenced.
    """
    play(stalled, directory, make=LeaseStage)


async def stalled_alone(stage: LeaseStage) -> AsyncIterator[str]:
    stage.runner.supervisors = ("supervisor",)
    before = await stage.supervised("alpha")
    stage.presence("alpha").sweep = list  # type: ignore[method-assign]
    await stage.throughout(60.0, lambda: stage.supervision() == before, "the runner stays with it")
    yield "a minute"


def test_a_supervisor_that_does_not_sweep_is_kept_when_there_is_no_other(directory: Path) -> None:
    """Rulings still pass through it."""
    play(stalled_alone, directory, make=LeaseStage)


async def gap(stage: LeaseStage) -> AsyncIterator[str]:
    stage.runner.supervisors = ("supervisor",)
    await stage.supervised("alpha")
    first = await stage.submit("first", asks_and_leaves)
    await stage.open_holds(first)
    await stage.until(lambda: stage.views_agree("alpha"), "the supervisor has heard everything")
    registered = stage.calls("runner -> supervisor Register")

    def lose(session: Session) -> None:
        session.uow.execute("UPDATE tasks SET version = version - 1, state = 'RUNNING'")
        runners.set_taken(session.uow, "runner", 1)

    assert stage.supervisor.parts is not None
    await stage.supervisor.parts.supervisor.do(lose, emitter=supervisor_emitters.REPORT)
    second = await stage.submit_at_runner("second", asks_and_leaves)
    await stage.state_is(second, State.HELD)
    await stage.until(
        lambda: stage.views_agree("alpha"), "the supervisor has heard everything again", 2 * RENEW_SECONDS
    )
    assert stage.calls("runner -> supervisor Register") == registered + 1
    opened = [each.escalation_id for each in stage.people.news if each.kind == "opened"]
    assert sorted(opened) == sorted(each.escalation_id for task in (first, second) for each in stage.holds(task))
    yield "told again"


def test_p13_a_gap_in_the_reports_is_found_and_sent_again(directory: Path) -> None:
    """A supervisor that has lost what it had taken does not take what comes after the gap: the runner registers once, tells
    what is missing, and nobody is told of a question twice.
    """
    play(gap, directory, make=LeaseStage)


async def back_and_forth(stage: LeaseStage) -> AsyncIterator[str]:
    generations = [(await stage.supervised("alpha")).generation]
    ids: list[str] = []
    for lost, other in (("supervisor", "beta"), ("beta", "alpha")) * 3:
        stage.cut(lost)
        ids.append(await stage.submit_at_runner(f"task-{len(ids)}", done))
        generations.append((await stage.supervised(other)).generation)
        await stage.until(lambda: stage.task(ids[-1]).state is State.SUCCEEDED, "it is done")
        await stage.until(lambda other=other: stage.views_agree(other), "the other one has heard everything", 60.0)
        stage.heal()
        await stage.sleep(1.0)
    assert generations == sorted(set(generations)), "a generation came twice"
    yield "six times"


def test_i07_reports_and_generations_survive_going_back_and_forth(directory: Path) -> None:
    """Whichever supervisor has the runner has heard everything, and no generation comes twice."""
    play(back_and_forth, directory, make=LeaseStage)


async def wall_jumps(stage: LeaseStage) -> AsyncIterator[str]:
    before = await stage.supervised("alpha")
    task_id = await stage.submit("runs", never_ends)
    await stage.state_is(task_id, State.RUNNING)
    await stage.agreed()
    row = stage.row("alpha")
    random = stage.stream("jumps")
    for _ in range(600):
        for clock in (stage.runner.clock, stage.supervisor.clock):
            clock.skew_ms = random.randint(-HOUR_MS, HOUR_MS)
        await stage.sleep(0.1)
        assert stage.lease("alpha") is LeaseState.LIVE
        assert stage.right("alpha") == before.generation
    task = stage.task(task_id)
    assert (task.state, task.attempt, task.premature_exits) == (State.RUNNING, 1, 0)
    assert stage.supervision() == before
    assert stage.row("alpha") == row
    assert stage.calls("runner -> supervisor Register") == 1
    yield "an hour to and fro, ten times a second"


def test_p18_a_wall_clock_that_jumps_changes_nothing(directory: Path) -> None:
    """Ten jumps of up to an hour a second, on both hosts, for a minute: no lease, no generation, no budget changes."""
    play(wall_jumps, directory, make=LeaseStage)


async def suspended(stage: LeaseStage) -> AsyncIterator[str]:
    task_id = await stage.submit("runs", never_ends)
    await stage.state_is(task_id, State.RUNNING)
    for hosts in ((stage.runner,), (stage.runner, stage.supervisor)):
        before = await stage.supervised("alpha")
        registered = stage.calls("runner -> supervisor Register")
        for host in hosts:
            host.clock.suspended_ms += 600_000
        await stage.throughout(
            30.0, lambda: stage.lease("alpha") is not LeaseState.UNREACHABLE, "the runner is not taken for dead"
        )
        after = await stage.supervised("alpha")
        assert stage.calls("runner -> supervisor Register") == registered + 1, "one re-registration"
        assert after.generation == before.generation + 2
        await stage.act(after.generation)
        assert (stage.task(task_id).attempt, len(stage.launches(task_id))) == (1, 1)
        yield "slept for ten minutes"


def test_p18_ten_minutes_of_suspend_cost_one_registration(directory: Path) -> None:
    """The runner's host alone, or both hosts, sleep for ten minutes: one re-registration, nobody is taken for dead, and the
    supervisor may act again.
    """
    play(suspended, directory, make=LeaseStage)


async def fifty_runners(stage: LeaseStage) -> AsyncIterator[str]:
    names = [f"runner-{number}" for number in range(50)]
    for name in names:
        node = RunnerNode(
            stage.directory / f"{name}.sqlite3",
            stage.kernel,
            ("lane-1",),
            network=stage.network,
            clock=VirtualClock(stage.loop),
            random=stage.stream(name),
            on_commit=lambda: None,
        )
        node.name, node.config = name, replace(node.config, runner_id=name)
        node.supervisors = stage.runner.supervisors
        stage.others.append(node)
        node.start()

    def live(at: str) -> int:
        presence = stage.presence(at)
        return sum(presence.supervision_generation(name) > 0 for name in names)

    await stage.until(lambda: stage.supervisor.parts and live("alpha") == 50, "alpha supervises all")
    stage.supervisor.restart_seconds = (1e9, 1e9)
    await stage.crash("supervisor")
    lost = stage.loop.time()
    await stage.until(lambda: live("beta") == 50, "beta supervises all", TTL_SECONDS + 15.0)
    yield "all have moved"
    times = sorted(
        float(event.split()[0]) for event in stage.events if "runner-" in event and "-> beta Register" in event
    )
    assert len(times) == 50
    assert times[0] > lost
    crowds = [sum(1 for each in times if start <= each < start + 0.1) for start in times]
    assert max(crowds) <= 12, f"{max(crowds)} came back within a tenth of a second"
    yield "not at once"


def test_fifty_runners_move_to_the_next_supervisor_and_not_at_once(directory: Path) -> None:
    """Their supervisor dies under all of them in the same instant: each finds the next one, spread over seconds."""
    play(fifty_runners, directory, make=LeaseStage)


async def without_a_supervisor(stage: LeaseStage) -> AsyncIterator[str]:
    stage.runner.supervisors = ("supervisor",)
    await stage.supervised("alpha")
    running = await stage.submit("runs", never_ends, on_supervisor_loss=HOLD, lane="lane-1")
    await stage.state_is(running, State.RUNNING)
    waiting = await stage.submit("waits", done, on_supervisor_loss=HOLD, lane="lane-1")
    stage.cut("supervisor")
    await stage.until(lambda: not stage.supervision().live, "nobody supervises")
    late = await stage.submit_at_runner("late", done, on_supervisor_loss=HOLD)
    goes_on = await stage.submit_at_runner("goes-on", done)
    for task_id in (running, waiting, late):
        assert stage.task(task_id).pauses == {PauseCause.SUPERVISOR_LOSS}
    assert stage.task(goes_on).pauses == frozenset()
    with pytest.raises(Refusal, match="ends when one supervises"):
        await stage.ask("ResumeTask", runner=True, task_id=waiting, cause=task_pb2.PAUSE_CAUSE_SUPERVISOR_LOSS)
    assert stage.task(running).state is State.RUNNING, "a worker that runs goes on"
    stage.kernel.kill(stage.kernel.alive(running)[0])
    await stage.until(lambda: stage.task(goes_on).state is State.SUCCEEDED, "the others go on")
    await stage.sleep(60.0)
    assert [len(stage.launches(each)) for each in (running, waiting, late)] == [1, 0, 0]
    yield "held"
    stage.runner.crash()
    await stage.sleep(30.0)
    assert [len(stage.launches(each)) for each in (running, waiting, late)] == [1, 0, 0]
    yield "held after a restart"
    stage.heal()
    await stage.until(lambda: len(stage.launches(running)) == 2, "launched again")
    await stage.ask("CancelTask", task_id=running)
    for task_id in (waiting, late):
        done_task = await stage.state(task_id, State.SUCCEEDED)
        assert done_task.pauses == frozenset()
    yield "back"


def test_on_supervisor_loss_hold_launches_nothing_while_nobody_supervises(directory: Path) -> None:
    """Set with the lapse and at once for new tasks, kept over a restart, cleared with the grant; running workers and tasks
    that did not ask for it go on.
    """
    play(without_a_supervisor, directory, make=LeaseStage)
