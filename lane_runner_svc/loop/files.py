"""A look at files, beside the event loop: a directory may be slow, or hang for ever."""

from __future__ import annotations

import contextlib
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from typing import Final

from lanewarden import aside

FILES_MAX: Final = 10_000
"""Of those that match no more are looked at."""


async def fingerprint(directory: str, pattern: str) -> int:
    """A number that is another when a file that matches has another size or time, came or went."""
    return await aside.begin(lambda: _fingerprint(Path(directory), pattern), name=f"look at {pattern}")


def _fingerprint(directory: Path, pattern: str) -> int:
    digest = blake2b(digest_size=8)
    for path in sorted(islice(directory.glob(pattern), FILES_MAX)):
        with contextlib.suppress(OSError):  # it has just gone
            found = path.stat()
            digest.update(f"{path}\0{found.st_size}\0{found.st_mtime_ns}\0".encode("utf-8", "surrogateescape"))
    return int.from_bytes(digest.digest()) >> 1
