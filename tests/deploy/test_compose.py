"""deploy/compose.yaml against its published schema, and what it must not open, forget or leave to chance."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from lane_runner_svc.config import RunnerConfig
from lanewarden import config
from lanewarden.telemetry import variables as otel_variables
from supervisor_svc.config import SupervisorConfig
from tests.deploy import tools
from tests.deploy.staging import SERVICES

COMPOSE = tools.DEPLOY / "compose.yaml"
GRAFANA = tools.DEPLOY / "grafana"
GRAFANA_VARIABLES = {
    *("GF_AUTH_ANONYMOUS_ENABLED", "GF_AUTH_ANONYMOUS_ORG_ROLE", "GF_AUTH_DISABLE_LOGIN_FORM"),
    *("GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH", "GF_ANALYTICS_REPORTING_ENABLED", "GF_ANALYTICS_CHECK_FOR_UPDATES"),
}
"""Grafana's own: GF_<SECTION>_<KEY> of its configuration."""
PAIR: dict[str, set[str]] = {
    service: {name for key in config._keys(settings, package) for name in (key.variable, key.facts.env)}
    for service, settings, package in (
        ("supervisor", SupervisorConfig, "supervisor"),
        ("runner", RunnerConfig, "lane_runner"),
    )
}


def check(path: Path) -> subprocess.CompletedProcess[str]:
    """What the published schema says of a compose file."""
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", str(path)]
    return subprocess.run(command, capture_output=True, text=True, timeout=tools.RUN_SECONDS, check=False)


def test_it_is_what_the_schema_allows(tmp_path: Path) -> None:
    """The schema of the Compose Specification; a key that it does not have is found (the control)."""
    assert check(COMPOSE).returncode == 0, check(COMPOSE).stdout
    wrong = tools.read_yaml(COMPOSE)
    wrong["services"]["runner"]["enviroment"] = {}
    assert "enviroment" in check(tools.write_yaml(tmp_path / "compose.yaml", wrong)).stdout


@pytest.mark.parametrize("name", SERVICES)
def test_every_image_has_a_version(name: str) -> None:
    """A number, or the image that is built here."""
    image = SERVICES[name]["image"]
    assert image == "lanewarden:staging" or re.fullmatch(r"[\w./-]+:v?\d+\.\d+\.\d+", image)


def test_the_collector_is_of_the_release_that_is_built_for_the_tests() -> None:
    """What is shown here with a collector of builder.yaml holds for the one of the image."""
    version = tools.read_yaml(tools.DEPLOY / "otel" / "builder.yaml")["dist"]["version"]
    used = {service["image"] for service in SERVICES.values() if service["image"].startswith("otel/")}
    assert used == {f"otel/opentelemetry-collector-contrib:{version}"}


@pytest.mark.parametrize("name", SERVICES)
def test_only_what_people_look_at_is_published_and_only_to_this_host(name: str) -> None:
    """The pair, the sidecars and the gateway publish nothing."""
    ports = SERVICES[name].get("ports", [])
    assert all(port.startswith("127.0.0.1:") for port in ports)
    assert bool(ports) == (name in {"grafana", "prometheus", "jaeger"})


def test_the_pair_and_its_sidecars_share_one_loopback() -> None:
    """Neither service is told to listen elsewhere, and each sends to the sidecar that takes OTLP at its port."""
    for service, sidecar in (("supervisor", "sidecar-supervisor"), ("runner", "sidecar-runner")):
        assert SERVICES[service]["network_mode"] == SERVICES[sidecar]["network_mode"] == "service:pod"
        given = SERVICES[service]["environment"]
        assert not any("LISTEN_HOST" in name for name in given)
        assert "--listen-host" not in SERVICES[service]["command"]
        port = SERVICES[sidecar]["environment"]["LANEWARDEN_SIDECAR_OTLP_PORT"]
        assert given["OTEL_EXPORTER_OTLP_ENDPOINT"] == f"http://127.0.0.1:{port}"


def test_every_trace_is_let_through_at_the_head() -> None:
    """Tail sampling keeps only what head sampling has let through."""
    samplers = {SERVICES[service]["environment"]["OTEL_TRACES_SAMPLER"] for service in PAIR}
    assert samplers == {"parentbased_always_on"}


@pytest.mark.parametrize("name", [name for name, service in SERVICES.items() if "environment" in service])
def test_every_variable_is_read_by_whom_it_is_given_to(name: str) -> None:
    """The services' settings, OpenTelemetry's of its SDK, and those that a collector's configuration names."""
    given = set(SERVICES[name]["environment"])
    if name in PAIR:
        known = PAIR[name] | {name for each in otel_variables.VARIABLES for name in (each.name, *each.also)}
    elif "--config" in (command := SERVICES[name].get("command", [])):
        file = tools.DEPLOY / "otel" / Path(command[command.index("--config") + 1]).name
        known = set(tools.variables(file))
    else:
        known = GRAFANA_VARIABLES
    assert not given - known


@pytest.mark.parametrize("name", [name for name, service in SERVICES.items() if "volumes" in service])
def test_every_file_that_is_mounted_is_there(name: str) -> None:
    """Files of deploy/, read only; what is written goes to a named volume."""
    for mount in SERVICES[name]["volumes"]:
        source, _, rest = mount.partition(":")
        if source.startswith("."):
            assert (tools.DEPLOY / source).is_dir()
            assert rest.endswith(":ro")
        else:
            assert source in tools.read_yaml(COMPOSE)["volumes"]


def test_the_image_holds_all_that_the_package_is_built_from() -> None:
    """The Dockerfile copies what is there, and every package of the wheel; what it ignores would be missing."""
    lines = (tools.DEPLOY / "Dockerfile").read_text(encoding="utf-8").splitlines()
    copied = {source for line in lines if line.startswith("COPY ") for source in shlex.split(line)[1:-1]}
    assert all((tools.ROOT / source).exists() for source in copied)
    assert {"pyproject.toml", "README.md", "LICENSE", "lanewarden", "supervisor_svc", "lane_runner_svc"} == copied
    kept = (tools.DEPLOY / "Dockerfile.dockerignore").read_text(encoding="utf-8").splitlines()
    assert {line.removeprefix("!") for line in kept if line.startswith("!")} == copied


def test_grafana_finds_its_dashboard_and_its_sources() -> None:
    """The folder of the provider is mounted, the home page is in it, and each source is a service of compose.yaml."""
    mounts = dict(mount.split(":")[:2] for mount in SERVICES["grafana"]["volumes"])
    provider = tools.read_yaml(GRAFANA / "provisioning" / "dashboards" / "staging.yaml")["providers"][0]
    folder = next(source for source, target in mounts.items() if target == provider["options"]["path"])
    home = SERVICES["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert (tools.DEPLOY / folder / Path(home).name).is_file()
    sources: list[Any] = tools.read_yaml(GRAFANA / "provisioning" / "datasources" / "staging.yaml")["datasources"]
    hosts = {re.fullmatch(r"http://([\w-]+):\d+", source["url"]) for source in sources}
    assert {found[1] for found in hosts if found} == {"prometheus", "jaeger"}
