"""A look at files, beside the event loop: a directory may be slow, or hang for ever.

What Lanewarden itself writes is not looked at, wherever the pattern leads: a reading is stored, and would be another then.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import cache
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from typing import Final

from lanewarden import aside
from lanewarden.store.directory import LOCK_NAME

FILES_MAX: Final = 10_000
"""Of those that match no more are looked at."""
UP_LOCK: Final = "up.lock"
DATABASES: Final = ("runner.sqlite3", "supervisor.sqlite3")
"""With a lock beside it, one of them makes a directory that of a service's state."""


async def fingerprint(directory: str, pattern: str) -> int:
    """A number that is another when a file that matches has another size or time, came or went; no service's own file."""
    return await aside.begin(lambda: _fingerprint(Path(directory), pattern), name=f"look at {pattern}")


def _fingerprint(directory: Path, pattern: str) -> int:
    digest = blake2b(digest_size=8)
    keeps_state = cache(_keeps_state)
    others = (path for path in directory.glob(pattern) if not _is_own(path, keeps_state))
    for path in sorted(islice(others, FILES_MAX)):
        with contextlib.suppress(OSError):  # it has just gone
            found = path.stat()
            digest.update(f"{path}\0{found.st_size}\0{found.st_mtime_ns}\0".encode("utf-8", "surrogateescape"))
    return int.from_bytes(digest.digest()) >> 1


def _is_own(path: Path, keeps_state: Callable[[Path], bool]) -> bool:
    """Whether a service writes this file, or ``lanewarden up`` for its services."""
    up = path.parent.parent if path.parent.name == "logs" else path.parent
    return (up / UP_LOCK).exists() or any(keeps_state(each) for each in path.parents)


def _keeps_state(directory: Path) -> bool:
    return (directory / LOCK_NAME).exists() and any((directory / name).exists() for name in DATABASES)
