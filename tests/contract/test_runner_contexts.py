"""Context windows and one-shot signals: units of work on a real store."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lanewarden.errors import Refusal
from lanewarden.telemetry import Telemetry
from lanewarden.v1 import worker_service_pb2 as wpb
from tests import context_checks as checks
from tests.context_checks import STEP, WINDOW, Turns
from tests.runner_kit import RunnerKit, make_runner

CHECKS = [check for name, check in vars(checks).items() if name.startswith("check_")]


class Heard(Telemetry):
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.counts: list[tuple[str, dict[str, str]]] = []
        self.spans: list[tuple[str, dict[str, Any], dict[str, Any]]] = []

    def count(self, name: str, **attributes: str) -> None:
        self.counts.append((name, attributes))

    @contextlib.contextmanager
    def span(self, name: str, **attributes: str | int) -> Iterator[Any]:
        said: dict[str, Any] = {}
        self.spans.append((name, attributes, said))
        yield SimpleNamespace(set=said.__setitem__)


@pytest.fixture
def kit(tmp_path: Path) -> RunnerKit:
    return make_runner(tmp_path)


@pytest.mark.parametrize("check", CHECKS, ids=lambda each: each.__name__)
def test_contexts_and_signals(kit: RunnerKit, check: Callable[[RunnerKit], None]) -> None:
    """What the check says."""
    check(kit)
    kit.close()


def test_what_happens_is_told_to_telemetry(kit: RunnerKit) -> None:
    """Each signal that is raised or discharged, each directive, and each end of a writer is a count, of which none names a
    task, and a span of its caller's trace, which does; what was rolled back is neither.
    """
    heard = Heard()
    kit.runner.telemetry = heard
    turns = Turns(kit)
    wrote = turns.ask(STEP)
    turns.report(wrote.directive_id, content="so far")
    turns.ask(STEP)
    with pytest.raises(Refusal):
        turns.report("no such directive")
    counted = [
        ("lanewarden.checkpoint.started", {}),
        ("lanewarden.directive.given", {"directive": "CHECKPOINT"}),
        ("lanewarden.directive.reported", {"directive": "CHECKPOINT", "outcome": "DONE"}),
        ("lanewarden.checkpoint.ended", {"state": "SUCCEEDED"}),
        ("lanewarden.directive.given", {"directive": "REBUILD"}),
        ("lanewarden.signal.discharged", {"kind": "REDUCE_CONTEXT"}),
    ]
    assert heard.counts == [("lanewarden.signal.raised", {"kind": "REDUCE_CONTEXT"}), *counted]
    assert [(name, attributes) for name, attributes, _ in heard.spans] == heard.counts
    assert all(said["task.id"] == turns.ref.task_id for _, _, said in heard.spans)
    kit.close()


def test_a_repeat_of_a_request_is_told_once(kit: RunnerKit) -> None:
    """The same NextDirective twice has one effect and one answer, so that a lost answer costs no second reduction."""
    turns = Turns(kit, rungs=[WINDOW], reductions_max=9)
    wrote = turns.ask(WINDOW)
    turns.report(wrote.directive_id, done=False)
    request = wpb.NextDirectiveRequest(request_id=kit.fresh_id(), usage=wpb.ContextUsage(tokens=WINDOW))
    first, again = (kit.say(turns.ref, "NextDirective", request) for _ in range(2))
    assert first == again
    assert (first.directive, turns.context.reductions) == (wpb.DIRECTIVE_COMPACT, 1)
    kit.close()
