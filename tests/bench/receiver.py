"""Whatever OTLP sends, answered and thrown away: a collector that costs little, in a process of its own.

``python -m tests.bench.receiver PORT [SECONDS]``; with ``SECONDS`` each answer takes that long.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any, Final

import grpc

SERVICES: Final = ("trace.v1.TraceService", "metrics.v1.MetricsService")


async def serve(port: int, seconds: float) -> None:
    """Serve until the process is stopped."""

    async def export(request: bytes, context: Any) -> bytes:
        await asyncio.sleep(seconds)
        return b""

    server = grpc.aio.server()
    for service in SERVICES:
        handlers: dict[str, Any] = {"Export": grpc.unary_unary_rpc_method_handler(export)}
        name = f"opentelemetry.proto.collector.{service}"
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(name, handlers),))
    server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    print("ready", file=sys.stderr, flush=True)
    await server.wait_for_termination()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), float(sys.argv[2]) if len(sys.argv) > 2 else 0.0))
