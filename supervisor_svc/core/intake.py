"""Which of a runner's items come next; pure."""

from __future__ import annotations

from collections.abc import Sequence


def takeable(taken: int, sequences: Sequence[int]) -> list[int]:
    """The indexes of the items to take, in order: what was taken before is passed over, and a gap ends it."""
    indexes = []
    for index, sequence in enumerate(sequences):
        if sequence <= taken:
            continue
        if sequence != taken + 1:
            break
        indexes.append(index)
        taken = sequence
    return indexes
