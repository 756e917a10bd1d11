"""A person's mistakes: each one line on stderr, the right exit code, never a traceback."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from lanewarden.cli import main
from lanewarden.cli.exits import Exit
from lanewarden.cli.state import Endpoints
from tests.cli_kit import Desk, desk, hold, task


@pytest.fixture
def at(tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> Iterator[Desk]:
    with desk(tmp_path, capfdbinary) as found:
        found.operator.tasks.append(task("tabc1"))
        found.operator.escalations.append(hold("tabc1.1.1.1"))
        yield found


MISTAKES: list[tuple[list[str], Exit, str]] = [
    (["frobnicate"], Exit.USAGE, "No such command"),
    (["run"], Exit.USAGE, "CMD"),
    (["run", "--"], Exit.USAGE, "CMD"),
    (["run", "--env", "novalue", "--", "x"], Exit.USAGE, "K=V"),
    (["run", "--stop-grace", "-1", "--", "x"], Exit.USAGE, "--stop-grace"),
    (["run", "--on-runner-loss", "panic", "--", "x"], Exit.USAGE, "stop-after=D"),
    (["run", "--progress-from", "smoke", "--", "x"], Exit.USAGE, "files:PATTERN"),
    (["run", "--progress-from", "files:", "--", "x"], Exit.USAGE, "files:PATTERN"),
    (["run", "--on-runner-loss", "stop-after", "--", "x"], Exit.USAGE, "stop-after=D"),
    (["run", "--on-runner-loss", "stop-after=soon", "--", "x"], Exit.USAGE, "90s, 30m"),
    (["rule", "tabc1", "maybe", "-m", "x"], Exit.USAGE, "maybe"),
    (["rule", "tabc1", "approve"], Exit.USAGE, "--message"),
    (["rule", "nobody", "approve", "-m", "x"], Exit.REFUSED, "ESCALATION_UNKNOWN: "),
    (["show", ""], Exit.USAGE, "ESCALATION"),
    (["show", "a\x1b[2J"], Exit.USAGE, "ESCALATION"),
    (["ack", "tabc1", "--expect-by", "soon"], Exit.USAGE, "ISO 8601"),
    (["ack", "tabc1", "--expect-by", "+9999999d"], Exit.USAGE, "ISO 8601"),
    (["ack", "tabc1", "--note", "x" * 5000], Exit.USAGE, "note"),
    (["task", "nobody"], Exit.REFUSED, "TASK_UNKNOWN: "),
    (["cancel", ""], Exit.USAGE, "TASK"),
    (["send", "tabc1", "-m", ""], Exit.USAGE, "text"),
    (["send", "tabc1", "-m", "x" * (1024 * 1024 + 1)], Exit.USAGE, "TOO_LARGE: "),
    (["steer", "tabc1", "-m", "x" * 70_000], Exit.USAGE, "TOO_LARGE: "),
    (["steer", "tabc1", "-m", os.fsdecode(b"\xff")], Exit.USAGE, "UTF-8"),
    (["gate", "tabc1", "re view", "approve"], Exit.USAGE, "gate"),
    (["gate", "tabc1", "review", "accept"], Exit.USAGE, "accept"),
    (["logs", "tabc1", "--attempt", "0"], Exit.USAGE, "--attempt"),
    (["tasks", "--limit", "0"], Exit.USAGE, "--limit"),
    (["tasks", "--state", "sleeping"], Exit.USAGE, "sleeping"),
    (["writes", "--window", "7s"], Exit.USAGE, "--window"),
    (["up", "--lanes", "0"], Exit.USAGE, "--lanes"),
    (["up", "--port-runner", "70000"], Exit.USAGE, "--port-runner"),
    (["completion", "powershell"], Exit.USAGE, "powershell"),
    (["worker", "dance"], Exit.USAGE, "dance"),
]


@pytest.mark.parametrize(("words", "code", "said"), MISTAKES, ids=[" ".join(m[0])[:40] for m in MISTAKES])
def test_a_mistake_is_one_line_and_its_exit_code(at: Desk, words: list[str], code: Exit, said: str) -> None:
    """Whatever is wrong with the words, stdout is empty and stderr has one line that names it."""
    found, out, err = at.run(*words)
    assert (found, out) == (code, "")
    assert said in err
    assert len(err.splitlines()) == 1
    assert "Traceback" not in err


def test_a_name_with_control_characters_is_refused(at: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the contract's rules, on one line, with no control character on the terminal."""
    monkeypatch.setattr("lanewarden.cli.run.ensure_up", lambda state: None)
    code, _, err = at.run("run", "--detach", "--name", "a\x1b[2J", "--", "x")
    assert code == Exit.USAGE
    assert "\x1b" not in err
    assert len(err.splitlines()) == 1


def test_without_services_every_command_says_how_to_start_them(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Exit 3, whether nothing ever ran here or what ran has gone."""
    commands = [
        "inbox",
        "tasks",
        "runners",
        "leases",
        "audit",
        "writes",
        "emitters",
        "findings",
        "status",
        "task x",
        "show x",
        "logs x",
    ]
    for _ in ("nothing was ever here", "what was here has gone"):
        for words in commands:
            code = main(["--state-dir", str(tmp_path), *words.split()])
            err = capfd.readouterr().err
            assert code == Exit.NOT_UP, words
            assert "not up: " in err
            assert "lanewarden up" in err
            assert len(err.splitlines()) == 1
        from lanewarden.auth import Credentials

        Credentials.ensure(tmp_path / "credentials")
        Endpoints(supervisor="127.0.0.1:1", runner="127.0.0.1:1").save(tmp_path / "endpoints.json")
    assert main(["--state-dir", str(tmp_path), "down"]) == Exit.NOT_UP


def test_a_wrong_token_is_refused_and_not_shown(at: Desk) -> None:
    """A token of the right form that is unknown: 4; a file that is no token: 3. Neither is printed."""
    path = at.state.credentials / "operator.token"
    secret = "lw_operator_" + "x" * 43
    path.write_text(secret)
    code, _, err = at.run("tasks")
    assert code == Exit.REFUSED
    assert err.startswith("CREDENTIAL_INVALID: ")
    assert secret not in err
    path.write_text("hunter2")
    code, _, err = at.run("tasks")
    assert code == Exit.NOT_UP
    assert "hunter2" not in err
    path.unlink()
    assert at.run("tasks")[0] == Exit.NOT_UP


def test_a_damaged_endpoints_file_is_named(at: Desk) -> None:
    """Exit 3 and the file's name; no traceback."""
    for text in ("", "[]", "{}", "\x00"):
        at.state.endpoints_file.write_text(text)
        code, _, err = at.run("tasks")
        assert code == Exit.NOT_UP
        assert "endpoints.json" in err


def test_a_defect_is_not_taken_for_a_failed_task(at: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bug exits 70 with its traceback, not 1."""

    def broken(*given: object, **more: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr("lanewarden.cli.tasks.pages", broken)
    code, _, err = at.run("tasks")
    assert code == Exit.DEFECT
    assert "RuntimeError: a bug" in err
