"""The references: a bare gRPC echo, and one that also commits a row by group commit before it answers.

A process of its own, ``python -m tests.bench.echo ADDRESS [DATABASE]``, that knows nothing of Lanewarden.
"""

from __future__ import annotations

import asyncio
import queue
import sqlite3
import sys
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import grpc

PATH = "/bench.Echo/Echo"
GROUP_ROWS_MAX = 256

Row = tuple[bytes, "asyncio.Future[None]"]


async def echo(request: bytes, context: Any) -> bytes:
    """The request."""
    del context
    return request


class RowWriter:
    """Commits one row per call, those that wait together in one transaction with one sync."""

    def __init__(self, database: str) -> None:
        self._loop = asyncio.get_running_loop()
        self._queue: queue.SimpleQueue[Row] = queue.SimpleQueue()
        self._connection = sqlite3.connect(database, isolation_level=None, check_same_thread=False)
        for statement in (
            *("PRAGMA journal_mode = WAL", "PRAGMA synchronous = FULL", "PRAGMA wal_autocheckpoint = 4000"),
            "CREATE TABLE echoes (number INTEGER PRIMARY KEY, request BLOB NOT NULL) STRICT",
        ):
            self._connection.execute(statement)
        threading.Thread(target=self._run, daemon=True).start()

    async def echo(self, request: bytes, context: Any) -> bytes:
        """The request, once it is on disk."""
        del context
        committed = self._loop.create_future()
        self._queue.put((request, committed))
        await committed
        return request

    def _run(self) -> None:
        while True:
            rows = [self._queue.get()]
            while len(rows) < GROUP_ROWS_MAX and not self._queue.empty():
                rows.append(self._queue.get())
            self._connection.execute("BEGIN IMMEDIATE")
            for request, _ in rows:
                self._connection.execute("INSERT INTO echoes (request) VALUES (?)", (request,))
            self._connection.execute("COMMIT")
            self._loop.call_soon_threadsafe(_resolve, rows)


def _resolve(rows: list[Row]) -> None:
    for _, committed in rows:
        if not committed.done():
            committed.set_result(None)


async def serve(address: str, database: str | None) -> None:
    """Serve until the process is stopped."""
    answer: Callable[[bytes, Any], Awaitable[bytes]] = RowWriter(database).echo if database else echo
    service, _, method = PATH[1:].partition("/")
    server = grpc.aio.server()
    handlers: dict[str, Any] = {method: grpc.unary_unary_rpc_method_handler(answer)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))
    server.add_insecure_port(address)
    await server.start()
    print("ready", file=sys.stderr, flush=True)
    await server.wait_for_termination()


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else None))
