"""Every command against stand-ins of the services: what it sends, what it shows, what it exits with."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import NoReturn

import pytest

from lanewarden.cli import background
from lanewarden.cli.exits import Exit
from lanewarden.cli.state import NotUp
from lanewarden.errors import Reason, refuse
from lanewarden.v1 import escalation_pb2, task_pb2
from lanewarden.v1.lane_runner_service_pb2 import Evidence
from tests.cli_kit import Desk, desk, hold, pb, task


@pytest.fixture
def at(tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> Iterator[Desk]:
    with desk(tmp_path, capfdbinary) as found:
        found.operator.tasks += [task("tabc1", "build"), task("tabd2", "deploy"), task("txyz3", "build")]
        found.operator.escalations += [hold("tabc1.1.1.1"), hold("tabd2.1.1.1", task_name="deploy")]
        found.operator.notifications.append(pb.Notification(kind="opened", sink="jsonl", escalation_id="tabc1.1.1.1"))
        found.operator.evidence.append(Evidence(method="Complete", content='{"summary": "done\x1b"}', attempt=1))
        yield found


LISTINGS = [
    *("inbox", "tasks", "runners", "leases", "audit", "notifications", "writes", "emitters"),
    "findings",
    *("show tabc1.1.1.1", "task tabc1", "check tabc1", "why tabc1", "evidence tabc1"),
]


@pytest.mark.parametrize("words", LISTINGS)
def test_every_listing_has_a_form_for_people_and_one_json_document(at: Desk, words: str) -> None:
    """Both forms exit 0 and say nothing on stderr; the second is one JSON document."""
    code, out, err = at.run(*words.split())
    assert (code, err) == (0, "")
    assert out.strip()
    code, out, err = at.run(*words.split(), "--json")
    assert (code, err) == (0, "")
    assert len(out.splitlines()) == 1
    assert json.loads(out)


def test_listings_turn_every_page(at: Desk) -> None:
    """A listing shows the rows of all pages, and no more than asked for."""
    _, out, _ = at.run("tasks", "--json")
    assert [each["task_id"] for each in json.loads(out)] == ["tabc1", "tabd2", "txyz3"]
    _, out, _ = at.run("tasks", "--json", "--limit", "2")
    assert len(json.loads(out)) == 2


def test_text_of_workers_cannot_drive_the_terminal(at: Desk) -> None:
    """Escape sequences in a question or message are shown as text."""
    at.operator.escalations.append(hold("tevil.1.1.1", question="\x1b[2Jgone?\x07", cancel_cause="a\nb\x1b"))
    for words in (["inbox"], ["show", "tevil"], ["task", "tabc1"], ["evidence", "tabc1"]):
        _, out, _ = at.run(*words)
        assert "\\x1b" in out
        assert "\x1b" not in out


def test_the_state_directory_is_accepted_before_and_after_the_command(at: Desk) -> None:
    """The option after the command wins."""
    assert at.run("tasks", "--state-dir", str(at.state.path / "elsewhere"))[0] == Exit.NOT_UP


def test_a_ruling_carries_what_was_typed(at: Desk) -> None:
    """Decision, option, words and ratified gates reach the service, for the escalation that was meant."""
    code, out, err = at.run("rule", "tabc1", "choose", "--option", "drop", "-m", "go", "--ratify", "review")
    assert (code, err) == (0, "")
    assert "ruled choose drop on tabc1.1.1.1" in out
    ruling = at.got(pb.OperatorServiceSteerRequest).ruling
    assert ruling == escalation_pb2.Ruling(
        escalation_id="tabc1.1.1.1",
        decision="DECISION_CHOOSE",
        option_key="drop",
        instructions="go",
        ratifies=["review"],
    )


def test_a_ruling_that_is_only_stored_says_so(at: Desk) -> None:
    """STORED is not reported as delivered."""
    at.operator.delivery = escalation_pb2.DELIVERY_STATE_STORED
    assert "gets it later" in at.run("rule", "tabc1", "approve", "-m", "go")[1]


@pytest.mark.parametrize(("given", "seconds"), [("+30m", 1800), ("+2h", 7200), ("+1d", 86400)])
def test_an_ack_may_say_when_to_expect_the_ruling(at: Desk, given: str, seconds: int) -> None:
    """A time from now is counted from now; an absolute one is taken as it is; the hold stays open."""
    before = datetime.now(UTC).timestamp()
    code, out, _ = at.run("ack", "tabc1", "--note", "reading", "--expect-by", given)
    assert code == 0
    assert "stays open" in out
    request = at.got(pb.OperatorServiceAcknowledgeRequest)
    assert 0 <= request.expected_by.seconds - int(before) - seconds <= 5
    assert request.note == "reading"
    at.run("ack", "tabc1", "--expect-by", "2031-05-06T07:08:09+00:00")
    assert at.got(pb.OperatorServiceAcknowledgeRequest).expected_by.ToJsonString() == "2031-05-06T07:08:09Z"


def test_commands_about_a_task_reach_the_task_that_was_meant(at: Desk) -> None:
    """By name or the beginning of an id."""
    sent = {
        ("steer", "deploy", "-m", "faster"): pb.OperatorServiceSteerRequest,
        ("send", "deploy", "-m", "more"): pb.OperatorServiceSendInputRequest,
        ("cancel", "tabd", "--cause", "late"): pb.OperatorServiceCancelTaskRequest,
        ("pause", "tabd2"): pb.OperatorServicePauseTaskRequest,
        ("resume", "tabd2"): pb.OperatorServiceResumeTaskRequest,
        ("retry", "deploy"): pb.OperatorServiceRetryTaskRequest,
        ("reopen", "tabd2"): pb.OperatorServiceReopenTaskRequest,
        ("takeover", "deploy", "--cause", "ill"): pb.TakeOverRequest,
        ("gate", "deploy", "review", "waive", "-m", "known"): pb.OperatorServiceRecordGateRequest,
    }
    for words, kind in sent.items():
        code, _, err = at.run(*words)
        assert (code, err) == (0, ""), words
        request = at.got(kind)
        assert request.task_id == "tabd2"
        assert len(request.request_id) == 36
    assert at.got(pb.OperatorServiceRecordGateRequest).decision == task_pb2.GATE_DECISION_WAIVED
    assert at.got(pb.OperatorServiceCancelTaskRequest).cause == "late"
    assert at.got(pb.TakeOverRequest).cause == "ill"


def test_why_shows_the_verdict_the_way_to_it_and_whose_word_each_fact_is(at: Desk) -> None:
    """One line for the verdict, one for the action, one for each earlier arm and for each fact."""
    code, out, err = at.run("why", "deploy")
    assert (code, err) == (0, "")
    assert at.got(pb.ExplainTaskRequest).task_id == "tabd2"
    assert [line.split(maxsplit=1) for line in out.splitlines() if line] == [
        ["task", "tabd2 (deploy)"],
        ["verdict", "stale: no progress for 901 s, allowed 900 s"],
        ["action", "relaunch it (arm relaunch)"],
        ["EARLIER", "ARM    DOES NOT MATCH BECAUSE"],
        ["terminal", "it has not ended: RUNNING"],
        ["FACT", "VALUE (WHO SAID IT)"],
        ["said", "more\\x1b[2J  (worker)"],
    ]


@pytest.mark.parametrize(
    ("verdict", "shown"),
    [
        *(("STALE", "running, stale"), ("CHURNING", "running, churning"), ("UNREACHABLE", "running, unreachable")),
        *(("HEALTHY", "running"), ("UNKNOWN", "running"), ("HELD", "running"), ("UNSPECIFIED", "running")),
    ],
)
def test_a_verdict_is_shown_where_it_says_more_than_the_state(at: Desk, verdict: str, shown: str) -> None:
    """In the state of both listings, and as a field that names the command which explains it."""
    at.operator.tasks[:] = [task("tabc1", verdict=f"VERDICT_{verdict}")]
    assert f"lane-1  {shown}  " in at.run("tasks")[1]
    _, out, _ = at.run("task", "tabc1")
    assert re.search(rf"^state +{shown}$", out, flags=re.MULTILINE)
    assert ("see `lanewarden why tabc1`" in out) == (shown != "running")


def test_check_names_every_blocker_and_exits_1(at: Desk) -> None:
    """A merge script can stop on the exit code and show the lines."""
    at.operator.blockers = [
        task_pb2.Blocker(kind="hold", name="tabc1.1.1.1", detail="open"),
        task_pb2.Blocker(kind="gate"),
    ]
    code, out, _ = at.run("check", "tabc1")
    assert code == Exit.FAILED
    assert len(out.splitlines()) == 3


def test_h07_an_ambiguous_name_is_not_guessed(at: Desk) -> None:
    """Exit 2 with the candidates; nothing is sent."""
    for words in (["cancel", "build"], ["cancel", "tab"], ["rule", "tab", "approve", "-m", "x"]):
        code, out, err = at.run(*words)
        assert (code, out) == (Exit.USAGE, "")
        assert "may be any of 2: tab" in err
        assert len(err.splitlines()) == 1
    assert not [each for each in at.operator.requests if hasattr(each, "cause") or hasattr(each, "ruling")]


def test_an_open_hold_is_meant_where_an_older_one_matches_too(at: Desk) -> None:
    """The task's name means the question that waits; a whole id means itself, open or not."""
    closed = hold("tabd2.1.1.2", hold_state=escalation_pb2.HOLD_STATE_ACKNOWLEDGED, task_name="deploy")
    at.operator.escalations.append(closed)
    assert "tabd2.1.1.1" in at.run("show", "deploy")[1]
    assert "acknowledged" in at.run("show", "tabd2.1.1.2")[1]


def test_logs_are_passed_on_byte_by_byte(at: Desk) -> None:
    """Output that is not UTF-8 arrives as it was written."""
    assert at.run("logs", "tabc1") == (0, "one\ntwo\udcff\n", "")


def test_watching_the_inbox_prints_a_document_per_line(at: Desk) -> None:
    """With --json a line is a document; a refusal ends the watch with its code."""
    code, out, err = at.run("inbox", "--watch", "--json")
    assert [json.loads(line)["escalation_id"] for line in out.splitlines()] == ["tabc1.1.1.1", "tabd2.1.1.1"]
    assert (code, err) == (Exit.REFUSED, "ROLE_NOT_ALLOWED: the end of the test\n")
    assert "rule tabc1.1.1.1 choose --option keep" in at.run("inbox", "--watch")[1]


def test_unattributed_writes_are_called_a_defect(at: Desk) -> None:
    """I11 shows on the command line."""
    at.ledger.unattributed_rows = 3
    assert "3 rows have no emitter" in at.run("writes")[2]


def test_w01_who_writes_is_summed_by_what_is_asked_for(at: Desk) -> None:
    """By emitter, origin or entity, over both services each; a task is named as people name it."""
    summed = {
        "emitter": [["lane_runner.attempt.launch", "10", "1.00"]],
        "origin": [["worker", "7", "0.70"], ["3", "0.30"]],
        "entity": [["task", "tabc1", "7", "0.70"], ["task", "tabd2", "3", "0.30"]],
    }
    for by, wanted in summed.items():
        code, out, err = at.run("writes", "--by", by, "--service", "runner")
        assert (code, err) == (0, "")
        assert [line.split()[1:] for line in out.splitlines()[1:]] == wanted
    at.run("writes", "--task", "deploy", "--window", "1h")
    asked = at.ledger.requests[-1]
    assert (asked.entity_id, asked.window.ToSeconds()) == ("tabd2", 3600)


def test_w01_watched_rates_come_again_and_again(at: Desk) -> None:
    """With --json a document per line for both services, otherwise the table anew."""
    code, out, err = at.run("writes", "--watch", "--json", "--by", "emitter")
    assert (code, err) == (0, "")
    documents = [json.loads(line) for line in out.splitlines()]
    assert len(documents) == 3
    assert all(each["runner"]["rates"][0]["rows"] == "10" for each in documents)
    assert at.run("writes", "--watch")[1].count("SERVICE") == 3


def test_w01_a_finding_names_task_emitter_origin_rate_and_share(at: Desk) -> None:
    """In one line, those that last first; one that is over says so, and one about the store says for how long."""
    code, out, err = at.run("findings", "--service", "runner")
    assert (code, err) == (0, "")
    _, stormy, held = out.splitlines()
    for part in ("storm ", "task tabc1", "297.4", "lane_runner.worker.progress (for worker) 99%"):
        assert part in stormy
    assert "over" not in stormy
    assert "store held for 20s" in held
    assert "over 0s ago" in held
    at.run("findings", "--task", "deploy")
    assert at.ledger.requests[-1].entity_id == "tabd2"


def test_run_detached_prints_the_id_only(at: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """And sends the caller's directory and PATH, and every option, to the service."""
    monkeypatch.setattr("lanewarden.cli.run.ensure_up", lambda state: None)
    monkeypatch.setenv("PATH", "/somewhere")
    words = (
        "run --detach --name n --lane l --gate g --env A=b=c --stop-grace 1.5 --premature-exits 0"
        " --on-runner-loss stop-after=2m --on-supervisor-loss hold --progress-from files:out/*.log --heartbeat 30m"
        " -- prog -x --name y"
    )
    code, out, err = at.run(*words.split())
    assert (code, out, err) == (0, "t-new\n", "")
    spec = at.got(pb.OperatorServiceSubmitTaskRequest).spec
    assert list(spec.argv) == ["prog", "-x", "--name", "y"]
    assert (spec.name, spec.lane, list(spec.gates)) == ("n", "l", ["g"])
    assert dict(spec.env) == {"PATH": "/somewhere", "A": "b=c"}
    assert spec.cwd == str(Path.cwd())
    assert spec.stop_grace.ToMilliseconds() == 1500
    assert spec.HasField("premature_exits_max")
    assert spec.runner_loss_stop_after.ToSeconds() == 120
    assert (spec.progress_from.files, spec.heartbeat.ToSeconds()) == ("out/*.log", 1800)
    assert spec.on_supervisor_loss == task_pb2.SUPERVISOR_LOSS_HOLD


def test_run_starts_nothing_where_the_services_run_without_up(at: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """In containers, say: it is enough that they answer where ``endpoints.json`` says. Otherwise `up` is started."""

    def start(*_: object) -> NoReturn:
        raise NotUp("started")

    monkeypatch.setattr(background, "start", start)
    assert at.run("run", "--detach", "--", "prog") == (0, "t-new\n", "")
    at.operator.refusals["ListRunners"] = refuse(Reason.SUPERVISOR_UNREACHABLE, "gone")
    assert at.run("run", "--detach", "--", "prog") == (Exit.NOT_UP, "", "lanewarden: started\n")


def test_run_leaves_a_worker_alone_when_its_runner_is_lost(at: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """`continue` is the default, and may be said."""
    monkeypatch.setattr("lanewarden.cli.run.ensure_up", lambda state: None)
    for words in ("run --detach -- prog", "run --detach --on-runner-loss continue -- prog"):
        assert at.run(*words.split())[0] == 0
        assert not at.got(pb.OperatorServiceSubmitTaskRequest).spec.HasField("runner_loss_stop_after")


def test_run_takes_lines_of_output_for_progress(at: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """If it is told to; nothing is derived by default."""
    monkeypatch.setattr("lanewarden.cli.run.ensure_up", lambda state: None)
    assert at.run("run", "--detach", "--progress-from", "output", "--", "prog")[0] == 0
    assert at.got(pb.OperatorServiceSubmitTaskRequest).spec.progress_from.output_lines
    assert at.run("run", "--detach", "--", "prog")[0] == 0
    assert not at.got(pb.OperatorServiceSubmitTaskRequest).spec.HasField("progress_from")


def test_run_follows_to_the_outcome(at: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Output on stdout; states, the question and how to answer it on stderr; the exit code is the outcome."""
    monkeypatch.setattr("lanewarden.cli.run.ensure_up", lambda state: None)
    at.operator.escalations[:] = [hold("t-new.1.1.1")]
    code, out, err = at.run("run", "--", "prog")
    assert (code, out) == (Exit.FAILED, "one\ntwo\udcff\n")
    for wanted in ("running", "held", "Drop the column?", "rule t-new.1.1.1 choose --option keep", "failed: it broke"):
        assert wanted in err
    assert f"--state-dir {at.state.path}" in err


def test_a_refusal_is_one_line_with_its_reason(at: Desk) -> None:
    """Metadata is for machines; the person gets `REASON: sentence`."""
    at.operator.refusals["Steer"] = refuse(Reason.ALREADY_RULED, "ada has already ruled APPROVE", ruled_by="ada")
    code, out, err = at.run("rule", "tabc1", "approve", "-m", "x")
    assert (code, out, err) == (Exit.REFUSED, "", "ALREADY_RULED: ada has already ruled APPROVE\n")
