"""Workers that hand their token over: the calls of a worker can then be made, and timed, from here."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.integration.pair import Pair, eventually

TOKEN_LENGTH: Final = 64
# The shell keeps the token from other users, tells it, and ends well when its gate is opened and closed.
_SCRIPT: Final = (
    'umask 077; mkfifo "$0/$LANEWARDEN_TASK.gate"; printf %s "$LANEWARDEN_TOKEN" > "$0/$LANEWARDEN_TASK.token";'
    ' read -r _ < "$0/$LANEWARDEN_TASK.gate"; exit 0'
)


class Workers:
    """Tasks whose workers wait at a gate, and what is known of them: ``tokens`` by task id."""

    def __init__(self, pair: Pair, directory: Path) -> None:
        self._pair = pair
        self._directory = directory
        self.tokens: dict[str, str] = {}
        directory.mkdir()

    def submit(self, lane: str) -> str:
        """Give a lane one more task; its id."""
        return self._pair.submit("/bin/sh", "-c", _SCRIPT, str(self._directory), lane=lane)

    def arrived(self) -> Iterator[tuple[str, str]]:
        """The id and the token of each worker that has started since the last call."""
        for file in self._directory.glob("*.token"):
            token = file.read_text()
            if len(token) == TOKEN_LENGTH and file.stem not in self.tokens:
                self.tokens[file.stem] = token
                file.unlink()
                yield file.stem, token

    def start(self, lanes: int) -> dict[str, str]:
        """Have one worker in each of the first ``lanes`` lanes; their tokens by task id."""
        for number in range(lanes):
            self.submit(f"lane-{number + 1}")

        def all_arrived() -> bool:
            list(self.arrived())
            return len(self.tokens) == lanes

        eventually(all_arrived, f"{lanes} workers")
        return self.tokens

    def let_go(self, task_id: str) -> None:
        """Let a worker exit with code 0."""

        def opened() -> bool:
            try:
                os.close(os.open(self._directory / f"{task_id}.gate", os.O_WRONLY | os.O_NONBLOCK))
            except OSError as error:
                if error.errno != errno.ENXIO:  # it has told its token and is not at its gate yet
                    raise
                return False
            return True

        eventually(opened, f"the worker of {task_id} is at its gate")
