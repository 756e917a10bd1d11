"""Clients of a server that is far away: every answer takes its time on the network."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from lanewarden import client, client_sync
from lanewarden.server import Server
from tests import echo_service as echo

DELAY_SECONDS = 0.25
"""More than any pause between attempts to connect."""
PIECE_BYTES = 1 << 16


@contextlib.asynccontextmanager
async def far_server() -> AsyncIterator[str]:
    """An address where every answer arrives late."""
    server = Server(name="far", authenticator=echo.OneToken(), roles=echo.ROLES)
    server.add(echo.service(), echo.EchoHandlers())
    port = await server.bind_tcp("127.0.0.1", 0)
    await server.start()

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, delay_seconds: float) -> None:
        with contextlib.suppress(OSError):
            while piece := await reader.read(PIECE_BYTES):
                await asyncio.sleep(delay_seconds)
                writer.write(piece)
                await writer.drain()
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there_reader, there_writer = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.gather(carry(reader, there_writer, 0), carry(there_reader, writer, DELAY_SECONDS))

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as network:
        host, network_port = network.sockets[0].getsockname()
        try:
            yield f"{host}:{network_port}"
        finally:
            await server.drain(0)


async def test_a_far_server_is_reached_at_the_first_call() -> None:
    """Latency alone never makes a server unreachable, for services and for short-lived processes."""
    async with far_server() as target:
        async with client.connect(target, token="operator") as connection:
            assert (await connection.stub(echo.service()).Echo(echo.request(text="far"))).text == "far"

        def call() -> str:
            with client_sync.connect(target, token="operator") as connection:
                return str(connection.stub(echo.service()).Echo(echo.request(text="far")).text)

        assert await asyncio.to_thread(call) == "far"
