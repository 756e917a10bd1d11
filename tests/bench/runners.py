"""A supervisor whose runners do nothing but renew their leases: what that costs, how long a renewal takes, and whether any
lease ends that should not. At two sizes, to show how it grows.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from asyncio.subprocess import PIPE
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from lanewarden.v1 import operator_service_pb2 as pb
from tests.bench.figures import Figure
from tests.bench.fleet import LANES, Seen
from tests.bench.processes import cpu_seconds
from tests.integration.pair import Pair

FEW: Final = 100
MANY: Final = 1_000
MINUTES: Final[Mapping[int, int]] = {FEW: 2, MANY: 10}
LOOK_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What one size came to; ``expired`` are the runners that were shown as not live or told that their lease is over."""

    cpu_percent: float
    expired: frozenset[str]
    seen: Seen


async def run(rounds: int | None, directory: Path) -> list[Figure]:
    """The figures of both sizes; a round is a minute of each."""
    few, many = [await _measure(size, rounds or MINUTES[size], directory / str(size)) for size in (FEW, MANY)]
    growth = Figure(
        bench="runners",
        what=f"{MANY:,} runners: supervisor, CPU, growth",
        measured=many.cpu_percent,
        unit="% of a core",
        reference=f"the same with {FEW}",
        reference_measured=few.cpu_percent,
        ratio=many.cpu_percent / few.cpu_percent,
        target=f"≤ {MANY // FEW}",
    )
    return [*_figures(FEW, few, bound=False), *_figures(MANY, many, bound=True), growth]


def _figures(size: int, found: Found, *, bound: bool) -> list[Figure]:
    seen = found.seen
    rows = (
        ("supervisor, CPU", found.cpu_percent, "% of a core", "< 35 %"),
        ("KeepAlive, p50", seen.p50_ms, "ms", ""),
        ("KeepAlive, p99", seen.p99_ms, "ms", "< 50 ms"),
        ("false expiries", len(found.expired), "", "0"),
        (f"renewals that failed, of {seen.renewals:,}", seen.failed, "", "0"),
        ("the generator sends late by, p99", seen.late_p99_ms, "ms", ""),
    )
    return [
        Figure(
            bench="runners",
            what=f"{size:,} runners × {LANES} lanes: {what}",
            measured=measured,
            unit=unit,
            target=target if bound else "",
        )
        for what, measured, unit, target in rows
    ]


async def _measure(size: int, minutes: int, directory: Path) -> Found:
    pair = Pair(directory)  # of which only the supervisor runs
    pair.supervisor.start()
    try:
        fleet = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.bench.fleet", f"127.0.0.1:{pair.supervisor_port}"),
            *(str(directory / "credentials"), str(size), str(minutes * 60)),
            stdout=PIPE,
        )
        assert fleet.stdout is not None
        assert await fleet.stdout.readline() == b"measuring\n", "the runners could not register"
        spent, start = cpu_seconds(pair.supervisor.pid), time.monotonic()
        told = asyncio.ensure_future(fleet.stdout.readline())
        not_live = await _look_until(told, pair, size)
        cpu_percent = 100 * (cpu_seconds(pair.supervisor.pid) - spent) / (time.monotonic() - start)
        seen = Seen(**json.loads(told.result()))
        await fleet.wait()
    finally:
        pair.supervisor.stop()
    return Found(cpu_percent=cpu_percent, expired=frozenset(not_live | set(seen.over)), seen=seen)


async def _look_until(told: asyncio.Future[bytes], pair: Pair, size: int) -> set[str]:
    """The runners that were not shown as live at one of the looks, until the fleet has ``told``."""
    not_live: set[str] = set()
    while not told.done():
        found = (await asyncio.to_thread(pair.operator.ListRunners, pb.ListRunnersRequest())).runners
        assert len(found) == size, f"{len(found)} runners, not {size}"
        not_live |= {runner.runner_id for runner in found if runner.state != pb.RUNNER_STATE_LIVE}
        await asyncio.wait([told], timeout=LOOK_SECONDS)
    return not_live
