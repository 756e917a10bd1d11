"""``inbox`` and ``show``."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, Final

import click

from lanewarden.cli import resolve, views
from lanewarden.cli.connect import operator, pages
from lanewarden.cli.exits import Exit
from lanewarden.cli.state import StateDir
from lanewarden.cli.terminal import one_line, write_json
from lanewarden.errors import Code, Refusal
from lanewarden.v1 import escalation_pb2
from lanewarden.v1 import operator_service_pb2 as pb

RECONNECT_SECONDS: Final = 1.0
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.command()
@click.option("--watch", is_flag=True, help="Go on as questions come and change, until Ctrl-C.")
@click.option("--all", "everything", is_flag=True, help="Also closed holds and notices.")
@json_option
@click.pass_obj
def inbox(state: StateDir, watch: bool, everything: bool, as_json: bool) -> int:
    """List the questions that wait for a ruling.

    Oldest first. With --watch and --json one JSON document per line.
    """
    with operator(state) as stub:
        if watch:
            _watch(stub, as_json)
        states = escalation_pb2.HoldState.keys()[1:] if everything else []
        request = pb.ListEscalationsRequest(states=states, notices=everything)
        found = pages(stub.ListEscalations, request, "escalations")
    if as_json:
        views.print_documents(found)
    else:
        views.print_table(views.ESCALATION_HEADERS, views.escalation_rows(found), empty="nothing waits for a ruling")
    return Exit.DONE


def _watch(stub: Any, as_json: bool) -> None:
    """Print until interrupted; a supervisor that restarts is waited for once it has been there."""
    for each in _changes(stub):
        if as_json:
            write_json(views.document(each))
        else:
            row = views.escalation_rows([each])[0]
            click.echo("  ".join(one_line(cell) for cell in row if cell))
            if each.hold_state == escalation_pb2.HOLD_STATE_OPEN:
                for line in views.how_to_rule(each):
                    click.echo(f"    {line}")


def _changes(stub: Any) -> Iterator[escalation_pb2.Escalation]:
    connected = False
    while True:
        try:
            for response in stub.WatchInbox(pb.WatchInboxRequest()):
                connected = True
                yield response.escalation
        except Refusal as refusal:
            if not connected or refusal.reason.code is not Code.UNAVAILABLE:
                raise
        time.sleep(RECONNECT_SECONDS)


@click.command()
@click.argument("escalation")
@json_option
@click.pass_obj
def show(state: StateDir, escalation: str, as_json: bool) -> int:
    """Show one escalation in full."""
    with operator(state) as stub:
        found = resolve.escalation(stub, escalation)
    if as_json:
        write_json(views.document(found))
        return Exit.DONE
    views.print_fields(views.escalation_fields(found))
    if found.hold_state == escalation_pb2.HOLD_STATE_OPEN:
        click.echo("\nto rule:")
        for line in views.how_to_rule(found):
            click.echo(f"  {line}")
    return Exit.DONE
