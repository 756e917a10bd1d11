"""Worker processes that outlive their runner, as the kernel and the shims would keep them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from random import Random

from lane_runner_svc.process import (
    AttemptKey,
    ExitKind,
    ExitRecord,
    LaunchFailed,
    LaunchSpec,
    OutputTotals,
    WorkerIdentity,
)
from lanewarden.errors import Refusal

SIGKILL = 9
SIGTERM = 15


@dataclass(slots=True)
class Process:
    """One attempt's process; ``record`` is what its shim wrote when it ended."""

    spec: LaunchSpec
    identity: WorkerIdentity
    job: asyncio.Task[int] | None = None
    record: ExitRecord | None = None
    stop_requested: bool = False
    lines: int = 0


class Kernel:
    """What is alive, whoever asks. ``program`` is what every worker runs; it returns the exit code."""

    def __init__(
        self, random: Random, program: Callable[[LaunchSpec], Awaitable[int]], log: Callable[[str], None]
    ) -> None:
        self.random = random
        self.program = program
        self.log = log
        self.processes: dict[AttemptKey, Process] = {}
        self.sealed: set[AttemptKey] = set()
        self.listener: Callable[[ExitRecord], None] | None = None
        self.reader: Callable[[AttemptKey, OutputTotals], None] | None = None
        self.double_workers: list[str] = []
        self.launch_failure = 0.0
        self._pids = 1000

    def alive(self, task_id: str) -> list[Process]:
        return [each for key, each in self.processes.items() if key.task_id == task_id and each.record is None]

    def start(self, spec: LaunchSpec) -> Process:
        if others := self.alive(spec.key.task_id):
            self.double_workers.append(f"{spec.key} while {others[0].spec.key} is alive")
        self._pids += 1
        identity = WorkerIdentity(pid=self._pids, start_ticks=self._pids, boot_id="sim")
        process = Process(spec=spec, identity=identity)
        self.processes[spec.key] = process
        process.job = asyncio.ensure_future(self._run(process))
        self.log(f"kernel: {spec.key} started")
        return process

    async def _run(self, process: Process) -> int:
        code, signal = None, None
        try:
            code = await self.program(process.spec)
        except asyncio.CancelledError:
            signal = SIGTERM if process.stop_requested else SIGKILL
        except Refusal as refusal:  # a worker that is told no ends in error, as a real one would
            self.log(f"kernel: {process.spec.key} was refused: {refusal}")
            code = 1
        key = process.spec.key
        process.record = ExitRecord(
            key=key,
            kind=ExitKind.SIGNALED if signal else ExitKind.EXITED,
            code=code,
            signal=signal,
            stop_requested=process.stop_requested,
            ended_wall_ms=0,
            leftovers_killed=0,
            log_bytes=0,
        )
        self.log(f"kernel: {key} ended, code {code}, signal {signal}")
        if self.listener is not None:
            self.listener(process.record)
        return 0

    def write(self, task_id: str, lines: int) -> None:
        """The worker of a task has written so many lines more."""
        (process,) = self.alive(task_id)
        process.lines += lines
        self.tell(process)

    def tell(self, process: Process) -> None:
        """What a runner that follows the shim hears of the output, and whoever comes to follow it."""
        if self.reader is not None:
            self.reader(process.spec.key, OutputTotals(log_bytes=0, log_lines=process.lines))

    def kill(self, process: Process) -> None:
        if process.job is not None and process.record is None:
            process.job.cancel()


class SimWorkers:
    """The process host of one start of the runner; dead once that start has crashed."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel

    async def launch(self, spec: LaunchSpec) -> WorkerIdentity:
        await asyncio.sleep(self._kernel.random.uniform(0.01, 0.05))
        if spec.key in self._kernel.sealed:
            raise LaunchFailed("the attempt was given up before its launch", "ECANCELED")
        if self._kernel.random.random() < self._kernel.launch_failure:
            raise LaunchFailed("no such program", "ENOENT")
        identity = self._kernel.start(spec).identity
        await asyncio.sleep(self._kernel.random.uniform(0.0, 0.02))
        return identity

    async def stop(self, key: AttemptKey, *, grace_seconds: float) -> None:
        process = self._kernel.processes.get(key)
        if process is not None and process.record is None:
            process.stop_requested = True
            self._kernel.kill(process)

    async def adopt(self, keys: Iterable[AttemptKey]) -> Mapping[AttemptKey, WorkerIdentity | ExitRecord]:
        found: dict[AttemptKey, WorkerIdentity | ExitRecord] = {}
        for key in keys:
            process = self._kernel.processes.get(key)
            if process is None:
                self._kernel.sealed.add(key)
                found[key] = ExitRecord(
                    key=key,
                    kind=ExitKind.NEVER_STARTED,
                    code=None,
                    signal=None,
                    stop_requested=False,
                    ended_wall_ms=0,
                    leftovers_killed=0,
                    log_bytes=0,
                )
            else:
                found[key] = process.record or process.identity
                self._kernel.tell(process)
        return found
