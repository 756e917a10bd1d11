"""``writes`` and ``emitters``: the ledgers of both services."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import click

from lanewarden.cli import views
from lanewarden.cli.connect import service
from lanewarden.cli.exits import Exit
from lanewarden.cli.inbox import json_option
from lanewarden.cli.state import StateDir
from lanewarden.cli.terminal import complain, write_json
from lanewarden.errors import Reason
from lanewarden.v1 import write_trace_service_pb2 as pb

WINDOWS: Final = {"1s": 1, "10s": 10, "5m": 300}
_SERVICE: Final = pb.DESCRIPTOR.services_by_name["WriteTraceService"]


@click.command()
@click.option("--window", type=click.Choice(list(WINDOWS)), default="10s", show_default=True, help="How far back.")
@json_option
@click.pass_obj
def writes(state: StateDir, window: str, as_json: bool) -> int:
    """Show who writes to the stores, and how fast.

    Busiest first, by service, emitter and entity.
    """
    request = pb.GetWriteRatesRequest()
    request.window.FromSeconds(WINDOWS[window])
    found = {name: stub.GetWriteRates(request) for name, stub in ledgers(state)}
    if as_json:
        write_json({name: views.document(rates) for name, rates in found.items()})
    else:
        rows = [
            [
                name,
                rate.emitter,
                rate.origin,
                rate.entity_kind,
                rate.entity_id,
                str(rate.rows),
                f"{rate.rows_per_second:.2f}",
            ]
            for name, rates in found.items()
            for rate in rates.rates
        ]
        headers = ("SERVICE", "EMITTER", "ORIGIN", "KIND", "ENTITY", "ROWS", "ROWS/S")
        views.print_table(headers, rows, empty=f"no writes within {window}")
    for name, rates in found.items():
        if rates.unattributed_rows:
            complain(f"lanewarden: {name}: {rates.unattributed_rows} rows have no emitter; that is a defect")
    return Exit.DONE


@click.command()
@json_option
@click.pass_obj
def emitters(state: StateDir, as_json: bool) -> int:
    """List what each emitter has written since the start."""
    found = {name: stub.ListEmitters(pb.ListEmittersRequest()) for name, stub in ledgers(state)}
    if as_json:
        write_json({name: views.document(totals)["emitters"] for name, totals in found.items()})
    else:
        rows = [[name, each.emitter, str(each.rows)] for name, totals in found.items() for each in totals.emitters]
        views.print_table(("SERVICE", "EMITTER", "ROWS"), rows, empty="nothing was written")
    return Exit.DONE


def ledgers(state: StateDir) -> Iterator[tuple[str, Any]]:
    """WriteTraceService of each service in turn, with the service's name."""
    endpoints = state.endpoints()
    with service(state, endpoints.supervisor, _SERVICE) as stub:
        yield "supervisor", stub
    with service(state, endpoints.runner, _SERVICE, Reason.RUNNER_UNREACHABLE) as stub:
        yield "runner", stub
