"""What a unit of work of the supervisor has at hand, and what it tells the rest of the process once it is committed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from lanewarden.hub import Topic
from lanewarden.store import UnitOfWork
from supervisor_svc.core.holds import Actor
from supervisor_svc.store import audit

OUTBOX: Final = Topic("outbox")
"""A command was stored, for any runner."""
GRANTS: Final = Topic("grant")
"""A lease was granted."""

SETTINGS: Final = Topic("settings")
"""Tasks are judged by other settings from now on."""
FILINGS: Final = Topic("filing")
"""An incident was claimed."""


def outbox_of(runner_id: str) -> Topic:
    """A command was stored for a runner."""
    return Topic(OUTBOX.kind, runner_id)


def told(sink: str) -> Topic:
    """A notification was stored for a sink."""
    return Topic("notification", sink)


@dataclass(frozen=True, slots=True, kw_only=True)
class Deed:
    """What an operator asks for, as the audit names it."""

    actor: Actor
    action: str
    request_id: str
    traceparent: str
    task_id: str = ""
    escalation_id: str = ""


@dataclass(slots=True)
class Session:
    """One unit of work: the transaction and one instant. ``changed`` is published after the commit.

    ``sinks`` names where people are told of news.
    """

    uow: UnitOfWork
    steady_ms: int
    wall_ms: int
    sinks: Sequence[str] = ()
    changed: dict[Topic, None] = field(default_factory=dict)

    def touch(self, *topics: Topic) -> None:
        """Something has changed that others wait for."""
        for topic in topics:
            self.changed[topic] = None

    def record(self, deed: Deed, outcome: str, *, task_id: str = "") -> None:
        """Add an entry to the audit; ``task_id`` is the task where only this unit has learned it."""
        entry = audit.Entry(
            wall_ms=self.wall_ms,
            identity=deed.actor.identity,
            role=deed.actor.role,
            action=deed.action,
            task_id=task_id or deed.task_id,
            escalation_id=deed.escalation_id,
            request_id=deed.request_id,
            trace_id=deed.traceparent[3:35],
            outcome=outcome,
        )
        audit.append(self.uow, entry)
