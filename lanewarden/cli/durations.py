"""Spans of time as people type them and as they are shown: ``90s``, ``30m``, ``2h``, ``1d``."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import click

_TEXT: Final = re.compile(r"([0-9]{1,6})([smhd])")
_UNIT_SECONDS: Final = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}


def parse(text: str) -> timedelta:
    """The span that ``text`` says.

    Raises:
        ValueError: it says none.
    """
    match = _TEXT.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a duration such as 90s, 30m, 2h or 1d")
    return timedelta(seconds=int(match[1]) * _UNIT_SECONDS[match[2]])


def exact(seconds: int) -> str:
    """The span in the largest unit that says it exactly: ``90m``, ``2h``."""
    return next(f"{seconds // size}{unit}" for unit, size in _UNIT_SECONDS.items() if not seconds % size)


def rough(seconds: int) -> str:
    """The span in the largest unit that it reaches, the rest left out: ``1h`` for 90 minutes."""
    return next((f"{seconds // size}{unit}" for unit, size in _UNIT_SECONDS.items() if seconds >= size), "0s")


def given(ctx: click.Context, param: click.Parameter, value: str | None) -> timedelta | None:
    """The callback of an option or argument that is a span of time."""
    import click  # here and not above: the worker's verbs, which begin often, know spans of time too

    if value is None:
        return None
    try:
        return parse(value)
    except ValueError as problem:
        raise click.BadParameter(str(problem), ctx, param) from None
