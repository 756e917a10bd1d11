"""The command line with real services: up, run, rule, down, and what must not be left behind."""

from __future__ import annotations

import os
import re
import signal
import socket
import sys
from collections.abc import Iterator

import pytest

from lanewarden.cli.exits import Exit
from lanewarden.cli.state import StateDir
from tests.cli_pair import PATIENCE_SECONDS, Cli, alive, cli_pair, until

WORKER = """\
lanewarden() {{ {python} -m lanewarden "$@"; }}
id=$(lanewarden worker escalate --option keep='leave it' --option drop='drop it' 'Drop the column?') || exit 9
lanewarden worker await "$id"; echo "await exited $?"
lanewarden worker progress 5 --note half
lanewarden worker complete --summary 'all moved'
"""


@pytest.fixture
def cli() -> Iterator[Cli]:
    with cli_pair() as found:
        yield found


def test_h01_a_task_asks_is_ruled_and_goes_on(cli: Cli) -> None:
    """The whole way by the command line: run starts the services, the question shows, a ruling reaches the worker, the
    outcome is the exit code, and `down` leaves nothing.
    """
    script = WORKER.format(python=sys.executable)
    following = cli.start("run", "--name", "asker", "--", "sh", "-c", script)
    until(lambda: cli.run("inbox")[0] == 0 and cli.json("inbox"))
    [hold] = cli.json("inbox")
    assert hold["question"] == "Drop the column?"
    assert cli.run("check", "asker")[0] == Exit.FAILED
    assert cli.run("ack", "asker", "--expect-by", "+30m")[0] == 0
    code, _, err = cli.run("rule", "asker", "choose", "--option", "burn", "-m", "x")
    assert (code, len(err.splitlines())) == (Exit.USAGE, 1)
    assert cli.run("rule", hold["escalation_id"], "choose", "--option", "drop", "-m", "go\nahead")[0] == 0
    out, err = following.communicate(timeout=PATIENCE_SECONDS)
    assert following.returncode == 0, err
    assert "option=drop" in out
    assert "instructions=go\\nahead" in out
    assert "await exited 0" in out
    assert "held" in err
    assert "rule " + hold["escalation_id"] in err
    code, _, err = cli.run("rule", hold["escalation_id"], "approve", "-m", "again")
    assert (code, err.split(":")[0]) == (Exit.REFUSED, "ALREADY_RULED")
    [task] = cli.json("tasks")
    assert (task["state"], task["summary"]) == ("TASK_STATE_SUCCEEDED", "all moved")
    assert cli.run("check", "asker")[0] == 0
    actions = [entry["action"] for entry in cli.json("audit", "--task", "asker")]
    assert "Steer ruling CHOOSE" in actions
    writes = cli.json("writes", "--window", "5m")
    assert [each["unattributed_rows"] for each in writes.values()] == ["0", "0"]
    assert cli.run("down") == (0, "down\n", "")
    assert not alive(cli.state)
    assert cli.run("down")[0] == Exit.NOT_UP


def test_run_exits_with_the_outcome_and_refuses_what_cannot_run(cli: Cli) -> None:
    """Each refusal is one line; nothing that was refused is a task."""
    up = cli.up()
    wrong = {
        ("run", "--lane", "nowhere", "--", "true"): Exit.REFUSED,
        ("run", "--", "no-such-program-here"): Exit.USAGE,
        ("run", "--cwd", "/no/such/directory", "--", "true"): Exit.USAGE,
        ("run", "--name", "a\x07b", "--", "true"): Exit.USAGE,
        ("run", "--env", "LANEWARDEN_TOKEN=x", "--", "true"): Exit.USAGE,
        ("run", "--", ""): Exit.USAGE,
        ("logs", "nobody"): Exit.REFUSED,
        ("gate", "nobody", "review", "approve"): Exit.REFUSED,
    }
    for words, code in wrong.items():
        found, out, err = cli.run(*words)
        assert (found, out, len(err.splitlines())) == (code, "", 1), (words, err)
    assert cli.json("tasks") == []
    code, out, err = cli.run("run", "--", "sh", "-c", "echo out; echo err >&2; exit 3")
    assert (code, sorted(out.split())) == (Exit.FAILED, ["err", "out"])
    assert "exited with code 3" in err
    code, out, _ = cli.run("run", "--detach", "--gate", "review", "--", "sleep", "60")
    task_id = out.strip()
    assert code == 0
    assert cli.run("gate", task_id, "review", "approve", "-m", "fine")[0] == 0
    assert cli.run("gate", task_id, "beauty", "approve")[0] == Exit.REFUSED
    assert cli.run("pause", task_id)[0] == cli.run("resume", task_id)[0] == 0
    assert cli.run("cancel", task_id, "--cause", "enough")[0] == 0
    until(lambda: cli.json("task", task_id)["task"]["state"] == "TASK_STATE_CANCELED")
    up.send_signal(signal.SIGINT)
    out, err = up.communicate(timeout=PATIENCE_SECONDS)
    assert up.returncode == 0, err
    assert "Traceback" not in err


def test_ctrl_c_detaches_and_the_task_goes_on(cli: Cli) -> None:
    """Exit 130, one line says how to follow again, and the worker is not disturbed."""
    cli.up()
    following = cli.start("run", "--name", "long", "--", "sh", "-c", "echo begun; sleep 60")
    assert following.stdout is not None
    assert following.stdout.readline() == "begun\n"
    following.send_signal(signal.SIGINT)
    _, err = following.communicate(timeout=PATIENCE_SECONDS)
    assert following.returncode == Exit.INTERRUPTED
    assert re.search(r"detached; the task goes on: .* logs -f ", err.splitlines()[-1])
    assert cli.json("task", "long")["task"]["worker_alive"]


def test_p20_one_up_per_state_directory_and_ports_are_said(cli: Cli) -> None:
    """A second `up` exits 3 at once with one line; so does one whose port is taken; the first is undisturbed."""
    first = cli.up()
    code, out, err = cli.run("up", "--port-supervisor", "0", "--port-runner", "0")
    assert (code, out, len(err.splitlines())) == (Exit.NOT_UP, "", 1)
    assert "already up" in err
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        code, _, err = Cli(cli.state.with_name("t")).run("up", "--port-supervisor", port, "--port-runner", "0")
        assert (code, len(err.splitlines())) == (Exit.NOT_UP, 1)
        assert f"{port} is in use" in err
    assert first.poll() is None
    assert cli.json("status")["ready"] is True
    assert cli.run("doctor")[0] == 0


def test_a_state_directory_whose_socket_would_not_fit_is_said(cli: Cli) -> None:
    """One line from `up`, and from a `run` that would start it; `doctor` finds it too."""
    long = Cli(cli.state.with_name("d" * 100))
    for words in (["up", "--port-supervisor", "0", "--port-runner", "0"], ["run", "--", "true"]):
        code, out, err = long.run(*words)
        assert (code, out) == (Exit.NOT_UP, "")
        assert "shorter --state-dir" in err.splitlines()[-1]
        assert "Traceback" not in err
    assert long.run("doctor")[0] == Exit.FAILED
    assert not alive(long.state)


def test_p04_nothing_is_left_when_up_is_killed(cli: Cli) -> None:
    """Services are tied to their `up`: killed with SIGKILL, it takes them and their workers along, and another can begin."""
    up = cli.up()
    assert cli.run("run", "--detach", "--cwd", str(cli.state), "--", "sleep", "600")[0] == 0
    until(lambda: any("sleep 600" in line for line in alive(cli.state)))
    up.kill()
    up.communicate(timeout=PATIENCE_SECONDS)
    until(lambda: not alive(cli.state))
    assert cli.run("status")[0] == Exit.NOT_UP
    addresses = StateDir(cli.state).endpoints()
    cli.up()
    assert StateDir(cli.state).endpoints() == addresses, "the runner's lease is bound to its address"


def test_a_service_that_crashes_is_started_again(cli: Cli) -> None:
    """At the same address, and `status` counts it."""
    cli.up()
    before = cli.json("status")["services"]["supervisor"]
    os.kill(before["pid"], signal.SIGKILL)
    until(lambda: cli.run("status")[0] == 0 and _supervisor(cli)["restarts"] == 1)
    until(lambda: _supervisor(cli)["health"] == "serving")
    assert _supervisor(cli)["address"] == before["address"]


def _supervisor(cli: Cli) -> dict[str, object]:
    found: dict[str, object] = cli.json("status")["services"]["supervisor"]
    return found
