"""The state directory: one process at a time, and a clear word for the second."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from lanewarden.store import StateDirectory, StateDirectoryBusy, StoreUnusable

_ACQUIRE = """
import sys
from lanewarden.store import StateDirectory, StateDirectoryBusy
try:
    held = StateDirectory.acquire(sys.argv[1])
except StateDirectoryBusy as busy:
    print(busy)
    raise SystemExit(3)
print("held", flush=True)
sys.stdin.read()
"""


def acquiring(path: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", _ACQUIRE, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def test_missing_directory_is_created_for_the_owner_alone(tmp_path: Path) -> None:
    """The directory is created with mode 0700 and says who holds it."""
    with StateDirectory.acquire(tmp_path / "deep" / "state") as directory:
        assert stat.S_IMODE(directory.path.stat().st_mode) == 0o700
        assert f"pid {os.getpid()}\n" in (directory.path / "lock").read_text()


def test_p20_second_process_is_refused_and_writes_nothing(tmp_path: Path) -> None:
    """A second process is told in one line who holds the directory and what to do, and changes nothing."""
    with StateDirectory.acquire(tmp_path / "state") as directory:
        lock = directory.path / "lock"
        before = (lock.read_bytes(), lock.stat().st_mtime_ns, directory.path.stat().st_mtime_ns)
        second = acquiring(directory.path)
        message, _ = second.communicate(timeout=60)
        assert second.returncode == 3
        assert message.count("\n") == 1
        assert f"process {os.getpid()}" in message
        assert "stop it" in message
        assert (lock.read_bytes(), lock.stat().st_mtime_ns, directory.path.stat().st_mtime_ns) == before


def test_lock_is_exclusive_inside_one_process_too(tmp_path: Path) -> None:
    """Two stores of one process cannot share a directory by mistake; leaving the block gives it up."""
    with StateDirectory.acquire(tmp_path), pytest.raises(StateDirectoryBusy):
        StateDirectory.acquire(tmp_path)
    StateDirectory.acquire(tmp_path).release()


def test_killed_holder_leaves_no_lock(tmp_path: Path) -> None:
    """The lock ends with its process, however it ends; what the file says about it binds nobody."""
    holder = acquiring(tmp_path)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    with pytest.raises(StateDirectoryBusy, match=f"process {holder.pid}"):
        StateDirectory.acquire(tmp_path)
    holder.send_signal(signal.SIGKILL)
    holder.communicate(timeout=60)
    StateDirectory.acquire(tmp_path).release()


def test_child_does_not_inherit_the_lock(tmp_path: Path) -> None:
    """A worker that outlives its runner does not keep the runner's directory locked."""
    directory = StateDirectory.acquire(tmp_path)
    child = subprocess.Popen(
        [sys.executable, "-c", "print('up', flush=True); input()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        close_fds=False,
        text=True,
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "up\n"
    directory.release()
    StateDirectory.acquire(tmp_path).release()
    child.communicate("\n", timeout=60)


def test_r04_unwritable_directory_is_refused(tmp_path: Path) -> None:
    """A directory without write permission is refused in one line, even for root, and stays empty."""
    path = tmp_path / "state"
    path.mkdir(mode=0o500)
    with pytest.raises(StoreUnusable, match="not writable") as refused:
        StateDirectory.acquire(path)
    assert "\n" not in str(refused.value)
    assert list(path.iterdir()) == []


def test_file_in_place_of_the_directory_is_refused(tmp_path: Path) -> None:
    """A path that is no directory is refused and kept."""
    path = tmp_path / "state"
    path.write_text("mine")
    with pytest.raises(StoreUnusable, match="cannot be the state directory"):
        StateDirectory.acquire(path)
    assert path.read_text() == "mine"
