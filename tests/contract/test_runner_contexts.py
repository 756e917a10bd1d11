"""Context windows and one-shot signals: units of work on a real store."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from lanewarden.errors import Refusal
from lanewarden.v1 import worker_service_pb2 as wpb
from tests import context_checks as checks
from tests.context_checks import STEP, WINDOW, Turns
from tests.heard import Heard
from tests.runner_kit import RunnerKit, make_runner

CHECKS = [check for name, check in vars(checks).items() if name.startswith("check_")]


@pytest.fixture
def kit(tmp_path: Path) -> RunnerKit:
    return make_runner(tmp_path)


@pytest.mark.parametrize("check", CHECKS, ids=lambda each: each.__name__)
def test_contexts_and_signals(kit: RunnerKit, check: Callable[[RunnerKit], None]) -> None:
    """What the check says."""
    check(kit)
    kit.close()


def test_what_happens_is_told_to_telemetry(tmp_path: Path) -> None:
    """Each signal that is raised or discharged, each directive, and each end of a writer is a count, of which none names a
    task, and a span of its caller's trace, which does; what was rolled back is neither.
    """
    heard = Heard()
    kit = make_runner(tmp_path, telemetry=heard)
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
    told = [span for span in heard.spans if span.name in dict(heard.counts)]
    about = {"lanewarden.task.id": turns.ref.task_id, "lanewarden.emitter": "lane_runner.worker.directive"}
    assert [(each.name, each.attributes) for each in told] == [
        (name, about | {f"lanewarden.{key}": value for key, value in attributes.items()})
        for name, attributes in heard.counts
    ]
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
