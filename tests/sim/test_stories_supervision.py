"""A supervisor that acts: both services, virtual time, a tracker, and whoever dies in between."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from lane_runner_svc.core.states import State
from lane_runner_svc.store import messages
from lanewarden.errors import Reason
from lanewarden.v1 import incident_pb2, task_pb2
from tests.sim.act_stage import ActStage, TwoStage
from tests.sim.stories import play, survives
from tests.sim.test_stories_verdicts import HOUR, running, steps_once
from tests.stories.programs import asks_and_leaves, never_ends

STALE_SECONDS = 900.0
PARKED_SECONDS = 120.0
LATER_SECONDS = 400.0
"""How much longer a step may take when a service dies on the way: a lease, and a runner that is listened to first."""
NOTE = "the worker said: copied 1 of 9"
KEY = "{}/1/settled"


async def given_up(stage: ActStage, task_id: str, what: list[str], bound: float) -> None:
    """Wait until the task is settled, and that was all that was done about it."""
    seconds = (bound + LATER_SECONDS) * len(what)
    await stage.until(lambda: stage.task(task_id).state is State.SETTLED, "it is settled", seconds)
    assert stage.done(task_id) == what
    spans = [later - earlier for earlier, later in pairwise(stage.asked())]
    assert not stage.calm or all(bound <= span <= bound + 2 for span in spans), (
        "each step has its whole time, and no more"
    )


async def stuck(stage: ActStage, hours: float = 0.1) -> AsyncIterator[str]:
    """Without progress it is relaunched twice, settled and filed, and then nothing happens any more."""
    task_id = await stage.submit("copier", steps_once)
    await running(stage, task_id)
    sent = (await stage.ask("SendInput", task_id=task_id, text="read this")).message.message_id
    yield "runs"
    await stage.until(lambda: stage.task(task_id).relaunches == 1, "it is relaunched", STALE_SECONDS + LATER_SECONDS)
    yield "relaunched"
    await given_up(stage, task_id, ["RelaunchTask", "RelaunchTask", "SettleTask"], STALE_SECONDS)
    assert len(stage.launches(task_id)) == 3
    yield "settled"
    (incident,) = await stage.filed(1)
    assert (incident.key, incident.state) == (KEY.format(task_id), incident_pb2.INCIDENT_STATE_FILED)
    assert stage.tracker.filed() == [incident.key]
    diagnosis = stage.task(task_id).diagnosis
    assert stage.tracker.items[0].subjects[0].diagnosis == diagnosis
    assert diagnosis == NOTE if stage.calm else diagnosis.startswith((NOTE, "the runner said: launch 1 of 5 failed"))
    yield "filed"
    task, rows = stage.task(task_id), stage.dump()
    await stage.sleep(LATER_SECONDS)
    await stage.agreed()
    commits, asked = stage.commits(), stage.asked("ClaimIncident", "RecordIncident", "WakeTask", "SettleTask")
    assert stage.supervisor.parts is not None
    more = replace(stage.supervisor.parts.supervisor.supervision, relaunches_max=3)
    assert stage.supervisor.parts.supervisor.supervise_by(more)
    await stage.sleep(hours * HOUR)
    assert stage.asked("ClaimIncident", "RecordIncident", "WakeTask", "SettleTask") == asked
    assert (stage.task(task_id), stage.dump(), stage.commits()) == (task, rows, commits), (
        "a settled task stays as it is"
    )
    waits = stage.read(lambda reader: messages.load(reader, sent))
    assert waits is not None
    assert (waits.state, len(stage.tracker.items), len(stage.launches(task_id))) == ("PARKED", 1, 3)
    yield "nothing since"


def stuck_for_a_day(stage: ActStage) -> AsyncIterator[str]:
    return stuck(stage, hours=24)


def test_s03_s06_s07_s08_a_stuck_worker_is_relaunched_settled_and_filed_once(directory: Path) -> None:
    """Two relaunches 900 s apart, one settle, one item with the worker's own words; for a day after that, under a higher
    cap, no request, no commit and no changed byte.
    """
    play(stuck_for_a_day, directory, make=ActStage)


def test_s03_s07_s11_a_stuck_worker_is_given_up_once_whoever_dies(directory: Path) -> None:
    """The same, with either service dying after each step and at commits: two charges, three workers, one item."""
    survives(stuck, directory, make=ActStage, every_point=20)


async def parked(stage: ActStage) -> AsyncIterator[str]:
    """S08: a session whose worker takes no input is woken once, relaunched twice, settled; each has its own two minutes."""
    task_id = await stage.submit("session", never_ends, kind=task_pb2.TASK_KIND_SESSION)
    await stage.ask("SendInput", task_id=task_id, text="read this")
    await running(stage, task_id)
    yield "has input"
    await stage.until(lambda: stage.task(task_id).woken, "it is woken", PARKED_SECONDS + LATER_SECONDS)
    yield "woken"
    await given_up(stage, task_id, ["WakeTask", "RelaunchTask", "RelaunchTask", "SettleTask"], PARKED_SECONDS)
    await stage.filed(1)
    assert len(stage.tracker.items) == 1
    yield "settled"


def test_s08_a_parked_session_is_woken_once_relaunched_and_settled(directory: Path) -> None:
    """No step comes before the one before it has had its 120 s; whoever dies, one wake, two relaunches, one item."""
    survives(parked, directory, make=ActStage, every_point=30)


async def parked_unheard(stage: ActStage) -> AsyncIterator[str]:
    task_id = await stage.submit("session", never_ends, kind=task_pb2.TASK_KIND_SESSION)
    await stage.agreed()
    stage.network.faults.cut.add(frozenset(("runner", "supervisor")))
    await stage.ask("SendInput", runner=True, task_id=task_id, text="read this")
    await stage.until(lambda: stage.task(task_id).worker_alive, "its worker runs")
    await stage.sleep(LATER_SECONDS)
    stage.network.faults.cut.clear()
    yield "heard of at once"
    await given_up(stage, task_id, ["WakeTask", "RelaunchTask", "RelaunchTask", "SettleTask"], PARKED_SECONDS)
    yield "settled"


def test_s08_a_session_whose_input_and_round_are_heard_of_at_once_is_parked(directory: Path) -> None:
    """Both began while the runner was out of reach, and come in one batch of reports: its silence counts all the same."""
    play(parked_unheard, directory, make=ActStage)


async def left_alone(stage: ActStage) -> AsyncIterator[str]:
    dead = await stage.submit("dies", never_ends, premature_exits_max=1)
    for attempt in (1, 2):
        await stage.until(lambda attempt=attempt: stage.task(dead).attempt == attempt, "its next worker comes")
        await running(stage, dead)
        stage.kill_worker(dead)
        await stage.until(lambda: not stage.task(dead).worker_alive, "it is dead")
    await stage.state(dead, State.FAILED)
    yield "dead"
    held = await stage.submit("asker", asks_and_leaves, hold_deadline={"seconds": 90_000})
    await stage.open_holds(held)
    paused = await stage.submit("copier", steps_once)
    await running(stage, paused)
    await stage.until(lambda: stage.task(paused).progress, "it has made a step")
    await stage.ask("PauseTask", task_id=paused)
    yield "held, paused"
    await stage.sleep(24 * HOUR)
    assert stage.asked() == [], "the runner deals with what has died, people with what is held and paused"
    assert stage.task(held).state is State.HELD
    assert await stage.verdict(paused) == "STALE"
    assert (await stage.explain(paused)).arm == "held"
    yield "a day later"


def test_s11_held_paused_and_dying_tasks_see_no_action_for_a_day(directory: Path) -> None:
    """A hold, a pause of a stale worker, and a worker that dies twice, which its runner has charged already: no request."""
    play(left_alone, directory, make=ActStage)


async def tracker_down(stage: ActStage) -> AsyncIterator[str]:
    stage.tracker.down = True
    task_id = await stage.submit("copier", steps_once)
    await given_up(stage, task_id, ["RelaunchTask", "RelaunchTask", "SettleTask"], STALE_SECONDS)
    settled = stage.task(task_id)
    await stage.sleep(5 * HOUR)
    (incident,) = await stage.incidents(resolved=False)
    assert incident.state == incident_pb2.INCIDENT_STATE_FILING_FAILED
    assert incident.failure.endswith("Connection refused")
    assert stage.tracker.tries <= 25
    assert stage.tracker.filed() == []
    yield "down for hours"
    stage.tracker.down = False
    await stage.filed(1, HOUR + 60)
    assert stage.tracker.filed() == [incident.key]
    assert replace(stage.task(task_id), version=settled.version) == settled
    yield "back"


def test_s03_a_tracker_that_is_down_delays_the_item_and_nothing_else(directory: Path) -> None:
    """Five hours: settled once, 'filing failed' and why in the list, few tries; one item within an hour of its return."""
    play(tracker_down, directory, make=ActStage)


async def second_life(stage: ActStage) -> AsyncIterator[str]:
    task_id = await stage.submit("copier", steps_once)
    await given_up(stage, task_id, ["RelaunchTask", "RelaunchTask", "SettleTask"], STALE_SECONDS)
    (first,) = await stage.filed(1)
    yield "filed"
    await stage.refused(Reason.INCIDENT_UNKNOWN, "ResolveIncident", key="another")
    resolved = await stage.ask("ResolveIncident", key=first.key)
    assert resolved.incident.state == incident_pb2.INCIDENT_STATE_RESOLVED
    await stage.until(lambda: not stage.rows("runner", "SELECT 1 FROM outbox"), "it is told")
    assert list(await stage.incidents(resolved=False)) == []
    await stage.ask("ReopenTask", task_id=task_id)
    yield "reopened"
    await running(stage, task_id)
    assert (stage.task(task_id).epoch, stage.task(task_id).relaunches) == (2, 0)
    await stage.until(lambda: stage.task(task_id).state is State.SETTLED, "it is settled again", 4 * STALE_SECONDS)
    second = (await stage.filed(2))[1]
    assert (second.key, second.follows) == (f"{task_id}/2/settled", first.key)
    assert stage.tracker.filed() == [first.key, second.key]
    yield "filed again"


def test_s05_a_reopened_task_that_fails_anew_is_another_incident(directory: Path) -> None:
    """Resolved through the supervisor, reopened, stuck again: budgets of its own, and an item that follows the first."""
    play(second_life, directory, make=ActStage)


async def two_supervisors(stage: TwoStage) -> AsyncIterator[str]:
    await stage.supervised("alpha")
    task_id = await stage.submit("copier", steps_once)
    stage.tracker.down = True
    key = KEY.format(task_id)
    await stage.until(lambda: stage.filing("alpha", key), "alpha has the claim", 300.0)
    assert stage.task(task_id).state is State.SETTLED
    yield "claimed by alpha"
    stage.cut("supervisor")
    await stage.supervised("beta")
    await stage.until(lambda: stage.filing("beta", key), "beta has taken the claim over")
    stage.tracker.down = False
    stage.heal()
    await stage.until(lambda: stage.tracker.items, "it is filed", HOUR)
    await stage.sleep(LATER_SECONDS)
    assert stage.tracker.filed() == [key]
    alphas = stage.filing("alpha", key)
    assert alphas is not None
    assert (alphas.stage.name, alphas.failure) in {("OPEN", "SUPERVISION_FENCED"), ("LOST", "")}, alphas
    yield "filed by beta"
    stage.cut("beta")
    await stage.supervised("alpha")
    await stage.until(lambda: stage.filing("alpha", key).stage.name == "LOST", "alpha knows", HOUR)  # type: ignore[union-attr]
    await stage.sleep(LATER_SECONDS)
    assert stage.tracker.filed() == [key]
    entries = [entry for entry in stage.audit(task_id) if "Task" in entry and "supervisor" in entry]
    assert [entry for entry in entries if "Relaunch" in entry or "Settle" in entry] == [
        *(f"supervisor RelaunchTask attempt {attempt}: STALE: OK" for attempt in (1, 2)),
        "supervisor SettleTask: OK",
    ]
    yield "alpha is told"


def test_s01_s11_two_supervisors_act_once_and_file_once(directory: Path) -> None:
    """The first settles and claims, and is cut off; the second takes the claim over and files; the first, let in again, is
    fenced, and told CLAIM_LOST once it supervises again: one item, one charge each.
    """
    play(two_supervisors, directory, make=TwoStage)


@pytest.mark.long
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("seed", [1, 2])
def test_a_stuck_worker_is_given_up_once_with_a_death_at_every_commit(directory: Path, seed: int) -> None:
    """Just before and just after every single commit of either service, under other seeds than the default suite's."""
    survives(stuck, directory, make=ActStage, every_point=1, seed=seed)
