"""Finds out when a degraded runner can be called again, also when nothing waits for it any more."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Final

from lanewarden.errors import Refusal
from lanewarden.v1 import lane_runner_service_pb2 as runner_pb
from supervisor_svc.rpc.forward import Forwarder
from supervisor_svc.supervisor import Supervisor
from supervisor_svc.work.reach import DEGRADED

AT_ONCE_MAX: Final = 64


async def probe(supervisor: Supervisor, forwarder: Forwarder) -> None:
    """Ask each degraded runner once per renewal interval, until none is; never returns.

    A runner that nobody has to call is not asked: the first call that fails shows it, and what it carried is stored.
    """
    seconds = supervisor.presence.timing.renew_ms / 1000
    with supervisor.hub.subscribe(DEGRADED) as news:
        while True:
            if found := supervisor.reach.degraded():
                await supervisor.clock.sleep(seconds)
                chosen = supervisor.random.sample(found, min(len(found), AT_ONCE_MAX))
                await asyncio.gather(*(_ask(forwarder, runner_id) for runner_id in chosen))
            else:
                await news.take()


async def _ask(forwarder: Forwarder, runner_id: str) -> None:
    with contextlib.suppress(Refusal):  # which the forwarder has taken note of
        await forwarder.ask(runner_id, "GetSupervision", runner_pb.GetSupervisionRequest())
