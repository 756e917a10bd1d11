"""Metrics: bounded, of the catalogue only, read from what the services keep; and for each guard a mutant that is killed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from lane_runner_svc.store import gauges
from lanewarden.ledger import totals, windows
from lanewarden.telemetry import durations, otel_metrics
from lanewarden.telemetry import variables as otel_variables
from lanewarden.telemetry.metric_names import METRICS, Kind, Metric
from lanewarden.telemetry.span_attributes import SPAN_ATTRIBUTES
from lanewarden.telemetry.span_names import SPANS
from supervisor_svc.work import presence
from tests import metric_checks as checks

Patch = pytest.MonkeyPatch


def every_origin_has_a_name(patch: Patch) -> None:
    """Whoever calls makes as many series as it likes."""
    patch.setattr(totals, "ORIGINS_MAX", 1 << 30)


def what_is_read_is_counted_again(patch: Patch) -> None:
    """A look at the totals adds the step that is open, which is added once more when it is over."""

    def read(self: windows.Windows, now_ms: int) -> object:
        self._totals.add(self._finest.counts)
        return self._totals.series()

    patch.setattr(windows.Windows, "totals", read)


def the_latest_is_shown_as_it_stands(patch: Patch) -> None:
    """With the open step, whose keys are cut when it is full: what had a name then is `other` later."""

    def read(self: windows.Windows, now_ms: int) -> object:
        shown = totals.Totals()
        for (kind, emitter, origin), rows in self._totals.series().items():
            shown.add({(kind, "", emitter, origin): rows})
        shown.add(self._finest.counts)
        return shown.series()

    patch.setattr(windows.Windows, "totals", read)


def series_have_no_bound(patch: Patch) -> None:
    """Each set of values is kept."""
    patch.setattr(durations, "SERIES_MAX", 1 << 30)


def any_name_is_sent(patch: Patch) -> None:
    """Whoever counts chooses."""
    patch.setattr(
        otel_metrics, "_of_kind", lambda name, *kinds: Metric(name=name, kind=kinds[0], unit="1", description="")
    )


def everything_is_new(patch: Patch) -> None:
    """Differences are sums."""
    patch.setattr(otel_metrics.DurationsToo, "_not_sent", lambda self, name, values, recorded: recorded)


def the_condition_is_not_the_indexs(patch: Patch) -> None:
    """The same rows in other words, for which SQLite does not see that the index has them all."""
    patch.setattr(gauges, "_UNFINISHED", "state IN ('QUEUED', 'STARTING', 'RUNNING', 'HELD', 'IDLE')")


def a_stall_counts(patch: Patch) -> None:
    """However long this process stood still itself."""
    patch.setattr(presence, "STALL_MS", 1 << 60)
    patch.setattr(presence, "STALL_MS_MIN", 1 << 60)


def headers_are_quoted(patch: Patch) -> None:
    """As every other value is."""
    shown = tuple(replace(each, secret=False) for each in otel_variables.VARIABLES)
    patch.setattr(otel_variables, "VARIABLES", shown)


MUTANTS: list[tuple[Callable[[Patch], None], Callable[[], object]]] = [
    (every_origin_has_a_name, checks.made_up_origins_are_few_series),
    (what_is_read_is_counted_again, checks.totals_are_exact_and_never_go_down),
    (the_latest_is_shown_as_it_stands, checks.totals_are_exact_and_never_go_down),
    (series_have_no_bound, checks.a_histogram_has_a_bound_of_series),
    (any_name_is_sent, checks.only_the_catalogue_is_sent),
    (everything_is_new, checks.deltas_are_what_is_new),
    (the_condition_is_not_the_indexs, checks.gauges_read_indexes_only),
    (a_stall_counts, checks.a_stall_of_our_own_shows_no_lost_lease),
    (headers_are_quoted, checks.a_header_is_never_shown),
]
CONTROLS = [*dict.fromkeys(check for _, check in MUTANTS), checks.what_cannot_be_read_costs_nothing_else]


@pytest.mark.parametrize("check", CONTROLS, ids=lambda each: each.__name__)
def test_metrics(check: Callable[[], object]) -> None:
    """See each check for its guarantee."""
    check()


@pytest.mark.parametrize(("mutant", "check"), MUTANTS, ids=lambda each: each.__name__)
def test_each_mutant_is_killed(
    mutant: Callable[[Patch], None], check: Callable[[], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without its guard the check fails."""
    mutant(monkeypatch)
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        check()


def test_the_catalogue_is_what_prometheus_and_opentelemetry_take() -> None:
    """Names are lower-case words and dots, each once; a histogram has rising buckets and everything else none; units are
    seconds or what is counted, in braces.
    """
    assert len({metric.name for metric in METRICS}) == len(METRICS)
    for metric in METRICS:
        assert metric.name.replace(".", "").replace("_", "").isalpha()
        assert metric.name.islower()
        assert metric.unit == "s" or (metric.unit[0], metric.unit[-1]) == ("{", "}")
        assert (metric.kind is Kind.HISTOGRAM) == bool(metric.buckets)
        assert list(metric.buckets) == sorted(set(metric.buckets))
        assert metric.description.endswith(".")
        keys = [attribute.name for attribute in metric.attributes]
        assert len(set(keys)) == len(keys)
        assert not {key for key in keys if "id" in key.split(".")}


def test_every_attribute_of_a_span_has_its_meaning() -> None:
    """And none that no span has."""
    told = {name for span in SPANS for name in span.attributes}
    assert {f"lanewarden{name}" if name.startswith(".") else name for name in told} == set(SPAN_ATTRIBUTES)
