"""The bounded log of a worker's output. It takes everything, disk full or not: the worker must never wait."""
# ruff: noqa: PTH104 - pathlib would be a fifth of the shim's start

from __future__ import annotations

import contextlib
import os


class OutputLog:
    """Two files, ``path`` and the older ``path.1``, together at most ``bytes_max`` long."""

    def __init__(self, path: str, bytes_max: int) -> None:
        self._path = path
        self._half = bytes_max // 2
        self._fd = self._open()
        self._size = 0
        self.bytes_total = 0
        self.lines_total = 0
        self.bytes_dropped = 0

    def write(self, data: bytes) -> None:
        """Keep ``data``, or count it as dropped when the disk does not take it."""
        self.bytes_total += len(data)
        self.lines_total += data.count(b"\n")
        rest = memoryview(data)
        try:
            while rest:
                if self._size >= self._half:
                    self._rotate()
                written = os.write(self._fd, rest[: self._half - self._size])
                self._size += written
                rest = rest[written:]
        except OSError:
            self.bytes_dropped += len(rest)

    def _rotate(self) -> None:
        # When an earlier try got no further than the rename there is nothing to move, and a file to open.
        with contextlib.suppress(FileNotFoundError):
            os.rename(self._path, self._path + ".1")
        fresh = self._open()
        os.close(self._fd)
        self._fd, self._size = fresh, 0

    def _open(self) -> int:
        return os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
