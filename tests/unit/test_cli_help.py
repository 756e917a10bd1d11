"""What people read about the command line is true, and showing it is quick."""

from __future__ import annotations

import itertools
import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest

import lanewarden.cli
from lanewarden.cli import main
from lanewarden.cli.app import SECTIONS, root
from lanewarden.cli.exits import MEANINGS, Exit, of_refusal
from lanewarden.errors import Reason, Refusal

COMMANDS = [row.name for rows in SECTIONS.values() for row in rows]


def test_the_exit_codes_of_the_readme_are_those_of_the_table() -> None:
    """Number and meaning, in order; every code has a meaning."""
    readme = (Path(lanewarden.cli.__file__).parent / "README.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\d+) \| (.+) \|$", readme, flags=re.MULTILINE)
    assert rows == [(str(code.value), meaning) for code, meaning in MEANINGS.items()]
    assert set(MEANINGS) == set(Exit)


def test_the_python_of_the_readme_is_that_of_the_examples() -> None:
    """What people copy is what an end-to-end test runs."""
    root_dir = Path(lanewarden.cli.__file__).parents[2]
    blocks = re.findall(r"```python\n(.*?)```", (root_dir / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    assert blocks
    examples = [(root_dir / "examples" / name).read_text(encoding="utf-8") for name in ("worker.py", "context.py")]
    assert all(any(block in example for example in examples) for block in blocks)


def test_the_commands_of_the_readme_are_there() -> None:
    """Every `lanewarden COMMAND` in it, with its options, is one that `--help` knows."""
    text = (Path(lanewarden.cli.__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    found = re.findall(r"(?:^\$ |`)lanewarden ((?:\\\n|[^`\n])*)", text, flags=re.MULTILINE)
    assert len(found) > 10
    for words in found:
        name, *rest = itertools.takewhile(lambda word: word != "--", shlex.split(words.replace("\\\n", " ")))
        if not name.isalpha() or name == "worker":
            continue
        command = root.get_command(click.Context(root), name)
        assert command is not None, words
        known = {option for param in command.params for option in param.opts}
        assert {word for word in rest if word.startswith("-")} <= known, words


def test_help_shows_every_command_and_exit_code(capfd: pytest.CaptureFixture[str]) -> None:
    """On stdout, exit 0; without any word the same on stderr, exit 2."""
    assert main(["--help"]) == 0
    out = " ".join(capfd.readouterr().out.split())
    for name in COMMANDS:
        assert f" {name} " in out
    for code, meaning in MEANINGS.items():
        assert f"{code.value} {meaning}" in out
    assert main([]) == Exit.USAGE
    shown = capfd.readouterr()
    assert shown.out == ""
    assert "Exit codes" in shown.err


@pytest.mark.parametrize("row", [row for rows in SECTIONS.values() for row in rows], ids=lambda row: row.name)
def test_the_line_of_a_command_is_the_first_of_its_own_help(row: tuple[str, str, str]) -> None:
    """The table of `--help`, which imports nothing, says what the commands say of themselves."""
    command = root.get_command(click.Context(root), row[0])
    assert command is not None
    assert command.help is not None
    assert command.help.splitlines()[0] == row[2]


@pytest.mark.parametrize("name", [name for name in COMMANDS if name != "worker"])
def test_every_command_has_help_and_takes_a_state_directory(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    """`COMMAND --help` exits 0 and names --state-dir once."""
    assert main([name, "--help"]) == 0
    assert capfd.readouterr().out.count("--state-dir") == 1


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script(shell: str, capfd: pytest.CaptureFixture[str]) -> None:
    """For each shell offered."""
    assert main(["completion", shell]) == 0
    assert "_LANEWARDEN_COMPLETE" in capfd.readouterr().out


def test_version_is_the_packages(capfd: pytest.CaptureFixture[str]) -> None:
    """One line."""
    assert main(["--version"]) == 0
    assert re.fullmatch(r"lanewarden \d+\.\d+\.\d+\n", capfd.readouterr().out)


def test_every_refusal_has_an_exit_code_that_is_not_success() -> None:
    """And only a defect is called one."""
    codes = {reason: of_refusal(Refusal(reason, "")) for reason in Reason}
    assert Exit.DONE not in codes.values()
    assert [reason for reason, code in codes.items() if code is Exit.DEFECT] == [Reason.UNEXPECTED]
    assert codes[Reason.REQUEST_INVALID] is Exit.USAGE
    assert codes[Reason.RUNNER_UNREACHABLE] is Exit.NOT_UP
    assert codes[Reason.ALREADY_RULED] is Exit.REFUSED


HEAVY = ("click", "tabulate", "opentelemetry", "sqlite_utils", "lanewarden.server", "lanewarden.client", "uuid")


def _imported(words: str) -> set[str]:
    code = f"import sys\nfrom lanewarden.cli import main\nmain({words.split()!r})\nprint('|'.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env={"PATH": ""})
    return set(done.stdout.splitlines()[-1].split("|"))


def test_worker_verbs_import_only_what_a_call_takes(tmp_path: Path) -> None:
    """gRPC, protobuf and argparse: a verb may run once a second."""
    code = (
        "import os, sys\n"
        f"os.environ.update(LANEWARDEN_SOCKET={str(tmp_path / 'none')!r}, LANEWARDEN_TOKEN='t')\n"
        "from lanewarden.cli import main\n"
        "main(['worker', 'progress', '--retry-seconds', '0'])\n"
        "print('|'.join(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    modules = set(done.stdout.splitlines()[-1].split("|"))
    assert "grpc" in modules, "the call was tried"
    assert not modules & set(HEAVY)


def test_help_imports_no_grpc() -> None:
    """`--help` is shown at once."""
    assert not _imported("--help") & {"grpc", "google.protobuf", "asyncio"}
