"""Write the tables of the telemetry reference in the README beside this file; with ``--check``, only say whether they are
fresh.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from lanewarden.telemetry.metric_names import METRICS, Attribute, Metric, On, prometheus_label
from lanewarden.telemetry.span_attributes import SPAN_ATTRIBUTES
from lanewarden.telemetry.span_names import SPANS
from lanewarden.telemetry.variables import VARIABLES

README: Final = Path(__file__).with_name("README.md")
COMMAND: Final = "python deploy/reference.py"
_WHERE: Final = {On.BOTH: "both", On.SUPERVISOR: "supervisor", On.RUNNER: "lane runner"}


def markers(table: str) -> tuple[str, str]:
    """What stands before and behind a table."""
    return f"<!-- {table}: written by {COMMAND} -->", f"<!-- end of {table} -->"


def metrics() -> str:
    """Every metric of the catalogue."""
    return _table(
        ("metric", "for Prometheus", "kind", "unit", "sent by", "attributes", "meaning"),
        (
            (
                *(_code(each.name), _code(each.prometheus_name), each.kind.value, _code(each.unit), _WHERE[each.on]),
                *(", ".join(_code(attribute.name) for attribute in each.attributes), each.description),
            )
            for each in METRICS
        ),
    )


def attributes() -> str:
    """Every attribute of a metric, with what it may be."""
    found: dict[Attribute, list[Metric]] = {}
    for metric in METRICS:
        for attribute in metric.attributes:
            found.setdefault(attribute, []).append(metric)
    return _table(
        ("attribute", "for Prometheus", "of", "meaning", "values"),
        (
            (
                *(_code(each.name), _code(prometheus_label(each.name)), ", ".join(_code(of.name) for of in having)),
                *(each.meaning, ", ".join(map(_code, each.values))),
            )
            for each, having in found.items()
        ),
    )


def spans() -> str:
    """Every span of its catalogue."""
    return _table(
        ("span", "kind", "attributes", "meaning"),
        (
            (
                *(_code(each.name), each.kind),
                ", ".join(_code(f"lanewarden{name}" if name.startswith(".") else name) for name in each.attributes),
                each.meaning,
            )
            for each in SPANS
        ),
    )


def span_attributes() -> str:
    """Every attribute of a span."""
    return _table(("attribute", "meaning"), ((_code(name), meaning) for name, meaning in SPAN_ATTRIBUTES.items()))


def variables() -> str:
    """Every variable that counts."""
    return _table(
        ("variable", "for one signal alone", "default", "meaning"),
        ((_code(each.name), ", ".join(map(_code, each.also)), each.default, each.meaning) for each in VARIABLES),
    )


TABLES: Final[dict[str, Callable[[], str]]] = {
    "metrics": metrics,
    "attributes": attributes,
    "spans": spans,
    "attributes of spans": span_attributes,
    "variables": variables,
}


def _code(text: str) -> str:
    return f"`{text}`"


def _table(header: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = (header, tuple("---" for _ in header), *rows)
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def written(text: str) -> str:
    """The README with fresh tables."""
    for name, table in TABLES.items():
        begin, end = markers(name)
        head, found, rest = text.partition(begin)
        _, found_end, tail = rest.partition(end)
        if not (found and found_end):
            sys.exit(f"{README.name} has no place for {name}: {begin} … {end}")
        text = f"{head}{begin}\n\n{table()}\n\n{end}{tail}"
    return text


def main(arguments: list[str]) -> None:
    """Compare with the README, and rewrite it unless ``--check`` is given."""
    kept = README.read_text(encoding="utf-8")
    fresh = written(kept)
    if fresh == kept:
        return
    if "--check" in arguments:
        sys.exit(f"the telemetry reference is stale; run `{COMMAND}`")
    README.write_text(fresh, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
