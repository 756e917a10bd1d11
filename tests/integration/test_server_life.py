"""A server of the kit from bind to drain: addresses, health, reflection, streams, keepalive."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import stat
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from grpc_channelz.v1 import channelz_pb2
from grpc_health.v1 import health_pb2

from lanewarden import client, client_sync, wire
from lanewarden.errors import Reason, Refusal
from lanewarden.server import (
    AddressInUse,
    Limits,
    ListenRefused,
    Server,
    SocketPathTooLong,
)
from tests import echo_service as echo
from tests.grpcurl import find

HEALTH = health_pb2.DESCRIPTOR.services_by_name["Health"]
CHANNELZ = channelz_pb2.DESCRIPTOR.services_by_name["Channelz"]
SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
TOKEN = "operator"


@contextlib.asynccontextmanager
async def started(
    *, port: int = 0, handlers: echo.EchoHandlers | None = None, **settings: Any
) -> AsyncIterator[tuple[Server, str]]:
    """A serving server and its address."""
    server = Server(name="test", authenticator=echo.OneToken(), roles=echo.ROLES, **settings)
    server.add(echo.service(), handlers or echo.EchoHandlers())
    bound = await server.bind_tcp("127.0.0.1", port)
    await server.start()
    server.set_serving(echo.SERVICE, True)
    try:
        yield server, f"127.0.0.1:{bound}"
    finally:
        await server.drain(0)


async def first_and_rest(stream: AsyncIterator[Any], arrived: asyncio.Event) -> Refusal:
    """Read ``stream`` to its end, saying when its first message has come; return how it was refused."""
    try:
        async for _ in stream:
            arrived.set()
    except Refusal as refusal:
        return refusal
    raise AssertionError("the stream ended without a refusal")


async def test_second_server_on_a_port_is_refused() -> None:
    """A port that another server has gives one line that names it; nothing is shared."""
    async with started() as (_, target):
        port = int(target.rpartition(":")[2])
        other = Server(name="other", authenticator=echo.OneToken())
        with pytest.raises(AddressInUse, match=rf"^127\.0\.0\.1:{port} is in use by another process"):
            await other.bind_tcp("127.0.0.1", port)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1"])  # noqa: S104 - must be refused
async def test_beyond_loopback_needs_tls(host: str) -> None:
    """Without TLS a server binds to loopback only, and says what to do."""
    server = Server(name="test", authenticator=echo.OneToken())
    with pytest.raises(ListenRefused, match=r"without TLS.*certificate and key"):
        await server.bind_tcp(host, 0)


async def test_unix_socket_is_private_and_stale_ones_go(tmp_path: Path) -> None:
    """The socket has mode 0600; one that nobody listens at is replaced, a live one and a plain file are not."""
    path = tmp_path / "w.sock"
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(path))
    server = Server(name="test", authenticator=echo.OneToken(), roles=echo.ROLES)
    server.add(echo.service(), echo.EchoHandlers())
    await server.bind_unix(path)
    await server.start()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with pytest.raises(AddressInUse, match="another process listens"):
        await Server(name="other", authenticator=echo.OneToken()).bind_unix(path)
    async with client.connect(f"unix:{path}", token=TOKEN) as connection:
        assert (await connection.stub(echo.service()).Echo(echo.request(text="hi"))).text == "hi"
    await server.drain(0)
    plain = tmp_path / "plain"
    plain.touch()
    with pytest.raises(ListenRefused, match="not a socket"):
        await Server(name="other", authenticator=echo.OneToken()).bind_unix(plain)
    assert plain.exists()


async def test_long_socket_path_is_refused_in_words(tmp_path: Path) -> None:
    """A path that does not fit into a socket address is refused with its length and the way out; 107 bytes fit."""
    server = Server(name="test", authenticator=echo.OneToken())
    with pytest.raises(SocketPathTooLong, match=r"has 108 bytes, at most 107 fit; choose a shorter --state-dir"):
        await server.bind_unix(Path("/tmp/".ljust(108, "x")))
    longest = Path(f"{tmp_path}/".ljust(107, "y"))
    await server.bind_unix(longest)
    await server.drain(0)


async def test_health_per_service_without_credential() -> None:
    """Health answers by service name, needs no token, and names that do not exist are NOT_FOUND."""
    async with started() as (server, target), client.connect(target) as connection:
        health = connection.stub(HEALTH)

        async def state(name: str) -> Any:
            return (await health.Check(health_pb2.HealthCheckRequest(service=name))).status

        assert [await state(""), await state(echo.SERVICE)] == [SERVING, SERVING]
        server.set_serving(echo.SERVICE, False)
        assert [await state(""), await state(echo.SERVICE)] == [NOT_SERVING, NOT_SERVING]
        with pytest.raises(Refusal) as caught:
            await state("nothing")
        assert caught.value.reason is Reason.SERVICE_UNKNOWN
        states = (await health.List(health_pb2.HealthListRequest())).statuses
        assert set(states) == {"", echo.SERVICE}


async def test_r03_drain_says_so_then_ends_streams_within_grace() -> None:
    """With 20 open streams a drain turns health NOT_SERVING first, ends each stream with SHUTTING_DOWN, runs
    every handler's clean-up, lets a unary call finish or be cut, and is over within its grace.
    """
    handlers = echo.EchoHandlers()
    order: list[str] = []
    async with started(handlers=handlers) as (server, target), client.connect(target, token=TOKEN) as connection:
        stub, serving = connection.stub(echo.service()), asyncio.Event()

        async def watch_health() -> None:
            request = health_pb2.HealthCheckRequest(service=echo.SERVICE)
            with contextlib.suppress(Refusal):
                async for state in connection.stub(HEALTH).Watch(request):
                    order.append(health_pb2.HealthCheckResponse.ServingStatus.Name(state.status))
                    serving.set()

        async def watch(arrived: asyncio.Event) -> Refusal:
            refusal = await first_and_rest(stub.Watch(echo.request()), arrived)
            order.append(refusal.reason.name)
            return refusal

        arrivals = [asyncio.Event() for _ in range(20)]
        watchers = [asyncio.create_task(watch(arrived)) for arrived in arrivals]
        health = asyncio.create_task(watch_health())
        async with asyncio.timeout(10):
            await asyncio.gather(serving.wait(), *(arrived.wait() for arrived in arrivals))
        begun = time.monotonic()
        await server.drain(5)
        assert time.monotonic() - begun < 2
        refusals = await asyncio.gather(*watchers)
        await health
    assert {refusal.reason for refusal in refusals} == {Reason.SHUTTING_DOWN}
    assert order[:2] == ["SERVING", "NOT_SERVING"]
    assert (handlers.watching, handlers.ended) == (0, 20)


async def test_r03_drain_cuts_what_outlives_the_grace() -> None:
    """A unary call that does not end is cancelled when the grace is over, and the drain returns."""
    handlers = echo.EchoHandlers()
    async with started(handlers=handlers) as (server, target), client.connect(target, token=TOKEN) as connection:
        stuck = asyncio.create_task(connection.stub(echo.service()).Linger(echo.request()))
        await asyncio.wait_for(handlers.lingering.wait(), 5)
        begun = time.monotonic()
        await server.drain(0.3)
        assert time.monotonic() - begun < 2
        with pytest.raises(Refusal):
            await stuck
        await asyncio.wait_for(handlers.cancelled.wait(), 5)


async def test_r03_extra_watchers_are_refused_and_commands_stay_fast() -> None:
    """A server with all its streams open refuses the next one and answers unary calls within a second; a
    stream that ends makes room.
    """
    handlers, limits = echo.EchoHandlers(), Limits(streams_max=30)
    async with started(handlers=handlers, limits=limits) as (_, target), contextlib.AsyncExitStack() as stack:
        connection = await stack.enter_async_context(client.connect(target, token=TOKEN))
        stub = connection.stub(echo.service())
        arrivals = [asyncio.Event() for _ in range(30)]
        watchers = [asyncio.create_task(first_and_rest(stub.Watch(echo.request()), arrived)) for arrived in arrivals]
        async with asyncio.timeout(10):
            await asyncio.gather(*(arrived.wait() for arrived in arrivals))
        refusal = await first_and_rest(stub.Watch(echo.request()), asyncio.Event())
        assert (refusal.reason, refusal.metadata["limit"]) == (Reason.LIMIT_REACHED, "30")
        await stub.Echo(echo.request(), timeout_seconds=1)
        watchers[0].cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await watchers[0]
        await watch_ended(handlers)
        again = stub.Watch(echo.request(text="room"))
        assert (await anext(again)).text == "room"
        for watcher in watchers:
            watcher.cancel()
        await asyncio.gather(*watchers, return_exceptions=True)
        await again.aclose()


async def watch_ended(handlers: echo.EchoHandlers) -> None:
    """Return when a watcher's end has reached its handler."""
    async with asyncio.timeout(10):
        while not handlers.ended:
            await asyncio.sleep(0.005)


def test_r02_shipped_keepalive_options_agree() -> None:
    """The client pings no more often than the server allows, idle or not."""
    server, shipped = dict(wire.SERVER_OPTIONS), dict(wire.CLIENT_OPTIONS)
    assert shipped["grpc.keepalive_time_ms"] > server["grpc.http2.min_ping_interval_without_data_ms"]
    for options in (server, shipped):
        assert options["grpc.keepalive_permit_without_calls"] == 1
        assert options["grpc.http2.max_pings_without_data"] == 0


_MILLISECONDS = ("grpc.keepalive_time_ms", "grpc.http2.min_ping_interval_without_data_ms")


def hurried(options: tuple[tuple[str, int], ...]) -> tuple[tuple[str, int], ...]:
    """The shipped options with keepalive a hundred times as fast, and a server that forgives one ping only."""
    faster = ((key, value // 100 if key in _MILLISECONDS else value) for key, value in options)
    return (*faster, ("grpc.http2.max_ping_strikes", 1))


async def test_r02_idle_connection_stays() -> None:
    """Through many keepalive intervals without a call (the shipped options, a hundred times as fast) the
    server sees one and the same socket.
    """
    shipped = hurried(wire.CLIENT_OPTIONS)
    async with (
        started(options=hurried(wire.SERVER_OPTIONS)) as (_, target),
        client.connect(target, token=TOKEN, options=shipped) as connection,
    ):
        stub = connection.stub(echo.service())
        await stub.Echo(echo.request())
        before = await sockets(connection)
        await asyncio.sleep(4)  # gRPC pings once a second at most; passing time is what is tested
        await stub.Echo(echo.request())
        assert await sockets(connection) == before
        assert len(before) == 1


@pytest.mark.long
@pytest.mark.timeout(700)
async def test_r02_ten_idle_minutes() -> None:
    """Ten idle minutes with the shipped options as they are leave the connection as it was."""
    async with started() as (_, target), client.connect(target, token=TOKEN) as connection:
        stub = connection.stub(echo.service())
        await stub.Echo(echo.request())
        before = await sockets(connection)
        await asyncio.sleep(600)
        await stub.Echo(echo.request())
        assert await sockets(connection) == before


async def sockets(connection: client.Connection) -> list[int]:
    """The ids of the open sockets of this test's server, by channelz, without a credential."""
    channelz = connection.stub(CHANNELZ)
    port = int(connection.target.rpartition(":")[2])
    found = []
    for server in (await channelz.GetServers(channelz_pb2.GetServersRequest())).server:
        request = channelz_pb2.GetServerSocketsRequest(server_id=server.ref.server_id)
        for each in (await channelz.GetServerSockets(request)).socket_ref:
            one = await channelz.GetSocket(channelz_pb2.GetSocketRequest(socket_id=each.socket_id))
            if one.socket.local.tcpip_address.port == port:
                found.append(each.socket_id)
    return found


async def test_r02_client_is_back_soon_after_a_restart() -> None:
    """A server that comes back on its port is reached again well within a second, on the same connection object."""
    async with started() as (_, target):
        connection = client.connect(target, token=TOKEN)
        await connection.stub(echo.service()).Echo(echo.request())
    with pytest.raises(Refusal) as caught:
        await connection.stub(echo.service()).Echo(echo.request())
    assert caught.value.reason is Reason.SUPERVISOR_UNREACHABLE
    async with started(port=int(target.rpartition(":")[2])):
        begun = time.monotonic()
        while True:
            try:
                await connection.stub(echo.service()).Echo(echo.request())
                break
            except Refusal:
                assert time.monotonic() - begun < 1.0
                await asyncio.sleep(0.01)
        await connection.close()


async def test_sync_client_speaks_the_same() -> None:
    """The client of short-lived processes gets answers, streams and refusals as the asyncio client does."""
    async with started() as (_, target):

        def talk() -> list[Any]:
            with client_sync.connect(target, token=TOKEN) as connection:
                stub = connection.stub(echo.service())
                said = [stub.Echo(echo.request(text="hi")).text]
                stream = stub.Watch(echo.request(text="first"))
                said.append(next(stream).text)
                stream.close()
                with pytest.raises(Refusal) as caught:
                    stub.Refuse(echo.request())
            return [*said, caught.value.reason, dict(caught.value.metadata)]

        said = await asyncio.to_thread(talk)
    assert said == ["hi", "first", Reason.WORKER_DEAD, {"pid": "7", "attempt": "2"}]


async def grpcurl(*arguments: str) -> tuple[int, str]:
    """Run grpcurl; its exit code and everything it printed."""
    program = find()
    assert program is not None
    process = await asyncio.create_subprocess_exec(
        program, *arguments, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    output, _ = await asyncio.wait_for(process.communicate(), 20)
    return process.returncode or 0, output.decode()


async def test_r06_grpcurl_lists_describes_and_calls() -> None:
    """With nothing but reflection grpcurl lists the services, describes one, calls it, and shows a refusal
    with its reason and its metadata.
    """
    async with started() as (_, target):
        code, listed = await grpcurl("-plaintext", target, "list")
        expected = {echo.SERVICE, HEALTH.full_name, CHANNELZ.full_name, "grpc.reflection.v1alpha.ServerReflection"}
        assert (code, set(listed.split())) == (0, expected)
        code, text = await grpcurl("-plaintext", target, "describe", echo.SERVICE)
        assert code == 0
        assert "rpc Watch ( .lanewarden.test.v1.EchoRequest ) returns ( stream " in text
        bearer = ("-H", f"authorization: Bearer {TOKEN}")
        code, text = await grpcurl("-plaintext", *bearer, "-d", '{"text":"hi"}', target, f"{echo.SERVICE}/Echo")
        assert (code, json.loads(text)["text"]) == (0, "hi")
        code, text = await grpcurl("-plaintext", *bearer, "-format-error", target, f"{echo.SERVICE}/Refuse")
        assert code != 0
        detail = json.loads(text[text.index("{") :])["details"][0]
        assert detail.pop("@type").endswith("google.rpc.ErrorInfo")
        facts = {"pid": "7", "attempt": "2"}
        assert detail == {"reason": "WORKER_DEAD", "domain": "lanewarden", "metadata": facts}
        code, text = await grpcurl("-plaintext", target, "grpc.channelz.v1.Channelz/GetServers")
        assert (code, "server" in json.loads(text)) == (0, True)
