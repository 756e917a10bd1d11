"""Waiting for a change, but not for ever."""

from __future__ import annotations

import asyncio

from lanewarden.clock import Clock
from lanewarden.hub import Subscription


async def take_within(news: Subscription, clock: Clock, seconds: float) -> list[str]:
    """What changed, as soon as something does; nothing once ``seconds`` of steady time have passed."""
    change = asyncio.ensure_future(news.take())
    end = asyncio.ensure_future(clock.sleep(max(0.0, seconds)))
    try:
        await asyncio.wait((change, end), return_when=asyncio.FIRST_COMPLETED)
        return change.result() if change.done() else []
    finally:
        change.cancel()
        end.cancel()
