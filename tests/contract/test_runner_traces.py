"""Traces across the runner's durable queues: what is stored keeps the trace that it came with, whoever goes on with it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from lane_runner_svc.core.task import Exit, ExitKind
from lane_runner_svc.store import messages
from lane_runner_svc.work import telling
from lanewarden.telemetry import Past, within
from lanewarden.telemetry.span_names import HOLD_TRANSITION, MESSAGE_ACKNOWLEDGED, TASK_TRANSITION
from tests.heard import Heard
from tests.runner_kit import RunnerKit, make_runner

OPERATOR = f"00-{'a' * 32}-{'1' * 16}-01"
WORKER = f"00-{'b' * 32}-{'2' * 16}-01"


def made(directory: Path) -> tuple[RunnerKit, Heard]:
    heard = Heard()
    return make_runner(directory, telemetry=heard), heard


def check_an_acknowledgement_is_in_the_trace_of_its_sender(directory: Path) -> None:
    """Of a ruling and of an instruction, also after a restart; linked with the unit of the worker's own call."""
    kit, heard = made(directory)
    ref = kit.running()
    escalation_id = kit.escalate(ref)
    with within(OPERATOR):
        kit.rule(escalation_id)
        kit.instruct(ref.task_id)
    kit.restart()
    for message in kit.waiting(ref.task_id):
        with within(WORKER):
            kit.take(ref, message.message_id)
    kit.close()
    told = heard.told(MESSAGE_ACKNOWLEDGED)
    assert [each.attributes["lanewarden.message.kind"] for each in told] == ["RULING", "INSTRUCTION"]
    for each in told:
        assert (each.context[:35], each.continued) == (OPERATOR[:35], True)
        (link,) = each.links
        assert link[:35] == WORKER[:35]
        assert each.attributes["lanewarden.emitter"] == "lane_runner.worker.acknowledge"
        assert (each.attributes["lanewarden.epoch"], each.attributes["lanewarden.attempt"]) == (1, 1)


def forgets_the_trace(patch: pytest.MonkeyPatch) -> None:
    """A message is stored without the trace of who sent it."""
    insert = messages.insert
    patch.setattr(messages, "insert", lambda uow, **named: insert(uow, **{**named, "traceparent": ""}))


def stays_with_the_worker(patch: pytest.MonkeyPatch) -> None:
    """An acknowledgement is told in the trace of the worker's call."""
    patch.setattr(
        telling,
        "message",
        lambda uow, name, message, **ref: uow.tell(name, {"message.kind": message.kind}, about=ref),
    )


@pytest.mark.parametrize("mutant", [None, forgets_the_trace, stays_with_the_worker])
def test_an_acknowledgement_is_in_the_trace_of_its_sender(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mutant: Callable[[pytest.MonkeyPatch], None] | None
) -> None:
    """So is it, and a runner where it is not is found out."""
    if mutant is None:
        check_an_acknowledgement_is_in_the_trace_of_its_sender(tmp_path)
    else:
        mutant(monkeypatch)
        with pytest.raises(AssertionError):
            check_an_acknowledgement_is_in_the_trace_of_its_sender(tmp_path)


def test_a_mark_for_the_supervisor_is_in_the_trace_of_its_unit(tmp_path: Path) -> None:
    """Of a call, in the caller's trace; of the runner itself, in the one that its unit has begun."""
    kit, heard = made(tmp_path)
    with within(OPERATOR):
        task = kit.submit()
    with within(""):
        launch = kit.claim()
    assert launch is not None
    marks = kit.runner.read(lambda reader: messages.due(reader, after=0, rows_max=9))
    kit.close()
    submitted, claimed = heard.unit("lane_runner.task.submit"), heard.unit("lane_runner.attempt.claim")
    assert {mark.traceparent for mark in marks if mark.entity_id == task.task_id} == {
        submitted.context,
        claimed.context,
    }
    assert submitted.context[:35] == OPERATOR[:35] != claimed.context[:35]
    assert launch.traceparent == claimed.context, "the launch goes on with the claim"


def said(span: Past, *keys: str) -> tuple[object, ...]:
    return tuple(span.attributes.get(f"lanewarden.{key}") for key in keys)


def test_each_transition_is_a_span_with_its_cause(tmp_path: Path) -> None:
    """Of tasks and of holds, from state to state; what only changes what is shown is none. Where a supervisor asked, by what
    generation.
    """
    kit, heard = made(tmp_path)
    kit.supervise(7)
    ref = kit.running()
    escalation_id = kit.escalate(ref)
    kit.rule(escalation_id)
    kit.take(ref, kit.waiting(ref.task_id)[0].message_id)
    kit.act("SettleTask", ref.task_id, summary="given up")
    kit.exited(ref, Exit(kind=ExitKind.EXITED, code=0))
    kit.act("SettleTask", kit.submit(lane="b").task_id, summary="given up")
    kit.close()
    *moves, made_another, settled = heard.told(TASK_TRANSITION)
    assert said(made_another, "to", "generation") == ("QUEUED", None)
    assert said(settled, "from", "to", "cause", "generation") == ("QUEUED", "SETTLED", "Settle", 7)
    assert [said(each, "from", "to", "cause") for each in moves] == [
        (None, "QUEUED", "Submit"),
        ("QUEUED", "STARTING", "Claimed"),
        ("STARTING", "RUNNING", "Launched"),
        ("RUNNING", "HELD", "HoldOpened"),
        ("HELD", "RUNNING", "HoldReleased"),
        ("RUNNING", "SETTLED", "Exited"),
    ]
    assert {said(each, "task.id", "lane", "epoch") for each in moves} == {(ref.task_id, "a", 1)}
    assert [said(each, "from", "to") for each in heard.told(HOLD_TRANSITION)] == [
        (None, "OPEN"),
        ("OPEN", "RELEASED"),
        ("RELEASED", "ACKNOWLEDGED"),
    ]
