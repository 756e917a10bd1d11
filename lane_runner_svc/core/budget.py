"""How long to wait before the next launch."""

from __future__ import annotations

from typing import Final

BACKOFF_FIRST_MS: Final = 1_000
BACKOFF_MAX_MS: Final = 60_000


def backoff_ms(failures: int, jitter: float) -> int:
    """The delay after the ``failures``-th mishap in a row: full jitter below a bound that doubles from 1 s to 60 s.

    ``jitter`` is a number in [0, 1) drawn by the caller. Full jitter, because runners that failed together must not
    come back together.
    """
    if failures < 1:
        return 0
    bound = min(BACKOFF_MAX_MS, BACKOFF_FIRST_MS << min(failures - 1, 16))
    return int(bound * jitter)
