"""Units of work about checkpoints that are being written: how each ends, once."""

from __future__ import annotations

from lane_runner_svc.core.checkpoints import CheckpointState, Written
from lane_runner_svc.store import contexts
from lane_runner_svc.work.session import AttemptRef, Session


def ended(session: Session, checkpoint_id: str, written: Written) -> bool:
    """Store what a start of the writer came to, matched by its id; whether that was news. Of one that has ended already, as
    one that is no longer needed, nothing more is heard.
    """
    checkpoint = contexts.find_checkpoint(session.uow, checkpoint_id)
    if checkpoint is None or not checkpoint.in_flight:
        return False
    session.end_checkpoint(
        checkpoint, written.state, detail=written.detail, failure=written.failure, content=written.content
    )
    return True


def worker_ended(session: Session, ref: AttemptRef) -> None:
    """What the attempt's worker was writing itself nobody writes any more. A command goes on: the next attempt can use
    what it writes.
    """
    for checkpoint in contexts.in_flight(session.uow, ref.task_id):
        if not checkpoint.command:
            superseded(session, checkpoint.checkpoint_id, f"attempt {ref.attempt}, which was writing it, has ended")


def superseded(session: Session, checkpoint_id: str, detail: str) -> None:
    """Nobody needs a checkpoint any more."""
    ended(session, checkpoint_id, Written(state=CheckpointState.SUPERSEDED, detail=detail))
