"""The client of short-lived processes: no event loop, and nothing imported beyond gRPC and protobuf."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Self

import grpc
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message import Message

from lanewarden import wire
from lanewarden.errors import Reason, Refusal


class SyncConnection:
    """A connection to one server. Use it in a ``with`` block."""

    def __init__(
        self, channel: grpc.Channel, target: str, *, token: str, unreachable: Reason, emitter: str = ""
    ) -> None:
        self.target = target
        self._channel = channel
        self._unreachable = unreachable
        credential = (("authorization", f"Bearer {token}"),) if token else ()
        origin = (("baggage", f"{wire.EMITTER_KEY}={emitter}"),) if emitter else ()
        self._always = (*credential, *origin)

    def stub(self, service: ServiceDescriptor) -> Any:
        """The service at the far end; its attributes are the RPC names, called as in :mod:`lanewarden.client`."""
        return _SyncStub(self, self._channel, service)

    def close(self) -> None:
        """Close the connection."""
        self._channel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def call_metadata(self, metadata: Mapping[str, str] | None, traceparent: str) -> tuple[tuple[str, str], ...]:
        """What travels beside a request."""
        trace = (("traceparent", traceparent),) if traceparent else ()
        return (*self._always, *(metadata or {}).items(), *trace)

    def refusal(self, error: Any) -> Refusal:
        """The refusal that a failed call stands for."""
        return wire.decode(
            error.code(),
            error.details(),
            error.trailing_metadata(),
            target=self.target,
            unreachable=self._unreachable,
        )


def connect(
    target: str,
    *,
    token: str = "",
    unreachable: Reason = Reason.SUPERVISOR_UNREACHABLE,
    credentials: grpc.ChannelCredentials | None = None,
    emitter: str = "",
) -> SyncConnection:
    """A connection to ``host:port`` or ``unix:path``; nothing is sent yet. See :func:`lanewarden.client.connect`.

    ``emitter`` is who asks, sent as baggage with every call.
    """
    if credentials is None:
        channel = grpc.insecure_channel(target, options=wire.CLIENT_OPTIONS)
    else:
        channel = grpc.secure_channel(target, credentials, options=wire.CLIENT_OPTIONS)
    return SyncConnection(channel, target, token=token, unreachable=unreachable, emitter=emitter)


class _SyncStub:
    def __init__(self, connection: SyncConnection, channel: grpc.Channel, service: ServiceDescriptor) -> None:
        for method in service.methods:
            make = _stream if method.server_streaming else _unary
            setattr(self, method.name, make(connection, channel, method))


def _unary(connection: SyncConnection, channel: grpc.Channel, method: MethodDescriptor) -> Any:
    callable_: Any = channel.unary_unary(wire.path(method), **wire.serializers(method))

    def call(
        request: Message,
        *,
        timeout_seconds: float = wire.UNARY_TIMEOUT_SECONDS,
        metadata: Mapping[str, str] | None = None,
        traceparent: str = "",
    ) -> Any:
        sent = connection.call_metadata(metadata, traceparent)
        try:
            return callable_(request, timeout=timeout_seconds, metadata=sent)
        except grpc.RpcError as error:
            raise connection.refusal(error) from None

    return call


def _stream(connection: SyncConnection, channel: grpc.Channel, method: MethodDescriptor) -> Any:
    callable_: Any = channel.unary_stream(wire.path(method), **wire.serializers(method))

    def call(
        request: Message,
        *,
        timeout_seconds: float | None = None,
        metadata: Mapping[str, str] | None = None,
        traceparent: str = "",
    ) -> Iterator[Any]:
        responses = callable_(
            request, timeout=timeout_seconds, metadata=connection.call_metadata(metadata, traceparent)
        )
        try:
            yield from responses
        except grpc.RpcError as error:
            raise connection.refusal(error) from None
        finally:
            responses.cancel()  # a reader that stops early must not leave the stream open

    return call
