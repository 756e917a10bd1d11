"""What the README shows of a storm of writes is what happens."""

from __future__ import annotations

import re
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli_pair import Cli, alive, until

ROOT = Path(__file__).parents[2]
TITLE = "## When something writes too much\n"
COMMAND = re.compile(r"^\$ (.*)$", re.MULTILINE)
DIFFERS = (
    (r"\bt[a-z0-9]{9}\b", "TASK"),
    (r"\b\d+(\.\d+)?[smh]?\b", "N"),
    (r"^TASK: .*", "TASK: paused"),
    (r" +", " "),
)
SHOWS = {"findings": "storm", "why": "churning", "writes": "lane_runner.worker.directive"}
"""What each listing says once the storm has come so far."""


@pytest.fixture
def cli() -> Iterator[Cli]:
    # Not tmp_path: the path of a socket has to be short.
    directory = Path(tempfile.mkdtemp(prefix="lw-"))
    made = Cli(directory)
    yield made
    made.run("down")
    until(lambda: not alive(directory))
    shutil.rmtree(directory, ignore_errors=True)


def alike(text: str) -> list[str]:
    """The lines without what another run has otherwise; of those who write only the first is the same each time."""
    for pattern, name in DIFFERS:
        text = re.sub(pattern, name, text)
    return [line.split("%")[0].rstrip() for line in text.splitlines()]


def test_w01_s09_a_person_finds_the_storm_with_one_command(cli: Cli) -> None:
    """By the README's own commands, on a real pair with its own settings: who writes what, how fast, for whom,
    and that the task is held to be churning.
    """
    section = (ROOT / "README.md").read_text(encoding="utf-8").partition(TITLE)[2].partition("\n## ")[0]
    console = "".join(re.findall(r"```console\n(.*?)```", section, re.DOTALL))
    pieces = COMMAND.split(console)[1:]
    cli.up()
    for command, shown in zip(pieces[::2], pieces[1::2], strict=True):
        wanted = alike(shown.removeprefix("\n"))
        if wanted[-1] == "…":
            wanted = wanted[:-1]
        assert alike(run(cli, command))[: len(wanted)] == wanted, command
    assert len(pieces) >= 8, "there is something to compare"


def run(cli: Cli, command: str) -> str:
    """What a command of the README prints, once it says what is waited for."""
    words = [str(ROOT / "examples" / word) if word == "storm.py" else word for word in shlex.split(command)[1:]]
    words = [sys.executable if word == "python" else word for word in words]
    said = ""

    def look() -> bool:
        nonlocal said
        _, out, err = cli.run(*words)
        said = out + err
        return SHOWS.get(words[0], "") in said

    until(look)
    return said
