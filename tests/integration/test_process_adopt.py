"""After the runner's death: workers are found again, sealed or swept, and no stranger is ever signalled."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from lane_runner_svc.process import ExitKind, ExitRecord, LaunchFailed, WorkerIdentity
from tests.integration.process_kit import Rig, shim_pid, until
from tests.integration.test_process_stop import FORKS_ON

ROOT = Path(__file__).parents[2]

RUNNER = """
import asyncio, os, sys
from pathlib import Path
from lane_runner_svc.process import AttemptKey, LaunchSpec, ProcessHost, Spawner

async def main(attempts_dir, task_id, *argv):
    spawner = Spawner()
    spawner.start()
    host = ProcessHost(Path(attempts_dir), on_exit=lambda record: None, spawner=spawner)
    key = AttemptKey(task_id=task_id, epoch=1, attempt=1)
    print("launching", flush=True)
    spec = LaunchSpec(key=key, argv=argv, cwd="/", env={"PATH": os.defpath}, stop_grace_seconds=1)
    print((await host.launch(spec)).pid, flush=True)
    await asyncio.Event().wait()

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    made = Rig(tmp_path)
    yield made
    await made.close()


class Runner:
    """A runner in a process of its own, to be killed."""

    def __init__(self, rig: Rig, *argv: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", RUNNER, str(rig.attempts_dir), rig.task_id, *argv],
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        assert self.line() == "launching"

    def line(self) -> str:
        assert self.process.stdout
        return self.process.stdout.readline().strip()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdout
        self.process.stdout.close()


def repetitions(default: int, long: int) -> list[object]:
    """Numbers for the default suite, and the rest up to ``long`` for the long one."""
    return [*range(default), *(pytest.param(n, marks=pytest.mark.long) for n in range(default, long))]


@pytest.mark.parametrize("number", repetitions(4, 100))
async def test_p02_worker_outlives_its_runner(rig: Rig, tmp_path: Path, number: int) -> None:
    """A worker whose runner was killed goes on; the next adopts it or learns its exit code; output is complete."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    script = f"echo before; read line < {fifo}; echo $line; exit 7"
    runner = Runner(rig, "sh", "-c", script)
    pid = int(runner.line())
    runner.kill()
    await rig.runs_only(pid)
    ends_before_adoption = number % 2 == 1
    if ends_before_adoption:
        fifo.write_text("between\n")
        await until(lambda: (rig.directory() / "exit.json").exists())
    news = (await rig.host.adopt([rig.key()]))[rig.key()]
    if ends_before_adoption:
        record = news
    else:
        assert isinstance(news, WorkerIdentity)
        assert (news.pid, rig.host.is_alive(rig.key())) == (pid, True)
        fifo.write_text("between\n")
        record = await rig.end()
    assert isinstance(record, ExitRecord)
    assert (record.kind, record.code) == (ExitKind.EXITED, 7)
    assert rig.log() == "before\nbetween\n"
    assert rig.alive() == []
    assert rig.ends.empty()


@pytest.mark.parametrize("number", repetitions(6, 100))
async def test_p02_runner_killed_in_the_middle_of_a_launch(rig: Rig, number: int) -> None:
    """Killed at any instant of a launch, the runner leaves either one worker to adopt, or a sealed attempt and none."""
    runner = Runner(rig, "sleep", "1000")
    time.sleep(random.Random(number).uniform(0, 0.06))  # the instant of the crash, not a wait for anything
    runner.kill()
    news = (await rig.host.adopt([rig.key()]))[rig.key()]
    if isinstance(news, WorkerIdentity):
        await rig.runs_only(news.pid)
        return
    assert news.kind in {ExitKind.NEVER_STARTED, ExitKind.SHIM_LOST}
    with pytest.raises(LaunchFailed):
        await rig.host.launch(rig.spec("sleep", "1000"))
    assert rig.alive() == []


async def test_p02_adopted_worker_can_be_stopped(rig: Rig) -> None:
    """An adopted worker obeys the stop ladder like one's own."""
    runner = Runner(rig, "sleep", "1000")
    runner.line()
    runner.kill()
    await rig.host.adopt([rig.key()])
    await rig.host.stop(rig.key(), grace_seconds=5)
    record = await rig.end()
    assert (record.signal, record.stop_requested) == (signal.SIGTERM, True)


async def test_seal_beats_a_late_shim(rig: Rig) -> None:
    """An attempt found never launched stays so: a shim that comes late starts nothing."""
    news = (await rig.host.adopt([rig.key()]))[rig.key()]
    assert isinstance(news, ExitRecord)
    assert news.kind is ExitKind.NEVER_STARTED
    with pytest.raises(LaunchFailed, match="given up before its launch"):
        await rig.host.launch(rig.spec("sleep", "1000"))
    assert not (rig.directory() / "worker.json").exists()
    assert (await rig.host.adopt([rig.key()]))[rig.key()] == news


async def test_adopting_many_at_once(rig: Rig) -> None:
    """Each attempt gets its own answer in one call: running, ended, never launched."""
    running = await rig.host.launch(rig.spec("sleep", "1000", attempt=1))
    await rig.host.launch(rig.spec("sh", "-c", "exit 2", attempt=2))
    ended = await rig.end()
    await rig.host.close()
    found = await rig.host.adopt([rig.key(n) for n in (1, 2, 3)])
    assert (found[rig.key(1)], found[rig.key(2)]) == (running, ended)
    never = found[rig.key(3)]
    assert isinstance(never, ExitRecord)
    assert never.kind is ExitKind.NEVER_STARTED
    assert rig.ends.empty()


TREE_OF_A_LOST_SHIM = "setsid sleep 1000 & sleep 1000 & echo up; exec sleep 1000"


@pytest.mark.parametrize("spawner_alive", [True, False])
async def test_killed_shim_takes_its_whole_tree_with_it(rig: Rig, spawner_alive: bool) -> None:
    """After kill -9 of the shim the worker and its setsid grandchild are gone before SHIM_LOST is told."""
    await rig.host.launch(rig.spec("sh", "-c", TREE_OF_A_LOST_SHIM))
    await until(lambda: "up" in rig.log())
    assert len(rig.alive()) == 3
    if not spawner_alive:
        os.kill(rig.spawner.pid or 0, signal.SIGKILL)
        await until(lambda: rig.spawner.pid is None)
    os.kill(shim_pid(rig.directory()), signal.SIGKILL)
    record = await rig.end()
    assert rig.alive() == []
    assert (record.kind, record.code, record.log_bytes) == (ExitKind.SHIM_LOST, None, 3)
    assert (await rig.host.adopt([rig.key()]))[rig.key()] == record


@pytest.mark.parametrize("number", repetitions(1, 50))
async def test_what_a_lost_shim_left_is_ended_although_it_forks_on(rig: Rig, number: int) -> None:
    """Shim and spawner killed, and a survivor that is always another process: it is caught, and SHIM_LOST is told last."""
    await rig.host.launch(rig.spec(sys.executable, "-c", FORKS_ON, "away"))
    await until(lambda: "up" in rig.log())
    os.kill(rig.spawner.pid or 0, signal.SIGKILL)
    await until(lambda: rig.spawner.pid is None)
    os.kill(shim_pid(rig.directory()), signal.SIGKILL)
    assert (await rig.end()).kind is ExitKind.SHIM_LOST
    for _ in range(10):
        assert rig.alive() == []


async def test_killed_shim_is_found_by_the_next_runner(rig: Rig) -> None:
    """Runner and shim killed together: the next runner ends what survived, then says SHIM_LOST."""
    runner = Runner(rig, "sh", "-c", TREE_OF_A_LOST_SHIM)
    pid = int(runner.line())
    await until(lambda: "up" in rig.log())
    runner.kill()
    os.kill(shim_pid(rig.directory()), signal.SIGKILL)
    await until(lambda: pid not in rig.alive())  # by the kernel alone: nobody of ours is left to do it
    news = (await rig.host.adopt([rig.key()]))[rig.key()]
    assert isinstance(news, ExitRecord)
    assert news.kind is ExitKind.SHIM_LOST
    assert news.leftovers_killed >= 1
    assert rig.alive() == []


async def test_orphan_that_wiped_its_environment_is_ended_by_the_spawner(rig: Rig) -> None:
    """An orphan of a killed shim that carries no mark is known as ours by its parentage alone."""
    await rig.host.launch(rig.spec("sh", "-c", "env -i setsid sleep 1000 & echo $!; echo up; exec sleep 1000"))
    await until(lambda: "up" in rig.log())
    orphan = int(rig.log().split()[0])
    os.kill(shim_pid(rig.directory()), signal.SIGKILL)
    await rig.end()
    await until(lambda: not Path(f"/proc/{orphan}").exists())


async def test_a_silent_shim_is_not_dead(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """A shim that is alive and says nothing is left out of the answer and followed; once it speaks, it is heard."""
    await rig.host.launch(rig.spec("sleep", "1000"))
    await rig.host.close()
    shim = shim_pid(rig.directory())
    os.kill(shim, signal.SIGSTOP)
    monkeypatch.setattr("lane_runner_svc.process.host.ADOPT_SECONDS", 0.2)
    assert await rig.host.adopt([rig.key()]) == {}
    assert rig.host.is_alive(rig.key())
    await rig.host.stop(rig.key(), grace_seconds=5)
    os.kill(shim, signal.SIGCONT)
    assert (await asyncio.wait_for(rig.ends.get(), 10)).signal == signal.SIGTERM
