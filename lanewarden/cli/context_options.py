"""The options of ``run`` for a worker with a context window."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import click

from lanewarden.cli import durations
from lanewarden.v1 import context_pb2


def words(ctx: click.Context, param: click.Parameter, value: str | None) -> list[str]:
    """A command in one argument, taken apart as a shell would, and as little else of one."""
    if value is None:
        return []
    try:
        words = shlex.split(value)
    except ValueError:
        raise click.BadParameter(f"{value!r} has a quotation mark without its other half", ctx, param) from None
    if not words:
        raise click.BadParameter("there is no command in it", ctx, param)
    return words


_OPTIONS = (
    click.option(
        "--checkpoint-writer",
        "writer",
        callback=words,
        metavar="CMD",
        help="A command that writes a checkpoint of the worker's context (default: the worker does, when it is told to).",
    ),
    click.option(
        "--checkpoint-wait",
        "writer_wait",
        callback=durations.given,
        metavar="D",
        help="How long a reduction waits for it (default 3m).",
    ),
    click.option(
        "--context-window",
        "window_tokens",
        type=click.IntRange(1),
        metavar="N",
        help="The size of the worker's context (default: what the worker says).",
    ),
    click.option(
        "--context-rung",
        "rungs",
        type=click.IntRange(1),
        multiple=True,
        metavar="N",
        help="Tokens at which a checkpoint is written; repeatable. The last calls for a reduction (default by window).",
    ),
    click.option(
        "--context-reserve",
        "reserve_tokens",
        type=click.IntRange(0),
        metavar="N",
        help="What is kept free for one more turn (default 13000).",
    ),
    click.option(
        "--context-reduced",
        "reduced_tokens",
        type=click.IntRange(0),
        metavar="N",
        help="The most that a reduction leaves (default 4096).",
    ),
    click.option(
        "--reductions",
        "reductions_max",
        type=click.IntRange(0, 1000),
        metavar="N",
        help="Of its context, at most (default 24).",
    ),
)


def context_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options, to put above a command's own."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def context_spec(
    *,
    writer: Sequence[str],
    writer_wait: timedelta | None,
    window_tokens: int | None,
    rungs: Sequence[int],
    reserve_tokens: int | None,
    reduced_tokens: int | None,
    reductions_max: int | None,
) -> context_pb2.ContextSpec | None:
    """What they say, in the contract's words; None when nothing was given. What was not is left to the runner."""
    spec = context_pb2.ContextSpec(
        writer=writer,
        writer_wait=writer_wait,
        window_tokens=window_tokens,
        rungs=rungs,
        reserve_tokens=reserve_tokens,
        reduced_tokens=reduced_tokens,
        reductions_max=reductions_max,
    )
    return spec if spec.ByteSize() else None
