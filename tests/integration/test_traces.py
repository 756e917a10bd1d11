"""Traces of a real pair, as a collector gets them: one trace from an operator's call to a worker's acknowledgement."""

from __future__ import annotations

import secrets
import signal
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from lanewarden.errors import Reason
from lanewarden.telemetry import span_names
from lanewarden.v1 import escalation_pb2
from lanewarden.v1 import operator_service_pb2 as operator_pb
from lanewarden.v1 import worker_service_pb2 as worker_pb
from tests.integration.pair import DEADLINE_SECONDS, Pair, Service, eventually
from tests.integration.puppet import Puppet, fresh, refused
from tests.otlp import Receiver, Span

CRASHING_RUNNER = Path(__file__).with_name("crashing_runner.py")
SENTINEL = "word-that-nobody-may-send"
STOP_SECONDS_MAX = 6.0
"""Two seconds for the last spans, and what a stop takes anyhow on a machine that is busy."""
WRITERS = (span_names.UNIT, span_names.TASK_TRANSITION, span_names.HOLD_TRANSITION, span_names.MESSAGE_ACKNOWLEDGED)


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    """Where every service that is started from here on sends every span."""
    with Receiver() as made:
        for name, value in made.environment().items():
            monkeypatch.setenv(name, value)
        yield made


def steer(pair: Pair, escalation_id: str) -> str:
    """Rule, as an operator whose own tool traces; the id of the operator's trace."""
    request = operator_pb.OperatorServiceSteerRequest(request_id=fresh())
    request.ruling.escalation_id = escalation_id
    request.ruling.decision = escalation_pb2.DECISION_APPROVE
    request.ruling.instructions = "go on"
    trace_id = secrets.token_hex(16)
    pair.operator.Steer(request, traceparent=f"00-{trace_id}-{secrets.token_hex(8)}-01")
    return trace_id


def die_at(pair: Pair, point: str) -> None:
    """Have the runner killed: now, or when it comes to that point of the ruling's commit."""
    pair.runner.kill()
    if point != "away":
        sound = pair.runner.command
        pair.runner.command = [sys.executable, str(CRASHING_RUNNER), point, "lane_runner.hold.rule", *sound[3:]]
        pair.runner.start()
        pair.runner.command = sound


def known(span: Span) -> bool:
    """Whether the catalogue has the span with all its attributes."""
    name = span_names.CALL if span.kind in ("SERVER", "CLIENT") else span.name
    row = next(each for each in span_names.SPANS if each.name == name)
    attributes = {f"lanewarden{each}" if each[0] == "." else each for each in row.attributes}
    return span.attributes.keys() <= attributes and span.kind in row.kind


def test_no_span_and_no_metric_holds_what_somebody_wrote(
    tmp_path: Path, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No text, argument, environment or token of anybody, whatever goes through both services and however it ends."""
    monkeypatch.setenv("SOME_SECRET", SENTINEL)
    spec = {"name": SENTINEL, "env": {"ALSO": SENTINEL}, "premature_exits_max": 1}
    with Pair(tmp_path / "state") as pair:
        with Puppet(pair, tmp_path / SENTINEL, **spec) as puppet:
            attempt = puppet.attempt(1)
            secrets_said = [*pair.credentials.tokens.values(), attempt.token, SENTINEL]
            attempt.stub.ReportProgress(worker_pb.ReportProgressRequest(request_id=fresh(), sequence=1, note=SENTINEL))
            asked = attempt.worker.escalate(SENTINEL, expects_reply=True)
            pair.open_escalation(puppet.task_id)
            pair.ack(asked.escalation_id)
            pair.rule(asked.escalation_id, SENTINEL)
            attempt.worker.acknowledge(attempt.worker.await_ruling(asked.escalation_id))
            steer = operator_pb.OperatorServiceSteerRequest(request_id=fresh(), task_id=puppet.task_id)
            steer.instruction.text = SENTINEL
            pair.operator.Steer(steer)
            pair.operator.SendInput(
                operator_pb.OperatorServiceSendInputRequest(request_id=fresh(), task_id=puppet.task_id, text=SENTINEL)
            )
            assert refused(lambda: pair.rule("nobody-asked", SENTINEL)).reason is Reason.ESCALATION_UNKNOWN
            attempt.end(1)
            ended = pair.wait_for_state(puppet.task_id, "FAILED")
            receiver.wait_for(lambda span: span.attributes.get("lanewarden.to") == "FAILED", "the end of the task")
        assert refused(lambda: pair.submit(f"/{SENTINEL}/no-such-program")).reason is Reason.REQUEST_INVALID
    assert ended.spec.name == SENTINEL, "it went all the way"
    sent = repr(receiver.spans) + repr(receiver.metrics)
    assert [secret for secret in secrets_said if secret in sent] == []


@pytest.mark.parametrize("collector", ["answers", "is not there", "hangs"])
def test_w07_a_stop_does_not_wait_for_a_collector(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, collector: str
) -> None:
    """Work goes on, and a service that is told to stop stops within seconds, whatever its collector does. One that answers
    has the last spans then.
    """
    over = threading.Event()
    receiver = Receiver(hold=over.wait if collector == "hangs" else lambda: None)
    for name, value in receiver.environment().items():
        monkeypatch.setenv(name, value)
    with ExitStack() as stack:
        if collector != "is not there":
            stack.enter_context(receiver)
            stack.callback(over.set)
        pair = stack.enter_context(Pair(tmp_path))
        task_id = pair.submit("/bin/true")
        pair.wait_for_state(task_id, "SUCCEEDED")
        if collector == "hangs":
            eventually(lambda: receiver.exports, "something is under way")
        begun = time.monotonic()
        with ThreadPoolExecutor() as both:
            assert list(both.map(Service.stop, (pair.runner, pair.supervisor))) == [0, 0]
        assert time.monotonic() - begun < STOP_SECONDS_MAX
    if collector == "answers":
        assert any(span.attributes.get("lanewarden.to") == "SUCCEEDED" for span in receiver.spans)


@pytest.mark.parametrize("point", ["away", pytest.param("before_commit", marks=pytest.mark.long), "after_commit"])
def test_one_trace_from_steer_to_acknowledgement_across_a_kill(tmp_path: Path, receiver: Receiver, point: str) -> None:
    """The runner is killed before it has the ruling, before it has stored it, or before it can say that it has. Its next
    start stores and delivers it, and the worker's acknowledgement is in the trace of the operator's call, linked with the
    worker's own; what writes says who writes and for whom.
    """
    with Pair(tmp_path / "state") as pair, Puppet(pair, tmp_path / "worker") as puppet:
        worker = puppet.attempt(1).worker
        escalation_id = worker.escalate("May I?", expects_reply=True).escalation_id
        pair.open_escalation(puppet.task_id)
        die_at(pair, point)
        trace_id = steer(pair, escalation_id)
        assert pair.runner.process is not None
        assert pair.runner.process.wait(DEADLINE_SECONDS) == -signal.SIGKILL
        pair.runner.start()
        eventually(lambda: worker.acknowledge(worker.await_ruling(escalation_id)) or True, "the ruling is taken")
        acknowledged = receiver.wait_for(
            lambda span: span.name == span_names.MESSAGE_ACKNOWLEDGED, "the end of the trace"
        )
        receiver.wait_for(
            lambda span: span.trace_id == trace_id and span.attributes.get("lanewarden.outcome") == "DELIVERED",
            "the supervisor heard that it was delivered",
        )
    assert acknowledged.trace_id == trace_id
    trace = receiver.trace(trace_id)
    about = {(span.service, span.name, span.attributes.get("lanewarden.emitter")): span for span in trace}
    assert ("supervisor", "lanewarden.v1.OperatorService/Steer", None) in about
    stored = about["supervisor", span_names.UNIT, "supervisor.command.steer"]
    ruled = [span for span in trace if span.attributes.get("lanewarden.emitter") == "lane_runner.hold.rule"]
    assert stored.attributes["lanewarden.rows"] > 0
    assert {span.attributes["lanewarden.origin"] for span in ruled} == {"supervisor.command.deliver"}
    wrote = [span for span in ruled if span.attributes.get("lanewarden.rows")]
    assert len(wrote) == (point != "after_commit"), (
        "it is stored once, and what is seen of it is what outlived the kill"
    )
    assert acknowledged.attributes["lanewarden.emitter"] == "lane_runner.worker.acknowledge"
    assert acknowledged.attributes["lanewarden.attempt"] == 1
    ((call_trace, unit_id),) = acknowledged.links
    call = {span.span_id: span for span in receiver.trace(call_trace)}
    assert call[call[unit_id].parent_id].name == "lanewarden.v1.WorkerService/AcknowledgeMessage"
    tries = [span for span in trace if span.name == span_names.DELIVER]
    assert [span.attributes["lanewarden.outcome"] for span in tries][-1] == "DELIVERED"
    assert len(tries) > 1, "what came to nothing is in the trace as well"
    assert all("lanewarden.emitter" in span.attributes for span in receiver.spans if span.name in WRITERS)
    assert [span for span in receiver.spans if not known(span)] == []
