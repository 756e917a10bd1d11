"""What only the Linux kernel can tell or grant: who a process is, who its children are, who gets its orphans.

Shared by the shim, the spawner and the host; the standard library only, and little of it.
"""
# ruff: noqa: PTH208 - pathlib would be a fifth of the shim's start

from __future__ import annotations

import ctypes
import os
import signal

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_PF_KTHREAD = 0x00200000
_READ_BYTES_MAX = 4 * 1024 * 1024
"""Longer /proc files are cut; the longest that matters is an environment (the kernel takes 2 MiB)."""


def _prctl(option: int, value: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def become_subreaper() -> None:
    """From now on every orphaned descendant becomes a child of this process instead of init's."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when ``parent``, which must have one thread, ends or has ended."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(127)


def read_proc(path: str) -> bytes:
    """The content of a file under /proc; empty when the process is gone or not ours to look at."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        parts = []
        left = _READ_BYTES_MAX
        while left > 0 and (part := os.read(fd, min(left, 1 << 16))):
            parts.append(part)
            left -= len(part)
        return b"".join(parts)
    except OSError:
        return b""
    finally:
        os.close(fd)


def boot_id() -> str:
    """The id of this boot; a pid of another boot means nothing."""
    return read_proc("/proc/sys/kernel/random/boot_id").decode("ascii").strip()


def stat_fields(pid: int) -> list[bytes]:
    """``/proc/<pid>/stat`` from its third field on (state, ppid, pgrp ...); empty for no such process."""
    data = read_proc(f"/proc/{pid}/stat")
    return data[data.rindex(b")") + 2 :].split() if data else []


def start_ticks(pid: int) -> int | None:
    """When a living process started, in clock ticks since boot; None for one that is gone or a zombie.

    A process whose first thread has ended looks like a zombie, and lives while another of its threads does.
    """
    fields = stat_fields(pid)
    if not fields or (fields[0] in {b"Z", b"X"} and int(fields[17]) <= 1):
        return None
    return int(fields[19])


def environment(pid: int) -> bytes:
    """The environment that a process was started with, as one of its threads still shows it; empty when none does."""
    if held := read_proc(f"/proc/{pid}/environ"):
        return held
    return next(filter(None, (read_proc(f"/proc/{pid}/task/{tid}/environ") for tid in _threads(pid))), b"")


def is_kernel_thread(pid: int) -> bool:
    """Whether it is a part of the kernel, which has no environment and takes no signals."""
    fields = stat_fields(pid)
    return bool(fields) and bool(int(fields[6]) & _PF_KTHREAD)


def children(pid: int) -> list[int]:
    """Children of a process, zombies included; may miss one that is being born or reparented just now."""
    return [int(child) for tid in _threads(pid) for child in read_proc(f"/proc/{pid}/task/{tid}/children").split()]


def _threads(pid: int) -> list[str]:
    try:
        return os.listdir(f"/proc/{pid}/task")
    except OSError:
        return []
