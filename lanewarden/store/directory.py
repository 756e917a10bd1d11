"""The state directory: one process at a time."""

from __future__ import annotations

import os
import re
from pathlib import Path
from types import TracebackType

from lanewarden.clock import boot_id
from lanewarden.store.faults import StateDirectoryBusy, StoreUnusable

LOCK_NAME = "lock"
_LOCK_TEXT_BYTES_MAX = 256


class StateDirectory:
    """A directory that this process holds exclusively until it ends or leaves the ``with`` block.

    The lock is the kernel's and ends with the process, however it ends. What stands in the lock file is for
    people.
    """

    def __init__(self, path: Path, lock_fd: int) -> None:
        self.path = path
        self._lock_fd: int | None = lock_fd

    @classmethod
    def acquire(cls, path: str | os.PathLike[str]) -> StateDirectory:
        """Create the directory if it is missing (mode 0700) and lock it.

        Raises :class:`StateDirectoryBusy` if another process holds it, :class:`StoreUnusable` if it cannot be
        written; in both cases nothing was written.
        """
        directory = Path(path)
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not is_writable(directory):
                raise StoreUnusable(f"{directory} is not writable; give the service's user write permission")
            # Python opens it close-on-exec: a worker must not keep the lock when the service is gone.
            fd = os.open(directory / LOCK_NAME, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise StoreUnusable(f"{directory} cannot be the state directory: {error.strerror}") from error
        try:
            _lock(fd, directory)
        except BaseException:
            os.close(fd)
            raise
        return cls(directory, fd)

    def release(self) -> None:
        """Give the lock up; the file stays, since removing it would let two processes lock two files."""
        if self._lock_fd is not None:
            os.close(self._lock_fd)
            self._lock_fd = None

    def __enter__(self) -> StateDirectory:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def is_writable(path: Path) -> bool:
    """Whether the file or directory may be written; mode bits count even for root, who may ignore them."""
    return bool(path.stat().st_mode & 0o222) and os.access(path, os.W_OK)


def _lock(fd: int, directory: Path) -> None:
    import fcntl  # not on every platform that can import the client side of this package

    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        holder = re.match(rb"pid (\d+)", os.pread(fd, _LOCK_TEXT_BYTES_MAX, 0))
        who = f"process {int(holder[1])}" if holder else "another process"
        raise StateDirectoryBusy(
            f"{directory} is in use by {who}; stop it, or choose another state directory"
        ) from error
    os.ftruncate(fd, 0)
    os.pwrite(fd, f"pid {os.getpid()}\nboot {boot_id()}\n".encode(), 0)
