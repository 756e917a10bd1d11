"""Who waits for what inside one process.

A change is published after its commit; a subscriber is woken once for any number of changes and reads the store for what
is true now. So a slow watcher sees the latest state and costs a set of ids, and nothing is lost between a look and a wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from types import TracebackType
from typing import Final

ALL: Final = "*"


@dataclass(frozen=True, slots=True)
class Topic:
    """A kind of entity and one id of it, or :data:`ALL`."""

    kind: str
    id: str = ALL


class Subscription:
    """The ids that changed since the last :meth:`take`; use it as a context manager."""

    def __init__(self, hub: Hub, topics: tuple[Topic, ...]) -> None:
        self._hub = hub
        self._topics = topics
        self._changed: dict[str, None] = {}
        self._event = asyncio.Event()

    def __enter__(self) -> Subscription:
        self._hub.add(self, self._topics)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._hub.remove(self, self._topics)

    def wake(self, changed: str) -> None:
        """Add an id and wake the waiter."""
        self._changed[changed] = None
        self._event.set()

    async def take(self) -> list[str]:
        """Wait for a change, then return the ids that changed since the last call, oldest change first."""
        await self._event.wait()
        self._event.clear()
        changed, self._changed = self._changed, {}
        return list(changed)


class Hub:
    """Publishes changes to subscriptions; belongs to one event loop and is used on its thread only."""

    def __init__(self) -> None:
        # Dictionaries, for their order: a run with the same seed wakes everybody in the same order.
        self._subscriptions: dict[Topic, dict[Subscription, None]] = {}

    def subscribe(self, *topics: Topic) -> Subscription:
        """A subscription to the topics; it hears nothing until it is entered."""
        return Subscription(self, topics)

    def publish(self, topics: Iterable[Topic]) -> None:
        """Wake whoever subscribed to the entities, or to all of their kind."""
        for topic in topics:
            for name in (topic, Topic(topic.kind)):
                for subscription in self._subscriptions.get(name, ()):
                    subscription.wake(topic.id)

    def add(self, subscription: Subscription, topics: Iterable[Topic]) -> None:
        """Called by an entered subscription."""
        for topic in topics:
            self._subscriptions.setdefault(topic, {})[subscription] = None

    def remove(self, subscription: Subscription, topics: Iterable[Topic]) -> None:
        """Called by a left subscription."""
        for topic in topics:
            members = self._subscriptions.get(topic)
            if members is not None:
                members.pop(subscription, None)
                if not members:
                    del self._subscriptions[topic]
