"""What units of work tell telemetry: which state moved, of what, and why. No text that anybody wrote is part of it."""

from __future__ import annotations

from lane_runner_svc.core.holds import Hold, HoldState
from lane_runner_svc.core.task import Task
from lane_runner_svc.store.messages import StoredMessage
from lanewarden.store import UnitOfWork
from lanewarden.telemetry import Value, span_names


def transition(uow: UnitOfWork, before: Task | None, after: Task, *, cause: str, generation: int) -> None:
    """A task was made, or is in another state; ``generation`` is the right by which a supervisor asked for it, or 0."""
    if before is not None and before.state is after.state:
        return
    said: dict[str, Value] = {"to": after.state.name, "cause": cause}
    if before is not None:
        said["from"] = before.state.name
    if generation:
        said["generation"] = generation
    about: dict[str, Value] = {
        "task.id": after.task_id,
        "lane": after.lane,
        "epoch": after.epoch,
        "attempt": after.attempt,
    }
    uow.tell(span_names.TASK_TRANSITION, said, about=about)


def hold(uow: UnitOfWork, hold: Hold, *, was: HoldState | None) -> None:
    """A hold was opened (``was`` is None) or is in another state."""
    if was is hold.state:
        return
    said: dict[str, Value] = {"to": hold.state.name}
    if was is not None:
        said["from"] = was.name
    uow.tell(span_names.HOLD_TRANSITION, said, about={"task.id": hold.task_id, "escalation.id": hold.escalation_id})


def message(uow: UnitOfWork, name: str, message: StoredMessage, *, epoch: int, attempt: int) -> None:
    """A message moved, by what an attempt did; told in the trace of whoever sent it."""
    uow.tell(
        name,
        {"message.kind": message.kind},
        about={"task.id": message.task_id, "epoch": epoch, "attempt": attempt},
        continues=message.traceparent,
    )


def event(uow: UnitOfWork, name: str, task_id: str, **attributes: str) -> None:
    """Something that is counted as well."""
    uow.tell(name, attributes, about={"task.id": task_id}, counted=True)
