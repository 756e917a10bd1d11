"""Structured logs on stderr: one line per event, with the trace it belongs to.

Facts go in as ``logger.info("lease granted", extra={"runner": runner_id})``. Nothing secret is ever passed
in; keys that would name something secret are dropped all the same.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from typing import Any, Literal, TextIO

from lanewarden.telemetry import current_trace_id

TEXT_MAX = 8192
FACTS_MAX = 64

_DROPPED = frozenset({"token", "authorization", "env", "environ", "environment"})
_STANDARD = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}


def configure(
    service: str,
    instance: str,
    *,
    level: str = "INFO",
    style: Literal["json", "text"] = "json",
    stream: TextIO | None = None,
) -> logging.Handler:
    """Send the records of this process, from ``level`` up, to ``stream`` (stderr unless given).

    Replaces the handlers of the root logger, and returns the new one.
    """
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter(service, instance) if style == "json" else TextFormatter())
    handler.addFilter(_is_news)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    return handler


def _is_news(record: logging.LogRecord) -> bool:
    """Nobody's error is no news: gRPC calls it one when a caller goes while it writes to it."""
    return not (
        record.name == "grpc._cython.cygrpc" and record.getMessage().startswith("ExecuteBatchError raised in core")
    )


class JsonFormatter(logging.Formatter):
    """One JSON object per line, ASCII only, so that no text in it can break the line."""

    def __init__(self, service: str, instance: str) -> None:
        super().__init__()
        self._service = service
        self._instance = instance

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": _stamp(record),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage()[:TEXT_MAX],
            "service": self._service,
            "instance": self._instance,
        }
        if trace_id := current_trace_id():
            line["trace_id"] = trace_id
        for key, value in _facts(record).items():
            line.setdefault(key, value)
        if text := _exception(self, record):
            line["exception"] = text
        return json.dumps(line, default=_text)


class TextFormatter(logging.Formatter):
    """For people at a terminal: time, level, message, facts."""

    def format(self, record: logging.LogRecord) -> str:
        facts = _facts(record)
        if trace_id := current_trace_id():
            facts.setdefault("trace_id", trace_id)
        words = [_stamp(record), record.levelname.ljust(7), _one_line(record.getMessage()[:TEXT_MAX])]
        words += [f"{key}={_one_line(_text(value))}" for key, value in facts.items()]
        if text := _exception(self, record):
            words.append("\n" + "\n".join(_one_line(line) for line in text.splitlines()))
        return " ".join(words)


def _facts(record: logging.LogRecord) -> dict[str, Any]:
    facts = [(key, value) for key, value in record.__dict__.items() if key not in _STANDARD]
    return {
        key: value if isinstance(value, int | float | bool | None) else _text(value)
        for key, value in facts[:FACTS_MAX]
        if key.lower() not in _DROPPED and not key.lower().endswith("_token")
    }


def _text(value: object) -> str:
    return str(value)[:TEXT_MAX]


def _one_line(text: str) -> str:
    """``text`` with whatever a terminal would act on, or that UTF-8 cannot carry, shown as an escape."""
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text)


def _exception(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    if not record.exc_info:
        return ""
    return formatter.formatException(record.exc_info)[-TEXT_MAX:]


def _stamp(record: logging.LogRecord) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z"
