"""How long a question waits, who owes the answer, and whose a task is: what the commands send and show."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from lanewarden.cli import durations
from lanewarden.cli.exits import Exit
from lanewarden.cli.state import Endpoints
from lanewarden.errors import Reason, refuse
from lanewarden.v1 import context_pb2, escalation_pb2, task_pb2
from tests.cli_kit import Desk, desk, entry, hold, pb, task


@pytest.fixture
def at(tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    monkeypatch.setattr("lanewarden.cli.run.ensure_up", lambda state: None)
    with desk(tmp_path, capfdbinary) as found:
        found.operator.tasks.append(task("tabc1", "build", owner=task_pb2.Actor(identity="bob", role="operator")))
        found.operator.escalations.append(hold("tabc1.1.1.1"))
        yield found


def from_now(seconds: int) -> Timestamp:
    """That many seconds from now, and half a second more, so that whole seconds do not pass meanwhile."""
    return Timestamp(seconds=int(time.time()) + seconds + 1)


def patient(**fields: Any) -> escalation_pb2.Escalation:
    """A hold with a deadline, an approver and reminders."""
    defaults: dict[str, Any] = {
        "deadline_at": from_now(2 * 3600),
        "owed_by": "carol",
        "reminders": 3,
        "next_reminder_at": from_now(600),
        "key": "drop-column",
    }
    return hold("tabc1.1.1.1", **{**defaults, **fields})


@pytest.mark.parametrize(("text", "seconds"), [("90s", 90), ("30m", 1800), ("2h", 7200), ("1d", 86_400), ("0s", 0)])
def test_a_duration_is_read_as_it_is_shown(text: str, seconds: int) -> None:
    """What was typed is what is shown, in the largest unit that says it exactly."""
    assert durations.parse(text).total_seconds() == seconds
    assert durations.parse(durations.exact(seconds)).total_seconds() == seconds
    assert durations.exact(5400) == "90m"
    assert durations.rough(5400) == "1h"
    assert durations.rough(-5) == "0s"


@pytest.mark.parametrize("text", ["", "5", "m", "-1m", "1.5h", "1h30m", "１m", "1 m", "9999999d", "+2h"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    """One unit, whole numbers, nothing guessed."""
    with pytest.raises(ValueError, match="is not a duration"):
        durations.parse(text)


def test_h03_inbox_and_show_say_until_when_and_whose(at: Desk) -> None:
    """Deadline, who owes the ruling, reminders so far and the next one; an extended or expired deadline reads as that."""
    at.operator.escalations[:] = [patient()]
    _, out, _ = at.run("inbox")
    assert re.search(r"in 2h +carol +open", out)
    _, out, _ = at.run("show", "build")
    assert re.search(r"^deadline +\d{4}-\d\d-\d\d .* \(in 2h\)$", out, re.MULTILINE)
    assert re.search(r"^owed by +carol$", out, re.MULTILINE)
    assert re.search(r"^reminders +3 sent, next .* \(in 10m\)$", out, re.MULTILINE)
    assert re.search(r"^key +drop-column$", out, re.MULTILINE)
    shown = json.loads(at.run("show", "build", "--json")[1])
    assert (shown["owed_by"], shown["reminders"], shown["expired"]) == ("carol", 3, False)


def test_h17_an_expired_hold_is_shown_as_open_and_past_its_deadline(at: Desk) -> None:
    """Never as closed, approved or done; and once it is ruled on, nothing of it is due."""
    at.operator.escalations[:] = [patient(expired=True, deadline_at=Timestamp(seconds=1))]
    assert re.search(r"passed +carol +open", at.run("inbox")[1])
    assert "(passed)" in at.run("show", "build")[1]
    ruled = patient(expired=True, hold_state=escalation_pb2.HOLD_STATE_RELEASED, next_reminder_at=None)
    at.operator.escalations[:] = [ruled]
    out = at.run("show", "build")[1]
    assert "passed" not in out
    assert re.search(r"^reminders +3 sent$", out, re.MULTILINE)


def test_a_hold_without_a_deadline_shows_none(at: Desk) -> None:
    """No row says something that nobody has set."""
    out = at.run("show", "build")[1]
    assert "deadline" not in out
    assert "owed by" not in out


def test_extend_moves_the_deadline_of_the_question_that_was_meant(at: Desk) -> None:
    """By the task's name; the answer says until when."""
    code, out, err = at.run("extend", "build", "2h")
    assert (code, err) == (0, "")
    assert re.fullmatch(r"extended tabc1\.1\.1\.1; due \d{4}-\S+ \S+ \((in 1h|in 2h)\)\n", out)
    request = at.got(pb.OperatorServiceExtendHoldRequest)
    assert (request.escalation_id, request.deadline.seconds) == ("tabc1.1.1.1", 7200)
    assert len(request.request_id) == 36
    assert json.loads(at.run("extend", "build", "90m", "--json")[1])["escalation_id"] == "tabc1.1.1.1"


def test_takeover_names_the_owner_before_and_now(at: Desk) -> None:
    """And that nothing is launched; as JSON both are documents."""
    code, out, err = at.run("takeover", "build")
    assert (code, err) == (0, "")
    assert out == "tabc1: running, taken over; owner ada (operator) (before: bob (operator))\n"
    assert json.loads(at.run("takeover", "build", "--json")[1])["previous_owner"]["identity"] == "bob"


def test_h16_resume_clears_the_cause_that_was_named(at: Desk) -> None:
    """The operator's pause by default, the takeover by its flag; never both."""
    at.run("resume", "build")
    assert at.got(pb.OperatorServiceResumeTaskRequest).cause == task_pb2.PAUSE_CAUSE_OPERATOR
    at.run("resume", "build", "--takeover")
    assert at.got(pb.OperatorServiceResumeTaskRequest).cause == task_pb2.PAUSE_CAUSE_TAKEOVER
    at.run("resume", "build", "--usage-limit")
    assert at.got(pb.OperatorServiceResumeTaskRequest).cause == task_pb2.PAUSE_CAUSE_USAGE_LIMIT
    sent = len(at.operator.requests)
    code, _, err = at.run("resume", "build", "--usage-limit", "--takeover")
    assert (code, len(at.operator.requests)) == (Exit.USAGE, sent)
    assert "one at a time" in err


def test_p09_a_limit_of_use_is_shown_with_its_end(at: Desk) -> None:
    """In the listing, whole, and in full: paused by an operator too, it says both."""
    ends = datetime(2026, 12, 1, 9, 30).astimezone()
    limited = task("tlim4", "lim", state=task_pb2.TASK_STATE_QUEUED, pauses=[task_pb2.PAUSE_CAUSE_USAGE_LIMIT])
    limited.not_before.FromDatetime(ends)
    at.operator.tasks.append(limited)
    words = "queued, waits for its usage limit until 2026-12-01 09:30"
    assert words in at.run("tasks")[1]
    assert words in at.run("task", "lim")[1]
    limited.pauses.append(task_pb2.PAUSE_CAUSE_OPERATOR)
    assert f"{words}, paused by an operator" in at.run("task", "lim")[1]


def test_h16_a_task_shows_each_cause_of_its_pause(at: Desk) -> None:
    """In the listing and in full, with its owner, its patience and its on_success command."""
    spec = task_pb2.TaskSpec(name="all", argv=["make"], on_success=["git", "merge", "a b"])
    spec.hold_deadline.FromSeconds(7200)
    spec.reminder.FromSeconds(90)
    spec.approvers.add(identity="ada")
    spec.approvers.add(identity="carol").after.FromSeconds(1800)
    hook = task_pb2.Hook(state=task_pb2.HOOK_STATE_FAILED, tries=5, summary="try 5 exited with code 1")
    at.operator.tasks.append(
        task(
            "tall9", spec=spec, pauses=[1, 2, 3], owner=task_pb2.Actor(identity="ada", role="operator"), on_success=hook
        )
    )
    wanted = "running, paused by an operator, parked by a hold's deadline, taken over, on_success failed"
    assert wanted in at.run("task", "all")[1]
    out = at.run("task", "all")[1]
    for field in (
        "owner            ada (operator)",
        "hold deadline    2h",
        "first reminder   90s",
        "approvers        ada, carol after 30m",
        "on success       git merge 'a b'",
        "                 failed: try 5 exited with code 1",
    ):
        assert field in out
    assert "paused by an operator, parked" in at.run("tasks")[1]
    spec.ClearField("reminder")
    at.operator.tasks[-1] = task("tall9", spec=spec)
    assert "waits for success" in at.run("task", "all")[1]


def test_run_sends_how_its_context_is_looked_after(at: Desk) -> None:
    """Every flag arrives; rungs in their order, the writer taken apart as a shell would."""
    words = "run --detach --context-window 200000 --context-rung 40000 --context-rung 80000 --context-reserve 9000"
    more = "--context-reduced 2000 --reductions 7 --checkpoint-wait 90s --checkpoint-writer"
    assert at.run(*words.split(), *more.split(), "sum 'a b'", "--", "prog")[0] == 0
    context = at.got(pb.OperatorServiceSubmitTaskRequest).spec.context
    assert (context.window_tokens, list(context.rungs)) == (200_000, [40_000, 80_000])
    assert (context.reserve_tokens, context.reduced_tokens, context.reductions_max) == (9_000, 2_000, 7)
    assert (context.writer_wait.seconds, list(context.writer)) == (90, ["sum", "a b"])


def test_what_is_asked_of_a_task_is_shown(at: Desk) -> None:
    """A line for each signal that is outstanding: what is asked, by whom, for how long, why."""
    found = task("tabc1", "build")
    found.signals.add(
        kind=context_pb2.SIGNAL_KIND_REDUCE_CONTEXT, raised_by="lane runner (runner)", cause="35000 tokens\nare in use"
    )
    at.operator.tasks[:] = [found]
    _, out, _ = at.run("task", "build")
    assert re.search(
        r"^asked +reduce context by lane runner \(runner\), .* ago: 35000 tokens\\nare in use$", out, re.MULTILINE
    )


def test_checkpoints_are_listed_and_read(at: Desk) -> None:
    """What each start of the writer came to, whether it is tried again; and of one, what it holds and nothing else."""
    whole = context_pb2.Checkpoint(
        checkpoint_id="t1.1.c1", state=context_pb2.CHECKPOINT_STATE_SUCCEEDED, tokens=41_000, cycle=1, content="so far"
    )
    failed = context_pb2.Checkpoint(
        checkpoint_id="t1.1.c2",
        state=context_pb2.CHECKPOINT_STATE_FAILED,
        failure=context_pb2.CHECKPOINT_FAILURE_TRANSIENT,
        retryable=True,
        detail="the writer exited with code 75",
    )
    at.operator.checkpoints += [whole, failed]
    code, out, _ = at.run("checkpoints", "build")
    assert code == 0
    for shown in ("t1.1.c1", "41000", "succeeded", "t1.1.c2", "failed (transient, tried again)", "with code 75"):
        assert shown in out
    assert at.run("checkpoints", "build", "--read", "t1.1.c1")[:2] == (0, "so far")
    assert at.run("checkpoints", "build", "--read", "t1.1.c9")[0] == 4
    assert json.loads(at.run("checkpoints", "build", "--json")[1])[1]["checkpoint_id"] == "t1.1.c2"


def test_run_sends_how_long_its_questions_wait_and_who_owes_the_answers(at: Desk) -> None:
    """Every flag arrives, approvers in their order, the command taken apart as a shell would."""
    words = "run --detach --hold-deadline 2h --reminder 90s --approver ada --approver carol=30m --on-success"
    code, out, err = at.run(*words.split(), "git merge 'a b'", "--", "prog")
    assert (code, out, err) == (0, "t-new\n", "")
    spec = at.got(pb.OperatorServiceSubmitTaskRequest).spec
    assert (spec.hold_deadline.seconds, spec.reminder.seconds) == (7200, 90)
    assert [(each.identity, each.after.seconds) for each in spec.approvers] == [("ada", 0), ("carol", 1800)]
    assert list(spec.on_success) == ["git", "merge", "a b"]
    at.run("run", "--detach", "--", "prog")
    plain = at.got(pb.OperatorServiceSubmitTaskRequest).spec
    assert {each.name for each, _ in plain.ListFields()} == {"argv", "cwd", "env"}


def test_run_of_a_session_prints_its_id_and_returns(at: Desk) -> None:
    """Nothing to follow: it rests until somebody sends it input. A parent is found by what people type for a task."""
    at.operator.tasks.append(task("tpar1", "coordinator"))
    code, out, err = at.run("run", "--session", "--parent", "coordinator", "--", "prog")
    assert (code, out, err) == (0, "t-new\n", "")
    spec = at.got(pb.OperatorServiceSubmitTaskRequest).spec
    assert (spec.kind, spec.parent_task_id) == (task_pb2.TASK_KIND_SESSION, "tpar1")
    at.operator.tasks.append(task("tses1", state=task_pb2.TASK_STATE_IDLE))
    assert "idle" in at.run("tasks")[1]
    code, _, err = at.run("run", "--session", "--parent", "nobody", "--", "prog")
    assert (code, err.split(":")[0]) == (Exit.REFUSED, "TASK_UNKNOWN")


def ending(*hooks: tuple[str, str]) -> list[task_pb2.Task]:
    """A success whose on_success command goes through these states."""
    return [
        task(
            "t-new",
            state=task_pb2.TASK_STATE_SUCCEEDED,
            summary="merged nothing yet",
            on_success=task_pb2.Hook(state=f"HOOK_STATE_{state}", summary=summary),
        )
        for state, summary in hooks
    ]


def test_run_waits_for_the_on_success_command(at: Desk) -> None:
    """Success is not the end of it: each try is a line, and a command that is done makes exit code 0."""
    first, second = "try 1 exited with code 1", "try 2 exited with code 0"
    at.operator.ending = ending(("PENDING", ""), ("PENDING", first), ("DONE", second))
    code, _, err = at.run("run", "--on-success", "merge", "--", "prog")
    assert code == 0
    assert [line for line in err.splitlines() if "succe" in line][-4:] == [
        "lanewarden: succeeded: merged nothing yet",
        "lanewarden: on_success pending",
        "lanewarden: on_success pending: try 1 exited with code 1",
        "lanewarden: on_success done: try 2 exited with code 0",
    ]


def test_run_exits_1_when_the_on_success_command_failed(at: Desk) -> None:
    """Though the task itself succeeded; the last line says how to try again."""
    at.operator.ending = ending(("PENDING", ""), ("FAILED", "try 5 exited with code 1"))
    code, _, err = at.run("run", "--on-success", "merge", "--", "prog")
    assert code == Exit.FAILED
    assert err.splitlines()[-1].endswith("retry t-new`")


def test_run_says_until_when_and_whose_when_it_is_held(at: Desk) -> None:
    """Beside how to answer."""
    at.operator.escalations[:] = [hold("t-new.1.1.1", deadline_at=from_now(3600), owed_by="carol")]
    err = at.run("run", "--", "prog")[2]
    assert "to answer, in another terminal, owed by carol, due in 1h:" in err


def test_audit_merges_both_services_by_time(at: Desk) -> None:
    """Each entry says which service has it; --task reaches both, --limit counts both."""
    at.operator.audit = [entry("first", seconds=1), entry("third", seconds=3)]
    at.runner.audit = [entry("second", seconds=2), entry("fourth", seconds=4)]
    found = json.loads(at.run("audit", "--json", "--task", "build")[1])
    assert [(each["service"], each["action"]) for each in found] == [
        ("supervisor", "first"),
        ("runner", "second"),
        ("supervisor", "third"),
        ("runner", "fourth"),
    ]
    assert at.runner.requests[-1].task_id == at.got(pb.ListAuditRequest).task_id == "tabc1"
    assert re.search(r"runner +ada \(operator\) +second", at.run("audit")[1])
    assert [each["action"] for each in json.loads(at.run("audit", "--json", "--limit", "2")[1])] == ["first", "second"]


def test_audit_of_a_runner_that_is_gone_is_not_shown_as_whole(at: Desk) -> None:
    """What the supervisor has is shown, one line says what is missing, and the exit code is not success."""
    endpoints = at.state.endpoints()
    Endpoints(supervisor=endpoints.supervisor, runner="127.0.0.1:1").save(at.state.endpoints_file)
    code, out, err = at.run("audit")
    assert code == Exit.NOT_UP
    assert "Steer ruling APPROVE" in out
    assert err.startswith("RUNNER_UNREACHABLE: ")
    assert "not shown" in err
    assert len(err.splitlines()) == 1


def test_notifications_say_who_was_told_what_and_what_became_of_it(at: Desk) -> None:
    """Delivered, failed and waiting are told apart; every page is turned; one escalation may be named."""
    at.operator.notifications = [
        pb.Notification(kind="reminder", sink="webhook", tries=2, failure="answered HTTP 503", to="carol"),
        pb.Notification(kind="opened", sink="jsonl", tries=1, delivered_at=Timestamp(seconds=86_400)),
        pb.Notification(kind="opened", sink="webhook"),
    ]
    out = at.run("notifications")[1].splitlines()
    assert len(out) == 4
    assert re.search(r"reminder +carol +webhook +2 +no: answered HTTP 503$", out[1])
    assert re.search(r"opened +jsonl +1 +1970-01-0", out[2])
    assert out[3].endswith("not yet")
    at.run("notifications", "--escalation", "build")
    assert at.got(pb.ListNotificationsRequest).escalation_id == "tabc1.1.1.1"
    at.operator.notifications.clear()
    assert at.run("notifications") == (0, "nobody was told anything\n", "")


@pytest.mark.parametrize("words", ["retry build", "reopen build", "takeover build", "extend build 1h", "notifications"])
def test_what_a_service_refuses_is_one_line(at: Desk, words: str) -> None:
    """REASON and the sentence, exit 4, nothing on stdout."""
    said = refuse(Reason.TASK_TERMINAL, "task tabc1 has ended")
    for name in ("RetryTask", "ReopenTask", "TakeOver", "ExtendHold", "ListNotifications"):
        at.operator.refusals[name] = said
    assert at.run(*words.split()) == (Exit.REFUSED, "", "TASK_TERMINAL: task tabc1 has ended\n")


MISTAKES: list[tuple[list[str], str]] = [
    (["run", "--hold-deadline", "soon", "--", "x"], "'soon' is not a duration"),
    (["run", "--hold-deadline", "", "--", "x"], "is not a duration"),
    (["run", "--reminder", "1h30m", "--", "x"], "'1h30m' is not a duration"),
    (["run", "--approver", "=5m", "--", "x"], "NAME"),
    (["run", "--approver", "ada=", "--", "x"], "is not a duration"),
    (["run", "--approver", "ada=b=5m", "--", "x"], "'b=5m' is not a duration"),
    (["run", "--approver", "a" * 200, "--", "x"], "approvers[0].identity"),
    (["run", "--on-success", "git 'merge", "--", "x"], "quotation mark"),
    (["run", "--on-success", "  ", "--", "x"], "no command"),
    (["extend", "build", "soon"], "'soon' is not a duration"),
    (["extend", "build"], "DURATION"),
    (["extend", "", "1h"], "ESCALATION"),
    (["takeover", "build", "--cause", "x" * 5000], "cause"),
    (["takeover", ""], "TASK"),
    (["retry"], "TASK"),
    (["reopen", "a\x1b"], "TASK"),
    (["resume", "build", "--take"], "--take"),
    (["notifications", "--limit", "0"], "--limit"),
    (["up", "--notify"], "--notify"),
]


@pytest.mark.parametrize(("words", "said"), MISTAKES, ids=[" ".join(m[0])[:40] for m in MISTAKES])
def test_a_mistake_is_one_line_and_exit_2(at: Desk, words: list[str], said: str) -> None:
    """It names what is wrong, and nothing is submitted."""
    code, out, err = at.run(*words)
    assert (code, out) == (Exit.USAGE, "")
    assert said in err
    assert len(err.splitlines()) == 1
    assert len(at.operator.tasks) == 1
