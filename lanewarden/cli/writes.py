"""``writes``, ``emitters`` and ``findings``: the ledgers of both services."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, Final

import click

from lanewarden.cli import resolve, views
from lanewarden.cli.connect import operator, service
from lanewarden.cli.durations import rough
from lanewarden.cli.exits import Exit
from lanewarden.cli.inbox import json_option
from lanewarden.cli.state import StateDir
from lanewarden.cli.terminal import complain, write_json
from lanewarden.errors import Reason
from lanewarden.v1 import write_trace_service_pb2 as pb
from lanewarden.worker_messages import enum_word

WINDOWS: Final = {"1s": 1, "10s": 10, "5m": 300, "1h": 3600, "24h": 86_400}
RATES_MAX: Final = 1000
ROWS_SHOWN_MAX: Final = 20
"""Of a table that is drawn again and again; it should fit a screen."""
_SERVICE: Final = pb.DESCRIPTOR.services_by_name["WriteTraceService"]
_COLUMNS: Final = {"emitter": ("emitter",), "origin": ("origin",), "entity": ("entity_kind", "entity_id")}
_ALL: Final = ("emitter", "origin", "entity_kind", "entity_id")
_HEADERS: Final = {"entity_kind": "KIND", "entity_id": "ENTITY"}

_KINDS: Final = {
    pb.FINDING_KIND_ENTITY_RATE: "storm",
    pb.FINDING_KIND_TOTAL_RATE: "storm over many",
    pb.FINDING_KIND_NO_PROGRESS: "no progress",
    pb.FINDING_KIND_STORE_HELD: "store held",
}

Answer = Any
"""A GetWriteRatesResponse or a WatchWriteRatesResponse; they have the same fields."""

_service_option = click.option(
    "--service", "only", type=click.Choice(["supervisor", "runner"]), help="Ask only this one."
)


@click.command()
@click.option("--task", metavar="TASK", help="Only what is written to this task.")
@click.option("--by", type=click.Choice(list(_COLUMNS)), help="Sum by this alone.")
@click.option("--window", type=click.Choice(list(WINDOWS)), default="10s", show_default=True, help="How far back.")
@click.option("--watch", is_flag=True, help="Show it again every second, until Ctrl-C.")
@_service_option
@json_option
@click.pass_obj
def writes(
    state: StateDir, task: str | None, by: str | None, window: str, watch: bool, only: str | None, as_json: bool
) -> int:
    """Show who writes to the stores, and how fast.

    Busiest first, by service, emitter and entity. With --watch and --json one JSON document per line.
    """
    entity_id = _task_id(state, task)
    rows_max = ROWS_SHOWN_MAX if watch else None

    def show(found: Mapping[str, Answer]) -> None:
        if as_json:
            write_json({name: views.document(answer) for name, answer in found.items()})
        else:
            headers, rows = _table(found, by)
            views.print_table(headers, rows[:rows_max], empty=f"no writes within {window}")
        _complain(found)

    with ledgers(state, only) as stubs:
        request: Any = pb.WatchWriteRatesRequest() if watch else pb.GetWriteRatesRequest()
        request.entity_id, request.rates_max = entity_id, RATES_MAX
        request.window.FromSeconds(WINDOWS[window])
        if not watch:
            show({name: _summed(stub.GetWriteRates(request), by) for name, stub in stubs.items()})
            return Exit.DONE
        # Each stream has an answer once a second, so the slower of the two sets the pace.
        for answers in zip(*(stub.WatchWriteRates(request) for stub in stubs.values()), strict=True):
            if not as_json:
                click.clear()
            show({name: _summed(answer, by) for name, answer in zip(stubs, answers, strict=True)})
    return Exit.DONE


@click.command()
@_service_option
@json_option
@click.pass_obj
def emitters(state: StateDir, only: str | None, as_json: bool) -> int:
    """List what each emitter has written since the start."""
    with ledgers(state, only) as stubs:
        found = {name: stub.ListEmitters(pb.ListEmittersRequest()) for name, stub in stubs.items()}
    if as_json:
        write_json({name: views.document(totals)["emitters"] for name, totals in found.items()})
    else:
        rows = [[name, each.emitter, str(each.rows)] for name, totals in found.items() for each in totals.emitters]
        views.print_table(("SERVICE", "EMITTER", "ROWS"), rows, empty="nothing was written")
    return Exit.DONE


@click.command()
@click.option("--task", metavar="TASK", help="Only what is about this task.")
@_service_option
@json_option
@click.pass_obj
def findings(state: StateDir, task: str | None, only: str | None, as_json: bool) -> int:
    """List storms of writes, and who causes them.

    What lasts first; what was over within the last ten minutes after it.
    """
    request = pb.ListFindingsRequest(entity_id=_task_id(state, task))
    with ledgers(state, only) as stubs:
        found = {name: stub.ListFindings(request).findings for name, stub in stubs.items()}
    if as_json:
        write_json({name: [views.document(each) for each in each_found] for name, each_found in found.items()})
    else:
        rows = [_finding_row(name, each) for name, each_found in found.items() for each in each_found]
        headers = ("SERVICE", "FINDING", "ON", "ROWS/S", "SINCE", "WHO")
        views.print_table(headers, rows, empty="nothing is wrong with who writes what")
    return Exit.DONE


@contextmanager
def ledgers(state: StateDir, only: str | None = None) -> Iterator[dict[str, Any]]:
    """WriteTraceService of each service, or of one, by the service's name."""
    endpoints = state.endpoints()
    with ExitStack() as stack:
        stubs = {}
        if only != "runner":
            stubs["supervisor"] = stack.enter_context(service(state, endpoints.supervisor, _SERVICE))
        if only != "supervisor":
            reason = Reason.RUNNER_UNREACHABLE
            stubs["runner"] = stack.enter_context(service(state, endpoints.runner, _SERVICE, reason))
        yield stubs


def _task_id(state: StateDir, task: str | None) -> str:
    if task is None:
        return ""
    with operator(state) as stub:
        return resolve.task_id(stub, task)


def _summed(answer: Answer, by: str | None) -> Answer:
    """The answer with its rates summed by what they have in common."""
    if by is None:
        return answer
    sums: dict[tuple[str, ...], pb.WriteRate] = {}
    for rate in answer.rates:
        common = {column: getattr(rate, column) for column in _COLUMNS[by]}
        total = sums.setdefault(tuple(common.values()), pb.WriteRate(**common))
        total.rows += rate.rows
        total.rows_per_second += rate.rows_per_second
    del answer.rates[:]
    answer.rates.extend(sorted(sums.values(), key=lambda each: -each.rows))
    return answer


def _table(found: Mapping[str, Answer], by: str | None) -> tuple[list[str], list[list[str]]]:
    """The headers and rows of both services together, busiest first."""
    columns = _COLUMNS[by] if by else _ALL
    busiest = sorted(
        ((name, rate) for name, answer in found.items() for rate in answer.rates), key=lambda each: -each[1].rows
    )
    rows = [
        [name, *(getattr(rate, column) for column in columns), str(rate.rows), f"{rate.rows_per_second:.2f}"]
        for name, rate in busiest
    ]
    return ["SERVICE", *(_HEADERS.get(column, column.upper()) for column in columns), "ROWS", "ROWS/S"], rows


def _complain(found: Mapping[str, Answer]) -> None:
    for name, answer in found.items():
        if answer.unattributed_rows:
            complain(f"lanewarden: {name}: {answer.unattributed_rows} rows have no emitter; that is a defect")


def _finding_row(name: str, finding: pb.Finding) -> list[str]:
    since = f"{views.age(finding.since)} ago"
    if finding.HasField("ended_at"):
        since += f", over {views.age(finding.ended_at)} ago"
    about = f"{finding.entity_kind} {finding.entity_id}".strip()
    if finding.kind == pb.FINDING_KIND_TOTAL_RATE:
        about = f"{finding.entities} entities"
    kind = _KINDS.get(finding.kind) or enum_word(pb.FindingKind, finding.kind)
    if finding.kind == pb.FINDING_KIND_NO_PROGRESS:
        kind += f", {finding.versions} versions"
    if finding.kind == pb.FINDING_KIND_STORE_HELD:
        kind += f" for {rough(round(finding.held.ToMilliseconds() / 1000))}"
    return [name, kind, about, f"{finding.rows_per_second:.1f}", since, _who(finding.emitters)]


def _who(shares: Iterable[pb.EmitterShare]) -> str:
    return ", ".join(
        f"{each.emitter} (for {each.origin}) {each.share:.0%}" if each.origin else f"{each.emitter} {each.share:.0%}"
        for each in shares
    )
