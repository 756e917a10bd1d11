"""Tries stored commands again until their runners have them."""

from __future__ import annotations

import asyncio
import logging

from lanewarden.errors import Refusal
from lanewarden.hub import Topic
from lanewarden.waiting import take_within
from supervisor_svc.core.delivery import backoff_seconds
from supervisor_svc.store import outbox
from supervisor_svc.supervisor import Supervisor
from supervisor_svc.work.courier import Courier
from supervisor_svc.work.session import OUTBOX

log = logging.getLogger(__name__)


async def deliver(supervisor: Supervisor, courier: Courier) -> None:
    """Serve every runner that waits for a command, each at its own pace; never returns."""
    serving: dict[str, asyncio.Task[None]] = {}
    async with asyncio.TaskGroup() as group:
        with supervisor.hub.subscribe(OUTBOX) as news:
            waited_for = supervisor.read(outbox.runners_waited_for)
            while True:
                for runner_id in waited_for:
                    if runner_id not in serving or serving[runner_id].done():
                        serving[runner_id] = group.create_task(_serve(supervisor, courier, runner_id))
                waited_for = await news.take()


async def _serve(supervisor: Supervisor, courier: Courier, runner_id: str) -> None:
    """Deliver to one runner until nothing waits: at once when it shows itself, otherwise with growing delays."""
    failures = 0
    with supervisor.hub.subscribe(Topic("runner", runner_id)) as sightings:
        while not await _drained(courier, runner_id):
            failures += 1
            seconds = backoff_seconds(failures, supervisor.random.random())
            if await take_within(sightings, supervisor.clock, seconds):
                failures = 0


async def _drained(courier: Courier, runner_id: str) -> bool:
    try:
        return await courier.drain(runner_id)
    except Refusal as refusal:  # of our own store
        log.error("cannot look at the outbox", extra={"reason": refusal.reason.name})
        return False
