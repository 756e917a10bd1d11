"""Ending what a killed shim left behind, and nobody else.

A process is taken for ours by any of three proofs, looked at again once a pidfd pins the process, so that a
pid that changes hands in between is never signalled:

- it is the recorded worker: same boot, same pid, same start time;
- its environment, which it inherited, holds both marks of this very launch (the second is random);
- it is in the cgroup that was made for this very launch.

This process and its ancestors are never ours, whatever a file says. Without a cgroup, a process that wiped its
environment is not found here; the spawner, which inherits the orphans of its shims, ends those.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

from . import kernel
from .cgroup import Cgroup
from .model import WorkerIdentity

ATTEMPT_MARK = "LANEWARDEN_ATTEMPT_ID"
LAUNCH_MARK = "LANEWARDEN_LAUNCH_ID"
_ANCESTORS_MAX = 1000
_SCANS_MAX = 200
"""Of one call; on a machine that starts processes without end there is always somebody new."""
_UNTOLD_PAUSE_SECONDS = 0.002


def kill_survivors(identity: WorkerIdentity, marks: dict[str, str], cgroup: Cgroup) -> int:
    """SIGKILL every survivor of the launch, and those that are born meanwhile; returns how many were seen or cannot be told.

    Nobody is left only when it returns 0: one that was seen may have had a child before it died. Blocks for a few scans
    of /proc: each looks at who is new since the last, for in a list alone a parent that ends hides a child that begins.
    """
    if identity.boot_id != kernel.boot_id():
        return 0
    seen, known, untold = 0, _self_and_ancestors(), set[int]()

    def is_ours(pid: int) -> bool | None:
        """None while the process cannot be told. One that is older than the worker is not of its kin."""
        ticks = kernel.start_ticks(pid)
        if ticks is None or ticks < identity.start_ticks:
            return False
        return _is_recorded(identity, pid, ticks) or cgroup.has(pid) or _has_marks(pid, marks)

    for _ in range(_SCANS_MAX):
        there = {int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal()}
        known &= there
        if not (fresh := there - known):
            return seen
        for pid in fresh:
            ours = is_ours(pid)
            if ours:
                seen += 1
                _kill(pid, is_ours)
            if ours is not None:
                known.add(pid)
        untold = fresh - known
        if untold == fresh:
            time.sleep(_UNTOLD_PAUSE_SECONDS)
    return seen + len(untold)


def _is_recorded(identity: WorkerIdentity, pid: int, ticks: int) -> bool:
    return (pid, ticks) == (identity.pid, identity.start_ticks)


def _kill(pid: int, is_ours: Callable[[int], bool | None]) -> None:
    try:
        fd = os.pidfd_open(pid)
    except OSError:
        return
    try:
        if is_ours(pid):
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(fd, signal.SIGKILL)
    finally:
        os.close(fd)


def _has_marks(pid: int, marks: dict[str, str]) -> bool | None:
    """None for a process that is about to run another program, or to be gone: for a moment, which is long on a machine that
    is short of time, it shows neither arguments nor environment.
    """
    try:
        if Path(f"/proc/{pid}").stat().st_uid != os.geteuid():
            return False
    except OSError:
        return False
    held = kernel.environment(pid)
    if not held and not kernel.is_kernel_thread(pid):
        if not kernel.read_proc(f"/proc/{pid}/cmdline") and kernel.start_ticks(pid) is not None:
            return None
        held = kernel.environment(pid)  # it may have begun in between
    return {f"{name}={value}".encode() for name, value in marks.items()} <= set(held.split(b"\0"))


def _self_and_ancestors() -> set[int]:
    found = {os.getpid()}
    pid = os.getppid()
    while pid > 0 and len(found) < _ANCESTORS_MAX:
        found.add(pid)
        fields = kernel.stat_fields(pid)
        pid = int(fields[1]) if fields else 0
    return found
