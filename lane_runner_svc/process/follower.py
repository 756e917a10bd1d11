"""Following one attempt, from its shim's first word to its end."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import socket
from collections.abc import Callable
from typing import Any

from .directory import AttemptDirectory
from .model import ExitRecord, OutputTotals, WorkerIdentity

_log = logging.getLogger(__name__)

_PACKET_BYTES_MAX = 16 * 1024
_RETRY_SECONDS = 0.01
_RETRY_SECONDS_MAX = 0.5


class Follower:
    """One attempt that is believed to run.

    Ends by calling ``on_end`` once, when no process of it is left: the record, and whether ``known`` told it.
    """

    def __init__(
        self,
        directory: AttemptDirectory,
        *,
        identity: WorkerIdentity | None,
        on_end: Callable[[ExitRecord, bool], None],
        on_output: Callable[[OutputTotals], None],
    ) -> None:
        self.directory = directory
        self.identity = identity
        self.known: asyncio.Future[WorkerIdentity | ExitRecord] = asyncio.get_running_loop().create_future()
        """The first certain news: the worker that runs, or the end. Cancelled when the host waits no more."""
        if identity is not None:
            self.known.set_result(identity)
        self._on_end, self._on_output = on_end, on_output
        self._grace_seconds: float | None = None
        self._shim: socket.socket | None = None
        self._task = asyncio.create_task(self._follow(), name=f"follow {directory.key}")

    async def stop(self, grace_seconds: float) -> None:
        """Ask the shim to run the stop ladder, now or as soon as it can be reached."""
        shorter = self._grace_seconds is None or grace_seconds < self._grace_seconds
        self._grace_seconds = grace_seconds if shorter else self._grace_seconds
        await self._send_stop()

    async def close(self) -> None:
        """Stop following; the shim does not notice."""
        self._task.cancel()
        await asyncio.wait([self._task])

    async def _follow(self) -> None:
        """Until the end is known: talk to the shim while it is there, look at what it left when it is not.

        Each round ends in one of three ways: the end is on disk; the lock is free, so the shim is gone and
        the attempt can be settled; or a shim is alive and not listening yet, or no longer. Bounded by the
        life of the shim.
        """
        retry_seconds = _RETRY_SECONDS
        record: ExitRecord | None = None
        while record is None:
            try:
                record = await self._converse() or await self._settle()
            except OSError as error:
                # A full or broken disk: the end is not told before it is certain.
                _log.warning("attempt %s cannot be looked at: %s", self.directory.key, error.strerror)
            if record is None:
                await asyncio.sleep(retry_seconds)
                retry_seconds = min(2 * retry_seconds, _RETRY_SECONDS_MAX)
        told = not self.known.done()
        if told:
            self.known.set_result(record)
        self._on_end(record, told)

    async def _settle(self) -> ExitRecord | None:
        """Settle an attempt that has no shim; None when it has one."""
        self.directory.create()
        lock = self.directory.try_lock()
        if lock is None:
            return None
        # The lock goes when the work is done, not when this task is cancelled: the thread goes on.
        work = asyncio.get_running_loop().run_in_executor(None, self.directory.settle)
        work.add_done_callback(lambda _: os.close(lock))
        return await asyncio.shield(work)

    async def _converse(self) -> ExitRecord | None:
        """Hear the shim out; the exit record if it told one."""
        loop = asyncio.get_running_loop()
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as shim:
            shim.setblocking(False)
            if not self._connect(shim):
                return None
            try:
                while packet := await loop.sock_recv(shim, _PACKET_BYTES_MAX):
                    record = await self._hear(shim, json.loads(packet))
                    if record is not None:
                        return record
            except OSError:
                return None  # it died with our words unread
            finally:
                self._shim = None
        return None

    def _connect(self, shim: socket.socket) -> bool:
        # By way of the directory's descriptor: its own path may be longer than a socket address can be.
        try:
            directory = os.open(self.directory.path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            shim.connect(f"/proc/self/fd/{directory}/{self.directory.socket_name}")
        except (FileNotFoundError, ConnectionRefusedError, BlockingIOError):
            return False
        finally:
            os.close(directory)
        return True

    async def _hear(self, shim: socket.socket, message: dict[str, Any]) -> ExitRecord | None:
        if message["type"] == "hello":
            key = self.directory.key
            if (message["task_id"], message["epoch"], message["attempt"]) != (
                key.task_id,
                key.epoch,
                key.attempt,
            ):
                raise OSError(0, "the shim in this directory serves another attempt")
            self.identity = WorkerIdentity(
                pid=message["pid"], start_ticks=message["start_ticks"], boot_id=message["boot_id"]
            )
            if not self.known.done():
                self.known.set_result(self.identity)
            self._shim = shim
            await self._send_stop()
        if message.get("exit"):
            return ExitRecord.from_json(message["exit"])
        if message["type"] in {"hello", "output"}:
            self._on_output(OutputTotals(log_bytes=message["log_bytes"], log_lines=message["log_lines"]))
        return None

    async def _send_stop(self) -> None:
        if self._shim is None or self._grace_seconds is None:
            return
        packet = json.dumps({"type": "stop", "grace_ms": round(self._grace_seconds * 1000)}).encode()
        with contextlib.suppress(OSError):  # the shim has just ended; the follower finds out how
            await asyncio.get_running_loop().sock_sendall(self._shim, packet)
