"""The worker's client and its verbs, against a stand-in of the runner."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from lanewarden.cli import main
from lanewarden.cli.exits import Exit
from lanewarden.errors import Reason, Refusal, refuse
from lanewarden.server import Call
from lanewarden.v1 import context_pb2, escalation_pb2, message_pb2, task_pb2
from lanewarden.v1 import worker_service_pb2 as pb
from lanewarden.worker import NotAWorker, Worker
from tests.cli_kit import hold, task, worker_service


def ruling(decision: str = "CHOOSE", message_id: str = "r1") -> message_pb2.Message:
    """A ruling as the runner sends it."""
    record = escalation_pb2.RulingRecord(ruling_id=message_id)
    record.ruling.escalation_id = "t1.1.1.1"
    record.ruling.decision = escalation_pb2.Decision.Value(f"DECISION_{decision}")
    record.ruling.option_key = "drop" if decision == "CHOOSE" else ""
    record.ruling.instructions = "go\nahead\x1b[2J"
    record.ruled_by.CopyFrom(task_pb2.Actor(identity="ada", role="operator"))
    return message_pb2.Message(message_id=message_id, sequence=1, ruling=record)


@dataclass
class FakeRunner:
    """Answers, after refusing as often as ``unavailable`` says; keeps what it got."""

    unavailable: int = 0
    requests: list[Any] = field(default_factory=list)
    rulings: list[message_pb2.Message] = field(default_factory=list)
    inbox: list[message_pb2.Message] = field(default_factory=list)
    directives: list[pb.NextDirectiveResponse] = field(default_factory=list)
    waiting: threading.Event = field(default_factory=threading.Event)

    def _got(self, request: Any) -> None:
        self.requests.append(request)
        if self.unavailable:
            self.unavailable -= 1
            raise refuse(Reason.SHUTTING_DOWN, "the runner is stopping")

    async def GetAssignment(self, request: Any, call: Call) -> Any:
        self._got(request)
        return pb.GetAssignmentResponse(task=task("t1"), reason=pb.START_REASON_RULING, holds=[hold("t1.1.1.1")])

    async def Escalate(self, request: Any, call: Call) -> Any:
        self._got(request)
        asked = hold("t1.1.1.1", question=request.question, expects_reply=request.expects_reply, key=request.key)
        return pb.WorkerServiceEscalateResponse(escalation=asked)

    async def AwaitRuling(self, request: Any, call: Call) -> AsyncIterator[Any]:
        self._got(request)
        yield pb.AwaitRulingResponse(waiting=hold("t1.1.1.1"))
        self.waiting.set()
        if not self.rulings:
            await asyncio.Event().wait()
        yield pb.AwaitRulingResponse(message=self.rulings[0])

    async def ReceiveMessages(self, request: Any, call: Call) -> AsyncIterator[Any]:
        self._got(request)
        for message in list(self.inbox):
            yield pb.ReceiveMessagesResponse(message=message)

    async def AcknowledgeMessage(self, request: Any, call: Call) -> Any:
        self._got(request)
        return pb.AcknowledgeMessageResponse(acknowledged_now=True)

    async def ReportProgress(self, request: Any, call: Call) -> Any:
        self._got(request)
        return pb.ReportProgressResponse(sequence=request.sequence or 8, advanced=True)

    async def NextDirective(self, request: Any, call: Call) -> Any:
        self._got(request)
        return self.directives.pop(0)

    async def ReportDirective(self, request: Any, call: Call) -> Any:
        self._got(request)
        return pb.ReportDirectiveResponse(reported_now=True)

    async def Complete(self, request: Any, call: Call) -> Any:
        self._got(request)
        if request.outcome == pb.OUTCOME_SUCCEEDED:
            raise refuse(Reason.COMPLETION_BLOCKED, "hold t1.1.1.1 is open")
        return pb.CompleteResponse()

    def got(self, kind: type[Any]) -> list[Any]:
        """The requests of a kind."""
        return [each for each in self.requests if isinstance(each, kind)]


@pytest.fixture
def socket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "worker.sock"
    monkeypatch.setenv("LANEWARDEN_SOCKET", str(path))
    monkeypatch.setenv("LANEWARDEN_TOKEN", "secret")
    return path


@pytest.fixture
def runner(socket: Path) -> Any:
    handlers = FakeRunner()
    with worker_service(socket, handlers):
        yield handlers


def test_p10_a_call_is_repeated_with_the_id_of_its_first_try(runner: FakeRunner) -> None:
    """While the runner restarts a call goes on trying, and every try is the same request."""
    runner.unavailable = 2
    with Worker.from_environment() as worker:
        asked = worker.escalate("why?", options={"a": "b"}, key="mine")
    assert asked.key == "mine"
    tries = runner.got(pb.WorkerServiceEscalateRequest)
    assert len(tries) == 3
    assert len({each.request_id for each in tries}) == 1


@pytest.mark.parametrize("said", ["2h", "2031-05-06T07:08:09Z", "2031-05-06T09:08:09+02:00"])
def test_p09_a_worker_says_when_its_limit_ends(runner: FakeRunner, said: str) -> None:
    """As a time from now or an absolute one, with its note, by the verb and from Python."""
    before = datetime.now(UTC)
    assert main(["worker", "progress", "--retry-at", said, "--note", "429"]) == 0
    (request,) = runner.got(pb.ReportProgressRequest)
    assert (request.sequence, request.note) == (0, "429")
    told = request.retry_at.ToDatetime(tzinfo=UTC)
    if said == "2h":
        assert timedelta(0) <= told - before - timedelta(hours=2) < timedelta(minutes=1)
    else:
        assert told == datetime(2031, 5, 6, 7, 8, 9, tzinfo=UTC)
    with Worker.from_environment() as worker:
        worker.progress(retry_at=told)
        with pytest.raises(ValueError, match="time zone"):
            worker.progress(retry_at=told.replace(tzinfo=None))
    assert [each.retry_at for each in runner.got(pb.ReportProgressRequest)] == [request.retry_at] * 2


def test_a_directive_is_printed_once_nothing_waits(
    runner: FakeRunner, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """WAIT is asked again with the same measurement; then the directive is lines that a shell can cut, and the checkpoint of
    a rebuild is in the file that was named. A directive without one leaves the file alone.
    """
    rebuild = pb.NextDirectiveResponse(
        directive=pb.DIRECTIVE_REBUILD, directive_id="t1.1.d2", cause="from\nt1.1.c1", reductions=1, reductions_max=24
    )
    rebuild.checkpoint.checkpoint_id, rebuild.checkpoint.content = "t1.1.c1", "so far\n"
    rebuild.signals.add(kind=context_pb2.SIGNAL_KIND_PAUSE)
    runner.directives = [pb.NextDirectiveResponse(directive=pb.DIRECTIVE_WAIT), rebuild]
    into = tmp_path / "checkpoint"
    verb = ["worker", "directive", "--tokens", "35000", "--into", str(into)]
    assert main([*verb, "--window", "200000", "--turn", "7"]) == 0
    assert capfd.readouterr().out.splitlines() == [
        *("directive=rebuild", "id=t1.1.d2", "checkpoint=t1.1.c1", "cause=from\\nt1.1.c1", "reductions=1 of 24"),
        "signal=pause",
    ]
    assert into.read_text() == "so far\n"
    first, second = runner.got(pb.NextDirectiveRequest)
    assert first.request_id != second.request_id
    assert first.usage == second.usage
    assert (first.usage.tokens, first.usage.window, first.turn) == (35_000, 200_000, 7)
    runner.directives = [pb.NextDirectiveResponse(directive=pb.DIRECTIVE_COMPACT, directive_id="t1.1.d3")]
    assert main([*verb, "--json"]) == 0
    assert json.loads(capfd.readouterr().out)["kind"] == "compact"
    assert into.read_text() == "so far\n"


def test_a_report_says_what_came_of_a_directive(
    runner: FakeRunner, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """What a checkpoint holds, how one failed, what a rebuild has put in; a file that cannot be read is a line and not a
    report.
    """
    written = tmp_path / "checkpoint"
    written.write_text("so far")
    assert main(["worker", "report", "d1", "done", "--checkpoint", str(written)]) == 0
    assert main(["worker", "report", "d2", "failed", "--failure", "transient", "--detail", "overloaded"]) == 0
    assert main(["worker", "report", "d3", "done", "--inserted-tokens", "900"]) == 0
    done, failed, rebuilt = runner.got(pb.ReportDirectiveRequest)
    assert (done.outcome, done.content) == (pb.DIRECTIVE_OUTCOME_DONE, "so far")
    assert (failed.outcome, failed.failure) == (
        pb.DIRECTIVE_OUTCOME_FAILED,
        context_pb2.CHECKPOINT_FAILURE_TRANSIENT,
    )
    assert (rebuilt.directive_id, rebuilt.inserted_tokens) == ("d3", 900)
    capfd.readouterr()
    assert main(["worker", "report", "d1", "done", "--checkpoint", str(tmp_path / "gone")]) == Exit.USAGE
    assert "gone: No such file or directory" in capfd.readouterr().err
    written.write_bytes(b"\xff")
    assert main(["worker", "report", "d1", "done", "--checkpoint", str(written)]) == Exit.USAGE
    assert len(runner.got(pb.ReportDirectiveRequest)) == 3


def test_a_call_stops_trying_at_its_bound(runner: FakeRunner) -> None:
    """The bound is kept, and the refusal is the runner's own."""
    runner.unavailable = 1_000
    with Worker.from_environment(retry_seconds=0.2) as worker, pytest.raises(Refusal) as refused:
        worker.progress()
    assert refused.value.reason is Reason.SHUTTING_DOWN
    assert 2 <= len(runner.requests) <= 20


def test_other_refusals_are_not_tried_again(runner: FakeRunner) -> None:
    """COMPLETION_BLOCKED is an answer."""
    with Worker.from_environment() as worker, pytest.raises(Refusal) as refused:
        worker.complete("done")
    assert refused.value.reason is Reason.COMPLETION_BLOCKED
    assert len(runner.requests) == 1


def test_h10_a_wait_survives_a_restart_of_the_runner(socket: Path) -> None:
    """The wait connects again, for the escalation that it waited for, and gets the ruling given meanwhile."""
    before, after = FakeRunner(), FakeRunner(rulings=[ruling()])
    got: list[Any] = []
    with worker_service(socket, before):
        thread = threading.Thread(target=lambda: got.append(Worker.from_environment().await_ruling()))
        thread.start()
        assert before.waiting.wait(10)
    with worker_service(socket, after):
        thread.join(10)
    assert got[0].option_key == "drop"
    assert after.got(pb.AwaitRulingRequest)[0].escalation_id == "t1.1.1.1"


def test_a_wait_has_a_bound_if_asked_for(runner: FakeRunner, capfd: pytest.CaptureFixture[str]) -> None:
    """The method raises TimeoutError, the verb exits 5 with one line; nothing is acknowledged."""
    with Worker.from_environment() as worker, pytest.raises(TimeoutError):
        worker.await_ruling(timeout_seconds=0.2)
    assert main(["worker", "await", "--timeout", "0.2"]) == Exit.HELD
    assert "the hold stays open" in capfd.readouterr().err
    assert not runner.got(pb.AcknowledgeMessageRequest)


@pytest.mark.parametrize(
    ("decision", "code"), [("APPROVE", 0), ("CHOOSE", 0), ("REJECT", Exit.REJECTED), ("REVISE", Exit.REVISE)]
)
def test_await_prints_acknowledges_and_exits_by_the_decision(
    runner: FakeRunner, capfd: pytest.CaptureFixture[str], decision: str, code: int
) -> None:
    """A shell can branch on the exit code and cut the lines, whatever the instructions contain."""
    runner.rulings = [ruling(decision)]
    assert main(["worker", "await", "t1.1.1.1"]) == code
    lines = dict(line.split("=", 1) for line in capfd.readouterr().out.splitlines())
    assert lines == {
        "decision": decision.lower(),
        "option": "drop" if decision == "CHOOSE" else "",
        "instructions": "go\\nahead\\x1b[2J",
        "escalation": "t1.1.1.1",
        "ruling": "r1",
    }
    assert [each.message_id for each in runner.got(pb.AcknowledgeMessageRequest)] == ["r1"]


def test_await_as_json_has_the_instructions_as_they_are(runner: FakeRunner, capfd: pytest.CaptureFixture[str]) -> None:
    """With the ids by which a repeat is recognised."""
    runner.rulings = [ruling()]
    assert main(["worker", "await", "--json"]) == 0
    found = json.loads(capfd.readouterr().out)
    assert found["instructions"] == "go\nahead\x1b[2J"
    assert (found["message_id"], found["ruling_id"], found["ruled_by"]) == ("r1", "r1", "ada (operator)")


def test_h10_what_could_not_be_printed_is_not_acknowledged(runner: FakeRunner) -> None:
    """A reader that has gone leaves the ruling for the next attempt."""
    runner.rulings = [ruling()]
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "lanewarden", "worker", "await"]
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writer)
    assert done.returncode == Exit.INTERRUPTED
    assert len(done.stderr.splitlines()) == 1
    assert runner.got(pb.AwaitRulingRequest)
    assert not runner.got(pb.AcknowledgeMessageRequest)


def test_messages_are_each_printed_and_acknowledged(runner: FakeRunner, capfd: pytest.CaptureFixture[str]) -> None:
    """In order, one line each."""
    note = message_pb2.Message(message_id="m2", instruction=escalation_pb2.Instruction(text="be\nquick"))
    more = message_pb2.Message(message_id="m3", input=message_pb2.Input(text="more"))
    runner.inbox = [ruling(), note, more]
    assert main(["worker", "messages"]) == 0
    out = capfd.readouterr().out.splitlines()
    assert [line.split()[0] for line in out] == ["ruling", "instruction", "input"]
    assert out[1].endswith(": be\\nquick")
    assert [each.message_id for each in runner.got(pb.AcknowledgeMessageRequest)] == ["r1", "m2", "m3"]
    assert main(["worker", "messages", "--json"]) == 0
    assert [json.loads(line)["kind"] for line in capfd.readouterr().out.splitlines()] == [
        "ruling",
        "instruction",
        "input",
    ]


def test_followed_messages_come_once_over_reconnects(runner: FakeRunner) -> None:
    """A stream that ends is begun again; what was given is not given twice."""
    runner.inbox = [ruling(message_id="m1")]
    with Worker.from_environment() as worker:
        messages = worker.messages(follow=True)
        assert next(messages).message_id == "m1"
        runner.inbox.append(ruling(message_id="m2"))
        assert next(messages).message_id == "m2"
    assert len(runner.got(pb.ReceiveMessagesRequest)) == 2


def test_every_verb_does_its_call(runner: FakeRunner, capfd: pytest.CaptureFixture[str]) -> None:
    """What was typed reaches the runner; options imply that a reply is expected, nothing else does."""
    assert main(["worker", "escalate", "--option", "a=x=y", "--option", "b=", "why?"]) == 0
    assert capfd.readouterr().out == "t1.1.1.1\n"
    main(["worker", "escalate", "fyi"])
    main(["worker", "escalate", "--expects-reply", "--key", "column", "--json", "why?"])
    asked, notice, plain = runner.got(pb.WorkerServiceEscalateRequest)
    assert (asked.key, notice.key, plain.key) == ("", "", "column")
    assert [(each.key, each.text) for each in asked.options] == [("a", "x=y"), ("b", "")]
    assert (asked.expects_reply, notice.expects_reply, plain.expects_reply) == (True, False, True)
    capfd.readouterr()
    assert main(["worker", "progress", "5", "--note", "half"]) == 0
    assert main(["worker", "progress"]) == 0
    assert capfd.readouterr().out == "5\n8\n"
    assert main(["worker", "complete", "--failed", "--summary", "no"]) == 0
    assert main(["worker", "complete"]) == Exit.REFUSED
    assert capfd.readouterr().err == "COMPLETION_BLOCKED: hold t1.1.1.1 is open\n"
    assert main(["worker", "assignment"]) == 0
    out = capfd.readouterr().out.splitlines()
    assert "reason=ruling" in out
    assert "hold=t1.1.1.1" in out
    assert "progress=unknown" in out
    assert main(["worker", "assignment", "--json"]) == 0
    assert json.loads(capfd.readouterr().out)["argv"] == ["make", "a b"]


WRONG: list[tuple[list[str], str]] = [
    ([], "VERB"),
    (["dance"], "dance"),
    (["escalate"], "TEXT"),
    (["escalate", "--option", "keep", "why?"], "KEY=TEXT"),
    (["await", "--timeout", "-1"], "seconds"),
    (["await", "--timeout", "nan"], "seconds"),
    (["progress", "0"], "whole number"),
    (["progress", "9" * 30], "whole number"),
    (["progress", "--retry-at", "soon"], "a duration such as 2h"),
    (["progress", "--retry-at", "2026-12-01T09:00:00"], "with its zone"),
    (["complete", "--summ", "x"], "--summ"),
    (["escalate", ""], "question"),
    (["escalate", "x" * 70_000], "question"),
    (["escalate", "\udcff"], "UTF-8"),
    (["escalate", "--key", "x" * 200, "why?"], "key"),
    (["escalate", "--key"], "--key"),
    (["progress", "--note", "x" * 5_000], "note"),
]


@pytest.mark.parametrize(("words", "said"), WRONG)
def test_a_mistake_is_one_line_and_exit_2(
    runner: FakeRunner, capfd: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    """Whether the words or the contract's rules refuse it."""
    assert main(["worker", *words]) == Exit.USAGE
    out, err = capfd.readouterr()
    assert out == ""
    assert said in err
    assert len(err.splitlines()) == 1


def test_outside_a_worker_one_line_says_so(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    """Exit 2, and the library's own exception."""
    monkeypatch.delenv("LANEWARDEN_SOCKET", raising=False)
    for words in (["worker", "progress"], ["--state-dir", "/nowhere", "worker", "progress"]):
        assert main(words) == Exit.USAGE
        err = capfd.readouterr().err
        assert "not inside a worker" in err
        assert len(err.splitlines()) == 1
    with pytest.raises(NotAWorker):
        Worker.from_environment({"LANEWARDEN_SOCKET": "/x"})


def test_p11_a_token_of_nobody_is_refused(
    runner: FakeRunner, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """One line with the reason, exit 4, and the token is not in it."""
    monkeypatch.setenv("LANEWARDEN_TOKEN", "hunter2")
    assert main(["worker", "progress"]) == Exit.REFUSED
    err = capfd.readouterr().err
    assert err.startswith("CREDENTIAL_INVALID: ")
    assert "hunter2" not in err


def test_a_runner_that_is_gone_is_exit_3(socket: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """After the bound on trying."""
    assert main(["worker", "progress", "--retry-seconds", "0.1"]) == Exit.NOT_UP
    assert capfd.readouterr().err.startswith("RUNNER_UNREACHABLE: ")


def test_help_is_shown_without_a_worker(capfd: pytest.CaptureFixture[str]) -> None:
    """Of the group and of every verb, on stdout, exit 0."""
    show: Callable[[list[str]], int] = lambda words: main(["worker", *words, "--help"])  # noqa: E731
    for words in ([], ["escalate"], ["await"], ["messages"], ["progress"], ["complete"], ["assignment"]):
        assert show(words) == 0
        assert "usage: lanewarden worker" in capfd.readouterr().out
