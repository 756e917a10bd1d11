"""What stands between processes of a test: a door through which a runner reaches one supervisor of several, and a gate at
which supervisors wait for each other.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Self

CHUNK_BYTES = 1 << 16


class Door:
    """One address that leads to one of several ports, as a name or a balancer in front of replicas does."""

    def __init__(self) -> None:
        self._leads_to = 0
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()
        self._jobs: set[asyncio.Future[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._pass_through, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *exc: object) -> None:
        assert self._server is not None
        self._server.close()
        self.lead_to(0)
        await asyncio.gather(*self._jobs, return_exceptions=True)

    @property
    def port(self) -> int:
        """Where the door is."""
        assert self._server is not None
        return int(self._server.sockets[0].getsockname()[1])

    def lead_to(self, port: int) -> None:
        """From now on; what is open to another port is cut."""
        self._leads_to = port
        for writer in self._open:
            writer.transport.abort()
        self._open.clear()

    async def _pass_through(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        _keep(self._jobs)
        with contextlib.suppress(OSError):  # nobody listens, or somebody was killed
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._leads_to)
            self._open.add(far_writer)
            await asyncio.gather(_copy(reader, far_writer), _copy(far_reader, writer))
        writer.transport.abort()


def _keep(jobs: set[asyncio.Future[None]]) -> None:
    """Have the present task waited for."""
    job = asyncio.current_task()
    assert job is not None
    jobs.add(job)
    job.add_done_callback(jobs.discard)


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while chunk := await reader.read(CHUNK_BYTES):
            writer.write(chunk)
            await writer.drain()
    finally:
        writer.transport.abort()


@dataclass(slots=True, kw_only=True)
class Arrival:
    """A supervisor that has come to a step about a task. ``outcome`` is what it was told: OK, a reason, or nothing if it has
    died.
    """

    who: str
    step: str
    task_id: str
    passed: asyncio.Event = field(default_factory=asyncio.Event)
    outcome: str | None = None


class Gate:
    """Lets everybody pass, but for the steps that are shut. ``on_point`` is told of each step just before it is done, and
    just after.
    """

    def __init__(self, on_point: Callable[[str, Arrival], Awaitable[None]]) -> None:
        self.arrivals: list[Arrival] = []
        self._on_point = on_point
        self._shut: set[tuple[str, str]] = set()
        self._jobs: set[asyncio.Future[None]] = set()
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._meet, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *exc: object) -> None:
        assert self._server is not None
        self._server.close()
        for arrival in self.arrivals:
            arrival.passed.set()
        await asyncio.gather(*self._jobs, return_exceptions=True)

    @property
    def port(self) -> int:
        """Where supervisors ask."""
        assert self._server is not None
        return int(self._server.sockets[0].getsockname()[1])

    def shut(self, step: str, task_id: str) -> None:
        """Whoever comes to this step waits."""
        self._shut.add((step, task_id))

    def open(self, step: str, task_id: str) -> None:
        """All who wait there go on at once, and nobody waits any more."""
        self._shut.discard((step, task_id))
        for arrival in self.waiting(step, task_id):
            arrival.passed.set()

    def waiting(self, step: str, task_id: str) -> list[Arrival]:
        """Who stands there now."""
        return [
            each
            for each in self.arrivals
            if (each.step, each.task_id) == (step, task_id) and not each.passed.is_set() and each.outcome is None
        ]

    def told(self, step: str, task_id: str) -> list[tuple[str, str]]:
        """Who was told what at this step."""
        return [
            (each.who, each.outcome)
            for each in self.arrivals
            if (each.step, each.task_id) == (step, task_id) and each.outcome
        ]

    async def _meet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        _keep(self._jobs)
        try:
            arrival = Arrival(**json.loads(await reader.readline()))
            self.arrivals.append(arrival)
            if (arrival.step, arrival.task_id) not in self._shut:
                arrival.passed.set()
            outcome = asyncio.ensure_future(reader.readline())
            passed = asyncio.ensure_future(arrival.passed.wait())
            await asyncio.wait((outcome, passed), return_when=asyncio.FIRST_COMPLETED)
            if passed.done():
                await self._on_point(f"before {arrival.step}", arrival)
                writer.write(b"go\n")
            passed.cancel()
            arrival.outcome = await _last_word(outcome)
            if arrival.outcome:
                await self._on_point(f"after {arrival.step}", arrival)
        finally:
            writer.close()


async def _last_word(line: asyncio.Future[bytes]) -> str:
    try:
        return (await line).decode().strip()
    except OSError:
        return ""
