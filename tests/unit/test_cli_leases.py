"""What people see of runners and leases: whom a supervisor reaches, who holds what, and which code runs."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from lanewarden.v1 import lane_runner_service_pb2, supervisor_service_pb2, task_pb2
from tests.cli_kit import Desk, desk, hold, pb, task

NOW = int(time.time())
AN_HOUR_AGO = Timestamp(seconds=NOW - 3_700)


@pytest.fixture
def at(tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> Iterator[Desk]:
    with desk(tmp_path, capfdbinary) as found:
        yield found


def runner(at: Desk, **fields: Any) -> pb.Runner:
    """The one runner there is, at an address where the stand-in answers."""
    values: dict[str, Any] = {
        "runner_id": "r1",
        "incarnation": "12345678-9",
        "generation": 7,
        "state": pb.RUNNER_STATE_LIVE,
        "address": at.state.endpoints().runner,
        "lanes": ["a", "b"],
        "last_seen": Timestamp(seconds=NOW),
        "lease_remaining": {"seconds": 9},
        "build": "aaa",
        "clock_lead": {"seconds": -3, "nanos": -200_000_000},
        "loop_lag": {"nanos": 400_000_000},
        "occupants": [supervisor_service_pb2.LaneOccupant(lane="b", task_id="t9")],
        **fields,
    }
    at.operator.runners[:] = [pb.Runner(**values)]
    return at.operator.runners[0]


def test_a_live_runner_with_its_lanes_lag_and_clock(at: Desk) -> None:
    """What runs in which lane; a clock that is behind has a minus."""
    runner(at, commands_waiting=2)
    code, out, err = at.run("runners")
    assert (code, err) == (0, "")
    for wanted in ("live", "a, b: t9", "0.4 s", "-3.2 s", " 2 "):
        assert wanted in out
    assert "different" not in out


@pytest.mark.parametrize("words", ["runners", "leases", "status"])
def test_p13_an_unreachable_runner_is_shown_as_that_with_when_it_was_last_seen(
    at: Desk, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In every view; nothing of it is said to run."""
    answer = {"services": {}, "stopping": False, "ready": True, "pid": 1}
    monkeypatch.setattr("lanewarden.cli.control.ask", lambda state, verb: answer)
    runner(at, state=pb.RUNNER_STATE_UNREACHABLE, last_seen=AN_HOUR_AGO, lease_remaining={})
    _, out, _ = at.run(words)
    assert "unreachable, last seen 1h ago" in out
    assert "live" not in out
    assert "t9" not in out


@pytest.mark.parametrize("words", ["runners", "leases"])
def test_p19_a_degraded_runner_is_live_and_said_to_be_degraded(at: Desk, words: str) -> None:
    """With for how long calls have failed."""
    runner(at, degraded_since=AN_HOUR_AGO)
    assert "live, degraded: calls fail for 1h" in at.run(words)[1]


@pytest.mark.parametrize("words", ["runners", "leases"])
def test_different_builds_are_pointed_out(at: Desk, words: str) -> None:
    """By whom they are run; a side that has not told its build is not accused."""
    runner(at, build="bbb")
    assert "different builds: supervisor s1 aaa, runner r1 bbb" in at.run(words)[1]
    runner(at, build="")
    assert "different" not in at.run(words)[1]


def test_p16_leases_name_both_holders_and_both_grantors(at: Desk) -> None:
    """The runner holds its presence by the supervisor's word; the supervisor its right to act by the runner's own."""
    runner(at)
    at.runner.supervision.CopyFrom(
        lane_runner_service_pb2.Supervision(
            state=lane_runner_service_pb2.SUPERVISION_STATE_LIVE,
            generation=41,
            supervisor_id="s2",
            supervisor_incarnation="abcdefgh-i",
            address="h:1",
            lease_remaining={"seconds": 4},
            renewed_at=AN_HOUR_AGO,
        )
    )
    _, out, _ = at.run("leases")
    presence, supervision = out.splitlines()[1:3]
    assert presence.split("  ")[0] == "presence"
    for wanted in ("runner r1 (12345678)", "supervisor s1 (5678)", "live", " 7 ", "9.0 s"):
        assert wanted in presence
    for wanted in ("supervisor s2 (abcdefgh) at h:1", "runner r1 (1234)", "live", " 41 ", "4.0 s", "1h ago"):
        assert wanted in supervision
    _, out, _ = at.run("leases", "--json")
    found = json.loads(out)
    assert found["supervisor"]["build"] == "aaa"
    (each,) = found["runners"]
    assert each["presence"]["generation"] == "7"
    assert each["supervision"]["supervision"]["generation"] == "41"


def test_a_runner_that_does_not_answer_leaves_its_side_unknown(at: Desk) -> None:
    """What the supervisor was told last is shown, as unknown; the listing is whole and exits 0."""
    runner(at, address="127.0.0.1:1", supervision_generation=40)
    code, out, err = at.run("leases")
    assert (code, err) == (0, "")
    assert "unknown: RUNNER_UNREACHABLE" in out
    (each,) = json.loads(at.run("leases", "--json")[1])["runners"]
    assert each["supervision"] is None
    assert each["problem"].startswith("RUNNER_UNREACHABLE: ")


@pytest.mark.parametrize(
    ("fields", "wanted"),
    [
        ({"runner_unreachable": True}, "unreachable, was running"),
        ({"runner_forgot": True}, "forgotten by its runner, was running"),
        ({"runner_forgot": True, "runner_unreachable": True}, "forgotten by its runner, was running"),
    ],
)
def test_p13_a_task_nobody_can_ask_about_is_never_called_running(
    at: Desk, fields: dict[str, bool], wanted: str
) -> None:
    """Neither in the list nor in full; and its worker is unknown, not alive."""
    at.operator.tasks.append(task("t1", worker_alive=True, worker_pid=77, last_seen=AN_HOUR_AGO, **fields))
    assert wanted in at.run("tasks")[1]
    _, out, _ = at.run("task", "t1")
    assert f"state            {wanted}" in out
    assert "unknown, was alive, pid 77" in out


def test_an_end_stays_an_end_when_its_runner_is_away(at: Desk) -> None:
    """The control: what has ended is not made uncertain."""
    ended = task("t1", state=task_pb2.TASK_STATE_SUCCEEDED, finished_at=AN_HOUR_AGO, runner_unreachable=True)
    at.operator.tasks.append(ended)
    assert "succeeded, as last seen" in at.run("tasks")[1]


@pytest.mark.parametrize(
    ("fields", "wanted"),
    [
        ({"runner_unreachable": True}, "open, runner unreachable"),
        ({"runner_forgot": True}, "open, forgotten by its runner"),
    ],
)
def test_p13_a_question_of_a_runner_that_is_away_says_so(at: Desk, fields: dict[str, bool], wanted: str) -> None:
    """In the inbox and in full; whether somebody waits is unknown."""
    at.operator.escalations.append(hold("t1.1.1.1", worker_alive=True, last_seen=AN_HOUR_AGO, **fields))
    assert wanted in at.run("inbox")[1]
    _, out, _ = at.run("show", "t1.1.1.1")
    assert wanted in out
    assert "unknown: its runner does not say" in out
    assert "may be waiting" not in out
