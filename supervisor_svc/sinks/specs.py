"""Sinks as people name them: ``stdout``, ``jsonl:PATH``, ``webhook:URL``, ``command:PROGRAM ARGS``."""

from __future__ import annotations

import shlex
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from supervisor_svc.sinks import Sink
from supervisor_svc.sinks.command import CommandSink
from supervisor_svc.sinks.files import JsonLinesSink, StdoutSink
from supervisor_svc.sinks.http import problem as url_problem
from supervisor_svc.sinks.webhook import WebhookSink

SINKS_MAX: Final = 16


def problems(specs: Sequence[str]) -> Iterator[str]:
    """Sentences about sinks that cannot work. A target is not repeated, since it may hold a secret."""
    if len(specs) > SINKS_MAX:
        yield f"notify: {len(specs)} sinks are too many; at most {SINKS_MAX}"
    if any(count > 1 for count in Counter(specs).values()):
        yield "notify: the same sink is given twice"
    for spec in specs:
        kind, _, target = spec.partition(":")
        if said := _problem(kind, target, has_target=":" in spec):
            yield f"notify: {said}"


def _problem(kind: str, target: str, *, has_target: bool) -> str:
    match kind:
        case "stdout":
            return "stdout takes nothing after it" if has_target else ""
        case "jsonl":
            return "" if target.strip() else "jsonl needs the path of a file, as in jsonl:PATH"
        case "webhook":
            wrong = url_problem(target)
            return f"webhook {wrong}" if wrong else ""
        case "command":
            return _command_problem(target)
    return f"{kind!r} is not a sink; use stdout, jsonl:PATH, webhook:URL or command:PROGRAM ARGS"


def _command_problem(target: str) -> str:
    try:
        argv = shlex.split(target)
    except ValueError:
        return "command has a quotation mark without its other half"
    if not argv:
        return "command needs a program, as in command:PROGRAM ARGS"
    return "" if shutil.which(argv[0]) else f"command: there is no program {argv[0]!r} that can be run"


def make_sinks(specs: Sequence[str], environment: Mapping[str, str]) -> tuple[Sink, ...]:
    """The sinks of specs that have no :func:`problems`. The second of a kind is called ``webhook-2``, and so on.

    Raises:
        SinkUnusable: a file that cannot be written.
    """
    kinds: Counter[str] = Counter()
    sinks = []
    for spec in specs:
        kind, _, target = spec.partition(":")
        kinds[kind] += 1
        sinks.append(_make(kind, target, f"{kind}-{kinds[kind]}" if kinds[kind] > 1 else kind, environment))
    return tuple(sinks)


def _make(kind: str, target: str, name: str, environment: Mapping[str, str]) -> Sink:
    match kind:
        case "jsonl":
            sink = JsonLinesSink(name, Path(target))
            sink.check()
            return sink
        case "webhook":
            return WebhookSink(name, target)
        case "command":
            return CommandSink(name, shlex.split(target), environment=environment)
    return StdoutSink(name)
