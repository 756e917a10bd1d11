"""Where this process may make cgroups of its own: cgroup v2, found by looking and trying, never assumed."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

PROCESS: Final = Path("/proc/self")
SYSTEMD: Final = Path("/run/systemd/system")
DELEGATED: Final = ("user.delegate", "trusted.delegate")
"""Set to 1 by systemd on a cgroup that it leaves to its unit, see its CGROUP_DELEGATION document."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Delegation:
    """``path`` is the cgroup below which we may make others, None where there is none; ``text`` says why, to people."""

    path: Path | None
    text: str


def find(process: Path = PROCESS, systemd: Path = SYSTEMD) -> Delegation:
    """Our own cgroup, if it is ours to divide: writable, able to kill, and not another manager's.

    Makes an empty cgroup and removes it again. ``process`` and ``systemd`` are where to look.
    """
    own = own_directory(process)
    if own is None:
        return Delegation(path=None, text="no cgroup v2 file system here that has our own cgroup")
    if systemd.is_dir() and not _is_delegated(own):
        return Delegation(path=None, text=f"{own} belongs to systemd; Delegate=yes in the unit would make it ours")
    problem = _try(own)
    return Delegation(path=None, text=problem) if problem else Delegation(path=own, text=str(own))


def own_directory(process: Path) -> Path | None:
    """The directory of our own cgroup v2, see cgroups(7) and proc_pid_mountinfo(5); None when it is not mounted."""
    try:
        memberships = (process / "cgroup").read_text(encoding="utf-8").splitlines()
        mounts = (process / "mountinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    own = next((line.removeprefix("0::") for line in memberships if line.startswith("0::/")), None)
    if own is None:
        return None
    for mount in mounts:
        before, _, after = mount.partition(" - ")
        root, place = before.split(" ")[3:5]
        if after.startswith("cgroup2 ") and Path(own).is_relative_to(root) and ".." not in Path(own).parts:
            return Path(place) / Path(own).relative_to(root)
    return None


def _is_delegated(directory: Path) -> bool:
    for name in DELEGATED:
        with contextlib.suppress(OSError):
            if os.getxattr(directory, name) == b"1":
                return True
    return False


def _try(own: Path) -> str:
    """What keeps us from dividing the cgroup; empty if nothing does."""
    if not os.access(own / "cgroup.procs", os.W_OK):
        return f"{own} is not ours to write"
    trial = own / f"lanewarden-trial-{os.getpid()}"
    try:
        trial.mkdir(exist_ok=True)
    except OSError as error:
        return f"no cgroup can be made in {own}: {error.strerror}"
    try:
        if not os.access(trial / "cgroup.kill", os.W_OK):
            return "cgroup.kill is missing; it needs Linux 5.14"
        if (trial / "cgroup.type").read_text(encoding="ascii").strip() != "domain":
            return f"{own} is part of a threaded cgroup, which takes no processes below it"
    finally:
        trial.rmdir()
    return ""
