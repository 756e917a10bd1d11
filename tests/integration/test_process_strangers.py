"""A stored pid that has become somebody else's: reclaimed at once, and no signal reaches the stranger.

The strangers block every signal, so that one that reached them would be pending still. For each guard there is a mutant
without it under which the same check fails; the control is the worker that really is the recorded one.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from lane_runner_svc.process import ExitKind, ExitRecord, kernel, survivors
from lane_runner_svc.process.kernel import boot_id
from tests.integration.pair import eventually
from tests.integration.process_kit import Bystander, Rig

ROOT = Path(__file__).parents[2]
RECLAIMED_SECONDS_MAX = 1.0
NOBODY = 2**22 + 1
"""Larger than any pid can be."""


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    made = Rig(tmp_path)
    yield made
    await made.close()


@pytest.fixture
def stranger() -> Iterator[Bystander]:
    process = Bystander()
    yield process
    process.end()


async def adopt_fabricated(rig: Rig, pid: int, start_ticks: int, boot: str) -> None:
    """Adopt an attempt whose shim is gone and whose worker.json says this; it must be reclaimed at once."""
    rig.directory().mkdir(parents=True)
    worker = {"pid": pid, "start_ticks": start_ticks, "boot_id": boot, "launch_id": "0" * 32}
    (rig.directory() / "worker.json").write_text(json.dumps(worker))
    began = time.monotonic()
    news = (await rig.host.adopt([rig.key()]))[rig.key()]
    assert isinstance(news, ExitRecord)
    assert (news.kind, news.leftovers_killed) == (ExitKind.SHIM_LOST, 0)
    assert time.monotonic() - began < RECLAIMED_SECONDS_MAX


async def another_program(rig: Rig) -> None:
    """(a) The stored pid now belongs to a program that started later."""
    stranger = Bystander()
    try:
        await adopt_fabricated(rig, stranger.pid, stranger.start_ticks - 1, boot_id())
        assert stranger.untouched()
    finally:
        stranger.end()


async def another_boot(rig: Rig) -> None:
    """(c) The host was rebooted: pid and start time agree by chance, the boot does not."""
    stranger = Bystander()
    try:
        await adopt_fabricated(rig, stranger.pid, stranger.start_ticks, "another-boot")
        assert stranger.untouched()
    finally:
        stranger.end()


async def another_launch(rig: Rig) -> None:
    """A process of an attempt by the same name under another state directory: its launch differs."""
    marks = {survivors.ATTEMPT_MARK: str(rig.key()), survivors.LAUNCH_MARK: "f" * 32}
    stranger = Bystander(env=marks)
    try:
        await adopt_fabricated(rig, NOBODY, 1, boot_id())
        assert stranger.untouched()
    finally:
        stranger.end()


def only_the_pid(patch: pytest.MonkeyPatch) -> None:
    """Whoever has the stored pid is the worker."""
    patch.setattr(survivors, "_is_recorded", lambda identity, pid, _ticks: pid == identity.pid)


def any_boot(patch: pytest.MonkeyPatch) -> None:
    """What was stored under another boot is believed."""
    patch.setattr(survivors.kernel, "boot_id", lambda: "another-boot")


def only_the_attempt(patch: pytest.MonkeyPatch) -> None:
    """Whoever carries the attempt's name is of this launch."""
    patch.setattr(survivors, "_has_marks", _has_attempt_mark)


def _has_attempt_mark(pid: int, marks: dict[str, str]) -> bool:
    wanted = f"{survivors.ATTEMPT_MARK}={marks[survivors.ATTEMPT_MARK]}".encode()
    return wanted in survivors.kernel.read_proc(f"/proc/{pid}/environ").split(b"\0")


Check = Callable[[Rig], Awaitable[None]]
Mutant = Callable[[pytest.MonkeyPatch], None]
GUARDS: list[tuple[Check, Mutant]] = [
    (another_program, only_the_pid),
    (another_boot, any_boot),
    (another_launch, only_the_attempt),
]


@pytest.mark.parametrize("check", [check for check, _ in GUARDS], ids=lambda check: check.__name__)
async def test_p03_no_signal_reaches_a_stranger(rig: Rig, check: Check) -> None:
    """(a) another program, (c) a rebooted host, and an attempt of the same name elsewhere: reclaimed within a second."""
    await check(rig)


@pytest.mark.parametrize(("check", "mutant"), GUARDS, ids=lambda each: each.__name__)
async def test_p03_a_host_without_the_guard_fails_the_check(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, check: Check, mutant: Mutant
) -> None:
    """Pid-only liveness and its kind: the stranger is killed, and the check says so."""
    mutant(monkeypatch)
    with pytest.raises(AssertionError):
        await check(rig)


@pytest.mark.parametrize("mutant", [None, *(mutant for _, mutant in GUARDS)])
async def test_p03_the_recorded_worker_is_ended(
    rig: Rig, stranger: Bystander, monkeypatch: pytest.MonkeyPatch, mutant: Mutant | None
) -> None:
    """The control: pid, start time and boot all agree, so it is ours, and is ended, on every build."""
    if mutant is not None:
        mutant(monkeypatch)
    rig.directory().mkdir(parents=True)
    boot = survivors.kernel.boot_id()
    worker = {"pid": stranger.pid, "start_ticks": stranger.start_ticks, "boot_id": boot, "launch_id": ""}
    (rig.directory() / "worker.json").write_text(json.dumps(worker))
    await rig.host.adopt([rig.key()])
    assert stranger.end() == -signal.SIGKILL


async def test_a_survivor_that_cannot_be_told_for_long_is_waited_for(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a machine that is short of time a process may be on its way into another program for as long as one looks: the
    attempt has not ended while there is one that may be its own.
    """
    launch, looks = "a" * 32, iter(range(10))
    marks = {survivors.ATTEMPT_MARK: str(rig.key()), survivors.LAUNCH_MARK: launch}
    survivor = Bystander(env=marks)
    told = survivors._has_marks

    def not_yet(pid: int, marks: dict[str, str]) -> bool | None:
        return None if pid == survivor.pid and next(looks, None) is not None else told(pid, marks)

    monkeypatch.setattr(survivors, "_has_marks", not_yet)
    monkeypatch.setattr(survivors, "_SCANS_MAX", 3)
    rig.directory().mkdir(parents=True)
    worker = {"pid": NOBODY, "start_ticks": survivor.start_ticks, "boot_id": boot_id(), "launch_id": launch}
    (rig.directory() / "worker.json").write_text(json.dumps(worker))
    await rig.host.adopt([rig.key()])
    assert survivor.end() == -signal.SIGKILL


HEADLESS = """
import ctypes, threading, time
threading.Thread(target=time.sleep, args=(1000,)).start()
print("up", flush=True)
ctypes.CDLL(None).pthread_exit(None)
"""


async def test_a_survivor_whose_first_thread_has_ended_is_ended(rig: Rig) -> None:
    """It looks like a zombie, shows no environment, and lives."""
    launch = "a" * 32
    marks = {survivors.ATTEMPT_MARK: str(rig.key()), survivors.LAUNCH_MARK: launch}
    survivor = subprocess.Popen([sys.executable, "-c", HEADLESS], env=marks, stdout=subprocess.PIPE)
    try:
        assert survivor.stdout is not None
        assert survivor.stdout.readline() == b"up\n"
        eventually(lambda: kernel.stat_fields(survivor.pid)[0] == b"Z", "its first thread has ended")
        rig.directory().mkdir(parents=True)
        worker = {"pid": NOBODY, "start_ticks": 1, "boot_id": boot_id(), "launch_id": launch}
        (rig.directory() / "worker.json").write_text(json.dumps(worker))
        await rig.host.adopt([rig.key()])
        assert survivor.wait(10) == -signal.SIGKILL
    finally:
        survivor.kill()


async def test_nobody_is_waited_for_who_is_older_than_the_worker(
    rig: Rig, stranger: Bystander, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control: a stranger that can never be told holds nothing up, since it was there before."""
    monkeypatch.setattr(survivors, "_has_marks", lambda pid, marks: None if pid == stranger.pid else False)
    monkeypatch.setattr(survivors, "_SCANS_MAX", 3)
    await adopt_fabricated(rig, NOBODY, stranger.start_ticks + 1, boot_id())
    assert stranger.untouched()


RUNNER = """
import asyncio, json, os, signal, sys
from pathlib import Path
signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
from lane_runner_svc.process import AttemptKey, ProcessHost, Spawner, survivors
from lane_runner_svc.process.kernel import boot_id, start_ticks
from tests.integration.process_kit import no_signal_reached

async def main(attempts_dir):
    key = AttemptKey(task_id="task", epoch=1, attempt=1)
    directory = key.directory_under(attempts_dir)
    directory.mkdir(parents=True)
    me = {"pid": os.getpid(), "start_ticks": start_ticks(os.getpid()), "boot_id": boot_id(), "launch_id": "0" * 32}
    (directory / "worker.json").write_text(json.dumps(me))
    host = ProcessHost(attempts_dir, on_exit=print, spawner=Spawner())
    record = (await host.adopt([key]))[key]
    print(record.kind.name, record.leftovers_killed, no_signal_reached(os.getpid()))

if sys.argv[2:]:
    survivors._self_and_ancestors = set
asyncio.run(main(Path(sys.argv[1])))
"""
"""A runner that finds its own pid, down to the start time, where the worker's was stored."""


def test_p03_the_pid_of_the_new_runner_itself(tmp_path: Path) -> None:
    """(b) The stored pid is the new runner's: it is reclaimed, and the runner signals itself not even once. A mutant that
    does not spare itself is dead of it.
    """
    for number, (mutant, stdout, code) in enumerate(
        [((), "SHIM_LOST 0 True\n", 0), (("mutant",), "", -signal.SIGKILL)],
    ):
        command = [sys.executable, "-c", RUNNER, str(tmp_path / str(number)), *mutant]
        runner = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, cwd=ROOT)
        assert (runner.stdout, runner.returncode) == (stdout, code), runner.stderr
