"""``runners`` and ``leases``: who can be reached, who holds what, and which code they run."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final

import click
from google.protobuf.duration_pb2 import Duration

from lanewarden.cli import views
from lanewarden.cli.connect import operator, service
from lanewarden.cli.exits import Exit
from lanewarden.cli.inbox import json_option
from lanewarden.cli.state import StateDir
from lanewarden.cli.terminal import write_json
from lanewarden.errors import Reason, Refusal
from lanewarden.v1 import lane_runner_service_pb2 as runner_pb
from lanewarden.v1 import operator_service_pb2 as pb
from lanewarden.worker_messages import enum_word

ASK_SECONDS: Final = 1.0
ASKED_AT_ONCE_MAX: Final = 16
START_DIGITS: Final = 8
"""So much of the id of a start tells it from the others, for people."""
_LANE_RUNNER: Final = runner_pb.DESCRIPTOR.services_by_name["LaneRunnerService"]

Answer = runner_pb.GetSupervisionResponse | Refusal


@click.command()
@json_option
@click.pass_obj
def runners(state: StateDir, as_json: bool) -> int:
    """List the lane runners, what they run and how they do.

    LAG is how far its event loop is behind, CLOCK how far its wall clock is ahead of the supervisor's.
    """
    with operator(state) as stub:
        response: pb.ListRunnersResponse = stub.ListRunners(pb.ListRunnersRequest())
    if as_json:
        views.print_documents(response.runners)
        return Exit.DONE
    rows = [
        [
            each.runner_id,
            state_words(each),
            _lanes(each),
            str(each.commands_waiting or ""),
            _seconds(each.loop_lag) if each.HasField("clock_lead") else "",
            _seconds(each.clock_lead, signed=True) if each.HasField("clock_lead") else "",
            each.address,
            _build(each.version, each.build),
        ]
        for each in response.runners
    ]
    headers = ("RUNNER", "STATE", "LANES", "COMMANDS WAITING", "LAG", "CLOCK", "ADDRESS", "BUILD")
    views.print_table(headers, rows, empty="no runner has registered")
    _say_builds(response)
    return Exit.DONE


@click.command()
@json_option
@click.pass_obj
def leases(state: StateDir, as_json: bool) -> int:
    """List the leases: who holds what, granted by whom.

    Each runner holds the lease of its presence at the supervisor; a supervisor holds the right to act at each runner, as
    that runner itself says.
    """
    with operator(state) as stub:
        response: pb.ListRunnersResponse = stub.ListRunners(pb.ListRunnersRequest())
    with ThreadPoolExecutor(ASKED_AT_ONCE_MAX) as pool:
        answers = list(pool.map(partial(_ask, state), response.runners))
    if as_json:
        pairs = zip(response.runners, answers, strict=True)
        write_json(
            {
                "supervisor": views.document(response.supervisor),
                "runners": [{"presence": views.document(each), **_answer_document(answer)} for each, answer in pairs],
            }
        )
        return Exit.DONE
    rows = []
    for each, answer in zip(response.runners, answers, strict=True):
        rows += [_presence_row(each, response.supervisor), _supervision_row(each, answer)]
    headers = ("LEASE", "HOLDER", "GRANTED BY", "STATE", "GENERATION", "LEFT", "SEEN", "BUILD OF THE HOLDER")
    views.print_table(headers, rows, empty="no runner has registered")
    _say_builds(response)
    return Exit.DONE


def _ask(state: StateDir, runner: pb.Runner) -> Answer:
    """Who supervises a runner, by its own word."""
    try:
        with service(state, runner.address, _LANE_RUNNER, Reason.RUNNER_UNREACHABLE) as stub:
            found: runner_pb.GetSupervisionResponse = stub.GetSupervision(
                runner_pb.GetSupervisionRequest(), timeout_seconds=ASK_SECONDS
            )
            return found
    except Refusal as refusal:
        return refusal


def _answer_document(answer: Answer) -> dict[str, object]:
    if isinstance(answer, Refusal):
        return {"supervision": None, "problem": str(answer)}
    return {"supervision": views.document(answer), "problem": ""}


def _presence_row(runner: pb.Runner, supervisor: pb.SupervisorInfo) -> list[str]:
    return [
        "presence",
        _start(f"runner {runner.runner_id}", runner.incarnation),
        _start(f"supervisor {supervisor.supervisor_id}", supervisor.incarnation),
        state_words(runner),
        str(runner.generation),
        _seconds(runner.lease_remaining),
        _seen(runner),
        _build(runner.version, runner.build),
    ]


def _supervision_row(runner: pb.Runner, answer: Answer) -> list[str]:
    granted_by = _start(f"runner {runner.runner_id}", runner.incarnation)
    if isinstance(answer, Refusal):
        told = str(runner.supervision_generation or "")
        return ["supervision", "", granted_by, f"unknown: {answer.reason.name}", told, "", _seen(runner), ""]
    right = answer.supervision
    holder = _start(f"supervisor {right.supervisor_id}", right.supervisor_incarnation) if right.supervisor_id else ""
    return [
        "supervision",
        f"{holder} at {right.address}" if right.address else holder,
        _start(f"runner {answer.runner_id}", answer.incarnation),
        enum_word(runner_pb.SupervisionState, right.state),
        str(right.generation),
        _seconds(right.lease_remaining),
        f"{views.age(right.renewed_at)} ago" if right.renewed_at.seconds else "",
        "",
    ]


def state_words(runner: pb.Runner) -> str:
    """What its lease says; with "degraded" when it renews and cannot be called, with "last seen" when it does not renew."""
    word = enum_word(pb.RunnerState, runner.state)
    if runner.state != pb.RUNNER_STATE_LIVE:
        return f"{word}, last seen {_seen(runner)}"
    if runner.HasField("degraded_since"):
        return f"{word}, degraded: calls fail for {views.age(runner.degraded_since)}"
    return word


def build_warning(supervisor: pb.SupervisorInfo, others: Iterable[pb.Runner]) -> str:
    """One sentence when two services run different code; empty while they do not, as far as they have said."""
    builds = {f"supervisor {supervisor.supervisor_id}": supervisor.build}
    builds |= {f"runner {each.runner_id}": each.build for each in others}
    if len({build for build in builds.values() if build}) < 2:
        return ""
    return "different builds: " + ", ".join(f"{who} {build}" for who, build in builds.items() if build)


def _say_builds(response: pb.ListRunnersResponse) -> None:
    if warning := build_warning(response.supervisor, response.runners):
        click.echo(warning)


def _lanes(runner: pb.Runner) -> str:
    """Its lanes, with what they run; of a runner that is not heard of, nothing is said to run."""
    tasks = {each.lane: each.task_id for each in runner.occupants} if runner.state == pb.RUNNER_STATE_LIVE else {}
    return ", ".join(f"{lane}: {tasks[lane]}" if lane in tasks else lane for lane in runner.lanes)


def _seen(runner: pb.Runner) -> str:
    return f"{views.age(runner.last_seen)} ago" if runner.last_seen.seconds else "not since the supervisor started"


def _start(who: str, incarnation: str) -> str:
    return f"{who} ({incarnation[:START_DIGITS]})" if incarnation else who


def _build(*parts: str) -> str:
    return " ".join(filter(None, parts))


def _seconds(span: Duration, *, signed: bool = False) -> str:
    return f"{span.ToMilliseconds() / 1000:{'+' if signed else ''}.1f} s"
