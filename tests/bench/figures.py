"""What a benchmark found, and the table that keeps it."""

from __future__ import annotations

import datetime as dt
import os
import platform
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

TABLE: Final = Path(__file__).with_name("README.md")
BEGIN: Final = "<!-- figures: written by python -m tests.bench --write -->"
END: Final = "<!-- end of figures -->"


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One row: a median in ``unit``, and how it stands to a reference measured in the same rounds.

    ``ratio`` is measured / reference. ``target`` is a sentence for people; nothing compares with it.
    """

    bench: str
    what: str
    measured: float
    unit: str
    reference: str = ""
    reference_measured: float | None = None
    ratio: float | None = None
    target: str = ""


def table(figures: Iterable[Figure]) -> str:
    """The figures as a Markdown table."""
    lines = ["| bench | what | median | reference | its median | ratio | target |", "|---|---|--:|---|--:|--:|---|"]
    for figure in figures:
        reference = "" if figure.reference_measured is None else _shown(figure.reference_measured, figure.unit)
        ratio = "" if figure.ratio is None else f"{figure.ratio:.2f}"
        cells = (
            *(figure.bench, figure.what, _shown(figure.measured, figure.unit)),
            *(figure.reference, reference, ratio, figure.target),
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _shown(value: float, unit: str) -> str:
    digits = 0 if value >= 100 or unit in ("", "alive") else 2 if value < 10 else 1
    return f"{value:,.{digits}f} {unit}".rstrip()


def write(figures: Sequence[Figure]) -> None:
    """Put the figures between the markers of the README, in place of the rows of the same benchmarks."""
    text = TABLE.read_text(encoding="utf-8")
    head, old, tail = text.partition(BEGIN)[0], text.partition(BEGIN)[2].partition(END)[0], text.partition(END)[2]
    fresh = {figure.bench for figure in figures}
    kept = [line for line in old.splitlines() if line.startswith("| ") and _bench(line) not in {"bench", *fresh}]
    header, *rows = table(figures).splitlines()
    rule, *rows = rows
    order = sorted([*kept, *rows], key=_bench)
    body = "\n".join([measured_on(), "", header, rule, *order])
    TABLE.write_text(f"{head}{BEGIN}\n\n{body}\n\n{END}{tail}", encoding="utf-8")


def _bench(line: str) -> str:
    return line.split("|")[1].strip()


def measured_on() -> str:
    """When and on what the figures were taken."""
    today = dt.datetime.now(dt.UTC).date().isoformat()
    return f"Measured {today}, Python {platform.python_version()}, {os.cpu_count()} cores."
