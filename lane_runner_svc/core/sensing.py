"""Progress that is derived from what a program does, for one that cannot report it; pure."""

from __future__ import annotations

import enum


class Source(enum.Enum):
    """What is looked at; the names are those of ``lanewarden.v1.ProgressSource``."""

    OUTPUT_LINES = "output_lines"
    FILES = "files"


def steps(source: Source, before: int | None, now: int) -> int:
    """How many steps an attempt has made between two readings; ``before`` is None at its first.

    Of output a reading is the number of lines since the launch. Of files it is a fingerprint: what changed between two
    looks is one step, and the first look, which finds what was there before, is none.
    """
    if source is Source.OUTPUT_LINES:
        return max(0, now - (before or 0))
    return int(before is not None and before != now)
