"""The asyncio client: a stub per service, a deadline on every unary call, refusals as exceptions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any, Protocol, Self

import grpc
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message import Message

from lanewarden import wire
from lanewarden.errors import Reason, Refusal
from lanewarden.telemetry import OFF, Span, Telemetry


class Stub(Protocol):
    """A service at the far end; its attributes are the RPC names. The simulator has one of its own.

    ``await stub.Steer(request, timeout_seconds=5.0)`` and ``async for each in stub.WatchInbox(request)``;
    both raise :class:`Refusal`. Also accepted: ``metadata``, ``emitter`` (the code site that asks, sent as
    baggage) and ``traceparent`` (the trace to go on with; the current one unless given).
    """

    def __getattr__(self, rpc: str) -> Any:
        """Return the RPC of that name."""
        ...


class Connection:
    """A connection to one server, made when it is first used and made again when it is lost."""

    def __init__(
        self, channel: grpc.aio.Channel, target: str, *, token: str, unreachable: Reason, telemetry: Telemetry
    ) -> None:
        self.target = target
        self._telemetry = telemetry
        self._channel = channel
        self._unreachable = unreachable
        self._credential = (("authorization", f"Bearer {token}"),) if token else ()

    def stub(self, service: ServiceDescriptor) -> Stub:
        """The service at the far end."""
        return _GrpcStub(self, self._channel, service)

    async def close(self) -> None:
        """Close the connection; calls in flight raise the refusal of an unreachable server."""
        await self._channel.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    def span(self, method: str, continues: str) -> Span:
        """One call, as part of the current trace or of the one that it ``continues``."""
        return self._telemetry.client_span(method, self.target, continues=continues)

    def call_metadata(
        self, metadata: Mapping[str, str] | None, emitter: str, traceparent: str
    ) -> tuple[tuple[str, str], ...]:
        """What travels beside a request."""
        return call_metadata(self._credential, metadata, emitter, traceparent)

    def refusal(self, error: grpc.aio.AioRpcError) -> Refusal:
        """The refusal that a failed call stands for."""
        trailers = error.trailing_metadata()
        return wire.decode(error.code(), error.details(), trailers, target=self.target, unreachable=self._unreachable)

    def cancelled(self, call: Any) -> Refusal | None:
        """The refusal of a call that was cancelled from outside this task, which gRPC shows as a cancellation."""
        task = asyncio.current_task()
        if call.cancelled() and task is not None and not task.cancelling():
            return Refusal(self._unreachable, f"the connection to {self.target} was closed", {"target": self.target})
        return None


def connect(
    target: str,
    *,
    token: str = "",
    unreachable: Reason = Reason.SUPERVISOR_UNREACHABLE,
    telemetry: Telemetry = OFF,
    credentials: grpc.ChannelCredentials | None = None,
    options: tuple[tuple[str, int], ...] = wire.CLIENT_OPTIONS,
) -> Connection:
    """A connection to ``host:port`` or ``unix:path``; nothing is sent yet.

    ``unreachable`` is the reason of the refusals raised when nothing answers there.
    """
    if credentials is None:
        channel = grpc.aio.insecure_channel(target, options=options)
    else:
        channel = grpc.aio.secure_channel(target, credentials, options=options)
    return Connection(channel, target, token=token, unreachable=unreachable, telemetry=telemetry)


def call_metadata(
    credential: tuple[tuple[str, str], ...],
    metadata: Mapping[str, str] | None,
    emitter: str,
    traceparent: str,
) -> tuple[tuple[str, str], ...]:
    """Credential, own metadata, origin and trace of a call, in gRPC's form."""
    if not (metadata or emitter or traceparent):
        return credential
    extra = dict(metadata or {})
    if emitter:
        extra["baggage"] = f"{wire.EMITTER_KEY}={emitter}"
    if traceparent:
        extra["traceparent"] = traceparent
    return (*credential, *extra.items())


class _GrpcStub:
    def __init__(self, connection: Connection, channel: grpc.aio.Channel, service: ServiceDescriptor) -> None:
        for method in service.methods:
            kind = _Stream if method.server_streaming else _Unary
            setattr(self, method.name, kind(connection, channel, method))

    def __getattr__(self, rpc: str) -> Any:
        raise AttributeError(f"the service has no RPC {rpc}")


class _Unary:
    def __init__(self, connection: Connection, channel: grpc.aio.Channel, method: MethodDescriptor) -> None:
        self._connection = connection
        self._name = wire.path(method)[1:]
        self._callable: Any = channel.unary_unary(wire.path(method), **wire.serializers(method))

    async def __call__(
        self,
        request: Message,
        *,
        timeout_seconds: float = wire.UNARY_TIMEOUT_SECONDS,
        metadata: Mapping[str, str] | None = None,
        emitter: str = "",
        traceparent: str = "",
    ) -> Any:
        with self._connection.span(self._name, traceparent) as span:
            sent = self._connection.call_metadata(metadata, emitter, span.traceparent)
            call = self._callable(request, timeout=timeout_seconds, metadata=sent)
            try:
                return await call
            except grpc.aio.AioRpcError as error:
                raise self._connection.refusal(error) from None
            except asyncio.CancelledError:
                if refusal := self._connection.cancelled(call):
                    raise refusal from None
                raise


class _Stream:
    def __init__(self, connection: Connection, channel: grpc.aio.Channel, method: MethodDescriptor) -> None:
        self._connection = connection
        self._name = wire.path(method)[1:]
        self._callable: Any = channel.unary_stream(wire.path(method), **wire.serializers(method))

    async def __call__(
        self,
        request: Message,
        *,
        timeout_seconds: float | None = None,
        metadata: Mapping[str, str] | None = None,
        emitter: str = "",
        traceparent: str = "",
    ) -> AsyncIterator[Any]:
        with self._connection.span(self._name, traceparent) as span:
            sent = self._connection.call_metadata(metadata, emitter, span.traceparent)
            call = self._callable(request, timeout=timeout_seconds, metadata=sent)
            try:
                async for response in call:
                    yield response
            except grpc.aio.AioRpcError as error:
                raise self._connection.refusal(error) from None
            except asyncio.CancelledError:
                if refusal := self._connection.cancelled(call):
                    raise refusal from None
                raise
            finally:
                call.cancel()  # a reader that stops early must not leave the stream open
