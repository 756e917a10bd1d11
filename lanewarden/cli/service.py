"""One service as a child process of `up`: started, watched, started again when it crashes, its log kept."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

from lanewarden.cli import tied
from lanewarden.cli.state import NotUp
from lanewarden.cli.terminal import one_line

RESTARTS_MAX: Final = 5
RESTARTS_WINDOW_SECONDS: Final = 60.0
RESTART_DELAY_SECONDS_MIN: Final = 0.1
LOG_BYTES_MAX: Final = 16 * 1024 * 1024
"""Of a log file; the one before it is kept beside it."""
LINE_BYTES_MAX: Final = 64 * 1024
STOP_SECONDS_MAX: Final = 660.0
"""Longer than the longest stop grace of a task and the draining after it."""

_SHOWN_LEVELS: Final = frozenset({"WARNING", "ERROR", "CRITICAL"})
_PLUMBING: Final = frozenset(
    {"time", "level", "logger", "message", "service", "instance", "trace_id", "span_id", "exception"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceSpec:
    """What to run: a module with its arguments, where it listens, where its log goes.

    ``prints``: its standard output is that of `up`.
    """

    name: str
    module: str
    arguments: tuple[str, ...]
    address: str
    log: Path
    prints: bool = False


class Service:
    """A service that is kept running by :meth:`keep` until :meth:`stop`. ``say`` gets one line per event for people."""

    def __init__(self, spec: ServiceSpec, say: Callable[[str], None]) -> None:
        self.spec = spec
        self.ready = False
        self._say = say
        self._process: asyncio.subprocess.Process | None = None
        self._stopping = asyncio.Event()
        self._starts = 0
        self._last_words = ""

    async def keep(self) -> None:
        """Run it, again and again, until told to stop.

        Raises:
            NotUp: it ended before it was ever ready, or more than RESTARTS_MAX times within the window.
        """
        crashes: deque[float] = deque(maxlen=RESTARTS_MAX)
        while True:
            how = await self._run_once()
            if self._stopping.is_set():
                return
            said = f": {self._last_words}" if self._last_words else f"; see {self.spec.log}"
            if not self.ready:
                raise NotUp(f"the {self.spec.name} could not start{said}")
            now = time.monotonic()
            recent = [each for each in crashes if now - each < RESTARTS_WINDOW_SECONDS]
            if len(recent) == RESTARTS_MAX:
                raise NotUp(f"the {self.spec.name} ended {RESTARTS_MAX + 1} times within a minute; giving up{said}")
            crashes.append(now)
            delay_seconds = RESTART_DELAY_SECONDS_MIN * 2.0 ** len(recent)
            self._say(f"{self.spec.name}: {how}; starting it again in {delay_seconds:g} s")
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), delay_seconds)
                return

    async def stop(self) -> None:
        """Have it stop, and return when it has; after STOP_SECONDS_MAX it is killed."""
        self._stopping.set()
        process = self._process
        if process is None or process.returncode is not None:
            return
        self._signal(signal.SIGTERM)
        try:
            await asyncio.wait_for(process.wait(), STOP_SECONDS_MAX)
        except TimeoutError:
            self.crash()
            await process.wait()

    def crash(self, *, for_good: bool = False) -> None:
        """Kill it with SIGKILL; :meth:`keep` starts it again, unless it is ``for_good``."""
        if for_good:
            self._stopping.set()
        self._signal(signal.SIGKILL)

    def report(self) -> Mapping[str, Any]:
        """Facts for `status`."""
        process = self._process
        running = process is not None and process.returncode is None
        return {
            "address": self.spec.address,
            "pid": process.pid if process is not None and running else None,
            "restarts": max(0, self._starts - 1),
            "log": str(self.spec.log),
        }

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.returncode is None:
            # A child that has ended and is not reaped yet keeps its process id, so this cannot hit a stranger.
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)

    async def _run_once(self) -> str:
        self._process = process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", tied.__file__, str(os.getpid()), self.spec.module, *self.spec.arguments),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=None if self.spec.prints else asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is for `up`, which then stops the two in their order
        )
        self._starts += 1
        if self._stopping.is_set():
            self._signal(signal.SIGTERM)
        assert process.stderr is not None
        with _Log(self.spec.log) as log:
            await self._pump(process.stderr, log)
        code = await process.wait()
        return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"

    async def _pump(self, source: asyncio.StreamReader, log: _Log) -> None:
        line = b""
        while data := await source.read(LINE_BYTES_MAX):
            log.write(data)
            *whole, line = (line + data).split(b"\n")
            for each in whole:
                self._notice(each)
            line = line[:LINE_BYTES_MAX]

    def _notice(self, line: bytes) -> None:
        text = line.decode("utf-8", "replace").strip()
        if not text:
            return
        try:
            record = json.loads(text)
        except ValueError:
            record = None
        if not isinstance(record, dict):  # what a service says before its log is set up, or a traceback
            self._last_words = one_line(text)
            return
        if record.get("level") in _SHOWN_LEVELS:
            facts = " ".join(f"{key}={value}" for key, value in record.items() if key not in _PLUMBING)
            self._last_words = one_line(f"{record.get('message', '')} {facts}".strip())
            self._say(f"{self.spec.name}: {self._last_words}")


class _Log:
    """A file that begins anew when it is full, with the one before kept."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: IO[bytes] | None = None

    def __enter__(self) -> _Log:
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._file = self._path.open("ab", buffering=0)
        return self

    def __exit__(self, *exc: object) -> None:
        if self._file is not None:
            self._file.close()

    def write(self, data: bytes) -> None:
        """Append; a disk that is full loses log, not the service."""
        assert self._file is not None
        with contextlib.suppress(OSError):
            if self._file.tell() > LOG_BYTES_MAX:
                self._file.close()
                self._path.replace(self._path.with_name(f"{self._path.name}.1"))
                self._file = self._path.open("ab", buffering=0)
            self._file.write(data)
