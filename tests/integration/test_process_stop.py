"""Ending workers: the stop ladder, and the sweep of whatever a worker leaves behind."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from lane_runner_svc.process import ExitKind
from lane_runner_svc.process.kernel import stat_fields
from tests.integration.process_kit import Rig, shim_pid, until

GRACE_SECONDS = 0.5
TREE_SECONDS = GRACE_SECONDS + 3.0

DEAF = "trap '' TERM; echo up; while :; do sleep 1000; done"
"""A worker that ignores SIGTERM, and so do its children."""
DEAF_GRANDCHILD = "trap '' TERM; setsid sleep 1000 & echo up; while :; do sleep 1000; done"
"""The same with a grandchild in a session of its own."""
DAEMON = """
trap '' TERM; setsid sh -c '(exec sleep 1000 < /dev/null > /dev/null 2>&1 &)'
echo up; while :; do sleep 1000; done
"""
"""The same with a daemon: forked twice, in a session of its own, nothing of ours open."""
STOPPED = """
trap '' TERM; setsid sh -c 'kill -STOP $$; exec sleep 1000' &
until grep -q '^State:.T' /proc/$!/status; do :; done
echo up; while :; do sleep 1000; done
"""
"""The same with a grandchild that is stopped, in a session of its own."""
FORKS_ON = """
import os, signal, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork() == 0:
    if sys.argv[1] == "away":
        os.setsid()
    while True:
        if os.fork():
            os._exit(0)
print("up", flush=True)
signal.pause()
"""
"""A chain in which every process forks the next and ends, so that no pid lives long enough to be listed twice."""
WIDE = """
import os, signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
for _ in range(60):
    if os.fork() == 0:
        os.setsid()
        signal.pause()
print("up", flush=True)
signal.pause()
"""
TREES = {
    "ignores SIGTERM": ["sh", "-c", DEAF],
    "setsid grandchild": ["sh", "-c", DEAF_GRANDCHILD],
    "daemon": ["sh", "-c", DAEMON],
    "stopped grandchild": ["sh", "-c", STOPPED],
    "forks on in its group": [sys.executable, "-c", FORKS_ON, "here"],
    "forks on in a session of its own": [sys.executable, "-c", FORKS_ON, "away"],
    "sixty sessions": [sys.executable, "-c", WIDE],
}


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    made = Rig(tmp_path)
    yield made
    await made.close()


async def up(rig: Rig) -> None:
    await until(lambda: "up" in rig.log())


@pytest.mark.parametrize("name", TREES)
@pytest.mark.parametrize("stopped", [False, True], ids=["running", "SIGSTOPped"])
async def test_p04_tree_is_empty_within_grace_and_three_seconds(rig: Rig, name: str, stopped: bool) -> None:
    """Whatever the tree does, it is gone within grace + 3 s of the stop, before the end is told; no zombie stays."""
    identity = await rig.host.launch(rig.spec(*TREES[name]))
    await up(rig)
    if stopped:
        os.kill(identity.pid, signal.SIGSTOP)
        await until(lambda: stat_fields(identity.pid)[0] == b"T")
    shim = shim_pid(rig.directory())
    asked = time.monotonic()
    await rig.host.stop(rig.key(), grace_seconds=GRACE_SECONDS)
    record = await rig.end()
    assert time.monotonic() - asked < TREE_SECONDS
    assert rig.alive() == []
    assert (record.kind, record.signal, record.stop_requested) == (ExitKind.SIGNALED, signal.SIGKILL, True)
    assert not Path(f"/proc/{identity.pid}").exists()
    await until(lambda: not Path(f"/proc/{shim}").exists())


async def test_p04_stopped_tree_hears_the_polite_signal(rig: Rig) -> None:
    """A SIGSTOPped worker that handles SIGTERM is continued, and ends its own way."""
    identity = await rig.host.launch(rig.spec("sh", "-c", "trap 'exit 9' TERM; echo up; while :; do sleep 0.01; done"))
    await up(rig)
    os.kill(identity.pid, signal.SIGSTOP)
    await until(lambda: stat_fields(identity.pid)[0] == b"T")
    await rig.host.stop(rig.key(), grace_seconds=10)
    assert (await rig.end()).code == 9


async def test_stop_may_only_come_sooner(rig: Rig) -> None:
    """A second stop with a shorter grace cuts the first one short; a longer one changes nothing."""
    await rig.host.launch(rig.spec("sh", "-c", DEAF))
    await up(rig)
    asked = time.monotonic()
    for grace_seconds in (600, 0.2, 600):
        await rig.host.stop(rig.key(), grace_seconds=grace_seconds)
    assert (await rig.end()).signal == signal.SIGKILL
    assert time.monotonic() - asked < TREE_SECONDS
    await rig.host.stop(rig.key(), grace_seconds=0)  # nothing to do, and no error


async def test_stop_during_the_launch_is_not_lost(rig: Rig) -> None:
    """A stop asked while the launch is under way is carried out once the worker runs."""
    launch = asyncio.create_task(rig.host.launch(rig.spec("sleep", "1000")))
    await asyncio.sleep(0)
    await rig.host.stop(rig.key(), grace_seconds=5)
    await launch
    record = await rig.end()
    assert (record.signal, record.stop_requested) == (signal.SIGTERM, True)


async def test_sigterm_to_the_shim_runs_the_ladder(rig: Rig) -> None:
    """A host that shuts down by signalling every process ends workers the ordinary way; SIGHUP and SIGINT do not."""
    await rig.host.launch(rig.spec("sh", "-c", DEAF, grace_seconds=GRACE_SECONDS))
    await up(rig)
    shim = shim_pid(rig.directory())
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        os.kill(shim, number)
    record = await rig.end()
    assert (record.kind, record.signal, record.stop_requested) == (ExitKind.SIGNALED, signal.SIGKILL, True)


async def test_leftovers_of_a_worker_that_ends_by_itself_are_ended(rig: Rig, tmp_path: Path) -> None:
    """Background processes do not outlive their worker, even deaf ones, and its end is known within a second."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    script = f"(trap '' TERM; echo up; exec setsid sleep 1000) & sleep 1000 & read x < {fifo}; exit 5"
    await rig.host.launch(rig.spec("sh", "-c", script))
    await up(rig)
    fifo.write_text("end\n")
    record = await rig.end()
    assert time.time() * 1000 - record.ended_wall_ms < 1000
    assert (record.code, record.leftovers_killed, record.stop_requested) == (5, 2, False)
    assert rig.alive() == []


async def test_leftovers_may_end_politely(rig: Rig, tmp_path: Path) -> None:
    """A leftover that handles SIGTERM gets to do so, and its last words are kept."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    child = tmp_path / "child"
    child.write_text(
        "import signal\nsignal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])\nprint('up', flush=True)\n"
        "signal.sigwait([signal.SIGTERM])\nprint('bye')"
    )
    await rig.host.launch(rig.spec("sh", "-c", f"setsid {sys.executable} {child} & read x < {fifo}"))
    await up(rig)
    fifo.write_text("end\n")
    record = await rig.end()
    assert (record.kind, rig.log()) == (ExitKind.EXITED, "up\nbye\n")
    assert rig.alive() == []


async def test_orphans_are_reaped_while_the_worker_runs(rig: Rig) -> None:
    """Orphaned grandchildren that end do not pile up as zombies under the shim."""
    await rig.host.launch(rig.spec("sh", "-c", "for i in 1 2 3 4 5; do (true &); done; echo up; exec sleep 1000"))
    await up(rig)
    children = Path(f"/proc/{shim_pid(rig.directory())}/task/{shim_pid(rig.directory())}/children")
    await until(lambda: len(children.read_text().split()) == 1)


async def test_worker_killed_from_outside_is_known_within_a_second(rig: Rig) -> None:
    """P01, process side: the end of a worker killed with SIGKILL is told within a second."""
    identity = await rig.host.launch(rig.spec("sleep", "1000"))
    killed = time.monotonic()
    os.kill(identity.pid, signal.SIGKILL)
    record = await rig.end()
    assert time.monotonic() - killed < 1.0
    assert (record.kind, record.code, record.signal) == (ExitKind.SIGNALED, None, signal.SIGKILL)
