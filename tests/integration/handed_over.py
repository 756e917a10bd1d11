"""The processes of workers and on_success commands whose programs run in the test.

Each is a shell that hands its token over, as a puppet's is, and waits to be told its exit code.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path

from lane_runner_svc.process import AttemptKey

LOOK_SECONDS = 0.01
_PROGRAM = """#!/bin/sh
me="$1/$LANEWARDEN_ATTEMPT_ID"
mkdir -p "$me"
mkfifo "$me/end"
printf '%s\\n' "$$" "$LANEWARDEN_REASON" "$LANEWARDEN_SOCKET" "$LANEWARDEN_TOKEN" "$LANEWARDEN_IDEMPOTENCY_KEY" > "$me/draft"
mv "$me/draft" "$me/started"
read -r code < "$me/end"
exit "$code"
"""


class Started:
    """One process, by what it has handed over."""

    def __init__(self, key: AttemptKey, directory: Path) -> None:
        self.key = key
        self._end = directory / "end"
        said = (directory / "started").read_text().splitlines()
        pid, self.reason, self.socket, self.token, self.idempotency_key = said
        self.gone = asyncio.Event()
        try:
            self._process = os.pidfd_open(int(pid))
        except ProcessLookupError:
            self.gone.set()
        else:
            asyncio.get_running_loop().add_reader(self._process, self.close)

    def alive(self) -> bool:
        """Whether it runs, by the kernel's word."""
        return not self.gone.is_set() and not select.select([self._process], [], [], 0)[0]

    def kill(self) -> None:
        """SIGKILL, unless it has ended."""
        if not self.gone.is_set():
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._process, signal.SIGKILL)

    async def end(self, code: int) -> None:
        """Let it exit."""
        while not self.gone.is_set():
            with contextlib.suppress(OSError):  # it does not wait for its end yet
                gate = os.open(self._end, os.O_WRONLY | os.O_NONBLOCK)
                os.write(gate, f"{code}\n".encode())
                os.close(gate)
                return
            await asyncio.sleep(LOOK_SECONDS)

    def close(self) -> None:
        """It has ended, or nobody wants to know any more."""
        if not self.gone.is_set():
            asyncio.get_running_loop().remove_reader(self._process)
            os.close(self._process)
            self.gone.set()


class Processes:
    """Every process that was started below a directory. ``run`` does what one of them does, and returns its exit code;
    ``on_wrong`` is told what was found wrong.
    """

    def __init__(
        self, directory: Path, run: Callable[[Started], Awaitable[int]], on_wrong: Callable[[AssertionError], None]
    ) -> None:
        self._meeting = directory / "workers"
        self._meeting.mkdir(parents=True)
        self._program = directory / "program"
        self.let_launches_fail(False)
        self._program.chmod(0o700)
        self.argv = (str(self._program), str(self._meeting))
        self._run = run
        self._on_wrong = on_wrong
        self._started: dict[AttemptKey, Started] = {}
        self._jobs: set[asyncio.Task[None]] = set()

    def let_launches_fail(self, fail: bool) -> None:
        """Have a program that cannot be started, or one that can."""
        self._program.write_text("#!/nonexistent\n" if fail else _PROGRAM)

    def look(self) -> list[Started]:
        """Every process, oldest first. What is new begins to run its program."""
        for path in sorted(self._meeting.glob("*/*/*/started"), key=lambda path: path.stat().st_mtime_ns):
            task_id, epoch, attempt = path.parent.relative_to(self._meeting).parts
            key = AttemptKey(task_id=task_id, epoch=int(epoch), attempt=int(attempt))
            if key not in self._started:
                if any(each.alive() for each in self.of(task_id)):
                    self._on_wrong(AssertionError(f"two workers of one task (I5): {key} while another is alive"))
                process = self._started[key] = Started(key, path.parent)
                job = asyncio.ensure_future(self._follow(process))
                self._jobs.add(job)
                job.add_done_callback(self._jobs.discard)
        return list(self._started.values())

    def of(self, task_id: str) -> list[Started]:
        """Those of a task, as of the last look."""
        return [each for each in self._started.values() if each.key.task_id == task_id]

    async def _follow(self, process: Started) -> None:
        """Do what the process does, unless it ends before."""
        program = asyncio.ensure_future(self._run(process))
        gone = asyncio.ensure_future(process.gone.wait())
        try:
            await asyncio.wait((program, gone), return_when=asyncio.FIRST_COMPLETED)
            if program.done():
                await process.end(program.result())
        finally:
            program.cancel()
            gone.cancel()

    async def close(self) -> None:
        """Leave none behind."""
        for job in self._jobs:
            job.cancel()
        await asyncio.gather(*self._jobs, return_exceptions=True)
        for process in self._started.values():
            process.kill()
            process.close()
