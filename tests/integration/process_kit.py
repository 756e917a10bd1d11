"""What the tests of the process host share: a host with its spawner, and eyes on the kernel's process table."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path

from lane_runner_svc.process import AttemptKey, ExitRecord, LaunchSpec, OutputTotals, ProcessHost, Spawner
from lane_runner_svc.process.kernel import start_ticks

END_SECONDS = 20.0
PATH = os.defpath


class Rig:
    """A process host in ``tmp_path``, and the ends and outputs that it reported."""

    def __init__(
        self,
        tmp_path: Path,
        *,
        spawner: Spawner | None = None,
        task_id: str | None = None,
        cgroup_parent: Path | None = None,
    ) -> None:
        self.attempts_dir = tmp_path / "attempts"
        self.task_id = task_id or f"task-{uuid.uuid4().hex}"
        self.spawner = spawner or Spawner()
        self.spawner.start()
        self.ends: asyncio.Queue[ExitRecord] = asyncio.Queue()
        self.outputs: list[OutputTotals] = []
        self.host = ProcessHost(
            self.attempts_dir,
            on_exit=self.ends.put_nowait,
            spawner=self.spawner,
            on_output=lambda _key, totals: self.outputs.append(totals),
            cgroup_parent=cgroup_parent,
        )

    def key(self, attempt: int = 1) -> AttemptKey:
        return AttemptKey(task_id=self.task_id, epoch=1, attempt=attempt)

    def spec(
        self,
        *argv: str,
        attempt: int = 1,
        cwd: str = "/",
        env: dict[str, str] | None = None,
        grace_seconds: float = 1.0,
        log_bytes_max: int = 1 << 20,
        stop_after_seconds: float | None = None,
    ) -> LaunchSpec:
        return LaunchSpec(
            key=self.key(attempt),
            argv=argv,
            cwd=cwd,
            env={"PATH": PATH} | (env or {}),
            stop_grace_seconds=grace_seconds,
            log_bytes_max=log_bytes_max,
            runner_loss_stop_after_seconds=stop_after_seconds,
        )

    def directory(self, attempt: int = 1) -> Path:
        return self.attempts_dir / self.task_id / f"1-{attempt}"

    def log(self, attempt: int = 1) -> str:
        return self.host.log_path(self.key(attempt)).read_text()

    async def end(self) -> ExitRecord:
        return await asyncio.wait_for(self.ends.get(), END_SECONDS)

    def alive(self) -> list[int]:
        """Living processes that carry the marks of this rig's task."""
        return marked(self.task_id)

    async def runs_only(self, pid: int) -> None:
        """Insist that this process lives, and no other; on its way into its program it shows no mark for a moment."""
        await until(lambda: self.alive() == [pid])

    async def close(self) -> None:
        """Let go, end what the test left running, and insist that nothing is left."""
        await self.host.close()
        self.spawner.close()
        await until(lambda: not kill_all(self.alive()))


class Bystander:
    """A stranger who blocks every signal, so that one sent to him stays pending where the kernel shows it."""

    def __init__(self, *words: str, env: dict[str, str] | None = None, session: bool = False) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _BYSTANDER, *words],
            env={"PATH": PATH} | (env or {}),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=session,
        )
        assert self._process.stdout
        assert self._process.stdout.readline() == b"up\n"
        self.pid = self._process.pid
        self.start_ticks = start_ticks(self.pid) or 0

    def untouched(self) -> bool:
        """Whether no signal has ever reached him: none is pending, he is not stopped, and he lives."""
        return self._process.poll() is None and no_signal_reached(self.pid)

    def end(self) -> int:
        """Let him go; his exit code."""
        self._process.communicate()
        return self._process.returncode


_BYSTANDER = """
import signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
print("up", flush=True)
sys.stdin.read()
"""


def no_signal_reached(pid: int) -> bool:
    """Whether a process that blocks every signal lives, is not stopped, and has none pending, see proc_pid_status(5)."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    status = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
    pending = int(status["SigPnd"], 16) | int(status["ShdPnd"], 16)
    return pending == 0 and status["State"][0] in "RSD"


def marked(task_id: str) -> list[int]:
    """Pids of living processes whose environment names an attempt of ``task_id``."""
    mark = f"LANEWARDEN_ATTEMPT_ID={task_id}/".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                held = (entry / "environ").read_bytes()
            except OSError:
                continue
            if any(variable.startswith(mark) for variable in held.split(b"\0")):
                found.append(int(entry.name))
    return found


def with_variable(variable: str) -> list[int]:
    """Pids of living processes that have the variable, given as NAME=value, in their environment."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and int(entry.name) != os.getpid():
            try:
                held = (entry / "environ").read_bytes().split(b"\0")
            except OSError:
                continue
            if variable.encode() in held:
                found.append(int(entry.name))
    return found


def kill_all(pids: list[int]) -> list[int]:
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    return pids


def shim_pid(directory: Path) -> int:
    """The process that holds an attempt's lock, by the kernel's word."""
    inode = (directory / "shim.lock").stat().st_ino
    for line in Path("/proc/locks").read_text().splitlines():
        fields = line.split()
        if "FLOCK" in fields and fields[-3].endswith(f":{inode}"):
            return int(fields[-4])
    raise AssertionError("nobody holds the lock")


async def until(condition: Callable[[], object], seconds: float = END_SECONDS) -> None:
    """Return once ``condition`` holds; fail when it does not within ``seconds``."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds} s")
        await asyncio.sleep(0.005)
