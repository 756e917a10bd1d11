"""Durable escalations from 64 callers at once, against an echo and against an echo that commits a row."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.bench.figures import Figure
from tests.bench.load import Caller, Target, echo_target, rate
from tests.bench.subjects import CALLERS, CALLS_PER_ROUND, AtRunner, AtSupervisor
from tests.integration.pair import Pair

ROUNDS: Final = 9
TARGET: Final = "≥ 0.40"


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """Calls per second. ``inbox`` counts until the supervisor has the escalation, which no caller waits for."""

    answered: float
    inbox: float
    bare: float
    row: float


async def run(rounds: int | None, directory: Path) -> list[Figure]:
    """The figures of both services."""
    found = []
    for subject in (AtSupervisor(), AtRunner()):
        measured = await _measure(subject, rounds or ROUNDS, directory / type(subject).__name__)
        found += _figures(subject, measured)
    return found


async def _measure(subject: AtSupervisor | AtRunner, rounds: int, directory: Path) -> list[Round]:
    directory.mkdir()
    found = []
    async with AsyncExitStack() as stack:
        pair = stack.enter_context(Pair(directory, lanes=subject.lanes))
        callers = await subject.open(pair, stack)
        bare_address, row_address = subject.addresses(directory)
        bare = await stack.enter_async_context(echo_target(bare_address))
        row = await stack.enter_async_context(echo_target(row_address, str(directory / "echo.sqlite3")))
        for _ in range(rounds + 1):
            requests = await subject.requests()
            answered, answers = await rate(callers, requests)
            subject.check(answers)
            calls = sum(len(own) for own in requests)
            inbox = calls / (calls / answered + await subject.settle())
            # As many calls as lets a round of an echo last as long as one of the subject.
            repeated = [own * (CALLS_PER_ROUND // len(own)) for own in requests]
            bare_rate, _ = await rate(_echoes(bare, callers), repeated)
            row_rate, _ = await rate(_echoes(row, callers), repeated)
            found.append(Round(answered=answered, inbox=inbox, bare=bare_rate, row=row_rate))
    return found[1:]  # the first one warms up


def _echoes(server: Target, callers: Sequence[Caller]) -> list[Caller]:
    """Callers of an echo that send what the subject's callers send, credentials included."""
    return [server.caller(None, caller.metadata) for caller in callers]


def _figures(subject: AtSupervisor | AtRunner, rounds: Sequence[Round]) -> list[Figure]:
    def figure(what: str, measured: str, against: str, reference: str, target: str = "") -> Figure:
        return Figure(
            bench="escalate",
            what=f"{what}, {CALLERS} callers, {subject.transport}",
            measured=statistics.median(getattr(each, measured) for each in rounds),
            unit="/s",
            reference=against,
            reference_measured=statistics.median(getattr(each, reference) for each in rounds),
            ratio=statistics.median(getattr(each, measured) / getattr(each, reference) for each in rounds),
            target=target,
        )

    figures = [
        figure(subject.what, "answered", "bare echo", "bare", TARGET),
        figure(subject.what, "answered", "echo that commits a row", "row"),
        figure("echo that commits a row", "row", "bare echo", "bare", "the limit"),
    ]
    if isinstance(subject, AtRunner):
        figures.append(figure(f"{subject.what}, until the inbox has it", "inbox", "bare echo", "bare"))
    return figures
