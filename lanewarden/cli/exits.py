"""What the exit codes of ``lanewarden`` mean: one table, shown by ``--help`` and by the README of this folder."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final

from lanewarden.errors import Code, Reason, Refusal


class Exit(enum.IntEnum):
    """The exit codes."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    NOT_UP = 3
    REFUSED = 4
    HELD = 5
    REJECTED = 10
    REVISE = 11
    DEFECT = 70
    INTERRUPTED = 130


MEANINGS: Final[Mapping[Exit, str]] = {
    Exit.DONE: "done; the task succeeded; the ruling is approve or choose",
    Exit.FAILED: "the task or its on_success command failed; it was canceled or settled; `check` or `doctor` found a fault",
    Exit.USAGE: "the input cannot be used: a wrong argument, an ambiguous id, a text over its limit",
    Exit.NOT_UP: "the services are not up, cannot be reached, or cannot be started",
    Exit.REFUSED: "a service refused; the line says `REASON: sentence`",
    Exit.HELD: "still held: `worker await --timeout` passed without a ruling",
    Exit.REJECTED: "`worker await`: the ruling is reject",
    Exit.REVISE: "`worker await`: the ruling is revise",
    Exit.DEFECT: "a defect of Lanewarden's own; please report what it printed",
    Exit.INTERRUPTED: "interrupted by Ctrl-C, or its reader has gone; what runs goes on running",
}


def of_refusal(refusal: Refusal) -> Exit:
    """The exit code that a refusal ends a command with."""
    if refusal.reason is Reason.UNEXPECTED:
        return Exit.DEFECT
    if refusal.reason.code is Code.INVALID_ARGUMENT:
        return Exit.USAGE
    if refusal.reason.code in (Code.UNAVAILABLE, Code.DEADLINE_EXCEEDED):
        return Exit.NOT_UP
    return Exit.REFUSED


def table() -> list[str]:
    """The table as lines of plain text."""
    return [f"{code.value:>5}  {meaning}" for code, meaning in MEANINGS.items()]
