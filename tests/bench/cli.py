"""A worker's verb as a whole process, against an interpreter that imports gRPC and does nothing."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from tests.bench.figures import Figure
from tests.bench.workers import Workers
from tests.integration.pair import Pair

ROUNDS: Final = 20


async def run(rounds: int | None, directory: Path) -> list[Figure]:
    """How long ``lanewarden worker progress`` takes from its start to its end."""
    verb = [str(Path(sys.executable).with_name("lanewarden")), "worker", "progress"]
    reference = [sys.executable, "-c", "import grpc"]
    with Pair(directory, lanes=1) as pair:
        (token,) = Workers(pair, directory / "workers").start(1).values()
        socket = str(directory / "runner" / "worker.sock")
        env = {**os.environ, "LANEWARDEN_SOCKET": socket, "LANEWARDEN_TOKEN": token}
        for command in (verb, reference):  # compiled and cached from here on
            _process_ms(command, env)
        pairs = [(_process_ms(verb, env), _process_ms(reference, env)) for _ in range(rounds or ROUNDS)]
    measured, imported = (statistics.median(column) for column in zip(*pairs, strict=True))
    return [
        Figure(
            bench="cli",
            what="`lanewarden worker progress`, whole process",
            measured=measured,
            unit="ms",
            reference="`python -c 'import grpc'`",
            reference_measured=imported,
            ratio=statistics.median(own / other for own, other in pairs),
            target="≤ 1.5",
        )
    ]


def _process_ms(command: Sequence[str], env: Mapping[str, str]) -> float:
    start = time.perf_counter()
    subprocess.run(command, env=env, check=True, stdout=subprocess.DEVNULL)
    return (time.perf_counter() - start) * 1000
