"""Waiting for a change, but not for ever."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from lanewarden.clock import Clock
from lanewarden.hub import Subscription

T = TypeVar("T")


async def take_within(news: Subscription, clock: Clock, seconds: float) -> list[str]:
    """What changed, as soon as something does; nothing once ``seconds`` of steady time have passed."""
    return await first_of(news.take(), clock.sleep(max(0.0, seconds))) or []


async def first_of(change: Awaitable[T], end: Awaitable[object]) -> T | None:
    """What ``change`` comes to, or None when ``end`` comes first; the other one is given up."""
    wanted, limit = asyncio.ensure_future(change), asyncio.ensure_future(end)
    try:
        await asyncio.wait((wanted, limit), return_when=asyncio.FIRST_COMPLETED)
        return wanted.result() if wanted.done() else None
    finally:
        wanted.cancel()
        limit.cancel()
