"""How a refusal travels: ``google.rpc.Status`` in ``grpc-status-details-bin``, and back.

Shared by the server, the asyncio client and the client of short-lived processes, so it imports gRPC and
protobuf only.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

import grpc
from google.protobuf import any_pb2, message_factory
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2, status_pb2

from lanewarden.errors import DOMAIN, FieldViolation, Reason, Refusal

log = logging.getLogger(__name__)

STATUS_KEY = "grpc-status-details-bin"
EMITTER_KEY = "lanewarden.emitter"

MESSAGE_BYTES_MAX = 4 * 1024 * 1024
UNARY_TIMEOUT_SECONDS = 10.0

# A gRPC client accepts 8 KiB of trailers by default. The message travels twice, once percent-encoded (up to
# three times its size), and the status is base64-encoded.
TEXT_BYTES_MAX = 768
STATUS_BYTES_MAX = 4096
VIOLATIONS_MAX = 32

KEEPALIVE_SECONDS = 20
PING_INTERVAL_MIN_SECONDS = 10
CONNECT_SECONDS_MAX = 5

SERVER_OPTIONS: tuple[tuple[str, int], ...] = (
    ("grpc.so_reuseport", 0),  # a second server on the port must fail, not share the calls
    ("grpc.enable_channelz", 1),
    # Above the limit that the server kit enforces, so that a body somewhat too large gets an answer with a
    # reason.
    ("grpc.max_receive_message_length", 4 * MESSAGE_BYTES_MAX),
    ("grpc.keepalive_time_ms", KEEPALIVE_SECONDS * 1000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_ping_interval_without_data_ms", PING_INTERVAL_MIN_SECONDS * 1000),
    ("grpc.http2.max_pings_without_data", 0),
)

CLIENT_OPTIONS: tuple[tuple[str, int], ...] = (
    ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
    ("grpc.keepalive_time_ms", KEEPALIVE_SECONDS * 1000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    # The defaults cost about a second after a restart of the server; gRPC adds jitter of its own.
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 200),
    # In spite of its name this bounds one attempt to connect, handshakes included: a far or busy server needs more than
    # the pause between two attempts.
    ("grpc.min_reconnect_backoff_ms", CONNECT_SECONDS_MAX * 1000),
)

_CODES = {code.value[0]: code for code in grpc.StatusCode}


def path(method: MethodDescriptor) -> str:
    """Where a method is called, ``/package.Service/Method``."""
    return f"/{method.containing_service.full_name}/{method.name}"


def serializers(method: MethodDescriptor) -> dict[str, Any]:
    """How the messages of a method become bytes at the client, as arguments of gRPC's channels."""
    return {
        "request_serializer": message_factory.GetMessageClass(method.input_type).SerializeToString,
        "response_deserializer": message_factory.GetMessageClass(method.output_type).FromString,
    }


def bounded(text: str, bytes_max: int = TEXT_BYTES_MAX) -> str:
    """``text`` as valid UTF-8 of at most ``bytes_max`` bytes; lone surrogates become question marks."""
    return text.encode("utf-8", "replace")[:bytes_max].decode("utf-8", "ignore")


def encode(refusal: Refusal) -> tuple[grpc.StatusCode, str, bytes]:
    """The status code, the message and the serialised ``google.rpc.Status`` of a refusal, within gRPC's limits."""
    message = bounded(refusal.message)
    status = status_pb2.Status(code=int(refusal.reason.code), message=message)
    facts = {bounded(key, 64): bounded(value) for key, value in refusal.metadata.items()}
    violations = list(refusal.violations[:VIOLATIONS_MAX])
    _fill(status, refusal.reason, facts, violations)
    while status.ByteSize() > STATUS_BYTES_MAX and (violations or facts):
        if violations:
            violations.pop()
        else:
            facts.pop(max(facts, key=lambda key: len(facts[key])))
        _fill(status, refusal.reason, facts, violations)
    return _CODES[int(refusal.reason.code)], message, status.SerializeToString()


def _fill(status: status_pb2.Status, reason: Reason, facts: dict[str, str], violations: list[FieldViolation]) -> None:
    del status.details[:]
    details: list[Any] = [error_details_pb2.ErrorInfo(reason=reason.name, domain=DOMAIN, metadata=facts)]
    if violations:
        fields = [
            error_details_pb2.BadRequest.FieldViolation(field=bounded(v.field), description=bounded(v.description))
            for v in violations
        ]
        details.append(error_details_pb2.BadRequest(field_violations=fields))
    for detail in details:
        packed = any_pb2.Any()
        packed.Pack(detail)
        status.details.append(packed)


def decode(
    code: grpc.StatusCode,
    details: str | None,
    trailers: Iterable[tuple[str, Any]] | None,
    *,
    target: str,
    unreachable: Reason,
) -> Refusal:
    """The refusal behind a failed call.

    ``unreachable`` is the reason given when the far end could not be reached, so that it names who is
    missing.
    """
    raw = next((value for key, value in trailers or () if key == STATUS_KEY), None)
    refusal = _decode_status(raw) if isinstance(raw, bytes) else None
    return refusal or _without_status(code, details or "", target, unreachable)


def _decode_status(raw: bytes) -> Refusal | None:
    try:
        status = status_pb2.Status.FromString(raw)
        info, bad = error_details_pb2.ErrorInfo(), error_details_pb2.BadRequest()
        for detail in status.details:
            _ = detail.Unpack(info) or detail.Unpack(bad)
    except DecodeError:
        return None
    if info.domain != DOMAIN:
        return None
    facts = dict(info.metadata)
    reason = Reason.__members__.get(info.reason)
    if reason is None:  # a newer far end
        reason, facts["reason"] = Reason.UNEXPECTED, info.reason
    violations = tuple(FieldViolation(field=v.field, description=v.description) for v in bad.field_violations)
    return Refusal(reason, status.message, facts, violations)


def _without_status(code: grpc.StatusCode, details: str, target: str, unreachable: Reason) -> Refusal:
    log.debug("call to %s failed: %s %s", target, code.name, details)
    facts = {"target": target}
    match code:
        case grpc.StatusCode.UNAVAILABLE | grpc.StatusCode.CANCELLED:
            return Refusal(unreachable, f"nothing answers at {target}; is it running?", facts)
        case grpc.StatusCode.DEADLINE_EXCEEDED:
            return Refusal(Reason.DEADLINE_PASSED, f"{target} did not answer in time", facts)
        case grpc.StatusCode.UNIMPLEMENTED:
            return Refusal(Reason.NOT_BUILT, f"{target} does not serve this method", facts)
        case grpc.StatusCode.RESOURCE_EXHAUSTED if "larger than max" in details:
            return Refusal(Reason.TOO_LARGE, "the message is larger than the limit", {"field": "(message)"})
        case grpc.StatusCode.RESOURCE_EXHAUSTED:
            return Refusal(Reason.LIMIT_REACHED, f"{target} has too many calls open; try again", facts)
    return Refusal(Reason.UNEXPECTED, f"{target} failed with {code.name}", facts | {"code": code.name})
