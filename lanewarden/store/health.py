"""Whether the store still works, and what callers are told when it does not."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from pathlib import Path

from lanewarden.errors import Reason, Refusal, refuse
from lanewarden.store.engine import Trouble, trouble
from lanewarden.store.faults import SimulatedCrash


def check_marker(path: Path) -> Path:
    """The file that makes the next open of the database at ``path`` check all of it."""
    return path.with_name(path.name + ".check")


class Health:
    """The state of one store, shared by its writer and its readers.

    ``full`` heals by itself at the next commit that changes rows. ``failed`` and ``crash`` are for the rest
    of the process: after an IO error nothing that SQLite keeps in memory can be trusted.
    """

    def __init__(self, path: Path, on_failure: Callable[[], None] | None) -> None:
        self._path = path
        self._on_failure = on_failure
        self._lock = threading.Lock()
        self.full = False
        self.failed = False
        self.crash: SimulatedCrash | None = None

    def refusal(self) -> BaseException | None:
        """Why nothing may be tried any more, or ``None`` while the store lives."""
        if self.crash is not None:
            return SimulatedCrash(*self.crash.args)
        return _failed() if self.failed else None

    def told(self, error: BaseException) -> BaseException:
        """Take note of an error and return what its caller is to be told."""
        if isinstance(error, SimulatedCrash):
            self.crash = error
        if isinstance(error, StopIteration):
            # A future cannot carry it.
            told = RuntimeError("a unit of work let StopIteration escape")
            told.__cause__ = error
            return told
        match trouble(error):
            case Trouble.FULL:
                self.full = True
                return _chained(_full(), error)
            case Trouble.FAILED:
                self._fail()
                return _chained(_failed(), error)
            case Trouble.BUSY:
                return _chained(_busy(), error)
            case Trouble.NONE:
                return error

    def _fail(self) -> None:
        with self._lock:
            if self.failed:
                return
            self.failed = True
        # The disk may be the very thing that broke; without the marker the next open still checks what it
        # can.
        with contextlib.suppress(OSError):
            check_marker(self._path).touch()
        if self._on_failure is not None:
            self._on_failure()


def closed() -> Refusal:
    """Build the refusal of a store that was closed."""
    return refuse(Reason.SHUTTING_DOWN, "the service is stopping; send the request again after its restart")


def _chained(refusal: BaseException, cause: BaseException) -> BaseException:
    refusal.__cause__ = cause
    return refusal


def _full() -> BaseException:
    return refuse(
        Reason.STORE_FULL,
        "the disk is full and nothing of this request was stored; free space, then send it again",
    )


def _failed() -> BaseException:
    return refuse(
        Reason.STORE_FAILED,
        "the database failed and the service is stopping; see its log, check the disk, restart",
    )


def _busy() -> BaseException:
    return refuse(
        Reason.STORE_FAILED,
        "another process keeps the database locked and nothing was stored; end it, then send this again",
    )
