"""Which runner gets a new task; pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lanewarden.errors import Reason, refuse


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A runner as far as the choice goes."""

    runner_id: str
    lanes: Sequence[str]
    live: bool
    unfinished: int


def choose_runner(candidates: Sequence[Candidate], *, named: str, lane: str) -> str:
    """The named runner; otherwise, of those that have the lane, a live one before others, then the one with the fewest
    unfinished tasks.

    Raises:
        Refusal: RUNNER_UNKNOWN, LANE_UNKNOWN, or RUNNER_UNREACHABLE when no runner has ever registered.
    """
    known = ", ".join(sorted(each.runner_id for each in candidates)) or "none"
    if named:
        if all(each.runner_id != named for each in candidates):
            raise refuse(Reason.RUNNER_UNKNOWN, f"no runner {named!r} here; known: {known}", runner=named)
        return named
    if not candidates:
        raise refuse(
            Reason.RUNNER_UNREACHABLE,
            "no runner has registered; start one, then send this again; nothing was stored",
            stored="false",
        )
    able = [each for each in candidates if not lane or lane in each.lanes]
    if not able:
        lanes = ", ".join(sorted({each for candidate in candidates for each in candidate.lanes})) or "none"
        raise refuse(Reason.LANE_UNKNOWN, f"no runner has the lane {lane!r}; lanes: {lanes}", lane=lane)
    return min(able, key=lambda each: (not each.live, each.unfinished, each.runner_id)).runner_id
