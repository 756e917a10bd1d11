"""Reads the bounded logs that the shims write."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from lane_runner_svc.runner import Runner
from lane_runner_svc.store import tasks
from lane_runner_svc.work.session import AttemptRef
from lanewarden.errors import invalid
from lanewarden.store import Connection
from lanewarden.v1.lane_runner_service_pb2 import TailLogResponse

PIECE_BYTES_MAX: Final = 64 << 10
POLL_SECONDS: Final = 0.1
"""How often a followed log is looked at; nobody looks at a log that nobody follows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Look:
    """Which attempt to show now, and whether more may come: of it, or of the task."""

    ref: AttemptRef
    attempt_over: bool
    task_over: bool


class LogReader:
    """Sends what an attempt has written, oldest first, and follows it if asked to."""

    def __init__(self, runner: Runner, log_path: Callable[[AttemptRef], Path]) -> None:
        self._runner = runner
        self._log_path = log_path

    async def tail(self, task_id: str, attempt: int, *, follow: bool) -> AsyncIterator[TailLogResponse]:
        """The output of one attempt, or of the latest and, when followed, those after it.

        Raises:
            Refusal: TASK_UNKNOWN; REQUEST_INVALID for an attempt that has not been.
        """
        shown, log = None, None
        while True:
            look = self._look(task_id, attempt)
            if look.ref.attempt and look.ref != shown:
                for piece in self._rest(log, shown):
                    yield piece
                shown, log = look.ref, _Log(self._log_path(look.ref))
            for piece in self._rest(log, shown):
                yield piece
            if not follow or look.task_over or (attempt and look.attempt_over):
                return
            await self._runner.clock.sleep(POLL_SECONDS)

    def _rest(self, log: _Log | None, ref: AttemptRef | None) -> Iterator[TailLogResponse]:
        if log is not None and ref is not None:
            for data in log.pieces():
                yield TailLogResponse(attempt=ref.attempt, data=data)

    def _look(self, task_id: str, attempt: int) -> _Look:
        def look(reader: Connection) -> _Look:
            task = tasks.load(reader, task_id)
            if attempt > task.attempt:
                raise invalid(("attempt", f"task {task_id} has had {task.attempt} attempts so far"))
            ref = AttemptRef(task_id=task_id, epoch=task.epoch, attempt=attempt or task.attempt)
            stored = tasks.load_attempt(reader, task_id, task.epoch, ref.attempt)
            return _Look(ref=ref, attempt_over=bool(stored and stored.ended), task_over=task.terminal)

        return self._runner.read(look)


class _Log:
    """One attempt's log: what was rotated out, then what is being written, across further rotations."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: BinaryIO | None = None

    def pieces(self) -> Iterator[bytes]:
        """Everything that has been written since the last call."""
        if self._file is None and not self._open():
            return
        while True:
            assert self._file is not None
            while data := self._file.read(PIECE_BYTES_MAX):
                yield data
            if not self._rotated():
                return
            self._file.close()
            self._file = self._path.open("rb")

    def _open(self) -> bool:
        """The oldest part that is kept; False before the shim has begun the log."""
        for path in (Path(f"{self._path}.1"), self._path):
            try:
                self._file = path.open("rb")
            except FileNotFoundError:
                continue
            return True
        return False

    def _rotated(self) -> bool:
        """Whether the open file is no longer the one that is written to."""
        assert self._file is not None
        try:
            there = self._path.stat()
        except FileNotFoundError:
            return False
        here = os.fstat(self._file.fileno())
        return (there.st_dev, there.st_ino) != (here.st_dev, here.st_ino)
