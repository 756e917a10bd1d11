"""What code runs: the version, and a hash of the sources, so that two services can be told apart or found alike."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

PACKAGES: Final = ("lanewarden", "lane_runner_svc", "supervisor_svc")
"""They are released together, so both services hash all of them: equal hashes mean equal code on both sides."""
HASH_DIGITS: Final = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Build:
    """``hash`` is that of the sources, in hexadecimal; ``version`` the release that they say they are."""

    version: str
    hash: str


UNKNOWN: Final = Build(version="", hash="")
"""For parts that no process runs."""


def installed(root: Path = Path(__file__).parents[1]) -> Build:
    """The build in ``root``, read from disk now.

    A service asks once, as soon as it starts, while the files are those that it has just loaded; an upgrade under its feet
    changes the files and not what it says of itself.
    """
    digest = hashlib.sha256()
    for path in sorted(path for package in PACKAGES for path in (root / package).rglob("*.py")):
        source = path.read_bytes()
        digest.update(f"{path.relative_to(root).as_posix()}\0{len(source)}\0".encode())
        digest.update(source)
    return Build(version=released(), hash=digest.hexdigest()[:HASH_DIGITS])


def released() -> str:
    """The release that the sources say they are."""
    try:
        return version("lanewarden")
    except PackageNotFoundError:  # run from a source tree
        return "unknown"
