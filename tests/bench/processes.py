"""What processes cost, from /proc."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

WINDOW_SECONDS: Final = 10.0
SETTLE_SECONDS: Final = 3.0
_TICKS: Final = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Of a process with all its descendants: CPU as percent of one core, and resident memory."""

    cpu_percent: float
    rss_mib: float


def tree(pid: int) -> list[int]:
    """The process and its descendants."""
    found = [pid]
    for parent in found:
        for children in Path(f"/proc/{parent}/task").glob("*/children"):
            found += [int(word) for word in children.read_text().split()]
    return found


def shims(pid: int) -> int:
    """How many worker shims live below the process."""
    return sum(b"\0shim\0" in Path(f"/proc/{each}/cmdline").read_bytes() for each in tree(pid))


def costs(*pids: int) -> list[Cost]:
    """What each process tree costs over the next ten seconds."""
    before = [cpu_seconds(pid) for pid in pids]
    start = time.monotonic()
    time.sleep(WINDOW_SECONDS)
    seconds = time.monotonic() - start
    return [
        Cost(cpu_percent=100 * (cpu_seconds(pid) - spent) / seconds, rss_mib=_rss_mib(pid))
        for pid, spent in zip(pids, before, strict=True)
    ]


def cpu_seconds(pid: int) -> float:
    ticks = 0
    for each in tree(pid):
        fields = Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])  # utime and stime, see proc(5)
    return ticks / _TICKS


def _rss_mib(pid: int) -> float:
    pages = sum(int(Path(f"/proc/{each}/statm").read_text().split()[1]) for each in tree(pid))
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20
