"""``grpc.health.v1.Health``: per service name, with Watch."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from grpc_health.v1 import health_pb2

from lanewarden.errors import Reason, refuse
from lanewarden.server.calls import Call

State = health_pb2.HealthCheckResponse


class Health:
    """Handlers of the Health service. The empty name is serving while every named service is."""

    def __init__(self) -> None:
        self._serving: dict[str, bool] = {}
        self._shutting_down = False
        self._watchers: set[asyncio.Event] = set()

    def set(self, service: str, serving: bool) -> None:
        """Say whether ``service`` serves; without effect once :meth:`shut_down` was called."""
        self._serving[service] = serving
        self._tell()

    def shut_down(self) -> None:
        """Every service stops serving, for good."""
        self._shutting_down = True
        self._tell()

    async def Check(self, request: Any, call: Call) -> Any:
        """The state of one service; ``SERVICE_UNKNOWN`` for a name this server does not have."""
        del call
        state = self._state(request.service)
        if state == State.SERVICE_UNKNOWN:
            raise refuse(Reason.SERVICE_UNKNOWN, "this server has no service of that name", method="Check")
        return State(status=state)

    async def List(self, request: Any, call: Call) -> Any:
        """The state of every service."""
        del request, call
        names = ["", *self._serving]
        return health_pb2.HealthListResponse(statuses={name: State(status=self._state(name)) for name in names})

    async def Watch(self, request: Any, call: Call) -> AsyncIterator[Any]:
        """The state of one service, now and whenever it changes."""
        del call
        changed = asyncio.Event()
        self._watchers.add(changed)
        try:
            sent = None
            while True:
                state = self._state(request.service)
                if state != sent:
                    sent = state
                    yield State(status=state)
                await changed.wait()
                changed.clear()
        finally:
            self._watchers.discard(changed)

    def _state(self, service: str) -> int:
        if service and service not in self._serving:
            return int(State.SERVICE_UNKNOWN)
        serving = self._serving[service] if service else bool(self._serving) and all(self._serving.values())
        return int(State.SERVING if serving and not self._shutting_down else State.NOT_SERVING)

    def _tell(self) -> None:
        for changed in self._watchers:
            changed.set()
