"""Notifications as lines: one for people on standard output, or one JSON object each in a file."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from supervisor_svc.sinks import SEND_SECONDS, SinkFailed, SinkUnusable
from supervisor_svc.sinks.aside import Aside, cause_of
from supervisor_svc.sinks.lines import line
from supervisor_svc.store.notifications import Notification


class StdoutSink:
    """One line for people on a descriptor, standard output unless another is given."""

    def __init__(self, name: str, *, descriptor: int = 1, seconds: float = SEND_SECONDS) -> None:
        self.name = name
        self._descriptor = descriptor
        self._aside = Aside(seconds)

    async def send(self, notification: Notification) -> None:
        """Write the line; a reader that does not read fails the try and holds up nothing else."""
        data = (line(notification.payload) + "\n").encode()
        await self._aside.run(lambda: _write(self._descriptor, data))


class JsonLinesSink:
    """One JSON object per line at the end of a file. The file is opened anew each time, so it may be moved away."""

    def __init__(self, name: str, path: Path, *, seconds: float = SEND_SECONDS) -> None:
        self.name = name
        self._path = path
        self._aside = Aside(seconds)

    def check(self) -> None:
        """Raise :class:`SinkUnusable` unless the file can be written; it is made if it is missing."""
        try:
            os.close(self._open())
        except OSError as error:
            raise SinkUnusable(f"notify: {self._path}: {cause_of(error)}") from error

    async def send(self, notification: Notification) -> None:
        """Append the line in one write."""
        await self._aside.run(lambda: self._append((notification.payload + "\n").encode()))

    def _open(self) -> int:
        return os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def _append(self, data: bytes) -> None:
        descriptor = self._open()
        try:
            if _is_torn(descriptor):
                data = b"\n" + data  # a write that the disk had no room for must not spoil this line too
            if os.write(descriptor, data) != len(data):
                raise SinkFailed("the line was written only in part")
        finally:
            os.close(descriptor)


def _is_torn(descriptor: int) -> bool:
    """Whether a file ends within a line."""
    facts = os.fstat(descriptor)
    return stat.S_ISREG(facts.st_mode) and facts.st_size > 0 and os.pread(descriptor, 1, facts.st_size - 1) != b"\n"


def _write(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]
