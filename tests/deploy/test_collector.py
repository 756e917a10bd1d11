"""The collector that builder.yaml describes, and the configurations that it takes."""

from __future__ import annotations

import re
import secrets
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.deploy import tools
from tests.deploy.staging import Program
from tests.deploy.traces import send, span
from tests.integration.pair import eventually
from tests.ports import free_port

FOLDER = tools.DEPLOY / "otel"
CONFIGURATIONS = {
    "sidecar": ("sidecar.yaml",),
    "sidecar alone": ("sidecar.yaml", "local.yaml"),
    "gateway": ("gateway.yaml",),
}


def collector(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """What the collector says."""
    command = [tools.COLLECTOR, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=tools.RUN_SECONDS, check=False)


@tools.needs_collector
def test_it_has_the_components_of_the_builder_and_no_others(tmp_path: Path) -> None:
    """Each at its version; a collector that was built from another builder.yaml is found."""
    (listed := tmp_path / "components.yaml").write_text(collector("components").stdout, encoding="utf-8")
    kinds = ("receivers", "processors", "connectors", "exporters", "extensions")
    builder, built = tools.read_yaml(FOLDER / "builder.yaml"), tools.read_yaml(listed)
    wanted = {component["gomod"] for kind in kinds for component in builder[kind]}
    assert {component["module"] for kind in kinds for component in built[kind]} == wanted, "run `poe collector`"


def test_all_of_it_is_of_one_release() -> None:
    """Modules of several releases need not fit together."""
    builder = tools.read_yaml(FOLDER / "builder.yaml")
    versions = {
        entry["gomod"].rpartition(" v")[2]
        for kind, entries in builder.items()
        if kind not in ("dist", "providers")
        for entry in entries
    }
    assert versions == {builder["dist"]["version"]}


@tools.needs_collector
@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_a_configuration_is_valid(name: str) -> None:
    """With the defaults of its variables."""
    files = [word for file in CONFIGURATIONS[name] for word in ("--config", FOLDER / file)]
    validated = collector("validate", *files)
    assert validated.returncode == 0, validated.stderr


@tools.needs_collector
def test_a_configuration_that_is_wrong_is_found(tmp_path: Path) -> None:
    """The control of the test above."""
    wrong = tools.read_yaml(FOLDER / "sidecar.yaml")
    wrong["processors"]["batch"]["send_batch_sizes"] = 1
    assert (
        "send_batch_sizes" in collector("validate", "--config", tools.write_yaml(tmp_path / "wrong.yaml", wrong)).stderr
    )


@tools.needs_collector
def test_a_sidecar_alone_counts_the_spans_that_it_is_sent() -> None:
    """As on a laptop without a gateway, of which it does not speak."""
    otlp, metrics = free_port(), free_port()
    files = [word for file in CONFIGURATIONS["sidecar alone"] for word in ("--config", str(FOLDER / file))]
    environment = {
        "LANEWARDEN_SIDECAR_OTLP_PORT": str(otlp),
        "LANEWARDEN_SIDECAR_METRICS_ADDRESS": f"127.0.0.1:{metrics}",
        "LANEWARDEN_SIDECAR_HEALTH_ADDRESS": f"127.0.0.1:{free_port()}",
        "LANEWARDEN_SIDECAR_OWN_METRICS_PORT": str(free_port()),
        "LANEWARDEN_SIDECAR_BATCH_TIMEOUT": "100ms",
        "LANEWARDEN_SIDECAR_SPAN_METRICS_INTERVAL": "100ms",
    }
    sidecar = Program([tools.COLLECTOR, *files], environment, ready="Everything is ready")
    sidecar.start()
    try:
        send(otlp, *(span(secrets.token_bytes(16), name="counted") for _ in range(3)))
        sample = re.compile(
            r'^traces_span_metrics_calls_total\{job="lanewarden/test".*span_name="counted".* 3$', re.MULTILINE
        )
        eventually(lambda: sample.search(tools.fetch(metrics, "/metrics")), "three are counted")
        assert not [said for said in sidecar.log if "gateway" in said]
    finally:
        assert sidecar.stop() == 0


def test_a_sidecar_takes_spans_over_loopback_only() -> None:
    """Whatever its variables say."""
    protocols = tools.read_yaml(FOLDER / "sidecar.yaml")["receivers"]["otlp"]["protocols"]
    assert list(protocols) == ["grpc"]
    assert re.fullmatch(r"127\.0\.0\.1:\$\{env:\w+:-\d+\}", protocols["grpc"]["endpoint"])


@pytest.mark.parametrize("name", ["sidecar", "gateway"])
def test_addresses_and_limits_are_variables_whose_defaults_stay_on_this_machine(name: str) -> None:
    """Each has a default, and no address is beyond loopback unless somebody says so."""
    path = FOLDER / f"{name}.yaml"
    text, variables = path.read_text(encoding="utf-8"), tools.variables(path)
    assert len(re.findall(r"\$\{env:", text)) == len(variables)
    settings = dict(_settings(tools.read_yaml(path)))
    where = re.compile(r"endpoint|port|host|limit_mib|queue_size|num_traces|_cache_size|cardinality_limit")
    assert not [
        key for key, value in settings.items() if where.search(key.rpartition(".")[2]) and "${env:" not in str(value)
    ]
    hosts = {found[1] for value in variables.values() if (found := re.search(r"([\w.]+):\d+$", value))}
    assert hosts == {"127.0.0.1"}


def test_the_readme_has_every_variable_with_its_default() -> None:
    """Of both configurations, and none that is gone."""
    text = (tools.DEPLOY / "README.md").read_text(encoding="utf-8").partition("<!-- variables of the collectors -->")[2]
    listed = {}
    for names, defaults in re.findall(r"^\| (`LANEWARDEN_.*?`) \| (.*?) \|", text, re.MULTILINE):
        values = [value.strip().strip("`") for value in defaults.split(",")]
        listed |= dict(zip(re.findall(r"`(\w+)`", names), values, strict=True))
    assert listed == tools.variables(FOLDER / "sidecar.yaml") | tools.variables(FOLDER / "gateway.yaml")


@pytest.mark.parametrize("name", ["sidecar", "gateway"])
def test_nothing_is_lost_quietly(name: str) -> None:
    """What is full refuses first, and what cannot be sent is tried until it can be, within a bound on what waits."""
    config = tools.read_yaml(FOLDER / f"{name}.yaml")
    for pipeline in config["service"]["pipelines"].values():
        assert pipeline.get("processors", ["memory_limiter"])[0] == "memory_limiter"
    for exporter in (value for key, value in config["exporters"].items() if key.startswith("otlp_grpc")):
        assert exporter["retry_on_failure"]["max_elapsed_time"] == "0s"
        assert exporter["sending_queue"]["sizer"] == "bytes"


def _settings(config: Any, key: str = "") -> Any:
    """Every setting that is not a group of others, by its path."""
    for name, value in config.items() if isinstance(config, dict) else enumerate(config):
        path = f"{key}.{name}"
        yield from _settings(value, path) if isinstance(value, dict | list) else [(path, value)]
