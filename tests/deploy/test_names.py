"""Every metric, label, value, span and attribute that deploy/ names is one that the code has."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from lanewarden.errors import Reason
from lanewarden.telemetry.metric_names import METRICS, Kind, prometheus_label
from lanewarden.telemetry.span_attributes import SPAN_ATTRIBUTES
from lanewarden.telemetry.span_names import SPANS
from tests.deploy import tools
from tests.unit.test_docs import SERVICES

SERVICE_NAMES = ("lanewarden/supervisor", "lanewarden/lane_runner")
SPAN_LABELS = {"service_name", "span_name", "span_kind", "status_code", "lanewarden_emitter", "lanewarden_reason"}
NOT_OURS: Mapping[str, set[str]] = {
    "up": set(),
    "traces_span_metrics_calls_total": SPAN_LABELS,
    "otelcol_receiver_refused_spans": {"receiver", "transport"},
    "otelcol_exporter_enqueue_failed_spans": {"exporter"},
    "otelcol_exporter_send_failed_spans": {"exporter"},
}
"""Prometheus' own, the span metrics connector's and the collectors' about themselves, with their labels."""
WORDS = {
    *("sum", "max", "min", "rate", "increase", "histogram_quantile", "min_over_time", "vector", "absent", "by", "or"),
    *("unless", "offset", "and"),
}
IN_THE_CATALOGUE: dict[str, dict[str, tuple[str, ...]]] = {
    f"{metric.prometheus_name}{suffix}": {prometheus_label(each.name): each.values for each in metric.attributes}
    for metric in METRICS
    for suffix in (("_bucket", "_sum", "_count") if metric.kind is Kind.HISTOGRAM else ("",))
}
MUST_BE_SHOWN = (
    *("lanewarden_store_rows_total", "lanewarden_store_rows_unattributed_total", "lanewarden_holds_open"),
    *("lanewarden_hold_age_seconds", "lanewarden_leases", "lanewarden_lease_remaining_seconds"),
    *("lanewarden_loop_lag_seconds", "lanewarden_incident_filings_total"),
)


def metrics_in(query: str) -> set[str]:
    """The metrics that a query names; also any other word that is not PromQL's."""
    bare = re.sub(r'"[^"]*"|\{[^}]*\}|\[[^]]*\]|\bby \([^)]*\)|\boffset \w+', " ", query)
    return set(re.findall(r"[a-zA-Z_]\w*", bare)) - WORDS


def labels_of(metrics: set[str]) -> dict[str, tuple[str, ...]]:
    """The labels that some of these metrics have, with the values that they may have; none where any will do."""
    found: dict[str, tuple[str, ...]] = {"job": SERVICE_NAMES, "instance": (), "le": ()}
    for name in metrics:
        found |= IN_THE_CATALOGUE.get(name, {}) | dict.fromkeys(NOT_OURS.get(name, ()), ())
    return found


def wrong_in(query: str) -> list[str]:
    """What a query names that nobody sends: metrics, labels that none of its metrics has, values."""
    metrics = metrics_in(query)
    labels = labels_of(metrics)
    grouped = [name for group in re.findall(r"\bby \(([^)]*)\)", query) for name in re.split(r",\s*", group)]
    matched = re.findall(r'(\w+)\s*(=~|!~|!=|=)\s*"([^"]*)"', query)
    return [
        *sorted(metrics - set(IN_THE_CATALOGUE) - set(NOT_OURS)),
        *(name for name in [*grouped, *(name for name, _, _ in matched)] if name not in labels),
        *(
            f"{name}={value}"
            for name, how, value in matched
            if "~" not in how and value not in (labels.get(name) or value)
        ),
    ]


def dashboard() -> Any:
    """The dashboard, parsed."""
    return json.loads((tools.DEPLOY / "grafana" / "dashboards" / "lanewarden.json").read_text(encoding="utf-8"))


def queries() -> Iterator[tuple[str, str]]:
    """Every query of the dashboard and the rules, with what it is for."""
    for panel in dashboard()["panels"]:
        for target in panel["targets"]:
            yield panel["title"], target["expr"]
            # What a legend shows must have been kept by the query.
            for label in re.findall(r"\{\{(\w+)\}\}", target.get("legendFormat", "")):
                assert re.search(rf"\bby \([^)]*\b{label}\b", target["expr"]), f"{panel['title']}: {label}"
    for group in tools.read_yaml(tools.DEPLOY / "prometheus" / "rules.yml")["groups"]:
        for rule in group["rules"]:
            yield rule["alert"], rule["expr"]


QUERIES = list(queries())


@pytest.mark.parametrize(("what", "query"), QUERIES, ids=[what for what, _ in QUERIES])
def test_a_query_names_only_what_is_sent(what: str, query: str) -> None:
    """Metrics by their Prometheus names, their labels, and the values that a label may have."""
    assert not wrong_in(query), what


@pytest.mark.parametrize(
    ("query", "wrong"),
    [
        ("sum(rate(lanewarden_store_row_total[5m]))", "lanewarden_store_row_total"),
        ("sum by (emitter) (rate(lanewarden_store_rows_total[5m]))", "emitter"),
        ('lanewarden_leases{lease_state="LIVE"}', "lease_state"),
        ('lanewarden_leases{lanewarden_lease_state="DEAD"}', "lanewarden_lease_state=DEAD"),
        ('lanewarden_loop_lag_seconds{job="supervisor"}', "job=supervisor"),
        ("lanewarden_store_commit_duration_seconds", "lanewarden_store_commit_duration_seconds"),
    ],
)
def test_a_query_that_is_wrong_is_found(query: str, wrong: str) -> None:
    """The control of the test above."""
    assert wrong_in(query) == [wrong]


def test_the_dashboard_shows_what_staging_is_for() -> None:
    """Who writes and for whom, what nobody accounts for, holds and their age, leases, loop lag, filings, calls."""
    shown = "\n".join(target["expr"] for panel in dashboard()["panels"] for target in panel["targets"])
    assert not [name for name in MUST_BE_SHOWN if name not in shown]
    assert "by (lanewarden_emitter) (rate(lanewarden_store_rows_total" in shown
    assert "by (lanewarden_origin) (rate(lanewarden_store_rows_total" in shown


def test_every_panel_reads_from_the_source_that_is_provisioned() -> None:
    """By its uid; panels have ids of their own and do not overlap."""
    sources = tools.read_yaml(tools.DEPLOY / "grafana" / "provisioning" / "datasources" / "staging.yaml")["datasources"]
    panels = dashboard()["panels"]
    assert {panel["datasource"]["uid"] for panel in panels} <= {source["uid"] for source in sources}
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken = [
        (x, y)
        for at in (panel["gridPos"] for panel in panels)
        for x in range(at["x"], at["x"] + at["w"])
        for y in range(at["y"], at["y"] + at["h"])
    ]
    assert len(set(taken)) == len(taken)


def test_the_labels_that_alerts_speak_of_are_there() -> None:
    """In the text of an alert, a label that is missing is an empty string."""
    for group in tools.read_yaml(tools.DEPLOY / "prometheus" / "rules.yml")["groups"]:
        for rule in group["rules"]:
            spoken_of = set(re.findall(r"\$labels\.(\w+)", json.dumps(rule["annotations"])))
            assert spoken_of <= set(labels_of(metrics_in(rule["expr"])))


def test_the_collectors_know_spans_and_attributes_that_exist() -> None:
    """What the gateway judges by and what the sidecar tells spans apart by."""
    gateway = (tools.DEPLOY / "otel" / "gateway.yaml").read_text(encoding="utf-8")
    judged = re.findall(r'span\.attributes\["([\w.]+)"\]', gateway)
    apart = tools.read_yaml(tools.DEPLOY / "otel" / "sidecar.yaml")["connectors"]["span_metrics"]["dimensions"]
    assert {*judged, *(each["name"] for each in apart)} <= set(SPAN_ATTRIBUTES)
    assert set(re.findall(r'span\.name == "([\w.]+)"', gateway)) <= {each.name for each in SPANS}
    assert set(re.findall(r'"lanewarden\.reason"\] == "(\w+)"', gateway)) <= {reason.name for reason in Reason}


def test_the_gateway_knows_calls_that_exist() -> None:
    """Each call that a policy names is one of the contract; streams, and calls that wait, are never called slow."""
    text = (tools.DEPLOY / "otel" / "gateway.yaml").read_text(encoding="utf-8")
    kept, long = re.findall(r'IsMatch\(span\.name, "([^"]+)"\)', text)
    methods = {
        f"{service.full_name}/{name}": method
        for service in SERVICES.values()
        for name, method in service.methods_by_name.items()
    }
    for pattern in (kept, long):
        for name in re.findall(r"\w+", pattern):
            assert any(re.search(pattern, method) and f"/{name}" in method for method in methods), name
    assert {name for name in methods if re.search(long, name)} == {
        *(name for name, method in methods.items() if method.server_streaming),
        "lanewarden.v1.WorkerService/NextDirective",
    }
