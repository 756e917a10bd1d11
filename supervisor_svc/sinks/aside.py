"""The blocking part of a sink, done beside the event loop, one piece at a time."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
import ssl
import traceback
from collections.abc import Callable

from lanewarden.aside import begin
from supervisor_svc.sinks import SinkFailed

log = logging.getLogger(__name__)


class Aside:
    """Runs the blocking part of one sink for at most ``seconds``, and never two of them at once."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._busy = False

    async def run(self, work: Callable[[], None]) -> None:
        """Do ``work`` and return when it is done.

        Raises:
            SinkFailed: as the work did, when it met another error, or when it is not done in time. Then it goes on by
                itself, and until it ends every other piece of work is refused.
        """
        if self._busy:
            raise SinkFailed("the try before has not ended yet")
        self._busy = True
        done = begin(lambda: _failure(work), name="sink")
        done.add_done_callback(self._ended)
        try:
            async with asyncio.timeout(self._seconds):
                failed = await asyncio.shield(done)
        except TimeoutError:
            raise SinkFailed(f"not done within {self._seconds:g} s") from None
        if failed is not None:
            raise failed

    def _ended(self, _: asyncio.Future[SinkFailed | None]) -> None:
        self._busy = False


def _failure(work: Callable[[], None]) -> SinkFailed | None:
    try:
        work()
    except SinkFailed as failed:
        return failed
    except OSError as error:
        return SinkFailed(cause_of(error))
    except Exception as error:  # noqa: BLE001 - whatever one sink meets is nobody else's affair
        where = traceback.format_tb(error.__traceback__)[-1].strip()
        # What it says may be a URL, which may be a secret.
        log.warning("a sink met an error that it does not know", extra={"error": type(error).__name__, "where": where})
        return SinkFailed(type(error).__name__)
    return None


def cause_of(error: BaseException) -> str:
    """A system's error in a few words, such as "Connection refused"."""
    match error:
        case TimeoutError():
            return "timed out"
        case ssl.SSLError():  # its numbers are not the system's
            return f"TLS failed: {getattr(error, 'reason', '')}".removesuffix(": ")
        case socket.gaierror():
            return "the host's name is not known"
        case OSError(errno=int(number)) if number in errno.errorcode:
            return os.strerror(number)
    return type(error).__name__
