"""kill -9 of each process at each point of the main job: the task succeeds, and the ruling is applied once."""

from __future__ import annotations

import os
import sqlite3
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.pair import Pair, eventually, kill_pid

WORKER = str(Path(__file__).with_name("asking_worker.py"))
POINTS = ("before_escalation", "held", "acked", "ruled_not_delivered", "delivered_not_acknowledged")
VICTIMS = ("supervisor", "runner", "worker", "shim")


class Meeting:
    """Where the test and the worker meet: a step is reached, then its gate is opened."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir()
        for name in ("before_escalation", "held", "delivered"):
            os.mkfifo(directory / f"{name}.gate")

    def wait(self, name: str) -> int:
        """The pid of the worker that has reached the step."""
        reached = self.directory / f"{name}.reached"
        return int(eventually(lambda: reached.read_text() if reached.exists() else None, f"the worker reaches {name}"))

    def open(self, name: str) -> None:
        """Let the worker that has reached the step go on, unless it was killed there."""
        pid = self.wait(name)
        opened = eventually(lambda: self._try(name) or not alive(pid), f"the worker passes {name}")
        assert opened

    def _try(self, name: str) -> bool:
        """Open the gate's end if the worker stands at its own already."""
        try:
            os.close(os.open(self.directory / f"{name}.gate", os.O_WRONLY | os.O_NONBLOCK))
        except OSError:
            return False
        return True

    def applied(self) -> list[str]:
        with sqlite3.connect(self.directory / "work.sqlite3") as work:
            return [row[0] for row in work.execute("SELECT ruling_id FROM applied")]


def alive(pid: int) -> bool:
    """Whether the process runs; a dead one that nobody has reaped yet does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def shim_of(worker_pid: int) -> int:
    """The worker's parent is its shim."""
    stat = Path(f"/proc/{worker_pid}/stat").read_text()
    return int(stat.rpartition(")")[2].split()[1])


def killer(pair: Pair, victim: str, worker_pid: int) -> Callable[[], None]:
    """What kills the victim now, and, if it is a service, starts it again."""
    if victim == "worker":
        return lambda: kill_pid(worker_pid)
    if victim == "shim":
        shim_pid = shim_of(worker_pid)
        return lambda: kill_pid(shim_pid)
    service = pair.runner if victim == "runner" else pair.supervisor

    def kill_and_start() -> None:
        service.kill()
        service.start()

    return kill_and_start


@pytest.mark.parametrize("victim", VICTIMS)
@pytest.mark.parametrize("point", POINTS)
def test_h01_h02_h09_h10_p02_kill_at_every_point(tmp_path: Path, victim: str, point: str) -> None:
    """Whoever is killed, wherever: one hold, one ruling, one application, SUCCEEDED."""
    meeting = Meeting(tmp_path / "meeting")
    with Pair(tmp_path / "state") as pair:
        task_id = pair.submit(sys.executable, WORKER, str(meeting.directory))
        kill = killer(pair, victim, meeting.wait("before_escalation"))
        if point == "before_escalation":
            kill()
        meeting.open("before_escalation")
        meeting.wait("held")
        escalation = pair.open_escalation(task_id)
        if point == "held":
            kill()
        if point == "acked":
            pair.ack(escalation.escalation_id)
            kill()
        if point == "ruled_not_delivered":
            # The worker stands before its wait, so nothing can have been delivered yet.
            ruled = pair.rule(escalation.escalation_id)
            kill()
            meeting.open("held")
            meeting.wait("delivered")
        else:
            ruled = None if point == "delivered_not_acknowledged" else pair.rule(escalation.escalation_id)
            meeting.open("held")
            ruled = ruled or pair.rule(escalation.escalation_id)
            meeting.wait("delivered")
            if point == "delivered_not_acknowledged":
                kill()
        meeting.open("delivered")
        task = pair.wait_for_state(task_id, "SUCCEEDED", "FAILED", "CANCELED")
        assert task.summary == "done as ruled"
        assert meeting.applied() == [ruled.message_id]
        final = eventually(lambda: [e for e in pair.inbox(task_id) if e.HasField("closed_at")], "the hold is closed")
        assert [(e.escalation_id, e.ruling.ruling_id) for e in final] == [(escalation.escalation_id, ruled.message_id)]
