"""What the command line reads from the environment; the only place that knows the names."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from lanewarden.telemetry import TelemetrySettings

STATE_DIR_VARIABLE: Final = "LANEWARDEN_STATE_DIR"
TLS_CA_VARIABLE: Final = "LANEWARDEN_TLS_CA"


def default_state_dir(environ: Mapping[str, str] | None = None) -> Path:
    """$LANEWARDEN_STATE_DIR, else $XDG_STATE_HOME/lanewarden, else ~/.local/state/lanewarden."""
    variables = os.environ if environ is None else environ
    if given := variables.get(STATE_DIR_VARIABLE):
        return Path(given).absolute()
    base = variables.get("XDG_STATE_HOME", "")
    # The XDG specification: a relative path is invalid and to be ignored.
    return (Path(base) if base.startswith("/") else Path.home() / ".local" / "state") / "lanewarden"


def default_tls_ca() -> Path | None:
    """$LANEWARDEN_TLS_CA, else none: the services are called in the clear."""
    given = os.environ.get(TLS_CA_VARIABLE)
    return Path(given) if given else None


def search_path() -> str:
    """The caller's PATH, which `run` passes on to the worker."""
    return os.environ.get("PATH", os.defpath)


def collector() -> TelemetrySettings:
    """Where services that are started from here would send spans and metrics.

    Raises:
        ConfigInvalid: a variable says something that cannot be.
    """
    from lanewarden.telemetry import variables as otel_variables  # which takes a while, and few commands need

    return otel_variables.load(os.environ, os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT", ""))
