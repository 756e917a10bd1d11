"""The worker's own cgroup (v2), where its runner may make some: whoever is born in it stays in it, and one write ends all.

It is one more grip on the tree, never the only one: without it everything works as it does where there is none. Shared by
the shim and the host; the standard library only, and little of it.
"""
# ruff: noqa: PTH102, PTH106, PTH118, PTH119 - pathlib would be a fifth of the shim's start

from __future__ import annotations

import contextlib
import os

from . import kernel


def path_of(parent: str, launch_id: str) -> str:
    """The directory of a launch's cgroup. The id is random, so no other launch ever has or had it."""
    return os.path.join(parent, f"lanewarden-{launch_id}") if parent else ""


class Cgroup:
    """The cgroup at ``path``; an empty path is none at all. Nothing here raises for one that is not there, or full."""

    def __init__(self, path: str) -> None:
        self._path = path

    def take(self, pid: int) -> None:
        """Make it, and move a process into it that has no descendants yet."""
        with contextlib.suppress(OSError):
            if self._path:
                os.mkdir(self._path, 0o700)
                self._write("cgroup.procs", str(pid))

    def kill(self) -> None:
        """SIGKILL every process in it and below, one that is being forked included."""
        with contextlib.suppress(OSError):
            if self._path:
                self._write("cgroup.kill", "1")

    def has(self, pid: int) -> bool:
        """Whether the process is in it or below."""
        if not self._path:
            return False
        # By its last part: the path that /proc shows depends on who looks, and what is below begins with it.
        membership = kernel.read_proc(f"/proc/{pid}/cgroup").decode(errors="replace")
        name = os.path.basename(self._path)
        return any(line.startswith("0::") and name in line.split("/") for line in membership.splitlines())

    def is_populated(self) -> bool:
        """Whether a process is in it or below, by the kernel's word."""
        return bool(self._path) and b"populated 1" in kernel.read_proc(os.path.join(self._path, "cgroup.events"))

    def remove(self) -> None:
        """Remove it with what was made below it. One that still has a process stays."""
        for directory, _, _ in os.walk(self._path, topdown=False) if self._path else ():
            with contextlib.suppress(OSError):
                os.rmdir(directory)

    def _write(self, name: str, text: str) -> None:
        fd = os.open(os.path.join(self._path, name), os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(fd, text.encode())
        finally:
            os.close(fd)
