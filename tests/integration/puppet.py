"""A worker whose every step the test decides: a shell that hands its token over and waits to be told its exit code.

Requests that carry its token are the worker's own as far as the runner can tell, and a shell starts twenty times as fast
as a Python with gRPC.
"""

from __future__ import annotations

import contextlib
import os
import select
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lanewarden.client_sync import connect
from lanewarden.errors import Reason, Refusal
from lanewarden.v1 import lane_runner_service_pb2 as runner_pb
from lanewarden.v1 import task_pb2, worker_service_pb2
from lanewarden.worker import Worker
from tests.integration.pair import DEADLINE_SECONDS, Pair, eventually

NOTICED_SECONDS_MAX = 1.0
"""How long the end of a worker may go unnoticed."""
WORKER = worker_service_pb2.DESCRIPTOR.services_by_name["WorkerService"]
_SCRIPT = """
me="$1/$LANEWARDEN_ATTEMPT"
mkfifo "$me.end"
printf '%s\\n' "$$" "$LANEWARDEN_REASON" "$LANEWARDEN_SOCKET" "$LANEWARDEN_TOKEN" > "$me.draft"
mv "$me.draft" "$me.attempt"
read -r code < "$me.end"
exit "$code"
"""


def fresh() -> str:
    """A new request id."""
    return str(uuid.uuid4())


def state_of(task: task_pb2.Task) -> str:
    """The task's state without its prefix."""
    return task_pb2.TaskState.Name(task.state).removeprefix("TASK_STATE_")


def refused(call: Callable[[], Any]) -> Refusal:
    """The refusal that a call, or the first response of a stream, ends with."""
    try:
        answer = call()
        if hasattr(answer, "__next__"):
            answer = next(answer)
    except Refusal as refusal:
        return refusal
    raise AssertionError(f"not refused, but answered: {answer}")


class Attempt:
    """One launch of a puppet: its pid, why it was started, and what it may call."""

    def __init__(self, directory: Path, number: int) -> None:
        self._end = directory / f"{number}.end"
        pid, self.reason, self.socket, self.token = (directory / f"{number}.attempt").read_text().split()
        self.pid = int(pid)
        self._connection = connect(f"unix:{self.socket}", token=self.token, unreachable=Reason.RUNNER_UNREACHABLE)
        self.worker = Worker(self._connection)
        self.stub = self._connection.stub(WORKER)

    def end(self, code: int = 0) -> float:
        """Let it exit; the monotonic time when it had."""
        process = os.pidfd_open(self.pid)
        try:
            gate = eventually(self._open_gate, "the worker waits for its end")
            os.write(gate, f"{code}\n".encode())
            os.close(gate)
            assert select.select([process], [], [], DEADLINE_SECONDS)[0], "the worker exits"
            return time.monotonic()
        finally:
            os.close(process)

    def _open_gate(self) -> int | None:
        try:
            return os.open(self._end, os.O_WRONLY | os.O_NONBLOCK)
        except OSError:
            return None

    def close(self) -> None:
        """Close the connection."""
        self.worker.close()


class Puppet:
    """A task whose workers are puppets. At the end of the ``with`` block it is canceled, if it has not ended."""

    def __init__(self, pair: Pair, directory: Path, **spec: Any) -> None:
        directory.mkdir()
        self._pair = pair
        self._directory = directory
        self._attempts: dict[int, Attempt] = {}
        self.task_id = pair.submit("/bin/sh", "-c", _SCRIPT, "puppet", str(directory), **spec)

    def __enter__(self) -> Puppet:
        return self

    def __exit__(self, *exc: object) -> None:
        for attempt in self._attempts.values():
            attempt.close()
        request = runner_pb.CancelTaskRequest(request_id=fresh(), task_id=self.task_id)
        with contextlib.suppress(Refusal):  # it has ended
            eventually(lambda: self._pair.lane_runner.CancelTask(request), "the puppet's task canceled")
        self._pair.wait_for_state(self.task_id, "SUCCEEDED", "FAILED", "CANCELED")

    @property
    def launches(self) -> int:
        """How many workers have run so far."""
        return len(list(self._directory.glob("*.attempt")))

    def attempt(self, number: int) -> Attempt:
        """The attempt, once its worker runs."""
        if number not in self._attempts:
            path = self._directory / f"{number}.attempt"
            eventually(path.exists, f"attempt {number} of {self.task_id} runs")
            self._attempts[number] = Attempt(self._directory, number)
        return self._attempts[number]

    def task(self) -> task_pb2.Task:
        """The task as its runner knows it."""
        return self._pair.task(self.task_id)

    def worker_gone(self, end: Callable[[], float]) -> tuple[float, task_pb2.Task]:
        """End the worker by ``end``, which says when that was; how many seconds later the runner announced it, and what."""
        watch = runner_pb.WatchTasksRequest(task_id=self.task_id)
        events = self._pair.lane_runner.WatchTasks(watch, timeout_seconds=DEADLINE_SECONDS)
        assert next(events).task.worker_alive
        ended_at = end()
        task = next(event.task for event in events if not event.task.worker_alive)
        events.close()
        return time.monotonic() - ended_at, task
