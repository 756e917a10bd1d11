"""How long each call is served, and what it comes to."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

from grpc.aio import InternalError, ServicerContext

from lanewarden.errors import Code, Refusal
from lanewarden.telemetry import Telemetry
from lanewarden.telemetry.metric_names import RPC_SERVER_CALL_DURATION

Run = Callable[[bytes, ServicerContext[bytes, bytes]], Awaitable[Any]]

SYSTEM: Final = "grpc"
OK: Final = "OK"
CANCELLED: Final = "CANCELLED"


def timed(path: str, run: Run, telemetry: Telemetry) -> Run:
    """Serve a method by ``run``, and record its calls if somebody collects that."""
    durations = telemetry.durations(RPC_SERVER_CALL_DURATION.name)
    if durations is None:
        return run

    async def serve(data: bytes, context: ServicerContext[bytes, bytes]) -> Any:
        begun, code = time.perf_counter(), OK
        try:
            return await run(data, context)
        except Refusal as refusal:
            code = refusal.reason.code.name
            raise
        except asyncio.CancelledError:
            code = _of_cancelled(context)
            raise
        except InternalError:  # the caller went while something was being written to it
            code = CANCELLED
            raise
        except Exception:
            code = Code.INTERNAL.name
            raise
        finally:
            durations.record(time.perf_counter() - begun, SYSTEM, path, code)

    return serve


def _of_cancelled(context: ServicerContext[bytes, bytes]) -> str:
    """Why gRPC cancels a handler: its deadline has passed, or its caller has gone."""
    left: float | None = context.time_remaining()
    return CANCELLED if left is None or left > 0 else Code.DEADLINE_EXCEEDED.name
