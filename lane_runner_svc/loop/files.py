"""A look at files, beside the event loop: a directory may be slow, or hang for ever."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from typing import Final

FILES_MAX: Final = 10_000
"""Of those that match no more are looked at."""


async def fingerprint(directory: str, pattern: str) -> int:
    """A number that is another when a file that matches has another size or time, came or went.

    In a thread of its own, for which no exit of this process waits.
    """
    loop = asyncio.get_running_loop()
    found: asyncio.Future[int] = loop.create_future()

    def tell(number: int, error: Exception | None) -> None:
        if found.cancelled():
            return
        if error is None:
            found.set_result(number)
        else:
            found.set_exception(error)

    def look() -> None:
        number, error = 0, None
        try:
            number = _fingerprint(Path(directory), pattern)
        except Exception as caught:  # noqa: BLE001 - it is raised again where the look was asked for
            error = caught
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(tell, number, error)

    threading.Thread(target=look, name=f"look at {pattern}", daemon=True).start()
    return await found


def _fingerprint(directory: Path, pattern: str) -> int:
    digest = blake2b(digest_size=8)
    for path in sorted(islice(directory.glob(pattern), FILES_MAX)):
        with contextlib.suppress(OSError):  # it has just gone
            found = path.stat()
            digest.update(f"{path}\0{found.st_size}\0{found.st_mtime_ns}\0".encode("utf-8", "surrogateescape"))
    return int.from_bytes(digest.digest()) >> 1
