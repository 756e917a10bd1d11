"""One wrapper around every handler, built once when it is registered.

It does, in this order: trace, authenticate, check the role, parse, check the fields, call the handler, map
what the handler raised. Requests arrive as bytes, so that a malformed one is the caller's error and not ours.
"""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

import grpc
from google.protobuf import message_factory
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import DecodeError, Message

from lanewarden import rules, wire
from lanewarden.auth import Authenticator, Identity, Role, check_role
from lanewarden.errors import Reason, Refusal, invalid, refuse
from lanewarden.server.streams import Streams
from lanewarden.server.timing import timed
from lanewarden.telemetry import TRACEPARENT, Telemetry, current_trace_id

log = logging.getLogger(__name__)

Context = grpc.aio.ServicerContext[bytes, bytes]
Run = Callable[[bytes, Context], Awaitable[Any]]

_EMITTER = re.compile(rf"(?:^|,)\s*{re.escape(wire.EMITTER_KEY)}\s*=\s*([A-Za-z0-9._-]{{1,128}})\s*(?:[,;]|$)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one server takes on. ``streams_max`` counts open server streams, so that watchers never starve commands."""

    streams_max: int = 256
    calls_max: int = 1024
    message_bytes_max: int = wire.MESSAGE_BYTES_MAX
    unary_seconds_max: float = 30.0
    """The bound of a unary call whose caller gave no deadline."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """What a handler may know of a call beside its request.

    ``origin`` is the emitter at the far end and ``traceparent`` the trace the handler works in; each is empty
    if there is none. ``deadline_seconds`` is what was left when the call arrived, or None.
    """

    method: str
    identity: Identity
    origin: str
    traceparent: str
    deadline_seconds: float | None


class Method:
    """A method of a service with everything that serving it takes."""

    def __init__(
        self,
        descriptor: MethodDescriptor,
        handlers: object,
        *,
        authenticator: Authenticator,
        roles: frozenset[Role],
        limits: Limits,
        streams: Streams,
        telemetry: Telemetry,
    ) -> None:
        if descriptor.client_streaming:
            raise ValueError(f"{descriptor.full_name} streams requests, which this kit does not serve")
        self._path = wire.path(descriptor)[1:]
        self._handler = getattr(handlers, descriptor.name, None)
        self._streaming = descriptor.server_streaming
        self._authenticator = authenticator
        self._roles = roles
        self._limits = limits
        self._streams = streams
        self._telemetry = telemetry
        self._parse = message_factory.GetMessageClass(descriptor.input_type).FromString
        self._check = rules.checker(descriptor.input_type)

    def rpc_handler(self) -> grpc.RpcMethodHandler[bytes, bytes]:
        """What gRPC registers; bytes in, bytes out."""
        run = self._stream if self._streaming else self._unary
        serve = _guarded(self._path, timed(self._path, _traced(self._path, run, self._telemetry), self._telemetry))
        make = grpc.unary_stream_rpc_method_handler if self._streaming else grpc.unary_unary_rpc_method_handler
        return make(serve)

    async def _unary(self, data: bytes, context: Context) -> bytes:
        request, call = self._admit(data, context)
        handler: Callable[[Message, Call], Awaitable[Message]] = self._handler  # type: ignore[assignment]
        if call.deadline_seconds is not None:  # gRPC cancels this task when it passes
            return self._encode(await handler(request, call))
        try:
            async with asyncio.timeout(self._limits.unary_seconds_max) as bound:
                return self._encode(await handler(request, call))
        except TimeoutError:
            if not bound.expired():
                raise
        seconds = self._limits.unary_seconds_max
        raise refuse(Reason.DEADLINE_PASSED, f"no answer within the server's bound of {seconds} s", seconds=seconds)

    async def _stream(self, data: bytes, context: Context) -> None:
        request, call = self._admit(data, context)
        handler: Callable[[Message, Call], AsyncIterator[Message]] = self._handler  # type: ignore[assignment]
        with self._streams.open():
            async with aclosing(handler(request, call)) as responses:  # type: ignore[type-var]
                async for response in responses:
                    await context.write(self._encode(response))

    def _admit(self, data: bytes, context: Context) -> tuple[Message, Call]:
        """The request and its caller, or the refusal of either."""
        metadata: Mapping[str, str] = dict(context.invocation_metadata() or ())  # type: ignore[arg-type]
        identity = self._authenticator.authenticate(metadata)
        check_role(self._path, identity.role, self._roles)
        baggage = metadata.get("baggage")
        call = Call(
            method=self._path,
            identity=identity,
            origin=_origin(baggage) if baggage else "",
            traceparent=TRACEPARENT.get(),
            deadline_seconds=context.time_remaining(),
        )
        if len(data) > self._limits.message_bytes_max:
            raise _too_large("(request)", len(data), self._limits.message_bytes_max)
        try:
            request = self._parse(data)
        except DecodeError:
            raise invalid(("(request)", "is not a valid message of its type (in texts, only UTF-8 is)")) from None
        self._check(request)
        if self._handler is None:
            raise refuse(Reason.NOT_BUILT, f"{self._path} is not built yet", method=self._path)
        return request, call

    def _encode(self, response: Message) -> bytes:
        data = response.SerializeToString()
        if len(data) > self._limits.message_bytes_max:
            raise _too_large("(response)", len(data), self._limits.message_bytes_max)
        return data


def _guarded(path: str, run: Run) -> Run:
    """Nothing but a refusal or a cancellation leaves a handler towards gRPC."""

    async def serve(data: bytes, context: Context) -> Any:
        try:
            return await run(data, context)
        except Refusal as raised:
            refusal = raised
        except grpc.aio.InternalError:
            # The caller went while something was being written to it: there is nobody to tell. What gRPC logs of the status
            # that it then cannot write either is left out by lanewarden.logs.
            return b""
        except Exception as error:  # noqa: BLE001 - the last resort, logged with its trace id
            refusal = _unexpected(path, error)
        code, message, status = wire.encode(refusal)
        try:
            return await context.abort(code, message, ((wire.STATUS_KEY, status),))
        except grpc.aio.InternalError:
            return b""

    return serve


def _unexpected(path: str, error: Exception) -> Refusal:
    trace_id = current_trace_id() or secrets.token_hex(16)
    log.error("unexpected error in %s", path, exc_info=error, extra={"trace_id": trace_id})
    return refuse(Reason.UNEXPECTED, f"internal error; trace id {trace_id}", trace_id=trace_id)


def _traced(path: str, run: Run, telemetry: Telemetry) -> Run:
    async def traced(data: bytes, context: Context) -> Any:
        traceparent = baggage = ""
        for key, value in context.invocation_metadata() or ():
            if key == "traceparent":
                traceparent = str(value)
            elif key == "baggage":
                baggage = str(value)
        with telemetry.server_span(path, traceparent) as span:
            if span.kept and baggage and (origin := _origin(baggage)):
                span.set("origin", origin)
            return await run(data, context)

    return traced


def _origin(baggage: str) -> str:
    found = _EMITTER.search(baggage)
    return found[1] if found else ""


def _too_large(field: str, size: int, limit: int) -> Refusal:
    text = f"{field} has {size} bytes; at most {limit} are accepted"
    return refuse(Reason.TOO_LARGE, text, field=field, bytes=size, limit=limit)
