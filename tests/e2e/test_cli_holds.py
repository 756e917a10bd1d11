"""When a worker asks: the examples as they stand, run by real services and answered by the command line."""

from __future__ import annotations

import http.client
import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from lanewarden.cli.exits import Exit
from tests.cli_pair import PATIENCE_SECONDS, Cli, cli_pair, until

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cli]:
    """With `lanewarden` in the PATH of workers, installed or not."""
    program = tmp_path / "bin" / "lanewarden"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m lanewarden "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", str(EXAMPLES.parent))
    with cli_pair() as found:
        yield found


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Where the examples find something to clean up."""
    directory = tmp_path / "place"
    directory.mkdir()
    (directory / "old-backups.txt").write_text("a\nb\nc\n")
    return directory


def hold_of(cli: Cli, name: str) -> str:
    """The id of the open hold of a task, once there is one."""
    until(lambda: any(each["task_name"] == name for each in cli.json("inbox")))
    return str(next(each["escalation_id"] for each in cli.json("inbox") if each["task_name"] == name))


def state_of(cli: Cli, name: str) -> str:
    """The state of a task."""
    return str(cli.json("task", name)["task"]["state"])


def test_h01_the_shell_example_exits_and_is_started_again_with_the_ruling(cli: Cli, place: Path) -> None:
    """Held with no process, then one more attempt; `run` follows through the on_success command to its end."""
    cli.up()
    merge = "sh -c 'echo $LANEWARDEN_IDEMPOTENCY_KEY > merged'"
    following = cli.start(
        *("run", "--name", "clean-up", "--cwd", str(place), "--on-success", merge, "--"),
        str(EXAMPLES / "worker.sh"),
    )
    escalation_id = hold_of(cli, "clean-up")
    until(lambda: not cli.json("task", "clean-up")["task"]["worker_alive"])
    assert state_of(cli, "clean-up") == "TASK_STATE_HELD"
    assert cli.run("retry", "clean-up")[0] == 0
    assert state_of(cli, "clean-up") == "TASK_STATE_HELD", "a retry releases nothing"
    assert not (place / "merged").exists()
    assert cli.run("rule", escalation_id, "choose", "--option", "delete", "-m", "go")[0] == 0
    _, err = following.communicate(timeout=PATIENCE_SECONDS)
    assert following.returncode == 0, err
    assert not (place / "old-backups.txt").exists()
    assert "succeeded: removed, as ruled" in err
    assert "on_success done: try 1 exited with code 0" in err.splitlines()[-1]
    task = cli.json("task", "clean-up")["task"]
    assert (place / "merged").read_text().strip() == task["on_success"]["idempotency_key"]
    assert task["attempt"] == 2


def test_h10_the_python_example_is_killed_while_it_waits_and_asks_once(cli: Cli, place: Path) -> None:
    """The next attempt takes up the question that is open, and acts on its ruling; a reopened task asks anew."""
    cli.up()
    words = ("run", "--detach", "--name", "py", "--cwd", str(place), "--hold-deadline", "2h", "--approver", "ada")
    assert cli.run(*words, "--", sys.executable, str(EXAMPLES / "worker.py"))[0] == 0
    escalation_id = hold_of(cli, "py")
    shown = cli.json("show", escalation_id)
    assert (shown["key"], shown["owed_by"], shown["expired"]) == ("old-backups", "ada", False)
    os.kill(cli.json("task", "py")["task"]["worker_pid"], signal.SIGKILL)
    until(lambda: not cli.json("task", "py")["task"]["worker_alive"])
    assert [each["escalation_id"] for each in cli.json("inbox")] == [escalation_id]
    assert cli.run("rule", "py", "choose", "--option", "keep", "-m", "not today")[0] == 0
    until(lambda: state_of(cli, "py") == "TASK_STATE_SUCCEEDED")
    assert cli.json("task", "py")["task"]["summary"] == "kept: not today"
    assert len(cli.json("inbox", "--all")) == 1
    assert cli.run("reopen", "py")[0] == 0
    again = hold_of(cli, "py")
    assert again.split(".")[1] == "2"
    assert cli.run("rule", again, "choose", "--option", "delete", "-m", "now")[0] == 0
    until(lambda: state_of(cli, "py") == "TASK_STATE_SUCCEEDED")
    assert not (place / "old-backups.txt").exists()


def test_h13_takeover_and_extension_leave_the_hold_open(cli: Cli, place: Path) -> None:
    """Owner and deadline change, the question does not; nothing is launched until the takeover is given back; and both
    services' audits say who did it.
    """
    cli.up()
    words = ("run", "--detach", "--name", "clean-up", "--cwd", str(place), "--hold-deadline", "1h", "--")
    assert cli.run(*words, str(EXAMPLES / "worker.sh"))[0] == 0
    escalation_id = hold_of(cli, "clean-up")
    before = cli.json("show", escalation_id)["deadline_at"]
    assert cli.json("extend", "clean-up", "2d")["deadline_at"] > before
    until(lambda: cli.json("show", escalation_id)["deadline_at"] > before)
    code, out, _ = cli.run("extend", "clean-up", "30s")
    assert (code, out) == (Exit.USAGE, "")
    code, out, _ = cli.run("takeover", "clean-up", "--cause", "ada is ill")
    assert code == 0
    assert "held, taken over; owner" in out
    assert cli.run("rule", escalation_id, "choose", "--option", "delete", "-m", "go")[0] == 0
    assert cli.run("resume", "clean-up")[0] == 0
    task = cli.json("task", "clean-up")["task"]
    assert (task["pauses"], task["attempt"]) == (["PAUSE_CAUSE_TAKEOVER"], 1)
    assert (place / "old-backups.txt").exists()
    assert cli.run("resume", "clean-up", "--takeover")[0] == 0
    until(lambda: state_of(cli, "clean-up") == "TASK_STATE_SUCCEEDED")
    entries = cli.json("audit", "--task", "clean-up")
    for service in ("supervisor", "runner"):
        actions = " ".join(each["action"] for each in entries if each["service"] == service)
        for wanted in ("TakeOver", "ExtendHold", "Steer ruling CHOOSE", "ResumeTask"):
            assert wanted in actions
    assert cli.run("takeover", "clean-up")[0] == Exit.REFUSED


def test_a_failed_task_is_retried_and_one_that_succeeded_is_not(cli: Cli, place: Path) -> None:
    """Retry is another attempt of the same epoch; reopen is for what has ended, and raises the epoch."""
    cli.up()
    words = (
        "run",
        "--name",
        "twice",
        "--cwd",
        str(place),
        "--",
        "sh",
        "-c",
        "test -e marked || { : > marked; exit 3; }",
    )
    assert cli.run(*words)[0] == Exit.FAILED
    assert cli.run("retry", "twice")[0] == 0
    until(lambda: state_of(cli, "twice") == "TASK_STATE_SUCCEEDED")
    code, _, err = cli.run("retry", "twice")
    assert (code, err.split(":")[0]) == (Exit.REFUSED, "TASK_TERMINAL")
    assert cli.run("reopen", "twice")[0] == 0
    until(lambda: (task := cli.json("task", "twice")["task"])["epoch"] == 2 and task["state"] == "TASK_STATE_SUCCEEDED")


@contextmanager
def receiver() -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The example that receives webhooks, and host:port of it."""
    command = [sys.executable, str(EXAMPLES / "webhook_receiver.py"), "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process, process.stdout.readline().strip().removeprefix("listening at http://")
        finally:
            process.kill()


def test_the_webhook_example_shows_a_question_that_can_be_answered_as_it_says(cli: Cli, place: Path) -> None:
    """What it prints is the command that rules; each notification has its key there, in the listing and in the file."""
    with receiver() as (process, address):
        assert process.stdout is not None
        cli.up("--notify", f"webhook:http://{address}/hook")
        words = ("run", "--detach", "--name", "clean-up", "--cwd", str(place), "--approver", "ada", "--")
        assert cli.run(*words, str(EXAMPLES / "worker.sh"))[0] == 0
        first, delete, _ = (process.stdout.readline().strip() for _ in range(3))
        key = first.partition("]")[0].removeprefix("[")
        assert first == f"[{key}] opened for ada: 'May I remove 3 old backups?'"
        assert cli.run(*shlex.split(delete)[1:])[0] == 0
        assert "/ruled/1] ruled for ada" in process.stdout.readline()
        until(lambda: state_of(cli, "clean-up") == "TASK_STATE_SUCCEEDED")
        until(lambda: all(each["delivered_at"] for each in cli.json("notifications")))
        sent = cli.json("notifications", "--escalation", key.partition("/")[0])
        assert [
            (each["sink"], each["kind"]) for each in sorted(sent, key=lambda each: (each["sink"], each["kind"]))
        ] == [
            *(("jsonl", "opened"), ("jsonl", "ruled")),
            *(("webhook", "opened"), ("webhook", "ruled")),
        ]
        lines = (cli.state / "notifications.jsonl").read_text().splitlines()
        assert [json.loads(line)["key"] for line in lines] == [key, key.replace("opened", "ruled")]


def test_the_webhook_example_takes_a_repeat_and_shows_it_once() -> None:
    """Answered 204 both times, for it has arrived; a body without bound is not read."""
    body = json.dumps({"kind": "notice", "to": "", "escalation": {"question": "\x1b[2Jdone"}})
    with receiver() as (process, address):
        assert process.stdout is not None
        for key, wanted, sent in (
            ("k1", 204, body),
            ("k1", 204, body),
            ("k2", 204, body),
            ("k3", 413, "x" * (2 << 20)),
        ):
            client = http.client.HTTPConnection(address, timeout=PATIENCE_SECONDS)
            client.putrequest("POST", "/")
            client.putheader("Idempotency-Key", key)
            client.putheader("Content-Length", str(len(sent)))
            client.endheaders()
            client.send(sent.encode() if wanted == 204 else b"")
            assert client.getresponse().status == wanted
            client.close()
        assert process.stdout.readline() == "[k1] notice: '\\x1b[2Jdone'\n"
        assert process.stdout.readline() == "[k2] notice: '\\x1b[2Jdone'\n"


def test_a_sink_that_cannot_work_is_said_at_once(cli: Cli) -> None:
    """Exit 3, the last line names it, and nothing is left running."""
    words = ("up", "--port-supervisor", "0", "--port-runner", "0", "--notify")
    for sink, said in (("pigeon", "'pigeon' is not a sink"), ("webhook:nowhere", "URL"), ("command:", "program")):
        code, out, err = cli.run(*words, sink)
        assert (code, out) == (Exit.NOT_UP, "")
        assert said in err.splitlines()[-1]
        assert "Traceback" not in err


def test_notifications_for_standard_output_come_out_of_up(cli: Cli) -> None:
    """A line for people, on stdout; what `up` says of itself stays on stderr."""
    up = cli.up("--notify", "stdout")
    assert cli.run("run", "--name", "teller", "--", "lanewarden", "worker", "escalate", "all is well")[0] == 0
    assert up.stdout is not None
    line = up.stdout.readline()
    assert " notice t" in line
    assert line.endswith(": all is well\n")


def test_c01_the_agents_of_the_examples_are_rebuilt_once(cli: Cli, place: Path, tmp_path: Path) -> None:
    """The shell's from the checkpoint of a command, Python's from one of its own; what each was told between its turns is
    what the README shows, and people can read what was written.
    """
    cli.up()
    flags = "--context-window 400 --context-reserve 100 --context-reduced 80 --context-rung 100 --context-rung 200"
    words = ("run", "--cwd", str(place), *flags.split())
    writer = ("--checkpoint-writer", str(EXAMPLES / "checkpoint.sh"))
    following = cli.start(*words, "--name", "sh", *writer, "--", str(EXAMPLES / "context.sh"))
    second = tmp_path / "second"
    second.mkdir()
    code, told, _ = cli.run(
        *words, "--cwd", str(second), "--name", "py", "--", sys.executable, str(EXAMPLES / "context.py")
    )
    assert code == 0
    out, err = following.communicate(timeout=PATIENCE_SECONDS)
    assert following.returncode == 0, err
    kinds = ["continue"] * 4 + ["rebuild"] + ["continue"] * 3
    for each in (out, told):
        assert [line.split()[2].rstrip(",") for line in each.splitlines()] == kinds
    written = [each["checkpoint_id"] for each in cli.json("checkpoints", "py")]
    assert len(written) == 3
    assert cli.run("checkpoints", "py", "--read", written[0])[1].startswith("so far 2 turns\n")
