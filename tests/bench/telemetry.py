"""What traces and metrics cost those who call: escalations with telemetry off and on, in the same rounds."""

from __future__ import annotations

import os
import statistics
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from unittest import mock

from tests.bench.figures import Figure
from tests.bench.load import Caller, rate
from tests.bench.subjects import CALLERS, AtRunner, AtSupervisor
from tests.integration.pair import Pair, Service
from tests.ports import free_port

ROUNDS: Final = 9
SLOW_SECONDS: Final = "5"
HEAD: Final = {"OTEL_TRACES_SAMPLER": "parentbased_traceidratio", "OTEL_TRACES_SAMPLER_ARG": "0.1"}
"""The documented head sampling."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """One way to run a pair. ``receiver`` is what listens at its endpoint: the arguments of one, or None for nobody."""

    what: str
    environment: Mapping[str, str]
    receiver: tuple[str, ...] | None = ()
    target: str = ""


OFF: Final = Way(what="telemetry off", environment={}, receiver=None)
SAMPLED: Final = Way(what="one trace in ten kept", environment=HEAD, target="≥ 0.70")
EVERY: Final = Way(what="every span kept", environment={"OTEL_TRACES_SAMPLER": "always_on"})
NOBODY: Final = Way(what="one trace in ten kept, no collector", environment=HEAD, receiver=None, target="≥ 0.70")
SLOW: Final = Way(
    what=f"one trace in ten kept, a collector that takes {SLOW_SECONDS} s to answer",
    environment=HEAD,
    receiver=(SLOW_SECONDS,),
    target="≥ 0.70",
)
SUBJECTS: Final = ((AtSupervisor, (OFF, SAMPLED, EVERY, NOBODY, SLOW)), (AtRunner, (OFF, SAMPLED, EVERY)))
"""A pair for the calls of workers has 64 of them, so there are fewer pairs."""


class Subject:
    """A pair that runs one way, and its callers."""

    def __init__(self, called: AtSupervisor | AtRunner, way: Way) -> None:
        self.way = way
        self.rates: list[float] = []
        self._called = called
        self._callers: list[Caller] = []

    async def open(self, directory: Path, stack: AsyncExitStack) -> None:
        """Start it."""
        directory.mkdir(parents=True)
        port = free_port()
        if self.way.receiver is not None:
            receiver = Service("tests.bench.receiver", str(port), *self.way.receiver)
            stack.callback(receiver.kill)
            receiver.start()
        to = {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{port}"} if self.way is not OFF else {}
        with mock.patch.dict(os.environ, {**self.way.environment, **to}):
            pair = Pair(directory, lanes=self._called.lanes, supervisor_flags=("--lease-ttl-seconds", "50"))
        self._callers = await self._called.open(stack.enter_context(pair), stack)

    async def renew(self) -> None:
        """Keep what its callers hold, while others have their turn."""
        await self._called.renew()

    async def round(self) -> None:
        """Calls per second of all callers at once."""
        requests = await self._called.requests()
        measured, answers = await rate(self._callers, requests)
        self._called.check(answers)
        await self._called.settle()
        self.rates.append(measured)


async def run(rounds: int | None, directory: Path) -> list[Figure]:
    """The figures of both services."""
    found = []
    for called, ways in SUBJECTS:
        subjects = [Subject(called(), way) for way in ways]
        async with AsyncExitStack() as stack:
            for number, subject in enumerate(subjects):
                await subject.open(directory / f"{called.__name__}{number}", stack)
                for opened in subjects[:number]:
                    await opened.renew()
            for turn in range((rounds or ROUNDS) + 1):
                first = turn % len(subjects)  # each is the first, and each follows another, as often as the others
                for subject in (*subjects[first:], *subjects[:first]):
                    await subject.round()
                    for waiting in subjects:
                        await waiting.renew()
        found += _figures(f"{called.what}, {CALLERS} callers", subjects)
    return found


def _figures(what: str, subjects: Sequence[Subject]) -> list[Figure]:
    off, *others = subjects
    return [
        Figure(
            bench="telemetry",
            what=f"{what}: {each.way.what}",
            measured=statistics.median(each.rates[1:]),  # the first one warms up
            unit="/s",
            reference=OFF.what,
            reference_measured=statistics.median(off.rates[1:]),
            ratio=statistics.median(mine / its for mine, its in zip(each.rates[1:], off.rates[1:], strict=True)),
            target=each.way.target,
        )
        for each in others
    ]
