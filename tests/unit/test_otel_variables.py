"""OTEL_* variables: they do here what they do everywhere, and one that says what cannot be stops a service at the start."""

from __future__ import annotations

import asyncio
import logging
import time
from importlib import import_module
from pathlib import Path

import pytest

from lanewarden.cli import doctor
from lanewarden.config import ConfigInvalid
from lanewarden.telemetry import OFF, TelemetrySettings, configure
from lanewarden.telemetry.metric_names import LOOP_LAG
from lanewarden.telemetry.otel_metrics import OtelMetrics
from lanewarden.telemetry.variables import ENDPOINT_DEFAULT, VARIABLES, drop_unset, load
from tests.otlp import Receiver
from tests.ports import free_port

ENDPOINT = "http://127.0.0.1:4317"
OTHER = "https://collector.example:4317"


@pytest.mark.parametrize(
    ("environ", "endpoint", "traces", "metrics"),
    [
        ({}, "", "", ""),
        ({}, ENDPOINT, ENDPOINT, ENDPOINT),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": OTHER}, ENDPOINT, OTHER, ENDPOINT),
        ({"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": OTHER}, "", "", OTHER),
        ({"OTEL_TRACES_EXPORTER": "none"}, ENDPOINT, "", ENDPOINT),
        ({"OTEL_TRACES_EXPORTER": "none", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": OTHER}, ENDPOINT, "", ENDPOINT),
        ({"OTEL_METRICS_EXPORTER": "none"}, ENDPOINT, ENDPOINT, ""),
        ({"OTEL_METRICS_EXPORTER": "otlp"}, "", "", ENDPOINT_DEFAULT),
        ({"OTEL_SDK_DISABLED": "TRUE", "OTEL_EXPORTER_OTLP_TIMEOUT": "never looked at"}, ENDPOINT, "", ""),
        ({"OTEL_SDK_DISABLED": "false"}, ENDPOINT, ENDPOINT, ENDPOINT),
        ({"OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}, "", "", ""),
        ({"OTEL_EXPORTER_OTLP_HEADERS": ""}, ENDPOINT, ENDPOINT, ENDPOINT),
    ],
)
def test_where_spans_and_metrics_go(environ: dict[str, str], endpoint: str, traces: str, metrics: str) -> None:
    """What is for one signal wins over what is for both; `none` and OTEL_SDK_DISABLED win over every endpoint; and where
    nothing is sent, no other variable is looked at.
    """
    found = load(environ, endpoint)
    assert (found.traces, found.metrics) == (traces, metrics)


WRONG = {
    "OTEL_SDK_DISABLED": ["yes", "1"],
    "OTEL_EXPORTER_OTLP_ENDPOINT": ["ftp://x:1", "http://", "http://h:99999", "http://h:x", "http://h:4318/v1/traces"],
    "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": ["http://u@h:4317", "http://h?x=1"],
    "OTEL_TRACES_EXPORTER": ["console", "otlp,none"],
    "OTEL_METRICS_EXPORTER": ["prometheus"],
    "OTEL_EXPORTER_OTLP_PROTOCOL": ["http/protobuf", "http/json"],
    "OTEL_EXPORTER_OTLP_METRICS_PROTOCOL": ["http/protobuf"],
    "OTEL_EXPORTER_OTLP_HEADERS": ["authorization", "a b=c", "key=caf%C3%A9", "key=a%0Ab"],
    "OTEL_EXPORTER_OTLP_TIMEOUT": ["10s", "0", "-1", "inf", "nan"],
    "OTEL_EXPORTER_OTLP_INSECURE": ["on"],
    "OTEL_EXPORTER_OTLP_CERTIFICATE": ["/nowhere/ca.pem", "/"],
    "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE": ["/nowhere/cert.pem"],
    "OTEL_EXPORTER_OTLP_TRACES_CLIENT_KEY": ["/nowhere/key.pem"],
    "OTEL_EXPORTER_OTLP_COMPRESSION": ["snappy"],
    "OTEL_RESOURCE_ATTRIBUTES": ["a", "a=b,c", "=b"],
    "OTEL_TRACES_SAMPLER": ["sometimes", "parentbased_sometimes", "parentbased"],
    "OTEL_TRACES_SAMPLER_ARG": ["half", "1.5", "-0.1", "nan"],
    "OTEL_BSP_SCHEDULE_DELAY": ["0", "1.5", "5s"],
    "OTEL_BSP_EXPORT_TIMEOUT": ["x"],
    "OTEL_BSP_MAX_QUEUE_SIZE": ["0", "511"],
    "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": ["0", "2049"],
    "OTEL_METRIC_EXPORT_INTERVAL": ["0", "inf", "often"],
    "OTEL_METRIC_EXPORT_TIMEOUT": ["0"],
    "OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE": ["both"],
    "OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT": ["-1", "many"],
    "OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT": ["x"],
    "OTEL_SPAN_LINK_COUNT_LIMIT": ["x"],
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in WRONG.items() for value in values])
def test_what_cannot_be_is_one_line_that_names_the_variable(name: str, value: str) -> None:
    """Whatever the SDK would raise about, warn about or silently leave out."""
    with pytest.raises(ConfigInvalid) as told:
        load({name: value}, ENDPOINT)
    assert name in str(told.value)
    assert "\n" not in str(told.value)


def test_every_variable_has_its_wrong_values_above() -> None:
    """But for the name of the service, which may be anything."""
    tried = {next(each.name for each in VARIABLES if name in (each.name, *each.also)) for name in WRONG}
    assert {each.name for each in VARIABLES} - tried == {"OTEL_SERVICE_NAME"}


def test_a_key_needs_its_certificate(tmp_path: Path) -> None:
    """One without the other is named with it."""
    (tmp_path / "key.pem").write_text("")
    with pytest.raises(ConfigInvalid, match=r"CLIENT_KEY and OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE belong together"):
        load({"OTEL_EXPORTER_OTLP_CLIENT_KEY": str(tmp_path / "key.pem")}, ENDPOINT)


def test_every_value_that_may_be_is_taken(tmp_path: Path) -> None:
    """All at once, as a deployment might set them."""
    file = tmp_path / "x.pem"
    file.write_text("")
    good = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": "collector:4317",
        "OTEL_EXPORTER_OTLP_HEADERS": "authorization=Bearer%20abc,x-tenant=1",
        "OTEL_EXPORTER_OTLP_TIMEOUT": "2.5",
        "OTEL_EXPORTER_OTLP_INSECURE": "true",
        **{f"OTEL_EXPORTER_OTLP_{name}": str(file) for name in ("CERTIFICATE", "CLIENT_CERTIFICATE", "CLIENT_KEY")},
        "OTEL_EXPORTER_OTLP_COMPRESSION": "gzip",
        "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc",
        "OTEL_TRACES_SAMPLER": "parentbased_traceidratio",
        "OTEL_TRACES_SAMPLER_ARG": "0.1",
        "OTEL_RESOURCE_ATTRIBUTES": "deployment.environment.name=staging,host.name=h%201",
        "OTEL_SERVICE_NAME": "what I like",
        "OTEL_METRIC_EXPORT_INTERVAL": "10000",
        "OTEL_BSP_MAX_QUEUE_SIZE": "8192",
        "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "4096",
        "OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE": "delta",
        "OTEL_SPAN_LINK_COUNT_LIMIT": "none",
    }
    assert load(good, "collector:4317").metrics == "collector:4317"


def test_an_empty_variable_is_not_set() -> None:
    """As compose files pass them; the SDK would read a number out of some. Nor is `none` where the SDK does not know it."""
    gone = {"OTEL_EXPORTER_OTLP_TIMEOUT": "", "OTEL_EXPORTER_OTLP_METRICS_COMPRESSION": "none"}
    kept = {"OTEL_EXPORTER_OTLP_COMPRESSION": "gzip", "OTEL_TRACES_EXPORTER": "none", "OTHER": ""}
    environ = {**gone, **kept}
    drop_unset(environ)
    assert environ == kept


@pytest.mark.parametrize("service", ["supervisor_svc", "lane_runner_svc"])
def test_a_service_ends_with_code_2_and_one_line(
    service: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before it touches anything."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", ENDPOINT)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")
    state = tmp_path / "state"
    code = import_module(f"{service}.__main__").main(["--state-dir", str(state)])
    said = capsys.readouterr().err
    assert code == 2
    assert said.startswith(f"{service.replace('_', '-')}: OTEL_EXPORTER_OTLP_PROTOCOL: 'http/protobuf' is not grpc")
    assert len(said.splitlines()) == 1
    assert not state.exists()


def test_doctor_says_whether_a_collector_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """None, one that answers, one that does not, which costs nothing but is said, and a setting that stops the services."""

    def found(**variables: str) -> tuple[str, str]:
        with monkeypatch.context() as patch:
            for name, value in variables.items():
                patch.setenv(name, value)
            (finding,) = doctor._collector()
        return finding.level, finding.text

    assert found()[0] == "ok"
    with Receiver() as receiver:
        assert found(OTEL_EXPORTER_OTLP_ENDPOINT=receiver.endpoint) == (
            "ok",
            f"something answers at {receiver.endpoint}",
        )
    level, text = found(OTEL_EXPORTER_OTLP_METRICS_ENDPOINT=f"http://127.0.0.1:{free_port()}")
    assert (level, text.split(";")[1]) == ("warn", " the services run without, and say so once")
    level, text = found(OTEL_METRICS_EXPORTER="otlp", OTEL_BSP_MAX_QUEUE_SIZE="many")
    assert (level, text.split(":")[0]) == ("fail", "OTEL_BSP_MAX_QUEUE_SIZE")


def test_disabled_is_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """And costs what off costs."""
    assert configure("s", "i", load({"OTEL_SDK_DISABLED": "true"}, ENDPOINT)) is OFF


def test_names_headers_and_interval_arrive(monkeypatch: pytest.MonkeyPatch) -> None:
    """OTEL_SERVICE_NAME wins over the service's own name, OTEL_RESOURCE_ATTRIBUTES over whatever else it says of itself;
    headers come with each export, and exports by themselves.
    """
    monkeypatch.setenv("OTEL_SERVICE_NAME", "my-own")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "service.instance.id=i-7,deployment.environment.name=test")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-tenant=blue%20one")
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "50")
    with Receiver() as receiver:
        made = configure("supervisor", "i-1", load({"OTEL_TRACES_EXPORTER": "none"}, receiver.endpoint))
        made.observe(LOOP_LAG.name, lambda: [(0.5, ())])
        receiver.wait_for_point(lambda point: point.value == 0.5, "sent without being asked for")
        made.shutdown()
    told = receiver.resources["my-own"]
    assert (told["service.instance.id"], told["deployment.environment.name"]) == ("i-7", "test")
    assert told["service.namespace"] == "lanewarden"
    assert receiver.headers["x-tenant"] == "blue one"


def test_the_sampler_arrives(monkeypatch: pytest.MonkeyPatch) -> None:
    """A ratio of 0 keeps no span that begins here, of 1 each one; metrics know nothing of it."""
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "traceidratio")
    for ratio, kept in (("0", 0), ("1", 20)):
        monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", ratio)
        with Receiver() as receiver:
            made = configure("test", "i-1", load({}, receiver.endpoint))
            made.observe(LOOP_LAG.name, lambda: [(0.0, ())])
            for _ in range(20):
                with made.span("work"):
                    pass
            made.shutdown()
        assert len(receiver.spans) == kept
        assert receiver.points


@pytest.mark.parametrize(
    ("traces", "said"),
    [
        ("none", ["no collector answers; metrics are dropped until one does", "the collector is back"]),
        ("otlp", ["no collector answers; spans are dropped until one does", "the collector is back"]),
    ],
)
def test_w07_one_line_each_way_about_a_collector(
    traces: str, said: list[str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Metrics say it themselves where no spans are sent, and are silent about the collector that the spans are sent to."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "0.3")
    caplog.set_level(logging.DEBUG)
    port = free_port()
    made = configure("test", "i-1", load({"OTEL_TRACES_EXPORTER": traces}, f"http://127.0.0.1:{port}"))
    assert isinstance(made, OtelMetrics)
    made.observe(LOOP_LAG.name, lambda: [(0.0, ())])

    def work() -> None:
        with made.span("work"):
            pass
        made.force_flush(5)

    for _ in range(3):
        work()
    with Receiver(port) as receiver:
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline and "the collector is back" not in caplog.messages:
            work()
        work()
        assert receiver.points
        made.shutdown()
    heard = [record.getMessage() for record in caplog.records if record.levelno >= logging.INFO]
    assert heard == said


def test_w07_a_collector_that_hangs_holds_no_service_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """A service that stops gives it two seconds, with metrics alone as well."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "30")
    with Receiver(hold=lambda: time.sleep(4)) as receiver:
        made = configure("test", "i-1", TelemetrySettings(metrics_endpoint=receiver.endpoint))
        made.observe(LOOP_LAG.name, lambda: [(0.0, ())])
        begun = time.monotonic()
        made.shutdown()
        assert time.monotonic() - begun < 3.5


def test_spans_off_leaves_the_callers_trace_as_it_came() -> None:
    """With metrics alone a trace goes on to whoever is called, with its caller's decision whether it is kept."""
    trace = f"00-{'a' * 32}-{'b' * 16}-01"
    made = configure("test", "i-1", TelemetrySettings(metrics_endpoint=ENDPOINT))

    async def serve() -> str:
        with made.server_span("x/Y", trace), made.client_span("x/Z", "target") as span:
            return span.traceparent

    assert asyncio.run(serve()) == trace
    made.shutdown()
