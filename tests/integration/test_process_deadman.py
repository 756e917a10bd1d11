"""Workers that may not be without a runner for long: stopped by their shim, or adopted in time.

That the time of a suspended machine counts is shown with a clock that jumps, for no test can suspend its machine.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from lane_runner_svc.process import ExitRecord, WorkerIdentity
from lane_runner_svc.process.deadman import Deadman
from lane_runner_svc.process.shim_loop import stop_asked
from lanewarden.v1 import lane_runner_service_pb2 as runner_pb
from tests.integration.pair import Pair, eventually
from tests.integration.process_kit import Rig, marked, until
from tests.integration.puppet import fresh

STOP_AFTER_SECONDS = 1.5
POLITE = "trap 'echo bye; exit 3' TERM; echo up; while :; do sleep 0.01; done"
DEAF = "trap '' TERM; setsid sleep 1000 & echo up; while :; do sleep 1000; done"


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    made = Rig(tmp_path)
    yield made
    await made.close()


async def test_a_runner_that_is_back_in_time_adopts_and_one_that_is_not_finds_the_end(rig: Rig) -> None:
    """Three workers lose their runner: the one that is adopted in time goes on past it; the others are stopped by the
    usual ladder, and their records say why.
    """
    for number, script in enumerate((POLITE, POLITE, DEAF), 1):
        spec = rig.spec("sh", "-c", script, attempt=number, grace_seconds=0.3, stop_after_seconds=STOP_AFTER_SECONDS)
        await rig.host.launch(spec)
    await until(lambda: all("up" in rig.log(number) for number in (1, 2, 3)))
    await rig.host.close()
    adopted = (await rig.host.adopt([rig.key(1)]))[rig.key(1)]
    assert isinstance(adopted, WorkerIdentity)

    await until(lambda: all((rig.directory(number) / "exit.json").exists() for number in (2, 3)))
    found = await rig.host.adopt([rig.key(2), rig.key(3)])
    polite, deaf = found[rig.key(2)], found[rig.key(3)]
    assert isinstance(polite, ExitRecord)
    assert isinstance(deaf, ExitRecord)
    assert (polite.code, polite.stop_requested, polite.runner_lost) == (3, True, True)
    assert rig.log(2).endswith("bye\n")
    assert (deaf.signal, deaf.stop_requested, deaf.runner_lost) == (signal.SIGKILL, True, True)

    assert rig.alive().count(adopted.pid) == 1
    await rig.host.stop(rig.key(1), grace_seconds=5)
    record = await rig.end()
    assert (record.code, record.stop_requested, record.runner_lost) == (3, True, False)


async def test_a_worker_is_not_stopped_when_its_task_does_not_ask_for_it(rig: Rig) -> None:
    """The control: the same loss for the same time, and the worker without a bound goes on."""
    await rig.host.launch(rig.spec("sleep", "1000", attempt=1))
    await rig.host.launch(rig.spec("sleep", "1000", attempt=2, stop_after_seconds=0.5))
    await rig.host.close()
    await until(lambda: (rig.directory(2) / "exit.json").exists())
    assert isinstance((await rig.host.adopt([rig.key(1)]))[rig.key(1)], WorkerIdentity)


class Boot:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def now(self) -> float:
        return self.seconds


def test_time_without_a_runner_counts_from_each_loss_and_through_a_suspend() -> None:
    """From the start, and anew from each loss; a jump of the clock, as after a suspend, is time without a runner."""
    boot = Boot()
    deadman = Deadman(60.0, boot.now)
    boot.seconds += 10
    assert deadman.left_seconds(connected=False) == 50
    assert deadman.left_seconds(connected=True) is None
    boot.seconds += 500
    assert deadman.left_seconds(connected=False) == 60
    boot.seconds += 600
    assert deadman.left_seconds(connected=False) == -540
    assert Deadman(None, boot.now).left_seconds(connected=False) is None


async def test_nothing_that_is_said_to_a_shim_ends_it(rig: Rig) -> None:
    """Packets that no runner would send cost the sender its connection; the worker goes on and is stopped as ever."""
    await rig.host.launch(rig.spec("sh", "-c", "echo up; exec sleep 1000"))
    directory = os.open(rig.directory(), os.O_PATH)
    for packet in (
        "null",
        "[]",
        "{",
        '{"type":"stop"}',
        '{"type":"stop","grace_ms":NaN}',
        "\udcff",
        "7" * 5000,
        "[" * 4000,
    ):
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client:
            client.settimeout(10)
            client.connect(f"/proc/self/fd/{directory}/shim.sock")  # its own path may be too long for an address
            client.recv(1 << 14)
            client.send(packet.encode(errors="surrogateescape"))
            while said := client.recv(1 << 14):
                assert json.loads(said)["type"] == "output", "the shim answers nothing but notes that it sends anyway"
    os.close(directory)
    await rig.host.stop(rig.key(), grace_seconds=5)
    record = await rig.end()
    assert (record.signal, record.stop_requested) == (signal.SIGTERM, True)


@pytest.mark.parametrize("grace", ["-1", "1.5", "true", '"1"', "null", "1e999", "1" + "0" * 999])
def test_a_stop_has_a_grace_in_whole_milliseconds(grace: str) -> None:
    """Anything else is refused, not taken for some time."""
    assert stop_asked(b'{"type":"stop","grace_ms":250}') == 0.25
    with pytest.raises(ValueError, match="not a stop"):
        stop_asked(b'{"type":"stop","grace_ms":' + grace.encode() + b"}")


def test_a_task_whose_worker_was_stopped_for_want_of_a_runner_is_tried_again(tmp_path: Path) -> None:
    """The real runner is killed and stays away for longer than the task allows: the worker is gone meanwhile; the next
    start puts the task back at no cost, says why, and runs it again.
    """
    script = '[ "$LANEWARDEN_ATTEMPT" = 1 ] && echo up && exec sleep 1000; exit 0'
    with Pair(tmp_path / "state", lanes=1) as pair:
        task_id = pair.submit("/bin/sh", "-c", script, runner_loss_stop_after={"seconds": 1})
        pair.wait_for_state(task_id, "RUNNING")
        # While it is paused the next attempt does not start, so that the end of the first can be read at leisure.
        pair.lane_runner.PauseTask(runner_pb.PauseTaskRequest(request_id=fresh(), task_id=task_id))
        pair.runner.kill()
        assert marked(task_id)
        eventually(lambda: not marked(task_id), "the shim has stopped the worker")
        pair.runner.start()
        task = pair.wait_for_state(task_id, "QUEUED")
        assert (task.attempt, task.premature_exits) == (1, 0)
        assert task.summary == "attempt 1: the worker was killed by SIGTERM, stopped because its runner was lost"
        line = next(line for line in pair.runner.log if line["message"] == "worker ended" and line["task"] == task_id)
        assert line["level"] == "WARNING"
        pair.lane_runner.ResumeTask(runner_pb.ResumeTaskRequest(request_id=fresh(), task_id=task_id))
        assert pair.wait_for_state(task_id, "SUCCEEDED").attempt == 2


def test_the_deadman_reads_the_clock_that_goes_on_during_suspend(monkeypatch: pytest.MonkeyPatch) -> None:
    """CLOCK_BOOTTIME and no other."""
    monkeypatch.setattr(time, "clock_gettime", {time.CLOCK_BOOTTIME: 7.0}.__getitem__)
    assert Deadman(60.0).left_seconds(connected=False) == 60.0
