"""A supervisor as :mod:`tests.integration.moved_service` runs it, that asks a gate before each of the steps by which a task
is given up, and tells it how the step went.

Run with the gate's port, the supervisor's name, and the arguments of ``moved_service``.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any
from unittest import mock

from lanewarden.auth import Identity, Role
from lanewarden.errors import Refusal
from supervisor_svc.core.supervision import SupervisionConfig
from supervisor_svc.rpc.runners import RunnerConnections
from supervisor_svc.work.actions import RunnerActions
from tests.integration import moved_service
from tests.integration.moved_service import token_of

STEPS = ("settle", "claim", "confirm", "record")
NOT_ASKED = "not asked"
"""The outcome of a step that the supervisor has refused itself, knowing that it has no right at the runner."""
CATCH_UP_MS = 1_000
"""How long a runner has to tell what has happened. A test waits until all is told, so that this need not be waited for."""


class _Connections(RunnerConnections):
    """The supervisor calls runners in its own name, which the runner's audit then has."""

    def __init__(self, name: str, _token: str, *rest: Any) -> None:
        super().__init__(token_of(Identity(name=name, role=Role.SUPERVISOR)), *rest)


def _through_the_gate(port: int, name: str, step: str) -> Callable[..., Awaitable[Any]]:
    real = getattr(RunnerActions, step)

    async def gated(actions: RunnerActions, subject: Any, *args: Any, **named: Any) -> Any:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        outcome = "failed"
        try:
            writer.write(json.dumps({"who": name, "step": step, "task_id": subject.task_id}).encode() + b"\n")
            await reader.readline()
            answer = await real(actions, subject, *args, **named)
        except Refusal as refusal:
            outcome = NOT_ASKED if refusal.metadata.get("generation") == "0" else refusal.reason.name
            raise
        else:
            outcome = "OK"
            return answer
        finally:
            writer.write(outcome.encode() + b"\n")
            writer.close()

    return gated


def main() -> int:
    """Run the supervisor until it is told to stop."""
    port, name = int(sys.argv.pop(1)), sys.argv.pop(1)
    gated: Any = {step: _through_the_gate(port, name, step) for step in STEPS}
    with (
        mock.patch.multiple(RunnerActions, **gated),
        mock.patch("supervisor_svc.bootstrap.RunnerConnections", partial(_Connections, name)),
        mock.patch("supervisor_svc.config.SupervisionConfig", partial(SupervisionConfig, catch_up_ms=CATCH_UP_MS)),
    ):
        return moved_service.main()


if __name__ == "__main__":
    sys.exit(main())
