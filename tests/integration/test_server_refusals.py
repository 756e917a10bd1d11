"""Every way in which the server kit says no, over real gRPC."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
from google.protobuf import message_factory

from lanewarden import client, wire
from lanewarden.auth import METHOD_ROLES, Identity, Role
from lanewarden.errors import Reason, Refusal
from lanewarden.server import Limits, Server
from lanewarden.v1 import (
    lane_runner_service_pb2,
    operator_service_pb2,
    supervisor_service_pb2,
    worker_service_pb2,
    write_trace_service_pb2,
)
from tests import echo_service as echo

FILES = (
    lane_runner_service_pb2,
    operator_service_pb2,
    supervisor_service_pb2,
    worker_service_pb2,
    write_trace_service_pb2,
)
_OPERATOR = "operator"
SERVICES = [each for file in FILES for each in file.DESCRIPTOR.services_by_name.values()]


class Running:
    """A started server with its address and its handlers."""

    def __init__(self, server: Server, port: int, handlers: echo.EchoHandlers) -> None:
        self.server = server
        self.target = f"127.0.0.1:{port}"
        self.handlers = handlers

    def connect(self, token: str = _OPERATOR, **options: Any) -> client.Connection:
        return client.connect(self.target, token=token, **options)


@pytest.fixture
async def running() -> AsyncIterator[Running]:
    limits = Limits(unary_seconds_max=0.2, streams_max=3)
    server = Server(name="test", authenticator=echo.OneToken(), limits=limits, roles=echo.ROLES)
    handlers = echo.EchoHandlers()
    server.add(echo.service(), handlers)
    port = await server.bind_tcp("127.0.0.1", 0)
    await server.start()
    yield Running(server, port, handlers)
    await server.drain(0)


async def refused(call: Any) -> Refusal:
    """The refusal that awaiting ``call`` raises."""
    with pytest.raises(Refusal) as caught:
        await call
    return caught.value


async def test_answer_knows_caller_origin_and_trace(running: Running) -> None:
    """A handler is told who calls, which emitter asked, and the trace it works in."""
    trace = f"00-{'a' * 32}-{'b' * 16}-01"
    async with running.connect() as connection:
        echoed = connection.stub(echo.service()).Echo
        answer = await echoed(echo.request(text="hi"), emitter="supervisor.sweep", traceparent=trace)
        assert (answer.text, answer.caller) == ("hi", "ada/operator")
        assert (answer.origin, answer.traceparent) == ("supervisor.sweep", trace)
        plain = await echoed(echo.request(), metadata={"baggage": "a=b", "traceparent": "nonsense"})
        assert (plain.origin, plain.traceparent) == ("", "")


@pytest.mark.parametrize(
    ("rpc", "token", "reason", "metadata"),
    [
        ("Echo", "", Reason.CREDENTIAL_INVALID, {}),
        ("Echo", "stolen", Reason.CREDENTIAL_INVALID, {}),
        ("Command", "viewer", Reason.ROLE_NOT_ALLOWED, {"role": "viewer", "needed": "operator"}),
        ("Unlisted", "operator", Reason.ROLE_NOT_ALLOWED, {"role": "operator", "needed": "none"}),
        ("Missing", "operator", Reason.NOT_BUILT, {"method": f"{echo.SERVICE}/Missing"}),
        ("Refuse", "operator", Reason.WORKER_DEAD, {"pid": "7", "attempt": "2"}),
    ],
)
async def test_refusal_arrives_as_it_was_raised(
    running: Running, rpc: str, token: str, reason: Reason, metadata: dict[str, str]
) -> None:
    """The client raises the reason and the facts that the server refused with."""
    async with running.connect(token) as connection:
        refusal = await refused(getattr(connection.stub(echo.service()), rpc)(echo.request(), timeout_seconds=5))
    assert refusal.reason is reason
    assert dict(refusal.metadata) == metadata


async def test_every_violation_is_listed(running: Running) -> None:
    """A request with several bad fields learns of all of them at once, by path."""
    bad = echo.request(name="-", request_id="1", kind=9, children=[{}], labels={"a": "\0"})
    async with running.connect() as connection:
        refusal = await refused(connection.stub(echo.service()).Echo(bad))
    assert refusal.reason is Reason.REQUEST_INVALID
    assert [each.field for each in refusal.violations] == [
        "name",
        "request_id",
        "kind",
        "children[0].text",
        "children[0].kind",
        "children[0].at",
        "children[0].items",
        "labels[0].value",
    ]


async def test_crash_sends_a_trace_id_and_no_text(running: Running, caplog: pytest.LogCaptureFixture) -> None:
    """An unmapped exception is INTERNAL, logged with the trace id that the caller sees; its text stays inside."""
    trace = f"00-{'c' * 32}-{'d' * 16}-01"
    async with running.connect() as connection:
        with caplog.at_level(logging.ERROR):
            refusal = await refused(connection.stub(echo.service()).Crash(echo.request(), traceparent=trace))
            other = await refused(connection.stub(echo.service()).Crash(echo.request()))
    assert refusal.reason is Reason.UNEXPECTED
    assert refusal.message == f"internal error; trace id {'c' * 32}"
    assert echo.SECRET not in refusal.message + str(dict(refusal.metadata))
    ids = [record.__dict__["trace_id"] for record in caplog.records if record.name == "lanewarden.server.calls"]
    assert ids == ["c" * 32, other.metadata["trace_id"]]
    assert len(other.metadata["trace_id"]) == 32


async def test_deadline_of_the_caller_cancels_the_handler(running: Running) -> None:
    """A handler whose caller stopped waiting is cancelled, and the caller learns DEADLINE_PASSED."""
    async with running.connect() as connection:
        refusal = await refused(connection.stub(echo.service()).Linger(echo.request(), timeout_seconds=0.05))
    assert refusal.reason is Reason.DEADLINE_PASSED
    await asyncio.wait_for(running.handlers.cancelled.wait(), 5)


async def test_call_without_a_deadline_is_bounded(running: Running) -> None:
    """A unary call that brings no deadline ends at the server's own bound."""
    async with grpc.aio.insecure_channel(running.target) as channel:
        call = channel.unary_unary(f"/{echo.SERVICE}/Linger")(b"", metadata=(("authorization", "Bearer operator"),))
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call
    error = caught.value
    refusal = wire.decode(
        error.code(),
        error.details(),
        error.trailing_metadata(),
        target="",
        unreachable=Reason.SUPERVISOR_UNREACHABLE,
    )
    assert (refusal.reason, refusal.metadata["seconds"]) == (Reason.DEADLINE_PASSED, "0.2")
    assert running.handlers.cancelled.is_set()


async def test_nobody_there_is_named_by_the_connection() -> None:
    """A target that nothing listens at gives the reason that the connection was made with."""
    async with client.connect("127.0.0.1:1", unreachable=Reason.RUNNER_UNREACHABLE) as connection:
        refusal = await refused(connection.stub(echo.service()).Echo(echo.request()))
    assert (refusal.reason, refusal.metadata["target"]) == (Reason.RUNNER_UNREACHABLE, "127.0.0.1:1")


async def test_closing_a_connection_refuses_its_calls(running: Running) -> None:
    """A call in flight on a connection that is closed raises a refusal; its task is not taken for cancelled."""
    connection = running.connect(unreachable=Reason.RUNNER_UNREACHABLE)
    call = asyncio.ensure_future(connection.stub(echo.service()).Linger(echo.request(), timeout_seconds=30))
    await asyncio.wait_for(running.handlers.lingering.wait(), 5)
    await connection.close()
    assert (await refused(call)).reason is Reason.RUNNER_UNREACHABLE


@pytest.mark.parametrize(
    "body",
    [
        b"\x0a\x03\xed\xa0\x80",  # text = a lone surrogate, encoded as three bytes
        b"\x0a\x02\xc3\x28",  # text = invalid UTF-8
        b"\x0a\x03a\x00b",  # text with NUL
        b"\x0a\x7f",  # truncated
        b"\x72" * 300,  # nested without end
    ],
    ids=["surrogate", "utf8", "nul", "truncated", "nested"],
)
async def test_r01_hostile_text_is_refused(running: Running, body: bytes) -> None:
    """Text that cannot be kept is a clear, final INVALID_ARGUMENT on unary calls and streams; others go on."""
    async with grpc.aio.insecure_channel(running.target) as channel:
        metadata = (("authorization", "Bearer operator"),)
        for make, rpc in ((channel.unary_unary, "Echo"), (channel.unary_stream, "Watch")):
            call: Any = make(f"/{echo.SERVICE}/{rpc}")(body, metadata=metadata, timeout=5)
            assert await call.code() is grpc.StatusCode.INVALID_ARGUMENT
            assert wire.STATUS_KEY in dict(await call.trailing_metadata())
    await still_answers(running)


async def test_r01_line_separator_passes_and_size_is_bounded(running: Running) -> None:
    """U+2028 is a text like any other; 6 MB, 30 MB and an oversized field are TOO_LARGE."""
    async with running.connect() as connection:
        stub = connection.stub(echo.service())
        assert (await stub.Echo(echo.request(text="a\u2028b"))).text == "a\u2028b"
        six = await refused(stub.Echo(echo.request(body="x" * 6_000_000)))
        assert (six.reason, six.metadata["field"]) == (Reason.TOO_LARGE, "(request)")
        assert (await refused(stub.Echo(echo.request(body="x" * 30_000_000)))).reason is Reason.TOO_LARGE
        field = await refused(stub.Echo(echo.request(text="é" * 2049)))
        assert dict(field.metadata) == {"field": "text", "bytes": "4098", "limit": "4096"}
        assert (await refused(stub.Large(echo.request()))).metadata["field"] == "(response)"
    await still_answers(running)


async def test_refusals_with_hostile_text_still_arrive(running: Running) -> None:
    """A message that a refusal quotes is cut and cleaned so that the trailers always fit."""
    async with running.connect() as connection:
        refusal = await refused(connection.stub(echo.service()).Refuse(echo.request(text="\u2028\n" * 1000)))
    assert refusal.reason is Reason.WORKER_DEAD
    assert len(refusal.message.encode()) <= wire.TEXT_BYTES_MAX


async def still_answers(running: Running) -> None:
    async with running.connect() as connection:
        assert (await connection.stub(echo.service()).Echo(echo.request(text="here"))).text == "here"


class _Everything:
    """Handlers that touch nothing but answer every method with an empty response."""

    def __init__(self, service: Any) -> None:
        self._service = service

    def __getattr__(self, name: str) -> Any:
        if name not in self._service.methods_by_name:
            raise AttributeError(name)
        method = self._service.methods_by_name[name]
        response = message_factory.GetMessageClass(method.output_type)

        async def unary(request: Any, call: Any) -> Any:
            return response()

        async def stream(request: Any, call: Any) -> AsyncIterator[Any]:
            yield response()

        return stream if method.server_streaming else unary


class _AnyRole:
    """Says that the caller has whatever role its metadata names."""

    def authenticate(self, metadata: Any) -> Identity:
        return Identity(name="x", role=Role(metadata["role"]))


def hostile_bodies(seed: int) -> list[bytes]:
    """Random bytes, and random fields with random contents."""
    chance = random.Random(seed)
    bodies = [chance.randbytes(chance.randrange(1, 200)) for _ in range(8)]
    for _ in range(8):
        number = chance.randrange(1, 20)
        kind = chance.choice((0, 2))
        content = b"\xff" * 9 + b"\x01" if kind == 0 else bytes([5]) + chance.randbytes(5)
        bodies.append(bytes([number << 3 & 0x7F | kind]) + content)
    return bodies


async def code_of(call: Any) -> grpc.StatusCode:
    """The status of a call, once it has ended."""
    with contextlib.suppress(grpc.aio.AioRpcError):
        if isinstance(call, grpc.aio.UnaryStreamCall):
            async for _ in call:
                pass
    code: grpc.StatusCode = await call.code()
    return code


async def test_r07_random_bytes_on_every_method_are_never_internal() -> None:
    """No body makes any method of the contract answer INTERNAL or UNKNOWN."""
    server = Server(name="test", authenticator=_AnyRole())
    for service in SERVICES:
        server.add(service, _Everything(service))
    port = await server.bind_tcp("127.0.0.1", 0)
    await server.start()
    seen = set()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        for service in SERVICES:
            for method in service.methods:
                role = next(iter(METHOD_ROLES[wire.path(method)[1:]]))
                make = channel.unary_stream if method.server_streaming else channel.unary_unary
                rpc: Any = make(wire.path(method))
                bodies = [b"", *hostile_bodies(seed=method.index)]
                calls = [rpc(body, metadata=(("role", role.value),), timeout=20) for body in bodies]
                seen |= {await code_of(call) for call in calls}
    await server.drain(0)
    assert seen == {grpc.StatusCode.OK, grpc.StatusCode.INVALID_ARGUMENT}


def test_role_table_is_the_contract() -> None:
    """Every method of the contract has its row of roles, and no row is left over."""
    assert {wire.path(method)[1:] for service in SERVICES for method in service.methods} == set(METHOD_ROLES)


async def test_worker_may_not_record_a_gate() -> None:
    """ROLE_NOT_ALLOWED is what a worker's credential gets for a gate or a ruling, whatever it sends."""
    service = lane_runner_service_pb2.DESCRIPTOR.services_by_name["LaneRunnerService"]
    server = Server(name="test", authenticator=_AnyRole())
    server.add(service, _Everything(service))
    port = await server.bind_tcp("127.0.0.1", 0)
    await server.start()
    async with client.connect(f"127.0.0.1:{port}") as connection:
        stub = connection.stub(service)
        for rpc, request in (
            (stub.RecordGate, lane_runner_service_pb2.RecordGateRequest()),
            (stub.Steer, lane_runner_service_pb2.SteerRequest()),
        ):
            refusal = await refused(rpc(request, metadata={"role": "worker"}))
            assert dict(refusal.metadata) == {"role": "worker", "needed": "operator, supervisor"}
    await server.drain(0)
