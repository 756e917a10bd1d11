"""Callers: many tasks of one process on one channel, sending bytes that were made before the clock starts."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

import grpc
from google.protobuf.descriptor import MethodDescriptor

from lanewarden import wire
from tests.bench import echo
from tests.integration.pair import Service

TIMEOUT_SECONDS: Final = 10.0

Metadata = tuple[tuple[str, str], ...]


def bearer(token: str) -> Metadata:
    """The credential of a call."""
    return (("authorization", f"Bearer {token}"),)


class Caller:
    """Calls one unary method, in bytes. One request of its own per call; the answer is not parsed."""

    def __init__(self, call: Any, metadata: Metadata) -> None:
        self._call = call
        self.metadata = metadata

    async def call(self, request: bytes, timeout_seconds: float = TIMEOUT_SECONDS) -> bytes:
        """One call; raises gRPC's error when it is refused."""
        answer: bytes = await self._call(request, metadata=self.metadata, timeout=timeout_seconds)
        return answer

    async def run(self, requests: Sequence[bytes]) -> bytes:
        """One call after the other; the last answer."""
        answer = b""
        for request in requests:
            answer = await self.call(request)
        return answer


class Target:
    """A server that is called. Targets of one process share a connection, save for one that is its ``own``."""

    def __init__(self, address: str, *, own: bool = False) -> None:
        options = (*wire.CLIENT_OPTIONS, ("grpc.use_local_subchannel_pool", int(own)))
        self.channel = grpc.aio.insecure_channel(address, options=options)

    def caller(self, method: MethodDescriptor | None, metadata: Metadata) -> Caller:
        """A caller of ``method``, or of the echo."""
        path = echo.PATH if method is None else wire.path(method)
        return Caller(self.channel.unary_unary(path), metadata)


@asynccontextmanager
async def target(address: str, *, own: bool = False) -> AsyncIterator[Target]:
    """The server at an address."""
    opened = Target(address, own=own)
    try:
        yield opened
    finally:
        await opened.channel.close()


@asynccontextmanager
async def echo_target(address: str, database: str | None = None) -> AsyncIterator[Target]:
    """An echo in a process of its own; with ``database`` it commits a row per call."""
    service = Service("tests.bench.echo", address, *([database] if database else []))
    service.start()
    try:
        async with target(address) as opened:
            yield opened
    finally:
        service.kill()


async def rate(callers: Sequence[Caller], requests: Sequence[Sequence[bytes]]) -> tuple[float, list[bytes]]:
    """Calls per second of all callers at once, each with its own requests; and the last answer of each."""
    start = time.perf_counter()
    answers = await asyncio.gather(*(caller.run(own) for caller, own in zip(callers, requests, strict=True)))
    seconds = time.perf_counter() - start
    return sum(len(own) for own in requests) / seconds, answers


async def latencies_ms(caller: Caller, requests: Sequence[bytes]) -> list[float]:
    """How long each call takes, one after the other."""
    taken = []
    for request in requests:
        start = time.perf_counter()
        await caller.call(request)
        taken.append((time.perf_counter() - start) * 1000)
    return taken
