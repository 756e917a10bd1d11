"""Notifications to a program of the operator's own."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from typing import IO, Final

from supervisor_svc.sinks import SEND_SECONDS, SinkFailed
from supervisor_svc.sinks.aside import Aside
from supervisor_svc.store.notifications import Notification

KEY_VARIABLE: Final = "LANEWARDEN_NOTIFICATION_KEY"
_LOOK_SECONDS: Final = 0.05
_SLACK_SECONDS: Final = 1.0


class CommandSink:
    """Runs a program for each notification: the JSON on its standard input, the key in ``LANEWARDEN_NOTIFICATION_KEY``.

    Exit code 0 is delivered. A program that takes too long is killed with its process group. What it prints is dropped.
    """

    def __init__(
        self, name: str, argv: Sequence[str], *, environment: Mapping[str, str], seconds: float = SEND_SECONDS
    ) -> None:
        self.name = name
        self._argv = list(argv)
        self._environment = dict(environment)
        self._seconds = seconds
        self._aside = Aside(seconds + _SLACK_SECONDS)

    async def send(self, notification: Notification) -> None:
        """Run the program to its end; it is killed, too, when nobody waits for it any more."""
        given_up, ended = threading.Event(), threading.Event()

        def work() -> None:
            try:
                self._run(notification, given_up)
            finally:
                ended.set()

        try:
            await self._aside.run(work)
        except asyncio.CancelledError:
            given_up.set()
            ended.wait(_SLACK_SECONDS)  # the process may be about to end, and must not leave the program behind
            raise

    def _run(self, notification: Notification, given_up: threading.Event) -> None:
        with (
            _in_memory(notification.payload.encode()) as given,
            subprocess.Popen(
                self._argv,
                stdin=given,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={**self._environment, KEY_VARIABLE: notification.key},
                start_new_session=True,
            ) as process,
        ):
            if not _ends(process, time.monotonic() + self._seconds, given_up):
                # Ours, and not reaped yet, so the number cannot be anybody else's.
                os.killpg(process.pid, signal.SIGKILL)
                raise SinkFailed(f"killed because it did not end within {self._seconds:g} s")
        if process.returncode < 0:
            raise SinkFailed(f"ended by signal {-process.returncode}")
        if process.returncode:
            raise SinkFailed(f"exited with code {process.returncode}")


def _in_memory(data: bytes) -> IO[bytes]:
    """A file to read ``data`` from: no pipe, whose writer waits for its reader, and on no disk, which may be full."""
    on_linux = hasattr(os, "memfd_create")
    file = os.fdopen(os.memfd_create("notification"), "w+b") if on_linux else tempfile.TemporaryFile()  # noqa: SIM115
    file.write(data)
    file.seek(0)
    return file


def _ends(process: subprocess.Popen[bytes], end: float, given_up: threading.Event) -> bool:
    """Whether the program ends in time."""
    while True:
        try:
            process.wait(_LOOK_SECONDS)
        except subprocess.TimeoutExpired:
            if given_up.is_set() or time.monotonic() >= end:
                return False
        else:
            return True
