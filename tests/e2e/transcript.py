"""The transcript in the README's "When a lane goes wrong": its commands are run, and what they print stands below each.

``python -m tests.e2e.transcript`` plays it on a real pair in real time, some two minutes, and writes it into the README. A
test plays the same commands on a clock that it moves and compares. The section is the script: every line that begins with
``$`` is run, ``<!-- until `COMMAND` says `WORD` -->`` lets time pass, and ``soon`` in its place waits without that.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, Self
from unittest import mock

from tests.cli_pair import Cli, alive, until

ROOT: Final = Path(__file__).parents[2]
README: Final = ROOT / "README.md"
TITLE: Final = "## When a lane goes wrong\n"
SECONDS_MAX: Final = 120.0
SHOWN_HOME: Final = "/home/ada"
_PARTS: Final = re.compile(r"(```console\n.*?```|<!-- \w+ `[^`]+` says `[^`]+` -->)", re.DOTALL)
_WAIT: Final = re.compile(r"<!-- (until|soon) `(.+)` says `(.+)` -->")
_GRPCURL: Final = """\
TOKEN=$(cat ~/.local/state/lanewarden/credentials/operator.token)
lw() { grpcurl -plaintext -H "authorization: Bearer $TOKEN" "$@"; }
"""


class Player:
    """A person's terminals, in a home of their own with copies of ``examples``. ``up`` is what `lanewarden up` is run as;
    ``rest`` lets time pass; ``typed`` is what every shell begins with.
    """

    def __init__(self, home: Path, *, up: Sequence[str], rest: Callable[[], None], typed: str = _GRPCURL) -> None:
        self._home, self._up, self._rest, self._typed = home, up, rest, typed
        self._cli = Cli(home / ".local" / "state" / "lanewarden")
        self._ids: dict[str, str] = {}

    @classmethod
    @contextlib.contextmanager
    def at_home(
        cls,
        *,
        up: Sequence[str],
        rest: Callable[[], None],
        typed: str = _GRPCURL,
        examples: Sequence[str] = ("agent.sh",),
    ) -> Iterator[Self]:
        """A player whose services are gone when the block is left."""
        # Not tmp_path: the path of a socket has to be short.
        with tempfile.TemporaryDirectory(prefix="lw-") as directory, contextlib.ExitStack() as stack:
            home = Path(directory)
            (home / "bin").mkdir()
            program = home / "bin" / "lanewarden"
            program.write_text(f'#!/bin/sh\nexec {sys.executable} -m lanewarden "$@"\n')
            program.chmod(0o755)
            for example in examples:
                shutil.copy(ROOT / "examples" / example, home)
            path = f"{program.parent}:{Path(sys.executable).parent}:{os.environ['PATH']}"
            stack.enter_context(mock.patch.dict(os.environ, HOME=directory, PATH=path, PYTHONPATH=str(ROOT)))
            for name in ("LANEWARDEN_STATE_DIR", "XDG_STATE_HOME"):
                os.environ.pop(name, None)
            stack.enter_context(contextlib.chdir(home))
            player = cls(home, up=up, rest=rest, typed=typed)
            try:
                yield player
            finally:
                player._cli.run("down")
                until(lambda: not alive(home))

    def play(self, section: str) -> str:
        """The section with what its commands print now."""
        return "".join(self._part(part) for part in _PARTS.split(section))

    def _part(self, part: str) -> str:
        if wait := _WAIT.fullmatch(part):
            self._wait(*wait.groups())
        elif part.startswith("```console\n"):
            steps = commands(part.removeprefix("```console\n").removesuffix("```"))
            return f"```console\n{''.join(self._step(*step) for step in steps)}```"
        return part

    def _step(self, command: str, shown_before: str) -> str:
        for old, new in self._ids.items():
            command = command.replace(old, new)
        shown = self._run(command).replace(str(self._home), SHOWN_HOME)
        if command.startswith("lanewarden run"):
            self._ids[shown_before.strip()] = shown.strip()
        return f"$ {command}\n{shown}"

    def _run(self, command: str) -> str:
        program, *words = shlex.split(command.replace("\\\n", ""))
        if program == "export":
            os.environ.update(word.split("=", 1) for word in words)
            return ""
        if words == ["up"]:
            return self.start()
        if program == "lanewarden" and "|" not in words:
            _, out, err = self._cli.run(*words)
            return out + err
        typed = self._here(self._typed + command)
        done = subprocess.run(["sh", "-c", typed], capture_output=True, text=True, check=False)
        return done.stdout + done.stderr

    def start(self) -> str:
        """Start the pair; what it says then."""
        started = subprocess.Popen(self._up, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        assert started.stderr is not None
        said = [started.stderr.readline()]
        while said[-1] and " try: " not in said[-1]:
            said.append(started.stderr.readline())
        return "".join(said[-2:])

    def _here(self, command: str) -> str:
        """The command at the ports of this pair."""
        endpoints = json.loads((self._cli.state / "endpoints.json").read_text())
        for documented, service in (("127.0.0.1:7811", "supervisor"), ("127.0.0.1:7812", "runner")):
            command = command.replace(documented, endpoints[service])
        return command

    def _wait(self, how: str, command: str, word: str) -> None:
        deadline = time.monotonic() + SECONDS_MAX
        while word not in (shown := self._run(command)):
            assert time.monotonic() < deadline, f"`{command}` does not say {word}:\n{shown}"
            (self._rest if how == "until" else pause)()


def commands(console: str) -> Iterator[tuple[str, str]]:
    """Each command of a console and what stands below it. A command goes on where a quote is open, or after a backslash."""
    for piece in re.split(r"^\$ ", console, flags=re.MULTILINE)[1:]:
        lines = piece.splitlines(keepends=True)
        typed = lines.pop(0)
        while typed.endswith("\\\n") or typed.count("'") % 2:
            typed += lines.pop(0)
        yield typed.removesuffix("\n"), "".join(lines)


def section(text: str) -> str:
    """The section of the README that is a transcript."""
    return TITLE + text.partition(TITLE)[2].partition("\n## ")[0]


def pause() -> None:
    """Wait in real time."""
    time.sleep(0.2)


def main() -> None:
    """Play it in real time, and write it."""
    text = README.read_text(encoding="utf-8")
    with Player.at_home(up=(sys.executable, "-m", "lanewarden", "up"), rest=pause) as player:
        played = player.play(section(text))
    README.write_text(text.replace(section(text), played), encoding="utf-8")


if __name__ == "__main__":
    main()
