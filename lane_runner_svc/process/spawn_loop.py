"""The spawner's own process: starts shims, so that the runner, which has gRPC threads, never forks.

Requests and answers are JSON behind a four-byte length, on the socket whose descriptor is the program's
argument. A launch is answered when its shim has spoken; many may be under way. It ends when the runner does;
the shims go on.

It is a child subreaper too: the orphans of a shim that was killed come here and are ended, whatever they did
to their environment to be unrecognisable.
"""
# ruff: noqa: PTH100, PTH118, PTH120 - pathlib would be a fifth of the start

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import time

from . import files, kernel

READY_SECONDS = 30.0
"""How long a shim may take to report before it is killed. A working directory on a dead mount does."""
FRAME_BYTES_MAX = 8 * 1024 * 1024
"""Above the kernel's own bound for arguments plus environment, JSON's escapes included."""
_READ_BYTES = 64 * 1024


class _Launch:
    """A shim that has not reported yet."""

    def __init__(self, request_id: int, shim: subprocess.Popen[bytes], report: int) -> None:
        self.request_id, self.shim, self.report = request_id, shim, report
        self.text = b""
        self.deadline = time.monotonic() + READY_SECONDS


class SpawnLoop:
    """Everything the spawner's process does."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._inbox = b""
        self._selector = selectors.DefaultSelector()
        self._launches: dict[int, _Launch] = {}
        self._shims: dict[int, subprocess.Popen[bytes]] = {}

    def run(self) -> None:
        """Serve until the runner closes the socket or dies."""
        kernel.become_subreaper()
        wakeup, write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.set_wakeup_fd(write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self._selector.register(wakeup, selectors.EVENT_READ)
        self._selector.register(self._control, selectors.EVENT_READ)
        while True:
            for key, _ in self._selector.select(self._pause_seconds()):
                if key.fileobj is self._control:
                    if not self._read_requests():
                        return
                elif key.fd == wakeup:
                    os.read(wakeup, 4096)
                    self._reap()
                else:
                    self._read_report(self._launches[key.fd])
            for launch in [one for one in self._launches.values() if one.deadline <= time.monotonic()]:
                launch.shim.kill()  # its report then ends, and says so

    def _pause_seconds(self) -> float | None:
        if not self._launches:
            return None
        return max(0.01, min(one.deadline for one in self._launches.values()) - time.monotonic())

    def _read_requests(self) -> bool:
        try:
            data = self._control.recv(_READ_BYTES)
        except ConnectionResetError:
            return False
        self._inbox += data
        while len(self._inbox) >= 4:
            end = 4 + int.from_bytes(self._inbox[:4], "big")
            if len(self._inbox) < end:
                break
            request = json.loads(self._inbox[4:end])
            self._inbox = self._inbox[end:]
            self._launch(request)
        return bool(data)

    def _launch(self, request: dict[str, object]) -> None:
        directory, request_id = str(request["directory"]), int(str(request["id"]))
        # Memory, not a pipe: writing never waits for the shim, and nothing of the environment reaches a disk.
        spec = os.memfd_create("spec")
        read, write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        errors = -1
        try:
            with os.fdopen(os.dup(spec), "wb") as stream:
                stream.write(json.dumps(request["spec"]).encode())
            os.lseek(spec, 0, os.SEEK_SET)
            path = os.path.join(directory, files.SHIM_ERRORS)
            errors = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            os.set_blocking(write, True)
            shim = subprocess.Popen(
                [*program("shim"), str(request["name"])],
                stdin=spec,
                stdout=write,
                stderr=errors,
                cwd=directory,
                start_new_session=True,
            )
        except OSError as error:
            os.close(read)
            self._answer(request_id, {"outcome": "lost", "cause": f"no shim could be started: {error.strerror}"})
        else:
            self._shims[shim.pid] = shim
            self._launches[read] = _Launch(request_id, shim, read)
            self._selector.register(read, selectors.EVENT_READ)
        finally:
            for fd in (spec, write, errors):
                if fd >= 0:
                    os.close(fd)

    def _read_report(self, launch: _Launch) -> None:
        data = os.read(launch.report, _READ_BYTES)
        launch.text += data
        if data and not launch.text.endswith(b"\n"):
            return
        self._selector.unregister(launch.report)
        del self._launches[launch.report]
        os.close(launch.report)
        if launch.text.endswith(b"\n"):
            self._answer(launch.request_id, json.loads(launch.text))
        else:
            self._answer(launch.request_id, {"outcome": "lost", "cause": "the shim ended before it was ready"})

    def _answer(self, request_id: int, message: dict[str, object]) -> None:
        body = json.dumps({"id": request_id} | message).encode()
        with contextlib.suppress(BrokenPipeError):  # the runner is gone: the next read says so
            self._control.sendall(len(body).to_bytes(4, "big") + body)

    def _reap(self) -> None:
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                if shim := self._shims.pop(ended[0], None):
                    shim.returncode = os.waitstatus_to_exitcode(ended[1])
        # A shim leaves nobody behind unless it was killed. Our own children keep their pids until we reap
        # them, so this signals nobody else; their children come here in their turn.
        for orphan in set(kernel.children(os.getpid())) - self._shims.keys():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(orphan, signal.SIGKILL)


def program(name: str) -> list[str]:
    """The command line that runs ``name`` of this folder in a bare interpreter."""
    boot = os.path.join(os.path.dirname(os.path.abspath(__file__)), "boot.py")
    return [sys.executable, "-I", "-S", "-X", "utf8", boot, name]


def main() -> None:
    """Entry point of the process; its argument is the descriptor of the control socket."""
    SpawnLoop(socket.socket(fileno=int(sys.argv[2]))).run()
