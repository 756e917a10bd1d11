"""The programs that deploy/ is checked with, the files of deploy/, and a word for whoever lacks a program."""

from __future__ import annotations

import os
import re
import shutil
import urllib.request
from pathlib import Path
from typing import Any, Final

import pytest
from ruamel.yaml import YAML

ROOT: Final = Path(__file__).parents[2]
DEPLOY: Final = ROOT / "deploy"
BUILT: Final = ROOT / "build" / "collector"
RUN_SECONDS: Final = 60.0


def _collector() -> str:
    given = os.environ.get("LANEWARDEN_COLLECTOR")
    program = Path(given) if given else BUILT / "otelcol-lanewarden"
    return str(program) if os.access(program, os.X_OK) else ""


COLLECTOR: Final = _collector()
PROMETHEUS: Final = shutil.which("prometheus") or ""
PROMTOOL: Final = shutil.which("promtool") or ""

needs_collector: Final = pytest.mark.skipif(
    not COLLECTOR, reason="no collector: `poe collector` builds it with Go, or LANEWARDEN_COLLECTOR names one"
)
needs_prometheus: Final = pytest.mark.skipif(
    not (PROMETHEUS and PROMTOOL), reason="no Prometheus: `apt-get install prometheus` brings it and promtool"
)


def read_yaml(path: Path) -> Any:
    """A file of deploy/, merge keys resolved."""
    return YAML(typ="safe", pure=True).load(path)


def write_yaml(path: Path, content: Any) -> Path:
    """Write ``content`` to ``path``, which is returned."""
    with path.open("w", encoding="utf-8") as file:
        YAML(typ="safe", pure=True).dump(content, file)
    return path


def variables(path: Path) -> dict[str, str]:
    """The environment variables that a collector's configuration names, with their defaults."""
    return dict(re.findall(r"\$\{env:(\w+):-([^}]*)\}", path.read_text(encoding="utf-8")))


def fetch(port: int, path: str) -> str:
    """The body of a page of this machine; empty if nobody answers."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
            return str(answer.read().decode())
    except OSError:
        return ""
