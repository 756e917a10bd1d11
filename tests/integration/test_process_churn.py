"""Launches and stops without end, with whoever is there killed at random: nothing is left, nobody else is touched."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from lane_runner_svc.process.kernel import children, stat_fields
from tests.integration.process_kit import Bystander, kill_all, with_variable

ROOT = Path(__file__).parents[2]
RUNNER = Path(__file__).with_name("churning_runner.py")
LANES = 6
LIFE_SECONDS = (0.5, 3.0)
"""Shortest and longest life of a runner before it is killed."""
ZOMBIES_MAX = 5 * LANES
"""Who may wait to be reaped at one instant: a lane's last shim, its worker, which is reaped last, and its descendants."""


@pytest.fixture
def churn(tmp_path: Path) -> Iterator[dict[str, str]]:
    """The variable by which every process of this test is known; nothing that has it survives the test."""
    variable = {"CHURN": uuid.uuid4().hex}
    yield variable
    while kill_all(with_variable(f"CHURN={variable['CHURN']}")):
        time.sleep(0.01)


@pytest.mark.parametrize(
    "cycles",
    [
        pytest.param(300, marks=pytest.mark.timeout(600)),
        pytest.param(10_000, marks=[pytest.mark.long, pytest.mark.timeout(7200)]),
    ],
)
def test_launches_and_stops_with_random_kills(tmp_path: Path, churn: dict[str, str], cycles: int) -> None:
    """SIGKILL to workers, shims, spawners and runners at random instants among launches and stops, in several lanes at
    once: no process of any of them is left, none is a zombie, no two attempts of a task ever overlap and none runs twice,
    every attempt has one end that fits what it did, and bystanders get no signal.
    """
    directory = tmp_path / f"churn-{churn['CHURN']}"
    directory.mkdir()
    mark = f"{directory.name}-0/1/1"
    bystanders = [
        Bystander("shim", mark),
        Bystander(session=True),
        Bystander(env={"LANEWARDEN_ATTEMPT_ID": mark, "LANEWARDEN_LAUNCH_ID": "f" * 32}),
    ]
    each = -(-cycles // LANES)
    lives = _run(directory, churn, each)

    variable = f"CHURN={churn['CHURN']}"
    deadline = time.monotonic() + 10  # an orphan of the last kill is somebody else's to reap
    while time.monotonic() < deadline and (with_variable(variable) or _present(directory)):
        time.sleep(0.01)
    assert with_variable(variable) == []
    assert _present(directory) == []
    assert all(bystander.untouched() for bystander in bystanders)
    assert [bystander.end() for bystander in bystanders] == [0, 0, 0]

    ends = _ends(directory, each)
    print(f"{sum(ends.values())} cycles in {lives} lives of the runner: {dict(ends)}")
    assert lives > 1
    assert {"EXITED", "SIGNALED", "SHIM_LOST"} <= ends.keys()


def _run(directory: Path, env: dict[str, str], attempts: int) -> int:
    """Runner after runner, each killed after a random time, until one ends by itself; how many there were."""
    chance = random.Random(directory.name)
    life = 0
    while True:
        life += 1
        command = [sys.executable, str(RUNNER), str(directory), str(life), str(LANES), str(attempts)]
        runner = subprocess.Popen(command, env={**os.environ, **env, "PYTHONPATH": str(ROOT)})
        try:
            code = runner.wait(chance.uniform(*LIFE_SECONDS))
        except subprocess.TimeoutExpired:
            assert len(_zombies(runner.pid)) <= ZOMBIES_MAX
            runner.kill()
            runner.wait()
        else:
            assert code == 0
            return life


def _zombies(runner: int) -> list[int]:
    """Descendants of the runner that have ended and were not reaped."""
    family = [runner]
    for pid in family:  # grows while it is walked
        family += children(pid)
    return [pid for pid in family if stat_fields(pid)[:1] == [b"Z"]]


def _present(directory: Path) -> list[str]:
    """Recorded workers that the kernel still knows, zombies included, and cgroups that still exist."""
    found = []
    for path in directory.glob("attempts/*/*/worker.json"):
        worker = json.loads(path.read_text())
        fields = stat_fields(worker["pid"])
        if fields and int(fields[19]) == worker["start_ticks"]:
            found.append(f"process {worker['pid']}")
        if worker["cgroup"] and Path(worker["cgroup"]).exists():
            found.append(worker["cgroup"])
    return found


def _ends(directory: Path, attempts: int) -> Counter[str]:
    """How the attempts ended, each checked against what its worker wrote."""
    ends: Counter[str] = Counter()
    for number in range(LANES):
        lane = directory / f"lane-{number}"
        assert not lane.with_suffix(".overlaps").exists()
        runs = Counter(lane.with_suffix(".runs").read_text().split())
        told = [line.split()[1] for line in lane.with_suffix(".journal").read_text().splitlines() if "ended" in line]
        assert len(told) == attempts
        for attempt, kind in enumerate(told, 1):
            record = json.loads(
                (directory / "attempts" / f"{directory.name}-{number}" / f"1-{attempt}" / "exit.json").read_text()
            )
            assert record["kind"] == kind
            ran = runs.pop(f"{directory.name}-{number}/1/{attempt}", 0)
            assert ran <= (0 if kind == "NEVER_STARTED" else 1)
            assert ran == 1 or kind != "EXITED"
            ends[kind] += 1
        assert not runs
    return ends
