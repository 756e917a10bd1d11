"""Where people are told. A sink is a small class: a name, and one coroutine that sends or says why it could not."""

from __future__ import annotations

from typing import Protocol

from supervisor_svc.store.notifications import Notification

SEND_SECONDS = 10.0
"""How long a sink may take for one notification."""


class SinkFailed(Exception):  # noqa: N818 - a result of a try that is stored, not a crash
    """A try came to nothing. ``cause`` is short, for people, and holds nothing secret."""

    def __init__(self, cause: str) -> None:
        super().__init__(cause)
        self.cause = cause


class SinkUnusable(Exception):  # noqa: N818 - the name says what is true
    """A sink cannot work as it is configured; the text is one line for the person who starts the supervisor."""


class Sink(Protocol):
    """One way to tell people. Notifications come one at a time, at least once each, and carry the same key at each try."""

    @property
    def name(self) -> str:
        """What notifications call it; stable over restarts."""
        ...

    async def send(self, notification: Notification) -> None:
        """Return once it has gone out; raise :class:`SinkFailed` within a bounded time otherwise."""
        ...
