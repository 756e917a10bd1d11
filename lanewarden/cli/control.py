"""How other commands talk to a running `up`: a Unix socket in the state directory.

Only the owner of the directory can connect, and whoever answers is the `up` that holds the directory's lock, so nobody is
ever told to stop by a process id.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, Literal

from lanewarden.cli.state import NotUp, StateDir

SOCKET_NAME: Final = "up.sock"
LINE_BYTES_MAX: Final = 16 * 1024
ANSWER_SECONDS: Final = 5.0

Word = Literal["status", "stop", "crash supervisor", "crash runner"]


@contextmanager
def locked(state: StateDir) -> Iterator[None]:
    """Hold the directory as its one `up`. The lock is the kernel's and ends with the process, however it ends.

    Raises:
        NotUp: another `up` holds it, or the directory cannot be used.
    """
    try:
        state.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        fd = os.open(state.lock_file, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise NotUp(f"{state.path} cannot be the state directory: {error.strerror}") from None
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        raise NotUp(f"already up in {state.path}; see `lanewarden status`, or `lanewarden down` first") from None
    try:
        yield
    finally:
        os.close(fd)


def listen(state: StateDir) -> socket.socket:
    """The socket that an `up` answers on; call it while holding the lock, since it replaces what is there."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    with _short_path(state) as path:
        (state.path / SOCKET_NAME).unlink(missing_ok=True)
        before = os.umask(0o177)
        try:
            listener.bind(path)
        finally:
            os.umask(before)
    listener.listen()
    return listener


def ask(state: StateDir, word: Word, *, until_gone_seconds: float = 0.0) -> Mapping[str, Any] | None:
    """What the running `up` answers, or None when there is none.

    With ``until_gone_seconds`` returns when that `up` has ended.

    Raises:
        TimeoutError: no answer, or it has not ended within the time.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.settimeout(ANSWER_SECONDS)
        try:
            with _short_path(state) as path:
                client.connect(path)
            client.sendall(f"{word}\n".encode())
            answer = _read_line(client)
            if until_gone_seconds:
                client.settimeout(until_gone_seconds)
                while client.recv(LINE_BYTES_MAX):  # ends when the kernel closes what the ended process had open
                    pass
        except (FileNotFoundError, ConnectionRefusedError, ConnectionResetError, BrokenPipeError):
            return None
        except PermissionError:
            raise NotUp(f"{state.path / SOCKET_NAME} belongs to another user") from None
    found: Mapping[str, Any] | None = json.loads(answer) if answer else None
    return found


def _read_line(client: socket.socket) -> bytes:
    data = b""
    while not data.endswith(b"\n") and len(data) < LINE_BYTES_MAX:
        more = client.recv(LINE_BYTES_MAX)
        if not more:
            break
        data += more
    return data


@contextmanager
def _short_path(state: StateDir) -> Iterator[str]:
    """The socket by way of its directory's descriptor: its own path may be longer than a socket address can be."""
    directory = os.open(state.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{directory}/{SOCKET_NAME}"
    finally:
        os.close(directory)
