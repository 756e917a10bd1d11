"""A pair that has nothing to do."""

from __future__ import annotations

import statistics
import time
from pathlib import Path
from typing import Final

from tests.bench.figures import Figure
from tests.bench.processes import SETTLE_SECONDS, costs
from tests.integration.pair import Pair

ROUNDS: Final = 3


async def run(rounds: int | None, directory: Path) -> list[Figure]:
    """CPU and memory of each service; the runner with the process that starts its workers."""
    with Pair(directory) as pair:
        time.sleep(SETTLE_SECONDS)
        found = [costs(pair.supervisor.pid, pair.runner.pid) for _ in range(rounds or ROUNDS)]
    figures = []
    for number, name in enumerate(("supervisor", "runner")):
        cpu_percent = statistics.median(each[number].cpu_percent for each in found)
        rss_mib = statistics.median(each[number].rss_mib for each in found)
        figures += [
            Figure(bench="idle", what=f"{name}, CPU", measured=cpu_percent, unit="% of a core", target="< 1 %"),
            Figure(bench="idle", what=f"{name}, resident", measured=rss_mib, unit="MiB", target="< 90 MiB"),
        ]
    return figures
