"""Lines for people and documents for programs; imports nothing heavy."""

from __future__ import annotations

import sys
from typing import Any, TextIO


def one_line(text: str) -> str:
    """``text`` on one line, with whatever a terminal would act on, or UTF-8 cannot carry, shown as an escape."""
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text)


def lines(text: str) -> list[str]:
    """``text`` line by line, each made safe as by :func:`one_line`."""
    return [one_line(line) for line in text.splitlines()] or [""]


def complain(text: str) -> None:
    """One line on stderr."""
    print(one_line(text), file=sys.stderr)


def write_json(document: Any, *, stream: TextIO | None = None) -> None:
    """One JSON document on one line; ASCII, so that every terminal and encoding can carry it."""
    import json

    print(json.dumps(document), file=stream or sys.stdout)
