"""Work that blocks, done beside the event loop in a daemon thread of its own: whatever hangs in it holds up neither the loop
nor the end of the process.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def begin(work: Callable[[], T], *, name: str) -> asyncio.Future[T]:
    """Begin ``work`` in a thread called ``name``; what it comes to, its result or its error. Whoever gives up waiting does
    not end it.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def body() -> None:
        try:
            result = work()
        except Exception as error:  # noqa: BLE001 - it is raised again where the work was asked for
            tell(done.set_exception, error)
        else:
            tell(done.set_result, result)

    def tell(settle: Callable[..., None], outcome: object) -> None:
        try:
            loop.call_soon_threadsafe(lambda: None if done.done() else settle(outcome))
        except RuntimeError:  # the loop is closed: nobody waits any more
            return

    threading.Thread(target=body, daemon=True, name=name).start()
    return done
