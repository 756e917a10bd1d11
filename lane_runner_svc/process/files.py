"""The files of an attempt directory, and how they are written so that a crash leaves a whole one or none.

Shared by the shim and the host; the standard library only, and little of it.
"""
# ruff: noqa: PTH104, PTH120 - pathlib would be a fifth of the shim's start

from __future__ import annotations

import fcntl
import os

LOCK = "shim.lock"
"""Locked (flock) for as long as a shim, or a host that settles the attempt, has the directory to itself."""
SOCKET = "shim.sock"
WORKER = "worker.json"
"""Identity of the worker; it is on disk before the worker's first instruction, so: absent means never run."""
EXIT = "exit.json"
"""The exit record. Where it exists no shim ever starts anything again."""
LOG = "output.log"
SHIM_ERRORS = "shim.err"

_RESERVED_BYTES = 4096
"""Room kept for the exit record, so that a full disk cannot keep an end from being recorded."""


def try_lock(path: str) -> int | None:
    """Take the lock file and return its descriptor, or None when somebody has it. Closing it lets go."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        return None
    return fd


def reserve(path: str) -> None:
    """Take the disk space that :func:`write_durably` will need for ``path``."""
    fd = os.open(path + ".tmp", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.posix_fallocate(fd, 0, _RESERVED_BYTES)
    finally:
        os.close(fd)


def write_durably(path: str, data: bytes) -> None:
    """Replace ``path`` by ``data``: after return it survives a power cut, before it the old content does."""
    fd = os.open(path + ".tmp", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        # Not truncated first: that would give back the space that reserve() took.
        os.write(fd, data)
        os.ftruncate(fd, len(data))
        os.fsync(fd)
    finally:
        os.close(fd)
    os.rename(path + ".tmp", path)
    directory = os.open(os.path.dirname(path) or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
