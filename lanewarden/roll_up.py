"""Stores what the ledger has counted, a minute at a time.

A roll-up is a write like any other and is counted. Minutes in which nothing but roll-ups was written, and what follows from
any write, are not stored by themselves, or an idle service would write for ever about its own writing: their counts go into
the next minute that is.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from functools import partial
from typing import Final

from lanewarden.errors import Refusal
from lanewarden.ledger import WriteLedger
from lanewarden.ledger.windows import MINUTE_MS, STEPS, Key
from lanewarden.store import Emitter, Store, minutes
from lanewarden.store.anchor import CEILING_EMITTER

log = logging.getLogger(__name__)

EVERY_SECONDS: Final = 60.0
FINISH_SECONDS: Final = 2.0
WAITING_MAX: Final = STEPS
"""The minutes that wait while the store is full; beyond that the oldest are given up."""


class RollUp:
    """The minutes of one store that are counted and not yet stored."""

    def __init__(self, store: Store, ledger: WriteLedger, emitter: Emitter) -> None:
        self._store = store
        self._ledger = ledger
        self._emitter = emitter
        self._followers = frozenset({emitter.name, CEILING_EMITTER.name})
        self._waiting: dict[int, Counter[Key]] = {}
        self._own: Counter[Key] = Counter()

    async def run(self) -> None:
        """Store every minute; never returns."""
        while True:
            await self._ledger.clock.sleep(EVERY_SECONDS)
            await self.store()

    async def finish(self) -> None:
        """Store the minute that is not over as well, once nothing else is written: one unit of work, or none. A store that
        takes too long for it keeps nobody from stopping.
        """
        try:
            async with asyncio.timeout(FINISH_SECONDS):
                await self.store(ending=True)
        except TimeoutError:
            log.warning("the last minute of the ledger is not stored: the store is too slow")

    async def store(self, *, ending: bool = False) -> None:
        """Store the minutes that are over, and at the end the one that is not."""
        now_minute = self._take(ending)
        if not self._waiting:
            return
        work = partial(minutes.put, minutes=self._waiting, now_minute=now_minute)
        try:
            await self._store.write(work, emitter=self._emitter)
        except Refusal as refusal:  # a full disk: they wait
            log.warning("minutes of the ledger cannot be stored", extra={"reason": refusal.reason.name})
            return
        self._waiting = {}

    def _take(self, ending: bool) -> int:
        """Take the minutes that are over from the ledger, or all of them; the minute that it is."""
        now_ms = self._ledger.clock.wall_ms()
        for age_ms, counts in self._ledger.take_minutes(ending=ending):
            own = {key: rows for key, rows in counts.items() if key[2] in self._followers}
            self._own.update(own)
            if len(own) < len(counts):
                counted = self._waiting.setdefault((now_ms - age_ms) // MINUTE_MS, Counter())
                counted.update({key: rows for key, rows in counts.items() if key not in own})
                counted.update(self._own)
                self._own.clear()
        while len(self._waiting) > WAITING_MAX:
            del self._waiting[min(self._waiting)]
        return now_ms // MINUTE_MS
