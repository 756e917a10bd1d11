"""A small service for tests of the server kit: its contract is built at run time, its handlers do one thing each."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Mapping
from typing import Any

from google.protobuf import (
    descriptor_pb2,
    descriptor_pool,
    duration_pb2,
    message_factory,
    timestamp_pb2,
)
from google.protobuf.descriptor import ServiceDescriptor

from lanewarden.auth import Identity, Role
from lanewarden.errors import Reason, refuse
from lanewarden.server import Call
from lanewarden.v1 import rules_pb2

PACKAGE = "lanewarden.test.v1"
SERVICE = f"{PACKAGE}.EchoService"
Type = descriptor_pb2.FieldDescriptorProto


def _field(
    message: descriptor_pb2.DescriptorProto,
    name: str,
    kind: Any,
    /,
    *,
    type_name: str = "",
    repeated: bool = False,
    **rules: Any,
) -> None:
    label = Type.LABEL_REPEATED if repeated else Type.LABEL_OPTIONAL
    number = len(message.field) + 1
    field = message.field.add(name=name, number=number, type=kind, label=label)
    if type_name:
        field.type_name = type_name
    if rules:
        field.options.Extensions[rules_pb2.rules].CopyFrom(rules_pb2.FieldRules(**rules))


def _file() -> descriptor_pb2.FileDescriptorProto:
    file = descriptor_pb2.FileDescriptorProto(
        name="lanewarden/test/v1/echo.proto",
        package=PACKAGE,
        syntax="proto3",
        dependency=[
            rules_pb2.DESCRIPTOR.name,
            timestamp_pb2.DESCRIPTOR.name,
            duration_pb2.DESCRIPTOR.name,
        ],
    )
    kind = file.enum_type.add(name="Kind")
    kind.value.add(name="KIND_UNSPECIFIED", number=0)
    kind.value.add(name="KIND_PLAIN", number=1)
    request = file.message_type.add(name="EchoRequest")
    _field(request, "text", Type.TYPE_STRING)
    _field(request, "name", Type.TYPE_STRING, name=True)
    _field(request, "request_id", Type.TYPE_STRING, uuid=True)
    _field(request, "body", Type.TYPE_STRING, bytes_max=1024 * 1024)
    _field(request, "items", Type.TYPE_STRING, repeated=True)
    _field(request, "few", Type.TYPE_STRING, repeated=True, items_max=2, bytes_max=3)
    _field(request, "kind", Type.TYPE_ENUM, type_name=f".{PACKAGE}.Kind")
    _field(request, "at", Type.TYPE_MESSAGE, type_name=".google.protobuf.Timestamp")
    _field(request, "wait", Type.TYPE_MESSAGE, type_name=".google.protobuf.Duration")
    _field(request, "count", Type.TYPE_UINT64)
    _field(request, "small", Type.TYPE_UINT32, bytes_max=10)
    _field(request, "share", Type.TYPE_DOUBLE)
    _field(request, "blob", Type.TYPE_BYTES, bytes_max=8)
    _field(request, "child", Type.TYPE_MESSAGE, type_name=f".{PACKAGE}.EchoRequest")
    _field(request, "children", Type.TYPE_MESSAGE, type_name=f".{PACKAGE}.Strict", repeated=True)
    entry = request.nested_type.add(name="LabelsEntry")
    entry.options.map_entry = True
    _field(entry, "key", Type.TYPE_STRING)
    _field(entry, "value", Type.TYPE_STRING)
    labels = f".{PACKAGE}.EchoRequest.LabelsEntry"
    _field(request, "labels", Type.TYPE_MESSAGE, type_name=labels, repeated=True)
    strict = file.message_type.add(name="Strict")
    _field(strict, "text", Type.TYPE_STRING, required=True)
    _field(strict, "kind", Type.TYPE_ENUM, type_name=f".{PACKAGE}.Kind", required=True)
    _field(strict, "at", Type.TYPE_MESSAGE, type_name=".google.protobuf.Timestamp", required=True)
    _field(strict, "items", Type.TYPE_STRING, repeated=True, required=True)
    response = file.message_type.add(name="EchoResponse")
    for name in ("text", "caller", "origin", "traceparent"):
        _field(response, name, Type.TYPE_STRING)
    service = file.service.add(name="EchoService")
    request_type, response_type = f".{PACKAGE}.EchoRequest", f".{PACKAGE}.EchoResponse"
    for name in ("Echo", "Command", "Refuse", "Crash", "Linger", "Large", "Missing", "Unlisted", "Watch"):
        service.method.add(
            name=name, input_type=request_type, output_type=response_type, server_streaming=name == "Watch"
        )
    return file


@functools.cache
def service() -> ServiceDescriptor:
    """The descriptor of ``EchoService``."""
    pool = descriptor_pool.Default()
    file = _file()
    pool.AddSerializedFile(file.SerializeToString())
    return pool.FindServiceByName(SERVICE)


def message(name: str, /, **fields: Any) -> Any:
    """A message of the test contract."""
    service()
    descriptor = descriptor_pool.Default().FindMessageTypeByName(f"{PACKAGE}.{name}")
    return message_factory.GetMessageClass(descriptor)(**fields)


def request(**fields: Any) -> Any:
    """An ``EchoRequest``."""
    return message("EchoRequest", **fields)


_EVERYBODY = frozenset({Role.OPERATOR, Role.VIEWER})
ROLES: Mapping[str, frozenset[Role]] = {
    **{f"{SERVICE}/{name}": _EVERYBODY for name in ("Echo", "Refuse", "Crash", "Linger", "Large", "Missing", "Watch")},
    f"{SERVICE}/Command": frozenset({Role.OPERATOR}),
}

SECRET = "the text of a foreign exception"


class EchoHandlers:
    """What each method does is its name; ``watching`` counts the open streams, ``ended`` those that ended."""

    def __init__(self) -> None:
        self.watching = 0
        self.ended = 0
        self.lingering = asyncio.Event()
        self.cancelled = asyncio.Event()

    async def Echo(self, request: Any, call: Call) -> Any:
        return message(
            "EchoResponse",
            text=request.text,
            caller=f"{call.identity.name}/{call.identity.role.value}",
            origin=call.origin,
            traceparent=call.traceparent,
        )

    async def Command(self, request: Any, call: Call) -> Any:
        return await self.Echo(request, call)

    async def Refuse(self, request: Any, call: Call) -> Any:
        raise refuse(Reason.WORKER_DEAD, request.text or "the worker is gone", pid=7, attempt=2)

    async def Crash(self, request: Any, call: Call) -> Any:
        raise RuntimeError(SECRET)

    async def Linger(self, request: Any, call: Call) -> Any:
        self.lingering.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise

    async def Large(self, request: Any, call: Call) -> Any:
        return message("EchoResponse", text="x" * (5 * 1024 * 1024))

    async def Watch(self, request: Any, call: Call) -> AsyncIterator[Any]:
        self.watching += 1
        try:
            yield message("EchoResponse", text=request.text)
            await asyncio.Event().wait()
        finally:
            self.watching -= 1
            self.ended += 1


class OneToken:
    """Knows two callers: ``operator`` and ``viewer``, by tokens of the same name."""

    def authenticate(self, metadata: Mapping[str, str]) -> Identity:
        header = metadata.get("authorization", "")
        for role in (Role.OPERATOR, Role.VIEWER):
            if header == f"Bearer {role.value}":
                return Identity(name="ada", role=role)
        raise refuse(Reason.CREDENTIAL_INVALID, "no token that is known here")
