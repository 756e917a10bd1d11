"""Prometheus' configuration and alerts, judged by promtool."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
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


def never(rule: Any) -> None:
    """Whatever happens."""
    rule["expr"] = "vector(0) > 1"


def whatever_the_figure(rule: Any) -> None:
    """Where there is one, and for what is absent always."""
    rule["expr"] = re.sub(r"(>|<|==) [\d.]+", ">= 0", rule["expr"]).replace("absent", "vector(1) or absent")


def at_once(rule: Any) -> None:
    """However short it lasts."""
    rule.pop("for", None)


@pytest.mark.parametrize("change", [never, whatever_the_figure, at_once])
def test_an_alert_that_is_wrong_is_found(tmp_path: Path, change: Callable[[Any], None]) -> None:
    """The mutants of every alert; the test above is their control."""
    shutil.copy(FOLDER / "rules.test.yml", tmp_path)
    rules, changed = tools.read_yaml(FOLDER / "rules.yml"), set()
    for rule in (rule for group in rules["groups"] for rule in group["rules"]):
        before = dict(rule)
        change(rule)
        if rule != before:
            changed.add(rule["alert"])
    tools.write_yaml(tmp_path / "rules.yml", rules)
    tested = promtool("test", "rules", tmp_path / "rules.test.yml")
    assert set(re.findall(r"alertname: (\w+),", tested.stdout + tested.stderr)) == changed
