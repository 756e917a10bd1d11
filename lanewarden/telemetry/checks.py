"""What the values of ``OTEL_*`` variables have to be.

Each check says what a value is not, in words that follow "is not", and nothing where it is right.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

Check = Callable[[str], str]

_KEY: Final = re.compile(r"[A-Za-z0-9_.\-]+")
_SAMPLERS: Final = ("always_on", "always_off", "traceidratio")


def one_of(*allowed: str, instead: str = "") -> Check:
    """One of a few words, in any case; ``instead`` says what to do."""
    wanted = " or ".join(allowed) + (f"; {instead}" if instead else "")
    return lambda value: "" if value.lower() in allowed else wanted


def number(least: float, most: float = float("inf"), *, whole: bool = False) -> Check:
    """A number within bounds."""
    kind = "a whole number" if whole else "a number"
    wanted = f"{kind} of at least {least:g}" if most == float("inf") else f"{kind} from {least:g} to {most:g}"

    def check(value: str) -> str:
        try:
            found = int(value) if whole else float(value)
        except ValueError:
            return wanted
        return "" if least <= found <= most and found != float("inf") else wanted

    return check


def endpoint(value: str) -> str:
    """A URL, or host:port. The SDK keeps these two of a URL and drops the rest, so there has to be none."""
    wanted = "an OTLP/gRPC endpoint such as http://127.0.0.1:4317 (https:// for TLS)"
    try:
        parts = urlsplit(value if "://" in value else f"//{value}")
        fine = parts.hostname and parts.port != 0 and parts.scheme in ("http", "https", "")
    except ValueError:
        return wanted
    if parts.path.strip("/") or parts.query or parts.username:
        return f"{wanted}, without anything behind the port"
    return "" if fine else wanted


def file(value: str) -> str:
    """A file that this process can read."""
    try:
        with Path(value).open("rb"):
            return ""
    except OSError:
        return "a file that can be read"


def pairs(value: str) -> str:
    """Key=value, percent-encoded, separated by commas."""
    for item in value.split(","):
        key, equals, text = item.partition("=")
        if item.strip() and not (equals and _KEY.fullmatch(key.strip()) and unquote(text).isprintable()):
            return "a list of key=value, separated by commas"
    return ""


def headers(value: str) -> str:
    """Pairs that can travel as metadata of a call."""
    return pairs(value) or ("" if unquote(value).isascii() else "plain ASCII, which headers have to be")


def sampler(value: str) -> str:
    """One of the SDK's samplers, or one that an installed package brings."""
    name = value.lower().removeprefix("parentbased_")
    if name in _SAMPLERS or entry_points(group="opentelemetry_traces_sampler", name=value):
        return ""
    return " or ".join(_SAMPLERS) + ", alone or behind parentbased_"


def limit(value: str) -> str:
    """A count, or none."""
    problem = number(0, whole=True)(value)
    return f"{problem}, or none" if problem and value.lower() != "none" else ""
