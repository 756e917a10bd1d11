"""The shim: one small process per attempt that outlives the runner and is the worker's parent for life.

It is started in the attempt directory with what to run on its standard input, and answers with one line of
JSON on its standard output: ``ready`` and who the worker is, ``failed`` and why, ``locked`` when another shim
has the attempt, or ``ended`` when the attempt has had its worker or its end. Only after ``ready`` a worker runs.
"""
# ruff: noqa: PTH108, PTH110 - pathlib would be a fifth of the shim's start

from __future__ import annotations

import contextlib
import errno
import json
import os
import signal
import socket
import sys
import time

from . import files, kernel
from .deadman import Deadman
from .outputlog import OutputLog
from .shim_loop import Shim
from .worker import NotStarted, Worker

_BACKLOG = 4


def main() -> None:
    """Run one attempt from its launch to its exit record."""
    spec = json.loads(sys.stdin.buffer.read())
    key, stop_grace_seconds = spec["key"], spec["stop_grace_seconds"]
    deadman = Deadman(spec.get("runner_loss_stop_after_seconds"))
    umask = os.umask(0o077)
    if files.try_lock(files.LOCK) is None:  # the descriptor stays open, and the lock ours, until this process ends
        return _answer({"outcome": "locked"})
    # A worker without an end had a shim that is lost, its spawner with it: the host settles that, and nothing runs twice.
    if os.path.exists(files.EXIT) or os.path.exists(files.WORKER):
        return _answer({"outcome": "ended"})
    try:
        files.reserve(files.EXIT)
        kernel.become_subreaper()
        wakeup = _wake_on_signals()
        listener = _listen()
        log = OutputLog(files.LOG, spec["log_bytes_max"])
        worker = Worker(**spec["run"], umask=umask)
    except NotStarted as error:
        return _give_up(key, error.cause, error.errno)
    except OSError as error:
        name = errno.errorcode.get(error.errno or 0, "EIO")
        return _give_up(key, f"the shim could not start: {error.strerror}", name)
    del spec  # the worker's secrets have no business here any longer
    _answer({"outcome": "ready"} | worker.identity)
    Shim(key, worker, log, listener, wakeup, deadman, stop_grace_seconds=stop_grace_seconds).run()
    os.unlink(files.SOCKET)
    return None


def _answer(message: dict[str, object]) -> None:
    """Tell the spawner, and let go of it."""
    with contextlib.suppress(BrokenPipeError):  # it has ended with its runner; the next runner will adopt
        os.write(1, json.dumps(message).encode() + b"\n")
    nowhere = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    os.dup2(nowhere, 0)
    os.dup2(nowhere, 1)


def _give_up(key: dict[str, object], cause: str, name: str) -> None:
    record = key | {
        "kind": "NEVER_STARTED",
        "code": None,
        "signal": None,
        "stop_requested": False,
        "ended_wall_ms": time.time_ns() // 1_000_000,
        "leftovers_killed": 0,
        "log_bytes": 0,
        "log_bytes_dropped": 0,
        "cause": cause,
    }
    with contextlib.suppress(OSError):  # the host settles a directory that has no record
        files.write_durably(files.EXIT, json.dumps(record).encode())
    _answer({"outcome": "failed", "cause": cause, "errno": name})


def _wake_on_signals() -> int:
    """Leave SIGTERM and SIGCHLD to whoever reads the descriptor that is returned; be deaf to a terminal."""
    wakeup, write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    for number in (signal.SIGTERM, signal.SIGCHLD):
        signal.signal(number, lambda *_: None)
    return wakeup


def _listen() -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(files.SOCKET)
    # A relative name: the directory's own path may be longer than a socket address can be.
    listener.bind(files.SOCKET)
    listener.listen(_BACKLOG)
    return listener
