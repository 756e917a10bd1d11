"""The runner's end of the spawner: ask for a shim, get its report."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import subprocess
from collections.abc import Mapping
from typing import Any

from .spawn_loop import FRAME_BYTES_MAX, program

_CLOSE_SECONDS = 2.0
_READ_BYTES = 64 * 1024


class SpawnerDied(Exception):  # noqa: N818 - the process ended; whether the launch happened is not known
    """The spawner's process ended before it answered."""


class Spawner:
    """The helper process that starts shims. :meth:`start` it before gRPC starts its threads; one per host."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._reader: asyncio.Task[None] | None = None
        self._pending: dict[int, asyncio.Future[Mapping[str, Any]]] = {}
        self._sending = asyncio.Lock()
        self._requests = 0

    @property
    def pid(self) -> int | None:
        """The helper's pid while it is believed to run."""
        return self._process.pid if self._process else None

    def start(self) -> None:
        """Start the helper, or do nothing when it runs. Blocks for the time of one exec."""
        if self._process is not None:
            return
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [*program("spawn_loop"), str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                # A session of its own: a Ctrl-C meant for the runner must not end it first.
                start_new_session=True,
            )
        ours.setblocking(False)
        self._control = ours

    async def launch(self, directory: str, name: str, spec: Mapping[str, object]) -> Mapping[str, Any]:
        """Have a shim started in ``directory`` and return its report; raises :class:`SpawnerDied`.

        ``name`` is what people see in a process list. A frame above ``FRAME_BYTES_MAX`` is a ValueError.
        """
        control, loop = self._control, asyncio.get_running_loop()
        if control is None:
            raise SpawnerDied
        if self._reader is None:
            self._reader = loop.create_task(self._read_answers(control), name="spawner")
        self._requests += 1
        request_id = self._requests
        body = json.dumps({"id": request_id, "directory": directory, "name": name, "spec": spec}).encode()
        if len(body) > FRAME_BYTES_MAX:
            raise ValueError("the launch is larger than any kernel would take")
        answer = self._pending[request_id] = loop.create_future()
        try:
            async with self._sending:
                await loop.sock_sendall(control, len(body).to_bytes(4, "big") + body)
            report: Mapping[str, Any] = await answer
        except OSError:
            answer.cancel()
            if self._control is control:  # not when another launch has replaced the helper meanwhile
                self._lost()
            raise SpawnerDied from None
        finally:
            del self._pending[request_id]
        return report

    def close(self) -> None:
        """End the helper; shims and workers go on. Launches under way end in :class:`SpawnerDied`."""
        self._lost()

    async def _read_answers(self, control: socket.socket) -> None:
        loop, inbox = asyncio.get_running_loop(), b""
        with contextlib.suppress(OSError):
            while data := await loop.sock_recv(control, _READ_BYTES):
                inbox += data
                while len(inbox) >= 4 and len(inbox) >= (end := 4 + int.from_bytes(inbox[:4], "big")):
                    message, inbox = json.loads(inbox[4:end]), inbox[end:]
                    answer = self._pending.get(message["id"])
                    if answer is not None and not answer.done():
                        answer.set_result(message)
        if self._control is control:
            self._lost()

    def _lost(self) -> None:
        """Forget the helper, tell whoever waits, reap it. It ends by itself once its socket is closed."""
        if self._reader is not None:
            self._reader.cancel()
            self._reader = None
        if self._control is not None:
            self._control.close()
            self._control = None
        for answer in self._pending.values():
            if not answer.done():
                answer.set_exception(SpawnerDied())
        if self._process is not None:
            try:
                self._process.wait(_CLOSE_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None
