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
from collections.abc import Callable
from pathlib import Path

from . import kernel
from .cgroup import Cgroup
from .model import WorkerIdentity

ATTEMPT_MARK = "LANEWARDEN_ATTEMPT_ID"
LAUNCH_MARK = "LANEWARDEN_LAUNCH_ID"
_ANCESTORS_MAX = 1000


def kill_survivors(identity: WorkerIdentity, marks: dict[str, str], cgroup: Cgroup) -> int:
    """SIGKILL every survivor of the launch once; returns how many there were. Blocks for a scan of /proc."""
    if identity.boot_id != kernel.boot_id():
        return 0
    spared = _self_and_ancestors()

    def is_ours(pid: int) -> bool:
        ticks = kernel.start_ticks(pid)
        if ticks is None:
            return False
        return _is_recorded(identity, pid, ticks) or _has_marks(pid, marks) or cgroup.has(pid)

    candidates = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal()]
    return sum(_kill(pid, is_ours) for pid in candidates if pid not in spared and is_ours(pid))


def _is_recorded(identity: WorkerIdentity, pid: int, ticks: int) -> bool:
    return (pid, ticks) == (identity.pid, identity.start_ticks)


def _kill(pid: int, is_ours: Callable[[int], bool]) -> bool:
    try:
        fd = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        if not is_ours(pid):
            return False
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(fd, signal.SIGKILL)
        return True
    finally:
        os.close(fd)


def _has_marks(pid: int, marks: dict[str, str]) -> bool:
    try:
        if Path(f"/proc/{pid}").stat().st_uid != os.geteuid():
            return False
    except OSError:
        return False
    held = kernel.read_proc(f"/proc/{pid}/environ").split(b"\0")
    return all(f"{name}={value}".encode() in held for name, value in marks.items())


def _self_and_ancestors() -> set[int]:
    found = {os.getpid()}
    pid = os.getppid()
    while pid > 0 and len(found) < _ANCESTORS_MAX:
        found.add(pid)
        fields = kernel.stat_fields(pid)
        pid = int(fields[1]) if fields else 0
    return found
