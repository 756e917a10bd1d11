"""A seeded transport between the nodes: it delays, loses either way, repeats and partitions.

A stub here has the call shape of :class:`lanewarden.client.Stub`. Messages cross as bytes and are checked by the same
field rules as on a real server, so that nothing is shared by accident and nothing is accepted that a server refuses.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import aclosing
from dataclasses import dataclass, field
from random import Random
from typing import Any

from google.protobuf import message_factory
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message import Message

from lanewarden import rules
from lanewarden.auth import METHOD_ROLES, check_role
from lanewarden.errors import Reason, Refusal, refuse
from lanewarden.server import Call, Identity
from lanewarden.store import SimulatedCrash


@dataclass(slots=True)
class Faults:
    """How bad the network is; all zero is a good day."""

    lose_request: float = 0.0
    lose_response: float = 0.0
    repeat: float = 0.0
    slow: float = 0.0
    cut: set[frozenset[str]] = field(default_factory=set)
    mute: set[tuple[str, str]] = field(default_factory=set)
    """Who gets no answer from whom, though what is asked arrives."""
    black_holes: set[tuple[str, str]] = field(default_factory=set)
    """Calls from the first to the second come to nothing; those the other way, and their answers, pass."""

    def stop(self) -> None:
        """From here on nothing goes wrong: what must happen in the end, must happen now."""
        self.lose_request = self.lose_response = self.repeat = self.slow = 0.0
        self.cut.clear()
        self.mute.clear()
        self.black_holes.clear()


class Server:
    """The services of one start of a node. ``crashed`` ends every call into it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.crashed: asyncio.Event = asyncio.Event()
        self.services: dict[str, object] = {}

    def add(self, service: ServiceDescriptor, handlers: object) -> None:
        self.services[service.full_name] = handlers


class Network:
    """Finds the current start of a node by its address and carries calls to it."""

    def __init__(self, random: Random, log: Callable[[str], None]) -> None:
        self.random = random
        self.faults = Faults()
        self.servers: dict[str, Server] = {}
        self.log = log
        self._loose: set[asyncio.Task[None]] = set()

    def stub(
        self, service: ServiceDescriptor, *, source: str, target: str, identity: Identity, local: bool = False
    ) -> Stub:
        """A client of ``target``. ``local`` is a Unix socket: no faults but the death of the far end."""
        return Stub(self, service, source=source, target=target, identity=identity, local=local)

    def reachable(self, source: str, target: str) -> bool:
        return frozenset((source, target)) not in self.faults.cut and (source, target) not in self.faults.black_holes

    def later(self, job: Coroutine[Any, Any, None]) -> None:
        """Carry something out that nobody waits for."""
        task = asyncio.ensure_future(job)
        self._loose.add(task)
        task.add_done_callback(self._loose.discard)

    async def delay(self) -> None:
        slow = self.random.random() < self.faults.slow
        await asyncio.sleep(self.random.uniform(0.5, 3.0) if slow else self.random.uniform(0.0001, 0.005))


class Stub:
    """The RPCs of one service at one target."""

    def __init__(
        self, network: Network, service: ServiceDescriptor, *, source: str, target: str, identity: Identity, local: bool
    ) -> None:
        self._network = network
        self._source = source
        self._target = target
        self._identity = identity
        self._local = local
        for method in service.methods:
            carry = self._stream if method.server_streaming else self._unary
            setattr(self, method.name, _bind(carry, method))

    def __getattr__(self, rpc: str) -> Any:
        raise AttributeError(rpc)

    async def _unary(
        self, method: MethodDescriptor, request: Message, *, timeout_seconds: float = 10.0, **metadata: str
    ) -> Message:
        network, random, faults = self._network, self._network.random, self._network.faults
        network.log(f"{self._source} -> {self._target} {method.name}")
        try:
            async with asyncio.timeout(timeout_seconds):
                if not self._local:
                    await network.delay()
                    if not network.reachable(self._source, self._target) or random.random() < faults.lose_request:
                        await asyncio.Event().wait()
                    if random.random() < faults.repeat:
                        network.later(self._repeat(method, request, metadata))
                response = await self._deliver(method, request, metadata)
                if not self._local:
                    await network.delay()
                    mute = (self._source, self._target) in faults.mute
                    if (
                        mute
                        or not network.reachable(self._source, self._target)
                        or random.random() < faults.lose_response
                    ):
                        await asyncio.Event().wait()
                return response
        except TimeoutError:
            raise refuse(Reason.DEADLINE_PASSED, f"{method.name}: no answer in {timeout_seconds} s") from None

    async def _repeat(self, method: MethodDescriptor, request: Message, metadata: dict[str, str]) -> None:
        """The same bytes once more, later; whatever comes of it, nobody hears."""
        await self._network.delay()
        try:
            await self._deliver(method, request, metadata)
        except Refusal as refusal:
            self._network.log(f"{self._target} refused a repeated {method.name}: {refusal}")

    async def _deliver(self, method: MethodDescriptor, request: Message, metadata: dict[str, str]) -> Message:
        server, handler, copied, call = self._admit(method, request, metadata)
        job = asyncio.ensure_future(handler(copied, call))
        crashed = asyncio.ensure_future(server.crashed.wait())
        try:
            await asyncio.wait([job, crashed], return_when=asyncio.FIRST_COMPLETED)
            if server.crashed.is_set():
                raise self._unreachable()
            response: Message = job.result()
        except SimulatedCrash:
            raise self._unreachable() from None
        finally:
            job.cancel()
            crashed.cancel()
            await asyncio.gather(job, return_exceptions=True)
        parsed: Message = message_factory.GetMessageClass(method.output_type).FromString(response.SerializeToString())
        return parsed

    async def _stream(
        self, method: MethodDescriptor, request: Message, *, timeout_seconds: float | None = None, **metadata: str
    ) -> AsyncIterator[Message]:
        server, handler, copied, call = self._admit(method, request, metadata)
        self._network.log(f"{self._source} -> {self._target} {method.name}")
        parse = message_factory.GetMessageClass(method.output_type).FromString
        async with aclosing(handler(copied, call)) as responses:
            crashed = asyncio.ensure_future(server.crashed.wait())
            try:
                while (response := await self._next(responses, server, crashed)) is not None:
                    yield parse(response.SerializeToString())
            finally:
                crashed.cancel()

    async def _next(
        self, responses: AsyncIterator[Message], server: Server, crashed: asyncio.Future[bool]
    ) -> Message | None:
        """The next response of a stream, None at its end; the far end may die meanwhile, and so may the reader."""
        step = asyncio.ensure_future(anext(responses, None))
        try:
            await asyncio.wait([step, crashed], return_when=asyncio.FIRST_COMPLETED)
            if server.crashed.is_set():
                raise self._unreachable()
            return step.result()
        except SimulatedCrash:
            raise self._unreachable() from None
        finally:
            step.cancel()
            await asyncio.gather(step, return_exceptions=True)

    def _admit(
        self, method: MethodDescriptor, request: Message, metadata: dict[str, str]
    ) -> tuple[Server, Any, Message, Call]:
        service = method.containing_service.full_name
        server = self._network.servers.get(self._target)
        if server is None or server.crashed.is_set() or service not in server.services:
            raise self._unreachable()
        path = f"{service}/{method.name}"
        check_role(path, self._identity.role, METHOD_ROLES[path])
        copied: Message = type(request).FromString(request.SerializeToString())
        rules.check(copied)
        call = Call(
            method=path,
            identity=self._identity,
            origin=metadata.get("emitter", ""),
            traceparent=metadata.get("traceparent", ""),
            deadline_seconds=None,
        )
        return server, getattr(server.services[service], method.name), copied, call

    def _unreachable(self) -> Refusal:
        reason = Reason.RUNNER_UNREACHABLE if self._target == "runner" else Reason.SUPERVISOR_UNREACHABLE
        return refuse(reason, f"nothing answers at {self._target}")


def _bind(carry: Callable[..., Any], method: MethodDescriptor) -> Callable[..., Any]:
    def call(request: Message, **options: Any) -> Any:
        return carry(method, request, **options)

    return call
