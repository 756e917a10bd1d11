"""The connections of the command line to the two services."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import click
from google.protobuf.descriptor import ServiceDescriptor

from lanewarden import client, client_sync
from lanewarden.auth import Role
from lanewarden.cli.state import StateDir
from lanewarden.errors import Reason
from lanewarden.v1 import operator_service_pb2

OPERATOR: Final = operator_service_pb2.DESCRIPTOR.services_by_name["OperatorService"]
PAGE_SIZE: Final = 1000
EMITTER: Final = "cli"
"""Before the name of the command that asks, where a row that a service writes says who asked for it."""
ROWS_MAX: Final = 10_000
"""The most rows of a listing."""


@contextmanager
def operator(state: StateDir) -> Iterator[Any]:
    """OperatorService, as the operator of the state directory.

    Raises:
        NotUp: no `up` has said where it listens, or the credential cannot be used.
    """
    with service(state, state.endpoints().supervisor, OPERATOR) as stub:
        yield stub


@contextmanager
def service(
    state: StateDir, target: str, descriptor: ServiceDescriptor, unreachable: Reason = Reason.SUPERVISOR_UNREACHABLE
) -> Iterator[Any]:
    """Any service of the pair, as the operator."""
    token = state.token(Role.OPERATOR)
    with client_sync.connect(
        target,
        token=token,
        unreachable=unreachable,
        credentials=state.channel_credentials(),
        emitter=_emitter(),
    ) as connection:
        yield connection.stub(descriptor)


def _emitter() -> str:
    """The command that runs; a thread of its own has none at hand."""
    context = click.get_current_context(silent=True)
    return f"{EMITTER}.{context.info_name}" if context else EMITTER


def operator_async(state: StateDir) -> client.Connection:
    """The asyncio connection to the supervisor, for commands that watch two things at once."""
    return client.connect(
        state.endpoints().supervisor, token=state.token(Role.OPERATOR), credentials=state.channel_credentials()
    )


def pages(rpc: Callable[[Any], Any], request: Any, field: str, *, rows_max: int = ROWS_MAX) -> list[Any]:
    """The rows of every page, at most ``rows_max``."""
    rows: list[Any] = []
    request.page_size = min(PAGE_SIZE, rows_max)
    while True:
        response = rpc(request)
        rows += getattr(response, field)
        if not response.next_page_token or len(rows) >= rows_max:
            return rows[:rows_max]
        request.page_token = response.next_page_token
