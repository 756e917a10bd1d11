"""How long to wait before the next launch: after one mishap, and after many in a short time."""

from __future__ import annotations

from typing import Final

BACKOFF_FIRST_MS: Final = 1_000
BACKOFF_MAX_MS: Final = 60_000
LAUNCHES_MAX: Final = 5
"""How many launches of a task may come to nothing within :data:`WINDOW_MS` before the next one waits."""
WINDOW_MS: Final = 10 * 60 * 1000


def backoff_ms(failures: int, jitter: float) -> int:
    """The delay after the ``failures``-th mishap in a row: full jitter below a bound that doubles from 1 s to 60 s.

    ``jitter`` is a number in [0, 1) drawn by the caller. Full jitter, because runners that failed together must not
    come back together.
    """
    if failures < 1:
        return 0
    bound = min(BACKOFF_MAX_MS, BACKOFF_FIRST_MS << min(failures - 1, 16))
    return int(bound * jitter)


def spent(fruitless_ms: tuple[int, ...], claimed_ms: int) -> tuple[int, ...]:
    """The steady times of the latest launches that came to nothing, with one more; no more than can matter."""
    return (*fruitless_ms, claimed_ms)[-LAUNCHES_MAX:]


def window_opens_ms(fruitless_ms: tuple[int, ...]) -> int:
    """When the next launch may be, so that no ten minutes see more than five that come to nothing; 0: at once.

    Steady time: it goes on over restarts, and nobody can set it.
    """
    return fruitless_ms[0] + WINDOW_MS if len(fruitless_ms) == LAUNCHES_MAX else 0
