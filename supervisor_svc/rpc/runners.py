"""Connections to runners, one per address."""

from __future__ import annotations

import asyncio
from typing import Final

import grpc

from lanewarden import client
from lanewarden.client import Connection, Stub
from lanewarden.errors import Reason
from lanewarden.telemetry import Telemetry
from lanewarden.v1 import lane_runner_service_pb2

CONNECTIONS_MAX: Final = 256
_LANE_RUNNER: Final = lane_runner_service_pb2.DESCRIPTOR.services_by_name["LaneRunnerService"]


class RunnerConnections:
    """Keeps the connections that are in use; runners that move leave theirs behind, and the oldest go first."""

    def __init__(self, token: str, telemetry: Telemetry, credentials: grpc.ChannelCredentials | None = None) -> None:
        self._token = token
        self._telemetry = telemetry
        self._credentials = credentials
        self._open: dict[str, tuple[Connection, Stub]] = {}
        self._closing: set[asyncio.Task[None]] = set()

    def stub(self, address: str) -> Stub:
        """The LaneRunnerService at ``host:port``; nothing is sent yet."""
        found = self._open.pop(address, None)
        if found is None:
            connection = client.connect(
                address,
                token=self._token,
                unreachable=Reason.RUNNER_UNREACHABLE,
                telemetry=self._telemetry,
                credentials=self._credentials,
            )
            found = (connection, connection.stub(_LANE_RUNNER))
            if len(self._open) >= CONNECTIONS_MAX:
                self._retire(next(iter(self._open)))
        self._open[address] = found  # last in the order of use
        return found[1]

    async def close(self) -> None:
        """Close every connection; calls in flight raise RUNNER_UNREACHABLE."""
        for address in list(self._open):
            self._retire(address)
        await asyncio.gather(*self._closing)

    def _retire(self, address: str) -> None:
        job = asyncio.ensure_future(self._open.pop(address)[0].close())
        self._closing.add(job)
        job.add_done_callback(self._closing.discard)
