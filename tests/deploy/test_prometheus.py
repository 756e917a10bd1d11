"""Prometheus' configuration and alerts, judged by promtool."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.deploy import tools

FOLDER = tools.DEPLOY / "prometheus"
GROUPS: list[Any] = tools.read_yaml(FOLDER / "rules.yml")["groups"]
ALERTS = [rule["alert"] for group in GROUPS for rule in group["rules"]]

pytestmark = tools.needs_prometheus


def promtool(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """What promtool says."""
    command = [tools.PROMTOOL, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=tools.RUN_SECONDS, check=False)


def test_the_configuration_and_its_rules_are_valid() -> None:
    """With the rules that it names."""
    checked = promtool("check", "config", FOLDER / "prometheus.yml")
    assert checked.returncode == 0, checked.stderr
    assert f"{len(ALERTS)} rules found" in checked.stdout


def test_the_alerts_fire_when_they_should_and_only_then() -> None:
    """rules.test.yml, which people can run as well."""
    tested = promtool("test", "rules", FOLDER / "rules.test.yml")
    assert tested.returncode == 0, tested.stdout + tested.stderr


@pytest.mark.parametrize("condition", ["vector(0) > 1", "vector(1)"], ids=["never", "always"])
@pytest.mark.parametrize("alert", ALERTS)
def test_an_alert_that_never_or_always_fires_is_found(tmp_path: Path, alert: str, condition: str) -> None:
    """The mutants of each alert; the test above is their control."""
    shutil.copy(FOLDER / "rules.test.yml", tmp_path)
    rules = tools.read_yaml(FOLDER / "rules.yml")
    for rule in (rule for group in rules["groups"] for rule in group["rules"]):
        if rule["alert"] == alert:
            rule["expr"] = condition
    tools.write_yaml(tmp_path / "rules.yml", rules)
    tested = promtool("test", "rules", tmp_path / "rules.test.yml")
    assert tested.returncode == 1
    assert f"alertname: {alert}," in tested.stdout + tested.stderr
