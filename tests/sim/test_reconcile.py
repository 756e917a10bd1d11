"""Two stores that have drifted apart, in any way, agree again after one registration, and then nothing is written."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lanewarden.v1 import escalation_pb2, task_pb2
from tests.sim.sim_stage import SimStage as Stage
from tests.sim.stories import play
from tests.stories.programs import Worker
from tests.stories.sight import SERVICES

QUIET_SECONDS = 300.0
LEDGER_SECONDS = 125.0
"""The minute in which something was written is over by then, and stored."""
"""Three renewals, and still before the first reminder of any hold."""
TASKS = 6
MARKS = "SELECT seq FROM sqlite_sequence WHERE name = 'outbox'"
"""How many marks the runner has ever made."""
Drift = tuple[str, int]
"""What happened to the supervisor's store, and to which of the unfinished tasks there. What has ended on both sides is
history, and is not compared.
"""

DRIFTS = st.lists(
    st.tuples(
        st.sampled_from(
            ["lose task", "lose hold", "older", "newer", "ended", "closed", "strange task", "strange hold"]
        ),
        st.integers(0, TASKS - 1),
    ),
    max_size=8,
)


async def _asks(worker: Worker) -> int:
    await worker.escalate("one?")
    await worker.escalate("two?")
    return 0


async def held(stage: Stage) -> AsyncIterator[str]:
    """Tasks that wait for rulings, and one that has ended."""
    for number in range(TASKS):
        task_id = await stage.submit(f"t{number}", _asks)
        await stage.open_holds(task_id, 2)
        await stage.until(lambda task_id=task_id: not stage.task(task_id).worker_alive, "it has left")  # type: ignore[misc]
    await stage.ask("CancelTask", task_id=await stage.submit("over", _asks), cause="enough")
    await stage.agreed()
    yield "held"


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of both services, in step."""
    directory = tmp_path_factory.mktemp("before")
    play(held, directory)
    return directory


def drift(path: Path, drifts: Sequence[Drift]) -> None:
    """Change the supervisor's file while it is down."""
    with sqlite3.connect(path) as db:
        ids = [row[0] for row in db.execute("SELECT task_id FROM tasks WHERE state = 'HELD' ORDER BY position")]
        for kind, number in drifts:
            task_id = ids[number]
            if kind.startswith("strange"):
                _add_strange(db, kind, task_id)
                continue
            db.execute(
                {
                    "lose task": "DELETE FROM tasks WHERE task_id = ?",
                    "lose hold": "DELETE FROM escalations WHERE task_id = ? AND escalation_id LIKE '%.1'",
                    "older": "UPDATE tasks SET version = version - 1, state = 'RUNNING' WHERE task_id = ?",
                    "newer": "UPDATE tasks SET version = version + 7 WHERE task_id = ?",
                    "ended": "UPDATE tasks SET state = 'FAILED' WHERE task_id = ?",
                    "closed": "UPDATE escalations SET hold_state = 'CANCELED'"
                    " WHERE task_id = ? AND escalation_id NOT LIKE '%.9'",
                }[kind],
                (task_id,),
            )
    db.close()


def _add_strange(db: sqlite3.Connection, kind: str, task_id: str) -> None:
    """What a runner told before its own store was put back to an older copy."""
    if kind == "strange task":
        made = f"{task_id}x"
        payload = task_pb2.Task(task_id=made, runner_id="runner", state=task_pb2.TASK_STATE_RUNNING, version=3)
        sql = (
            "INSERT OR IGNORE INTO tasks (task_id, position, runner_id, state, version, payload, received_wall_ms)"
            " VALUES (?, (SELECT max(position) + 1 FROM tasks), 'runner', 'RUNNING', 3, ?, 0)"
        )
        db.execute(sql, (made, payload.SerializeToString()))
    made = f"{task_id}.9.9.9"
    hold = escalation_pb2.Escalation(
        escalation_id=made, task_id=task_id, runner_id="runner", hold_state="HOLD_STATE_OPEN"
    )
    sql = (
        "INSERT OR IGNORE INTO escalations (escalation_id, position, runner_id, task_id, hold_state, payload,"
        " received_wall_ms) VALUES (?, (SELECT max(position) + 1 FROM escalations), 'runner', ?, 'OPEN', ?, 0)"
    )
    db.execute(sql, (made, task_id, hold.SerializeToString()))


def known(stage: Stage) -> tuple[list[tuple[object, ...]], list[tuple[object, ...]]]:
    """Tasks with their versions and escalations, at the supervisor (without what is forgotten) and at the runner."""
    sql = [
        "SELECT task_id, state, version FROM tasks WHERE NOT forgotten ORDER BY 1",
        "SELECT escalation_id, hold_state FROM escalations WHERE NOT forgotten ORDER BY 1",
    ]
    there = [row for each in sql for row in stage.rows("supervisor", each)]
    sql = ["SELECT task_id, state, version FROM tasks ORDER BY 1", "SELECT escalation_id, state FROM holds ORDER BY 1"]
    here = [row for each in sql for row in stage.rows("runner", each)]
    return there, here


def written(stage: Stage, service: str) -> int:
    """How many rows a service has changed since its start."""
    store = stage.nodes[service].store
    assert store is not None
    return store._connection.total_changes


async def agree_and_rest(stage: Stage) -> AsyncIterator[str]:
    """Both start on the files that are there, agree, and write nothing more: not with time, not by registering again."""

    def agreed() -> bool:
        there, here = known(stage)
        return there == here

    await stage.until(agreed, "the stores agree")
    await stage.sleep(LEDGER_SECONDS)
    before = [written(stage, service) for service in SERVICES]
    await stage.sleep(QUIET_SECONDS)
    assert [written(stage, service) for service in SERVICES] == before, (
        "something was written though nothing has changed"
    )
    yield "at rest"
    for task in (await stage.ask("ListTasks")).tasks:
        strange = task.task_id.endswith("x")
        assert task.runner_forgot == strange
    for hold in (await stage.ask("ListEscalations", states=["HOLD_STATE_OPEN"])).escalations:
        assert hold.runner_forgot == hold.escalation_id.endswith(".9.9.9")
    assert len((await stage.ask("ListEscalations")).escalations) == 2 * TASKS, "nobody waits on what is forgotten"
    marks = stage.rows("runner", MARKS)
    await stage.crash("supervisor")
    await stage.sleep(QUIET_SECONDS)
    assert stage.rows("runner", MARKS) == marks, "a registration found the stores in step, and something is told again"
    assert agreed()
    yield "registered again"


@given(drifts=DRIFTS)
@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
def test_p13_stores_that_have_drifted_apart_agree_after_one_registration(
    before: Path, directory: Path, drifts: list[Drift]
) -> None:
    """Tasks and holds lost, older, newer, ended or closed at the supervisor only, or unknown to the runner: after one
    registration both stores say the same, what the runner never had is shown as forgotten, and then no row is written.
    """
    place = directory / "after"
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(before, place)
    drift(place / "supervisor.sqlite3", drifts)
    play(agree_and_rest, place)


ONE_OF_EACH: list[Drift] = [("lose task", 0), ("lose hold", 1), ("older", 2), ("ended", 3), ("closed", 4)]


def test_p13_finds_a_supervisor_that_is_not_compared_with(
    before: Path, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted: nothing differs, whatever does. The stores stay apart."""
    shutil.copytree(before, directory, dirs_exist_ok=True)
    drift(directory / "supervisor.sqlite3", ONE_OF_EACH)
    monkeypatch.setattr("supervisor_svc.work.reconcile.compare", lambda listed, known: [])
    with pytest.raises(AssertionError, match="it did not come true that the stores agree"):
        play(agree_and_rest, directory)


@pytest.mark.parametrize(("items_max", "known_max"), [(1, 2_000), (2, 1), (1_000, 2), (3, 3)])
def test_p13_pages_of_any_size_find_everything(
    before: Path, directory: Path, monkeypatch: pytest.MonkeyPatch, items_max: int, known_max: int
) -> None:
    """Whichever side has more than fits into one message, nothing is passed over."""
    shutil.copytree(before, directory, dirs_exist_ok=True)
    drift(directory / "supervisor.sqlite3", [*ONE_OF_EACH, *(("strange task", number) for number in range(TASKS))])
    monkeypatch.setattr("lane_runner_svc.loop.reconcile.ITEMS_MAX", items_max)
    monkeypatch.setattr("lane_runner_svc.loop.reconcile.FORGOTTEN_MAX", 2)
    monkeypatch.setattr("supervisor_svc.work.reconcile.KNOWN_MAX", known_max)
    play(agree_and_rest, directory)
