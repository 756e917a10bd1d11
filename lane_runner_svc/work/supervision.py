"""The fence: what a supervisor does by itself has an effect only while it supervises this runner (I6)."""

from __future__ import annotations

from lane_runner_svc.store import supervision
from lane_runner_svc.work.session import Session
from lanewarden.errors import Reason, refuse


def fence(session: Session, generation: int) -> None:
    """Let an automatic action pass; called inside its unit of work, so that no grant can come between.

    Raises:
        Refusal: SUPERVISION_FENCED when ``generation`` is not the current one, or its lease has ended.
    """
    current = supervision.load(session.uow)
    if current.live and generation == current.generation:
        return
    raise refuse(
        Reason.SUPERVISION_FENCED,
        f"generation {generation} may not act at this runner, the current one is {current.generation}; somebody else"
        " supervises it or the lease has ended: do nothing more about its tasks until it has registered with you again",
        generation=generation,
        current_generation=current.generation,
    )
