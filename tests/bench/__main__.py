"""``python -m tests.bench [NAME ...] [--rounds N] [--json] [--write]``."""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import json
import sys
import tempfile
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from tests.bench import (
    cli,
    escalate,
    exits,
    figures,
    healthy,
    held,
    idle,
    ledger,
    many_holds,
    runners,
    steer,
    telemetry,
)
from tests.bench.figures import Figure

BENCHES: Final[Mapping[str, Callable[[int | None, Path], Awaitable[list[Figure]]]]] = {
    "escalate": escalate.run,
    "steer": steer.run,
    "exit": exits.run,
    "held": held.run,
    "many_holds": many_holds.run,
    "healthy": healthy.run,
    "idle": idle.run,
    "ledger": ledger.run,
    "telemetry": telemetry.run,
    "cli": cli.run,
    "runners": runners.run,
}
LONG: Final = frozenset({"runners"})
"""Run only when they are named: they take more than ten minutes."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmarks that are named, or all but the long ones."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description="Medians and ratios; see README.md.")
    parser.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help=f"of {', '.join(BENCHES)}; default all but {', '.join(LONG)}, which is long",
    )
    parser.add_argument("--rounds", type=int, metavar="N", help="how often each is repeated; default its own number")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    parser.add_argument("--write", action="store_true", help="put the figures into the table of tests/bench/README.md")
    given = parser.parse_args(argv)
    if unknown := set(given.names) - set(BENCHES):
        parser.error(f"no benchmark {', '.join(sorted(unknown))}; there are {', '.join(BENCHES)}")
    if given.rounds is not None and given.rounds < 1:
        parser.error("--rounds: at least 1")
    found = asyncio.run(_run(given.names or [name for name in BENCHES if name not in LONG], given.rounds))
    if given.json:
        print(json.dumps([dataclasses.asdict(figure) for figure in found], indent=2))
    else:
        print(f"{figures.measured_on()}\n\n{figures.table(found)}")
    if given.write:
        figures.write(found)
    return 0


async def _run(names: Sequence[str], rounds: int | None) -> list[Figure]:
    """One loop for all: gRPC's asyncio side binds to the first one it meets."""
    found: list[Figure] = []
    for name in names:
        with tempfile.TemporaryDirectory(prefix="lw-") as directory:
            found += await BENCHES[name](rounds, Path(directory))
    return found


if __name__ == "__main__":
    sys.exit(main())
