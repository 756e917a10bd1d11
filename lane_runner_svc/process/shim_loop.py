"""What a shim does while its worker runs, and how it ends: keep the output, answer the runner, empty the
tree, record.

One loop, one thread: the worker's parent-death signal fires when the *thread* that forked it ends.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import time
from collections.abc import Callable

from . import files
from .deadman import LOOK_SECONDS, Deadman
from .outputlog import OutputLog
from .tree import Tree
from .worker import Worker

_READ_BYTES = 256 * 1024
_DRAIN_READS_MAX = 64
"""Reads after the tree is empty; enough for the largest pipe. A stranger may hold the pipe's other end."""
_NOTE_SECONDS = 0.1
_CLIENTS_MAX = 8
_COMMAND_BYTES_MAX = 4096
_GRACE_MS_MAX = 3_600_000
"""More than a task may ask for."""
_LEFTOVER_GRACE_SECONDS = 0.5
"""What leftovers get after a worker that ended by itself: its end must be known within a second."""
_LEFTOVER_GRACE_STOPPING_SECONDS = 2.0
_KILL_PAUSE_SECONDS = 0.002
_KILL_PAUSE_LONG_SECONDS = 0.1
_KILL_HURRY_SECONDS = 2.0
"""Then the passes come slower. They never stop: an end with a living tree would be a lie."""
_RECORD_RETRY_SECONDS = 0.5


class Shim:
    """The loop of a shim whose worker runs."""

    def __init__(
        self,
        key: dict[str, object],
        worker: Worker,
        log: OutputLog,
        listener: socket.socket,
        wakeup: int,
        deadman: Deadman,
        *,
        stop_grace_seconds: float,
    ) -> None:
        self._key = key
        self._worker, self._log, self._listener, self._wakeup = worker, log, listener, wakeup
        self._deadman, self._stop_grace_seconds = deadman, stop_grace_seconds
        self._runner_lost = False
        self._tree = Tree(worker.pid)
        self._poll = select.poll()
        self._handlers: dict[int, Callable[[], object]] = {}
        self._clients: dict[int, socket.socket] = {}
        self._kill_at: float | None = None
        self._killed = False
        self._exit: dict[str, object] | None = None
        self._record: dict[str, object] | None = None
        self._leftovers_killed_from = 0.0
        self._noted_bytes = 0
        self._noted_at = 0.0
        self._wake_at: dict[str, float] = {}

    def run(self) -> None:
        """Serve until the tree is empty and its end is on disk."""
        self._watch(self._wakeup, self._on_signals)
        self._watch(self._worker.pidfd, self._on_worker_end)
        self._watch(self._worker.output, self._read_output)
        self._watch(self._listener.fileno(), self._accept)
        while not self._advance():
            for fd, _ in self._poll.poll(self._pause_ms()):
                if handler := self._handlers.get(fd):
                    handler()

    def _watch(self, fd: int, handler: Callable[[], object]) -> None:
        self._handlers[fd] = handler
        self._poll.register(fd, select.POLLIN)

    def _unwatch(self, fd: int) -> None:
        if self._handlers.pop(fd, None):
            self._poll.unregister(fd)

    def _pause_ms(self) -> int | None:
        if not self._wake_at:
            return None
        return max(0, int((min(self._wake_at.values()) - time.monotonic()) * 1000) + 1)

    def _advance(self) -> bool:
        """Do what is due; True when there is nothing left to do."""
        now = time.monotonic()
        self._wake_at.clear()
        self._note_output(now)
        if self._exit is not None:
            return self._sweep(self._exit, now)
        self._look_for_runner(now)
        if self._kill_at is not None:
            if now >= self._kill_at and not self._killed:
                self._killed = True
                self._kill_tree()
            elif not self._killed:
                self._wake_at["kill"] = self._kill_at
        return False

    def _look_for_runner(self, now: float) -> None:
        """Stop a worker that has been without a runner for as long as its task allows."""
        left_seconds = self._deadman.left_seconds(connected=bool(self._clients))
        if left_seconds is None or self._kill_at is not None:
            return
        if left_seconds > 0:
            self._wake_at["deadman"] = now + min(left_seconds, LOOK_SECONDS)
            return
        self._runner_lost = True
        self._stop(self._stop_grace_seconds)

    # The ends: of the worker, then of its tree.

    def _stop(self, grace_seconds: float) -> None:
        """Run the ladder; asked again, it may only come to its end sooner."""
        kill_at = time.monotonic() + grace_seconds
        self._kill_at = kill_at if self._kill_at is None else min(kill_at, self._kill_at)
        if self._exit is None:
            self._tree.signal_group(signal.SIGTERM, signal.SIGCONT)

    def _on_worker_end(self) -> None:
        self._unwatch(self._worker.pidfd)
        self._tree.reap()
        kind, code, number = self._worker.exit_status()
        now = time.monotonic()
        self._tree.reaped = 0  # those ended before the worker did: they are no leftovers
        self._exit = self._key | {
            "kind": kind,
            "code": code,
            "signal": number,
            "stop_requested": self._kill_at is not None,
            "runner_lost": self._runner_lost,
            "ended_wall_ms": time.time_ns() // 1_000_000,
        }
        self._leftovers_killed_from = now + _LEFTOVER_GRACE_SECONDS
        if self._kill_at is not None:
            self._leftovers_killed_from = min(now + _LEFTOVER_GRACE_STOPPING_SECONDS, self._kill_at)
        self._tree.signal_leftovers(signal.SIGTERM, signal.SIGCONT)

    def _sweep(self, exit_: dict[str, object], now: float) -> bool:
        """Empty the tree, a pass at a time; then record the end. True when it is recorded."""
        self._tree.reap()
        if self._tree.is_empty():
            return self._write_record(exit_)
        kill_from = self._leftovers_killed_from
        if self._kill_at is not None:
            kill_from = min(kill_from, self._kill_at)
        if now < kill_from:
            self._wake_at["sweep"] = kill_from
            return False
        self._kill_tree()
        hurry = now < kill_from + _KILL_HURRY_SECONDS
        self._wake_at["sweep"] = now + (_KILL_PAUSE_SECONDS if hurry else _KILL_PAUSE_LONG_SECONDS)
        return False

    def _kill_tree(self) -> None:
        self._worker.cgroup.kill()
        # Whoever had the right to leave the cgroup is still below us.
        self._tree.signal_group(signal.SIGKILL)
        self._tree.signal_leftovers(signal.SIGKILL)

    def _write_record(self, exit_: dict[str, object]) -> bool:
        """Write the exit record and tell the runner. A disk that fails delays the first, not the second."""
        if self._record is None:
            self._worker.cgroup.remove()
            for _ in range(_DRAIN_READS_MAX):
                if not self._read_output():
                    break
            self._record = exit_ | {
                "leftovers_killed": self._tree.reaped,
                "log_bytes": self._log.bytes_total,
                "log_bytes_dropped": self._log.bytes_dropped,
                "cause": "",
            }
        durable = True
        try:
            files.write_durably(files.EXIT, json.dumps(self._record).encode())
        except FileNotFoundError:
            pass  # the attempt's directory was removed: nobody can ever read a record, so nothing is left to do
        except OSError:
            durable = False
            self._wake_at["record"] = time.monotonic() + _RECORD_RETRY_SECONDS
        self._send_all({"type": "exited", "exit": self._record})
        return durable

    # What comes in: signals, output, the runner.

    def _on_signals(self) -> None:
        numbers = os.read(self._wakeup, 4096)
        if signal.SIGTERM in numbers:
            self._stop(self._stop_grace_seconds)
        if signal.SIGCHLD in numbers:
            self._tree.reap()

    def _read_output(self) -> int:
        """Move one read's worth to the log; returns its size, 0 when there is nothing (more)."""
        try:
            data = os.read(self._worker.output, _READ_BYTES)
        except BlockingIOError:
            return 0
        if not data:
            self._unwatch(self._worker.output)
        self._log.write(data)
        return len(data)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            client, _ = self._listener.accept()
            if len(self._clients) >= _CLIENTS_MAX:
                client.close()
                return
            client.setblocking(False)
            self._clients[client.fileno()] = client
            self._watch(client.fileno(), lambda: self._on_command(client))
            hello: dict[str, object] = {"type": "hello", "exit": self._record}
            self._send(client, hello | self._key | self._worker.identity | self._output_totals())

    def _on_command(self, client: socket.socket) -> None:
        try:
            grace_seconds = stop_asked(client.recv(_COMMAND_BYTES_MAX))
        except BlockingIOError:
            return
        except (OSError, ValueError, RecursionError):
            # It is gone, or is no runner of ours. Nothing that anybody says may end this process.
            self._drop(client)
        else:
            self._stop(grace_seconds)

    # What goes out. A packet is taken whole or not at all, so a runner that does not read loses notes, never
    # sense.

    def _note_output(self, now: float) -> None:
        if self._noted_bytes == self._log.bytes_total or not self._clients:
            return
        if now < self._noted_at + _NOTE_SECONDS:
            self._wake_at["note"] = self._noted_at + _NOTE_SECONDS
            return
        self._noted_at, self._noted_bytes = now, self._log.bytes_total
        self._send_all({"type": "output"} | self._output_totals())

    def _output_totals(self) -> dict[str, object]:
        return {"log_bytes": self._log.bytes_total, "log_lines": self._log.lines_total}

    def _send_all(self, message: dict[str, object]) -> None:
        for client in list(self._clients.values()):
            self._send(client, message)

    def _send(self, client: socket.socket, message: dict[str, object]) -> None:
        try:
            client.send(json.dumps(message).encode())
        except BlockingIOError:
            return
        except OSError:
            self._drop(client)

    def _drop(self, client: socket.socket) -> None:
        self._unwatch(client.fileno())
        self._clients.pop(client.fileno(), None)
        client.close()


def stop_asked(packet: bytes) -> float:
    """The grace in seconds of the one command there is; raises ValueError for anything else."""
    command = json.loads(packet)
    grace_ms = command.get("grace_ms") if isinstance(command, dict) and command.get("type") == "stop" else None
    if type(grace_ms) is not int or not 0 <= grace_ms <= _GRACE_MS_MAX:
        raise ValueError("not a stop")
    return grace_ms / 1000
