"""The words of the process host: what is launched, what runs, how it ended."""

from __future__ import annotations

import enum
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LOG_BYTES_MAX = 64 * 1024 * 1024
LOG_BYTES_MIN = 1024
"""The smallest bound of a log; less would rotate on every line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptKey:
    """One launch of a worker: which task, in which of its lives, for the how-manieth time."""

    task_id: str
    epoch: int
    attempt: int

    def __str__(self) -> str:
        return f"{self.task_id}/{self.epoch}/{self.attempt}"

    def directory_under(self, attempts_dir: Path) -> Path:
        """The attempt's own directory; raises ValueError for a task id that is not a plain file name."""
        if self.task_id in {"", ".", ".."} or "/" in self.task_id or "\0" in self.task_id:
            raise ValueError(f"a task id must be a plain file name, not {self.task_id!r}")
        return attempts_dir / self.task_id / f"{self.epoch}-{self.attempt}"


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchSpec:
    """Everything a worker is started with.

    ``env`` is the whole environment of the worker; nothing of the runner's is added, save the two marks by
    which the host knows the worker again. It may hold secrets: it reaches the shim through memory and is
    never written.
    """

    key: AttemptKey
    argv: tuple[str, ...]
    cwd: str
    env: Mapping[str, str]
    stop_grace_seconds: float
    log_bytes_max: int = LOG_BYTES_MAX
    runner_loss_stop_after_seconds: float | None = None
    """How long the worker may go on while no runner follows it, before its shim stops it; None: for ever."""


class LaunchFailed(Exception):  # noqa: N818 - the worker was not started: a result, told to people
    """The worker was not started and will not be: ``cause`` for people, in one line; ``errno``, as ENOENT."""

    def __init__(self, cause: str, errno: str) -> None:
        super().__init__(cause)
        self.cause = cause
        self.errno = errno


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerIdentity:
    """What tells a worker from a later process with the same pid: start time in clock ticks, and the boot."""

    pid: int
    start_ticks: int
    boot_id: str


class ExitKind(enum.StrEnum):
    """How an attempt ended."""

    EXITED = "EXITED"
    """By itself, with ``code``."""
    SIGNALED = "SIGNALED"
    """By a signal, in ``signal``."""
    NEVER_STARTED = "NEVER_STARTED"
    """No line of the worker ever ran, and none will."""
    SHIM_LOST = "SHIM_LOST"
    """The shim was killed, or the host rebooted: the worker is gone, and how it ended is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExitRecord:
    """The end of an attempt. When the runner sees one, no process of the attempt is alive."""

    key: AttemptKey
    kind: ExitKind
    code: int | None
    signal: int | None
    stop_requested: bool
    ended_wall_ms: int
    leftovers_killed: int
    """Processes that outlived the worker and were ended for it."""
    log_bytes: int
    """Bytes the worker wrote, dropped and rotated ones included; for SHIM_LOST, bytes that are in the log."""
    log_bytes_dropped: int = 0
    """Bytes that the disk did not take."""
    cause: str = ""
    """One line for people when the worker was never started."""
    runner_lost: bool = False
    """It was stopped because no runner had followed it for as long as its spec allows."""

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> ExitRecord:
        """Read what :mod:`.shim` or :meth:`to_json` wrote."""
        rest = dict(fields)
        key = AttemptKey(task_id=rest.pop("task_id"), epoch=rest.pop("epoch"), attempt=rest.pop("attempt"))
        return cls(key=key, kind=ExitKind(rest.pop("kind")), **rest)

    def to_json(self) -> dict[str, object]:
        """The fields as :meth:`from_json` takes them."""
        return {
            "task_id": self.key.task_id,
            "epoch": self.key.epoch,
            "attempt": self.key.attempt,
            "kind": self.kind.value,
            "code": self.code,
            "signal": self.signal,
            "stop_requested": self.stop_requested,
            "ended_wall_ms": self.ended_wall_ms,
            "leftovers_killed": self.leftovers_killed,
            "log_bytes": self.log_bytes,
            "log_bytes_dropped": self.log_bytes_dropped,
            "cause": self.cause,
            "runner_lost": self.runner_lost,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputTotals:
    """How much a worker has written since its launch, for progress that is derived from output."""

    log_bytes: int
    log_lines: int


def check_launchable(spec: LaunchSpec) -> None:
    """Raise :class:`LaunchFailed` for a spec that no kernel would take, before anything is started."""
    if not spec.argv or not spec.argv[0]:
        raise LaunchFailed("no program to run: argv is empty", "EINVAL")
    if spec.log_bytes_max < LOG_BYTES_MIN:
        raise LaunchFailed(f"log_bytes_max must be at least {LOG_BYTES_MIN}", "EINVAL")
    named = [("argv", word) for word in spec.argv] + [("cwd", spec.cwd)]
    named += [(f"environment variable {name!r}", name + value) for name, value in spec.env.items()]
    for place, text in named:
        try:
            encoded = os.fsencode(text)
        except UnicodeEncodeError:
            raise LaunchFailed(f"text that cannot be encoded in {place}", "EILSEQ") from None
        if b"\0" in encoded:
            raise LaunchFailed(f"a NUL character in {place}", "EINVAL")
    if any(not name or "=" in name for name in spec.env):
        raise LaunchFailed("an environment variable's name is empty or holds '='", "EINVAL")
