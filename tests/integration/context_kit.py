"""A worker with a context window on a real runner: a puppet over the runner's Unix socket, and a real command that writes
checkpoints when the test says so.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

from lane_runner_svc.bootstrap import DATABASE
from lane_runner_svc.core.directives import Context
from lane_runner_svc.store import contexts
from lanewarden.store.readers import Readers
from lanewarden.v1 import context_pb2
from lanewarden.v1 import lane_runner_service_pb2 as runner_pb
from lanewarden.v1 import worker_service_pb2 as pb
from lanewarden.worker import Directive
from tests.integration.pair import Pair, eventually
from tests.integration.puppet import Attempt, Puppet, fresh

K: Final = 1000
WINDOW: Final = 1000 * K
WRITER: Final = """#!/bin/sh
[ -s "$1/always" ] && what=$(cat "$1/always") || {
    echo $$ > "$1/$LANEWARDEN_CHECKPOINT.pid"
    mkfifo "$1/$LANEWARDEN_CHECKPOINT"
    read -r what < "$1/$LANEWARDEN_CHECKPOINT"
}
case $what in
commit | forget | foreign)
    printf 'at %s tokens' "$LANEWARDEN_TOKENS" > "$LANEWARDEN_CHECKPOINT_FILE"
    [ "$what" = commit ] && printf '%s\\n' "$LANEWARDEN_CHECKPOINT" > "$LANEWARDEN_CHECKPOINT_MARKER"
    [ "$what" = foreign ] && printf '%s\\n' "$LANEWARDEN_CHECKPOINT.other" > "$LANEWARDEN_CHECKPOINT_MARKER"
    exit 0
    ;;
*) exit "$what" ;;
esac
"""
"""Comes to what is in the file ``always``, or to what it is told through a pipe of its checkpoint's name."""


class Scene:
    """A task with a context window, its worker and its writer; used as a context manager."""

    def __init__(self, pair: Pair, directory: Path, **spec: Any) -> None:
        directory.mkdir()
        self.pair = pair
        self.directory = directory
        self.program = directory / "writer.sh"
        self.write_program()
        asked = {"rungs": [20 * K, 30 * K], "window_tokens": WINDOW, "writer": [str(self.program), str(directory)]}
        self._puppet = Puppet(pair, directory / "worker", context=context_pb2.ContextSpec(**(asked | spec)))
        self.attempt_number = 1
        self._pool = ThreadPoolExecutor(1)

    def __enter__(self) -> Scene:
        self._puppet.__enter__()
        return self

    def __exit__(self, *exc: object) -> None:
        self._puppet.__exit__(*exc)
        self._pool.shutdown()

    def write_program(self) -> None:
        """Put the writer's program where it belongs."""
        self.program.write_text(WRITER)
        self.program.chmod(0o755)

    def always(self, what: str) -> None:
        """Every writer comes to this by itself."""
        (self.directory / "always").write_text(what)

    @property
    def task_id(self) -> str:
        """The task."""
        return self._puppet.task_id

    @property
    def attempt(self) -> Attempt:
        """The attempt that is under way."""
        return self._puppet.attempt(self.attempt_number)

    # The worker

    def ask(self, tokens: int, **more: Any) -> pb.NextDirectiveResponse:
        """One NextDirective, whatever it says."""
        usage = pb.ContextUsage(tokens=tokens, measurement_id=more.pop("measurement_id", ""))
        request = pb.NextDirectiveRequest(request_id=fresh(), usage=usage, **more)
        answer: pb.NextDirectiveResponse = eventually(lambda: self.attempt.stub.NextDirective(request), "a directive")
        return answer

    def told(self, tokens: int, **more: Any) -> str:
        """What one NextDirective says."""
        return pb.Directive.Name(self.ask(tokens, **more).directive).removeprefix("DIRECTIVE_").lower()

    def turn(self, tokens: int) -> Directive:
        """One turn: the worker's own call, which returns when it may go on."""
        return self.attempt.worker.next_directive(tokens)

    def turning(self, tokens: int) -> Future[Directive]:
        """One turn, while which the writer can be told something."""
        return self._pool.submit(self.turn, tokens)

    # The writer

    def tell(self, number: int, what: str) -> str:
        """Tell a writer what to come to, and wait until the runner knows; the state that it has come to."""
        with self.until_writing(number).open("w") as told:
            told.write(what + "\n")
        return eventually(lambda: self._ended(number), f"writer {number} has come to {what}")

    def until_writing(self, number: int) -> Path:
        """Wait until the process of a writer runs; the pipe through which it is told."""
        pipe = self.directory / f"{self.task_id}.1.c{number}"
        eventually(pipe.exists, f"writer {number} of {self.task_id} runs")
        return pipe

    def until_gone(self, number: int) -> None:
        """Wait until no process of that writer is left."""
        pid = int((self.directory / f"{self.task_id}.1.c{number}.pid").read_text())
        eventually(lambda: not Path(f"/proc/{pid}").exists(), f"writer {number} of {self.task_id} is gone")

    def end(self) -> None:
        """Let the worker exit with code 0."""
        self.attempt.end()

    def _ended(self, number: int) -> str | None:
        found = self.checkpoints[number - 1]
        return state_name(found) if found.HasField("ended_at") else None

    @property
    def checkpoints(self) -> list[context_pb2.Checkpoint]:
        """Every start of the writer, as its runner lists them."""
        request = runner_pb.ListCheckpointsRequest(task_id=self.task_id)
        return list(eventually(lambda: self.pair.lane_runner.ListCheckpoints(request), "listed").checkpoints)

    @property
    def states(self) -> list[str]:
        """What each has come to."""
        return [state_name(each) for each in self.checkpoints]

    def until_states(self, *states: str) -> None:
        """Wait until the writers have come to that."""
        eventually(lambda: self.states == list(states), f"writers {states}, and not {self.states}")

    # The store

    def stored(self) -> Context:
        """The context window in the runner's store."""
        return self._read(lambda reader: contexts.load(reader, self.task_id, 1))

    def signals(self) -> list[str]:
        """How each REDUCE_CONTEXT was discharged, oldest first; empty while it is outstanding."""
        sql = "SELECT discharged_how FROM signals WHERE task_id = ? AND kind = 'REDUCE_CONTEXT' ORDER BY position"
        rows = self._read(lambda reader: reader.query(sql, (self.task_id,)))
        return [row[0] or "" for row in rows]

    def _read(self, look: Callable[[Any], Any]) -> Any:
        readers = Readers(self.pair.directory / "runner" / DATABASE)
        try:
            return readers.read(look)
        finally:
            readers.close()


def state_name(checkpoint: context_pb2.Checkpoint) -> str:
    """The state without its prefix."""
    return context_pb2.CheckpointState.Name(checkpoint.state).removeprefix("CHECKPOINT_STATE_").lower()
