"""Settings: where they come from, which wins, and how mistakes are told."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from lanewarden.config import ConfigInvalid, load, setting


class Style(enum.Enum):
    JSON = "json"
    TEXT = "text"


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    state_dir: Path = setting(Path("state"), help="where everything is kept")
    port: int = setting(7811, help="the port", at_least=0, at_most=65535)
    ttl_seconds: float = setting(10.0, help="lease TTL", at_least=1, at_most=300)
    renew_seconds: float = setting(3.0, help="lease renewal", at_least=0.1)
    verbose: bool = setting(False, help="say more")
    style: Style = setting(Style.JSON, help="of the log lines")
    level: str = setting("info", help="of the log", choices=("info", "debug"))
    sinks: tuple[str, ...] = setting((), help="100% of them")
    endpoint: str | None = setting(None, help="of the collector", env="OTEL_EXPORTER_OTLP_ENDPOINT")

    def conflicts(self) -> Iterator[str]:
        if self.renew_seconds >= self.ttl_seconds:
            yield f"renew_seconds ({self.renew_seconds}) must be below ttl_seconds ({self.ttl_seconds})"


def read(*argv: str, environ: dict[str, str] | None = None) -> Example:
    return load(Example, service="lane_runner", argv=argv, environ=environ or {})


def mistake(*argv: str, environ: dict[str, str] | None = None) -> str:
    with pytest.raises(ConfigInvalid) as caught:
        read(*argv, environ=environ)
    text = str(caught.value)
    assert "\n" not in text
    return text


def test_flag_beats_environment_beats_file_beats_default(tmp_path: Path) -> None:
    """Every source is used, in this order of precedence."""
    file = tmp_path / "c.toml"
    file.write_text('port = 1\nttl_seconds = 20\nstyle = "text"\nsinks = ["a", "b,c"]\nverbose = true\n')
    environ = {
        "LANEWARDEN_LANE_RUNNER_PORT": "2",
        "LANEWARDEN_LANE_RUNNER_STATE_DIR": "/env",
        "LANEWARDEN_LANE_RUNNER_VERBOSE": "no",
        "LANEWARDEN_SUPERVISOR_PORT": "9",
        "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4317",
    }
    got = read("--config", str(file), "--port", "3", environ=environ)
    assert (got.port, got.state_dir, got.ttl_seconds, got.renew_seconds) == (3, Path("/env"), 20.0, 3.0)
    assert (got.style, got.sinks, got.verbose) == (Style.TEXT, ("a", "b,c"), False)
    assert got.endpoint == "http://127.0.0.1:4317"
    own = environ | {"LANEWARDEN_LANE_RUNNER_ENDPOINT": "http://x", "LANEWARDEN_LANE_RUNNER_CONFIG": str(file)}
    assert (read(environ=own).endpoint, read(environ=own).port) == ("http://x", 2)
    assert read() == Example()


def test_lists_and_switches_as_flags() -> None:
    """Lists are repeated flags, or commas in the environment; switches have a negative."""
    assert read("--sinks", "a", "--sinks", "b,c").sinks == ("a", "b,c")
    assert read(environ={"LANEWARDEN_LANE_RUNNER_SINKS": "a, b"}).sinks == ("a", "b")
    assert read("--verbose").verbose
    assert not read("--no-verbose", environ={"LANEWARDEN_LANE_RUNNER_VERBOSE": "1"}).verbose


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("prot = 1", "unknown key 'prot'"),
        ('port = "many"', "port: 'many' is not a whole number"),
        ("port = 1.5", "port: 1.5 is not a whole number"),
        ("port = true", "port: True is not a whole number"),
        ("port = 70000", "port: 70000 is out of range, it must be 0 to 65535"),
        ("ttl_seconds = nan", "ttl_seconds: nan is not a number"),
        ("renew_seconds = 0", "renew_seconds: 0.0 is out of range, it must be at least 0.1"),
        ('style = "xml"', "style: 'xml' is not one of json, text"),
        ('level = "loud"', "level: 'loud' is not one of info, debug"),
        ("sinks = [1]", "sinks: [1] is not a list of texts"),
        ("state_dir = 1", "state_dir: 1 is not a text"),
        ("verbose = 1", "verbose: 1 is not true or false"),
        ("port =", "not TOML"),
    ],
)
def test_mistakes_in_the_file_name_it_and_the_key(tmp_path: Path, line: str, said: str) -> None:
    """A bad file is one line: the path, the key, what is wrong."""
    file = tmp_path / "c.toml"
    file.write_text(line + "\n")
    text = mistake("--config", str(file))
    assert text.startswith(f"{file}: ")
    assert said in text


def test_mistakes_elsewhere_name_their_source(tmp_path: Path) -> None:
    """Flags and variables are named as the person typed them; a missing file is said to be missing."""
    assert mistake("--port", "x").startswith("--port: 'x' is not a whole number")
    variable = "LANEWARDEN_LANE_RUNNER_PORT"
    assert mistake(environ={variable: "-1"}).startswith(f"{variable}: -1 is out of range")
    assert "--prot" in mistake("--prot", "1")
    assert mistake("--config", str(tmp_path / "none")) == f"{tmp_path}/none: No such file or directory"


def test_r08_contradictions_name_both_settings() -> None:
    """Settings that cannot hold together are refused with both names, wherever each came from."""
    assert mistake("--renew-seconds", "20") == "renew_seconds (20.0) must be below ttl_seconds (10.0)"


def test_required_setting() -> None:
    """A setting without a default must be given, and the message says how."""

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Needs:
        runner_id: str = setting(help="the runner's name")

    with pytest.raises(ConfigInvalid, match=r"runner_id is not set; give --runner-id or LANEWARDEN_X_RUNNER_ID"):
        load(Needs, service="x", argv=(), environ={})
    assert load(Needs, service="x", argv=("--runner-id", "a"), environ={}).runner_id == "a"


def test_help_lists_everything(capsys: pytest.CaptureFixture[str]) -> None:
    """--help names every flag with its meaning, bounds, default and variable."""
    with pytest.raises(SystemExit) as caught:
        read("--help")
    assert caught.value.code == 0
    text = " ".join(capsys.readouterr().out.split())
    for part in (
        "--ttl-seconds FLOAT lease TTL; ≥ 1 and ≤ 300; default 10.0; $LANEWARDEN_LANE_RUNNER_TTL_SECONDS",
        "--no-verbose",
        "one of json, text; default json",
        "100% of them",
        "$LANEWARDEN_LANE_RUNNER_ENDPOINT or $OTEL_EXPORTER_OTLP_ENDPOINT",
        "--config FILE",
    ):
        assert part in text
