"""``up`` and ``down``."""

from __future__ import annotations

import asyncio
import sys
import time
from typing import Final

import click

from lanewarden.cli import control
from lanewarden.cli.exits import Exit
from lanewarden.cli.state import NotUp, StateDir
from lanewarden.cli.terminal import one_line

SUPERVISOR_PORT: Final = 7811
RUNNER_PORT: Final = 7812
LANES_MAX: Final = 64
DOWN_SECONDS_MAX: Final = 700.0
"""Longer than `up` gives its services."""

_PORT: Final = click.IntRange(0, 65535)
_SINKS: Final = "Tell people by stdout, webhook:URL, jsonl:PATH or command:PROGRAM ARGS"


@click.command()
@click.option("--lanes", type=click.IntRange(1, LANES_MAX), default=2, show_default=True, help="How many lanes.")
@click.option("--port-supervisor", type=_PORT, default=SUPERVISOR_PORT, show_default=True, help="Its port; 0 for any.")
@click.option("--port-runner", type=_PORT, default=RUNNER_PORT, show_default=True, help="Its port; 0 for any.")
@click.option("--notify", "sinks", multiple=True, metavar="SINK", help=f"{_SINKS}; repeatable.")
@click.pass_obj
def up(state: StateDir, lanes: int, port_supervisor: int, port_runner: int, sinks: tuple[str, ...]) -> int:
    """Run both services in the foreground.

    What people are told about questions is always written to notifications.jsonl in the state directory as well. The
    services take every other setting of theirs from the environment: LANEWARDEN_SUPERVISOR_STALE_SECONDS is
    `supervisor-svc --stale-seconds`.

    Ends on Ctrl-C, SIGTERM or `lanewarden down`, and stops its workers then; their tasks go on at the next `up`.
    """
    if sys.platform != "linux":
        raise NotUp("the lane runner needs Linux (pidfd, child subreaper)")
    with control.locked(state):
        # After the lock: a second `up` is told so at once, and needs none of this.
        from lanewarden.auth import Credentials, CredentialsInvalid
        from lanewarden.cli.pair import Pair, choose_endpoints

        try:
            Credentials.ensure(state.credentials)
        except CredentialsInvalid as problem:
            raise NotUp(str(problem)) from None
        endpoints = choose_endpoints(state, supervisor_port=port_supervisor, runner_port=port_runner)

        async def run() -> None:
            pair = Pair(state, endpoints, lanes=lanes, sinks=(_own_sink(state), *sinks), say=_say)
            await pair.run(on_ready=lambda: _welcome(state))

        asyncio.run(run())
    _say("down")
    return Exit.DONE


@click.command()
@click.pass_obj
def down(state: StateDir) -> int:
    """Stop them, workers included.

    Workers get their tasks' stop grace; the tasks go on at the next `up`, and holds stay open. Waits until all is gone.
    """
    try:
        answer = control.ask(state, "stop", until_gone_seconds=DOWN_SECONDS_MAX)
    except TimeoutError:
        raise NotUp(f"`up` has not ended within {DOWN_SECONDS_MAX:g} s; see `lanewarden status`") from None
    if answer is None:
        raise NotUp(f"not up (state directory {state.path})")
    click.echo("down")
    return Exit.DONE


def _own_sink(state: StateDir) -> str:
    return f"jsonl:{state.path / 'notifications.jsonl'}"


def _say(text: str) -> None:
    click.echo(f"{time.strftime('%H:%M:%S')} {one_line(text)}", err=True)


def _welcome(state: StateDir) -> None:
    endpoints = state.endpoints()
    _say(f"up: supervisor at {endpoints.supervisor}, runner at {endpoints.runner}, state in {state.path}")
    _say("try: lanewarden run -- echo hello    lanewarden inbox    lanewarden status    (Ctrl-C stops)")
