"""The command line on real services, in a state directory of its own."""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from lanewarden.cli import control, main
from lanewarden.cli.state import StateDir

PATIENCE_SECONDS = 30.0


class Cli:
    """The command line on a state directory of its own."""

    def __init__(self, state: Path) -> None:
        self.state = state

    def start(self, *words: str) -> subprocess.Popen[str]:
        """Start a command."""
        return subprocess.Popen(
            [sys.executable, "-m", "lanewarden", "--state-dir", str(self.state), *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *words: str) -> tuple[int, str, str]:
        """Exit code, stdout, stderr of one command; in this process, save for `up`, which takes signals."""
        if words[0] == "up":
            started = self.start(*words)
            out, err = started.communicate(timeout=PATIENCE_SECONDS)
            return started.returncode, out, err
        streams = [io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2)]
        with contextlib.redirect_stdout(streams[0]), contextlib.redirect_stderr(streams[1]):
            code = main(["--state-dir", str(self.state), *words])
        out, err = (stream.buffer.getvalue().decode() for stream in streams)
        return code, out, err

    def up(self, *words: str) -> subprocess.Popen[str]:
        """An `up` that is ready, on free ports."""
        started = self.start("up", "--port-supervisor", "0", "--port-runner", "0", *words)
        until(lambda: self._ready() or started.poll() is not None)
        assert started.stderr is not None
        assert started.poll() is None, started.stderr.read()
        return started

    def _ready(self) -> bool:
        answer = control.ask(StateDir(self.state), "status")
        return answer is not None and bool(answer["ready"])

    def json(self, *words: str) -> Any:
        """The document that a command prints."""
        code, out, err = self.run(*words, "--json")
        assert code == 0, err
        return json.loads(out)


def until(true: Callable[[], Any]) -> None:
    """Return when ``true()`` is; fail at the bound."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not true():
        assert time.monotonic() < deadline, "did not come true in time"
        time.sleep(0.05)


def alive(state: Path) -> list[str]:
    """Command lines of processes that name the state directory."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                where = os.readlink(entry / "cwd")
            except OSError:
                continue
            if str(state) in line or where.startswith(str(state)):
                found.append(line)
    return found


@contextlib.contextmanager
def cli_pair() -> Iterator[Cli]:
    """The command line; whatever it has started is gone when the block is left."""
    # Not tmp_path: the path of a socket has to be short.
    with tempfile.TemporaryDirectory(prefix="lw-") as directory:
        found = Cli(Path(directory) / "s")
        yield found
        found.run("down")
        until(lambda: not alive(found.state))
