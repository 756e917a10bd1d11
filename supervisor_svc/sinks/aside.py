"""Work that blocks, done beside the event loop, one piece at a time.

A daemon thread for each piece: whatever hangs in it holds up neither the loop nor the end of the process.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
import ssl
import threading
from collections.abc import Callable

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
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()
        self._busy = True

        def settle(failed: SinkFailed | None) -> None:
            self._busy = False
            if done.done():
                return
            if failed is None:
                done.set_result(None)
            else:
                done.set_exception(failed)

        def body() -> None:
            failed = _failure(work)
            try:
                loop.call_soon_threadsafe(settle, failed)
            except RuntimeError:  # the loop is closed: nobody waits any more
                return

        threading.Thread(target=body, daemon=True, name="sink").start()
        try:
            async with asyncio.timeout(self._seconds):
                await done
        except TimeoutError:
            raise SinkFailed(f"not done within {self._seconds:g} s") from None


def _failure(work: Callable[[], None]) -> SinkFailed | None:
    try:
        work()
    except SinkFailed as failed:
        return failed
    except OSError as error:
        return SinkFailed(cause_of(error))
    except Exception as error:  # whatever one sink meets is nobody else's affair
        log.warning("a sink met an error that it does not know", exc_info=error)
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
