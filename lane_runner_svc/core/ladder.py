"""The ladder of a context window: at how many tokens a checkpoint is written, and when a reduction is due; pure.

Rules about this file: every trigger lies above what a reduction leaves, or there is no ladder and the refusal shows the
arithmetic. Otherwise a reduction would call for the next one without end, however well each was discharged.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from lanewarden.errors import invalid

K: Final = 1000
RESERVE_TOKENS_DEFAULT: Final = 13 * K
REDUCED_TOKENS_DEFAULT: Final = 4096
REDUCTIONS_MAX_DEFAULT: Final = 24
WRITER_WAIT_MS_DEFAULT: Final = 180_000
WRITER_FAILURES_MAX_DEFAULT: Final = 3
_BANDS: Final = (
    (25 * K, ()),
    (200 * K + 1, (20, 40, 60, 80)),
    (500 * K + 1, tuple(range(10, 100, 10))),
)
"""Windows below so many tokens have rungs at so many per cent (DESIGN section 9)."""
_BEYOND: Final = tuple(range(5, 95, 5))


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """How a task wants its context window looked after. ``command``: the checkpoint writer is a command, not the worker."""

    window_tokens: int = 0
    rungs: tuple[int, ...] = ()
    reserve_tokens: int = RESERVE_TOKENS_DEFAULT
    reduced_tokens: int = REDUCED_TOKENS_DEFAULT
    reductions_max: int = REDUCTIONS_MAX_DEFAULT
    command: bool = False
    writer_wait_ms: int = WRITER_WAIT_MS_DEFAULT
    writer_failures_max: int = WRITER_FAILURES_MAX_DEFAULT


@dataclass(frozen=True, slots=True, kw_only=True)
class Ladder:
    """``rungs`` rise; none is beyond ``limit``, from which on the window has overflowed."""

    rungs: tuple[int, ...]
    limit: int


def ladder(window_tokens: int, wish: Wish) -> Ladder:
    """The ladder of a window of that size.

    Raises:
        Refusal: REQUEST_INVALID, with the arithmetic, when a trigger is not above what a reduction leaves.
    """
    reserve, reduced = wish.reserve_tokens, wish.reduced_tokens
    limit = window_tokens - reserve
    if limit <= reduced:
        arithmetic = (
            f"{window_tokens} tokens less a reserve of {reserve} is {limit}, and a reduction leaves up to {reduced}"
        )
        remedy = (
            f"take a window above {reserve + reduced}, or a smaller context.reserve_tokens or context.reduced_tokens"
        )
        raise invalid(("context.window_tokens", f"{arithmetic}: it would never help; {remedy}"))
    rungs = tuple(sorted({min(rung, limit) for rung in wish.rungs or defaults(window_tokens)}))
    if rungs and rungs[-1] <= reduced:
        arithmetic = f"the last rung is at {rungs[-1]} tokens, and a reduction leaves up to {reduced}"
        remedy = "set the rung higher, or a smaller context.reduced_tokens"
        raise invalid(("context.rungs", f"{arithmetic}: it would be crossed again at once; {remedy}"))
    return Ladder(rungs=rungs, limit=limit)


def defaults(window_tokens: int) -> tuple[int, ...]:
    """The rungs of a task that names none."""
    percents = next((percents for below, percents in _BANDS if window_tokens < below), _BEYOND)
    return tuple(window_tokens * percent // 100 for percent in percents)
