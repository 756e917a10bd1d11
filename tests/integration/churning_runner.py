"""A runner whose workers are launched, killed and stopped without end, itself to be killed at any instant.

``python churning_runner.py DIRECTORY LIFE LANES ATTEMPTS``: each lane runs the attempts of one task, one after the other,
until it has had ATTEMPTS of them; then the process exits with 0. What has been claimed and what has ended stands in a
journal per lane, as a store would have it, so that the next life adopts what this one left.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from pathlib import Path
from random import Random

from lane_runner_svc.process import (
    AttemptKey,
    ExitKind,
    ExitRecord,
    LaunchFailed,
    LaunchSpec,
    ProcessHost,
    Spawner,
    WorkerIdentity,
)
from lane_runner_svc.process.kernel import start_ticks
from lanewarden import cgroups
from tests.integration.process_kit import shim_pid

PREAMBLE = """
exec 9>>"$1.lock"
flock -n 9 || echo "$LANEWARDEN_ATTEMPT_ID" >> "$1.overlaps"
echo "$LANEWARDEN_ATTEMPT_ID" >> "$1.runs"
"""
"""Every descendant inherits descriptor 9, so the lock is held until the last process of the attempt is gone."""
WORKERS = (
    "exit 3",
    "exec sleep 1000",
    "sleep 1000 & wait",
    "trap '' TERM; setsid sleep 1000 & sleep 1000 & wait; wait",
    "(setsid sh -c 'sleep 1000 & exit' &) ; exec sleep 1000",
    "setsid sh -c 'kill -STOP $$; sleep 1000' & kill -STOP $$; sleep 1000",
)
FATES = ("stop", "stop", "stop", "kill worker", "kill worker", "kill shim", "kill spawner", "kill shim and spawner")
PATIENCE_SECONDS = 60.0


class Lane:
    """One task and its journal."""

    def __init__(self, directory: Path, number: int) -> None:
        self.task_id = f"{directory.name}-{number}"
        self.evidence = directory / f"lane-{number}"
        self._journal = directory / f"lane-{number}.journal"

    def unended(self) -> tuple[int, bool]:
        """The latest attempt that was claimed, and whether its end is still to be heard of."""
        lines = self._journal.read_text().split("\n")[:-1] if self._journal.exists() else []
        claimed = [line for line in lines if line.startswith("claimed")]
        return len(claimed), len(claimed) > len(lines) - len(claimed)

    def note(self, line: str) -> None:
        fd = os.open(self._journal, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.write(fd, f"{line}\n".encode())
        os.close(fd)

    def key(self, attempt: int) -> AttemptKey:
        return AttemptKey(task_id=self.task_id, epoch=1, attempt=attempt)


class Runner:
    """One life."""

    def __init__(self, directory: Path, life: int) -> None:
        self._directory = directory
        self._random = Random(f"{directory.name} {life}")
        self._ends: dict[AttemptKey, asyncio.Future[ExitRecord]] = {}
        self._spawner = Spawner()
        self._spawner.start()
        parent = cgroups.find().path if life % 2 else None
        self._host = ProcessHost(
            directory / "attempts", on_exit=self._on_exit, spawner=self._spawner, cgroup_parent=parent
        )

    def _on_exit(self, record: ExitRecord) -> None:
        end = self._end(record.key)
        if not end.done():
            end.set_result(record)

    def _end(self, key: AttemptKey) -> asyncio.Future[ExitRecord]:
        return self._ends.setdefault(key, asyncio.get_running_loop().create_future())

    async def run(self, lanes: int, attempts: int) -> None:
        """Until every lane has had its attempts."""
        await asyncio.gather(*(self._churn(Lane(self._directory, number), attempts) for number in range(lanes)))
        await self._host.close()
        self._spawner.close()

    async def _churn(self, lane: Lane, attempts: int) -> None:
        attempt, unended = lane.unended()
        if unended:
            key = lane.key(attempt)
            news = (await self._host.adopt([key]))[key]
            if isinstance(news, WorkerIdentity):
                await self._meet_fate(key)
                news = await asyncio.wait_for(self._end(key), PATIENCE_SECONDS)
            lane.note(f"ended {news.kind.name}")
        while attempt < attempts:
            attempt += 1
            lane.note(f"claimed {attempt}")
            lane.note(f"ended {await self._one(lane, lane.key(attempt))}")

    async def _one(self, lane: Lane, key: AttemptKey) -> str:
        script = PREAMBLE + self._random.choice(WORKERS)
        env = {name: os.environ[name] for name in ("PATH", "CHURN")}
        argv = ("sh", "-c", script, "sh", str(lane.evidence))
        launch = asyncio.create_task(
            self._host.launch(LaunchSpec(key=key, argv=argv, cwd="/", env=env, stop_grace_seconds=0.05))
        )
        if self._random.random() < 0.7:
            await asyncio.wait([launch])
        await asyncio.sleep(self._random.uniform(0, 0.03))  # the instant of the fate, not a wait for anything
        await self._meet_fate(key)
        try:
            await launch
        except LaunchFailed:
            return ExitKind.NEVER_STARTED.name
        return (await asyncio.wait_for(self._end(key), PATIENCE_SECONDS)).kind.name

    async def _meet_fate(self, key: AttemptKey) -> None:
        fate = self._random.choice(FATES)
        if "worker" in fate and (identity := self._host.identity(key)):
            kill(identity.pid, identity.start_ticks)
        if "shim" in fate:
            with contextlib.suppress(AssertionError, OSError):  # it has none yet, or no more
                pid = shim_pid(key.directory_under(self._directory / "attempts"))
                if pid != os.getpid():  # this host settles the attempt, and has its lock
                    kill(pid, start_ticks(pid))
        if "spawner" in fate and self._spawner.pid is not None:
            kill(self._spawner.pid, start_ticks(self._spawner.pid))
        # Whatever happened, it may also be stopped; without that a sleeping worker would have no end.
        await self._host.stop(key, grace_seconds=self._random.choice((0, 0.05)))


def kill(pid: int, ticks: int | None) -> None:
    """SIGKILL to the process that started then, and to no other."""
    with contextlib.suppress(ProcessLookupError):
        process = os.pidfd_open(pid)
        if ticks is not None and start_ticks(pid) == ticks:
            signal.pidfd_send_signal(process, signal.SIGKILL)
        os.close(process)


if __name__ == "__main__":
    asyncio.run(Runner(Path(sys.argv[1]), int(sys.argv[2])).run(int(sys.argv[3]), int(sys.argv[4])))
