"""Log lines: one per event, with their trace, without secrets."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from lanewarden import logs
from lanewarden.telemetry import TRACEPARENT

log = logging.getLogger("lanewarden.test")


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    """Where the log goes; the root logger is as before afterwards."""
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    yield io.StringIO()
    root.handlers[:] = before
    root.setLevel(level)


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_json_line_says_who_and_which_trace(stream: io.StringIO) -> None:
    """A line has time, level, service, instance, facts, and the trace id of the work it was written in."""
    logs.configure("supervisor", "s-1", stream=stream)
    token = TRACEPARENT.set(f"00-{'a' * 32}-{'b' * 16}-01")
    log.info("lease granted to %s", "r1", extra={"runner": "r1", "generation": 4, "path": object})
    TRACEPARENT.reset(token)
    log.debug("too quiet")
    log.info("no trace")
    first, second = lines(stream)
    assert (first["service"], first["instance"], first["level"]) == ("supervisor", "s-1", "INFO")
    assert (first["message"], first["runner"], first["generation"]) == ("lease granted to r1", "r1", 4)
    assert first["trace_id"] == "a" * 32
    assert first["time"].endswith("Z")
    assert "trace_id" not in second


@pytest.mark.parametrize("style", ["json", "text"])
def test_hostile_text_stays_on_its_line(stream: io.StringIO, style: Any) -> None:
    """Line breaks, U+2028, escapes and lone surrogates neither break a line nor stop the log."""
    logs.configure("s", "i", style=style, stream=stream)
    log.warning("a\nb\u2028c\x1b[2Jd\ud800e", extra={"fact": "x\ny"})
    text = stream.getvalue()
    assert text.encode().count(b"\n") == 1
    assert not {"\u2028", "\x1b", "\ud800"} & set(text)


@pytest.mark.parametrize("style", ["json", "text"])
def test_secrets_by_name_and_floods_are_dropped(stream: io.StringIO, style: Any) -> None:
    """Keys that name a token, an authorization or an environment are left out, and texts are bounded."""
    logs.configure("s", "i", style=style, stream=stream)
    secret = dict.fromkeys(("token", "Authorization", "env", "attempt_token"), "s3cret")
    log.warning("x" * 100_000, extra={**secret, "tokens": 5})
    text = stream.getvalue()
    assert "s3cret" not in text
    assert "tokens" in text
    assert len(text) < 2 * logs.TEXT_MAX


def test_exceptions_are_inside_the_line(stream: io.StringIO) -> None:
    """A traceback is a field of the one line."""
    logs.configure("s", "i", stream=stream)
    try:
        int("many")
    except ValueError:
        log.exception("failed")
    (line,) = lines(stream)
    assert line["exception"].endswith("ValueError: invalid literal for int() with base 10: 'many'")


def test_a_caller_that_has_gone_is_nobodys_error(stream: io.StringIO) -> None:
    """What gRPC says of one is left out; whatever else it says is told."""
    logs.configure("supervisor", "s-1", stream=stream)
    grpc_log = logging.getLogger("grpc._cython.cygrpc")
    grpc_log.error("ExecuteBatchError raised in core by servicer method [%s]", "/a/b")
    grpc_log.error("Unexpected [%s] raised by servicer method [%s]", "x", "/a/b")
    log.error("ExecuteBatchError raised in core of ours")
    assert [line["message"] for line in lines(stream)] == [
        "Unexpected [x] raised by servicer method [/a/b]",
        "ExecuteBatchError raised in core of ours",
    ]
