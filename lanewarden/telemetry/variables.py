"""The ``OTEL_*`` variables that count here: what each may say, and where spans and metrics go by them.

OpenTelemetry's SDK reads most of them by itself, when something is sent. What it would stumble over then, or silently leave
out, is refused here at the start.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from typing import Final

from lanewarden.config import ConfigInvalid
from lanewarden.telemetry import TelemetrySettings, checks

ENDPOINT_DEFAULT: Final = "http://localhost:4317"
"""Where an exporter sends that was asked for by name, without an endpoint."""

_BASE: Final = "OTEL_EXPORTER_OTLP_"


@dataclass(frozen=True, slots=True, kw_only=True)
class Variable:
    """One variable. ``also`` are its kin for one signal alone, which win; a ``secret`` value is never shown."""

    name: str
    meaning: str
    check: checks.Check = lambda value: ""
    default: str = ""
    also: tuple[str, ...] = ()
    secret: bool = False


def _exporter(name: str) -> tuple[str, str]:
    return tuple(f"{_BASE}{signal}_{name}" for signal in ("TRACES", "METRICS"))  # type: ignore[return-value]


_GRPC = "only gRPC is spoken; give the collector's gRPC endpoint, usually port 4317"
VARIABLES: Final = (
    Variable(
        name="OTEL_SDK_DISABLED",
        meaning="`true`: nothing is sent, whatever the others say",
        default="`false`",
        check=checks.one_of("true", "false"),
    ),
    Variable(
        name=f"{_BASE}ENDPOINT",
        meaning="the collector, as a URL; `--otlp-endpoint` wins. Without one nothing is sent",
        check=checks.endpoint,
        also=_exporter("ENDPOINT"),
    ),
    Variable(
        name="OTEL_TRACES_EXPORTER",
        meaning=f"`none`: no spans are sent; `otlp`: they are, to `{ENDPOINT_DEFAULT}` if no endpoint is given",
        default="`otlp` with an endpoint",
        check=checks.one_of("otlp", "none"),
    ),
    Variable(
        name="OTEL_METRICS_EXPORTER",
        meaning="the same for metrics",
        default="`otlp` with an endpoint",
        check=checks.one_of("otlp", "none"),
    ),
    Variable(
        name=f"{_BASE}PROTOCOL",
        meaning="`grpc`, which is all that is spoken",
        default="`grpc`",
        check=checks.one_of("grpc", instead=_GRPC),
        also=_exporter("PROTOCOL"),
    ),
    Variable(
        name=f"{_BASE}HEADERS",
        meaning="`key=value,…`, sent with every export, such as a credential; percent-encoded",
        check=checks.headers,
        also=_exporter("HEADERS"),
        secret=True,
    ),
    Variable(
        name=f"{_BASE}TIMEOUT",
        meaning="seconds that one export may take, as in every Python program",
        default="10",
        check=checks.number(0.001),
        also=_exporter("TIMEOUT"),
    ),
    Variable(
        name=f"{_BASE}INSECURE",
        meaning="`true`: no TLS; for endpoints without `http://` or `https://`",
        default="`false`",
        check=checks.one_of("true", "false"),
        also=_exporter("INSECURE"),
    ),
    Variable(
        name=f"{_BASE}CERTIFICATE",
        meaning="PEM file of the certificates to trust in a collector with TLS",
        default="the system's",
        check=checks.file,
        also=_exporter("CERTIFICATE"),
    ),
    Variable(
        name=f"{_BASE}CLIENT_CERTIFICATE",
        meaning="PEM file of the certificate to show it; needs `…CERTIFICATE` and `…CLIENT_KEY`",
        check=checks.file,
        also=_exporter("CLIENT_CERTIFICATE"),
    ),
    Variable(name=f"{_BASE}CLIENT_KEY", meaning="PEM file of its key", check=checks.file, also=_exporter("CLIENT_KEY")),
    Variable(
        name=f"{_BASE}COMPRESSION",
        meaning="`gzip` or `none`",
        default="`none`",
        check=checks.one_of("gzip", "none"),
        also=_exporter("COMPRESSION"),
    ),
    Variable(name="OTEL_SERVICE_NAME", meaning="`service.name` in place of the service's own", default="see above"),
    Variable(
        name="OTEL_RESOURCE_ATTRIBUTES",
        meaning="`key=value,…`, added to what the process says of itself; wins over its own words",
        check=checks.pairs,
    ),
    Variable(
        name="OTEL_TRACES_SAMPLER",
        meaning="which traces are kept: `always_on`, `always_off`, `traceidratio`, alone or behind `parentbased_`",
        default="`parentbased_always_on`",
        check=checks.sampler,
    ),
    Variable(
        name="OTEL_TRACES_SAMPLER_ARG",
        meaning="for `traceidratio`: the share of new traces that are kept, 0 to 1",
        default="1",
        check=checks.number(0, 1),
    ),
    Variable(
        name="OTEL_BSP_SCHEDULE_DELAY",
        meaning="milliseconds between two exports of spans",
        default="5000",
        check=checks.number(1, whole=True),
    ),
    Variable(
        name="OTEL_BSP_EXPORT_TIMEOUT",
        meaning="milliseconds that one may take",
        default="30000",
        check=checks.number(1, whole=True),
    ),
    Variable(
        name="OTEL_BSP_MAX_QUEUE_SIZE",
        meaning="spans that wait; beyond that they are dropped",
        default="2048",
        check=checks.number(1, whole=True),
    ),
    Variable(
        name="OTEL_BSP_MAX_EXPORT_BATCH_SIZE",
        meaning="spans of one export; at most those that may wait",
        default="512",
        check=checks.number(1, whole=True),
    ),
    Variable(
        name="OTEL_METRIC_EXPORT_INTERVAL",
        meaning="milliseconds between two exports of metrics",
        default="60000",
        check=checks.number(1),
    ),
    Variable(
        name="OTEL_METRIC_EXPORT_TIMEOUT",
        meaning="milliseconds that reading them may take",
        default="30000",
        check=checks.number(1),
    ),
    Variable(
        name=f"{_BASE}METRICS_TEMPORALITY_PREFERENCE",
        meaning="`cumulative`, `delta` or `lowmemory`",
        default="`cumulative`, which Prometheus needs",
        check=checks.one_of("cumulative", "delta", "lowmemory"),
    ),
    *(
        Variable(name=f"OTEL_{name}", meaning=meaning, default=default, check=checks.limit)
        for name, meaning, default in (
            ("SPAN_ATTRIBUTE_COUNT_LIMIT", "attributes of a span", "128"),
            ("SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT", "letters of one", "none"),
            ("SPAN_LINK_COUNT_LIMIT", "links of a span", "128"),
        )
    ),
)


def drop_unset(variables: MutableMapping[str, str]) -> None:
    """Take away what counts as not set and the SDK stumbles over: empty variables, and `none` for no compression."""
    for name, value in list(variables.items()):
        if name.startswith("OTEL_") and (not value or (name.endswith("_COMPRESSION") and value.lower() == "none")):
            del variables[name]


def load(variables: Mapping[str, str], endpoint: str) -> TelemetrySettings:
    """Where spans and metrics go; ``endpoint`` is what the service's own settings say, empty for nothing.

    Raises:
        ConfigInvalid: a variable says something that cannot be; none is looked at where nothing is sent.
    """
    given = {name: value for name, value in variables.items() if name.startswith("OTEL_") and value}
    _check({name: value for name, value in given.items() if name == "OTEL_SDK_DISABLED"})
    if given.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return TelemetrySettings()
    settings = TelemetrySettings(
        traces_endpoint=_destination("TRACES", given, endpoint),
        metrics_endpoint=_destination("METRICS", given, endpoint),
    )
    if settings.traces or settings.metrics:
        _check(given)
        if endpoint and (problem := checks.endpoint(endpoint)):
            raise ConfigInvalid(f"otlp_endpoint: {endpoint!r} is not {problem}")
        for conflict in _conflicts(given):
            raise ConfigInvalid(conflict)
    return settings


def _destination(signal: str, given: Mapping[str, str], endpoint: str) -> str:
    exporter = given.get(f"OTEL_{signal}_EXPORTER", "").lower()
    if exporter == "none":
        return ""
    own = given.get(f"{_BASE}{signal}_ENDPOINT") or endpoint
    return own or (ENDPOINT_DEFAULT if exporter else "")


def _check(given: Mapping[str, str]) -> None:
    for variable in VARIABLES:
        for name in (variable.name, *variable.also):
            if name in given and (problem := variable.check(given[name])):
                value = "its value" if variable.secret else repr(given[name])
                raise ConfigInvalid(f"{name}: {value} is not {problem}")


def _conflicts(given: Mapping[str, str]) -> Iterator[str]:
    batch, queue = (
        int(given.get(name, default))
        for name, default in (("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "512"), ("OTEL_BSP_MAX_QUEUE_SIZE", "2048"))
    )
    if batch > queue:
        yield f"OTEL_BSP_MAX_EXPORT_BATCH_SIZE ({batch}) is above OTEL_BSP_MAX_QUEUE_SIZE ({queue}): it never comes together"
    for prefix in (_BASE, f"{_BASE}TRACES_", f"{_BASE}METRICS_"):
        key, shown = f"{prefix}CLIENT_KEY" in given, f"{prefix}CLIENT_CERTIFICATE" in given
        if key != shown:
            yield f"{prefix}CLIENT_KEY and {prefix}CLIENT_CERTIFICATE belong together; give both or neither"
