"""The on_success command as a real process: it runs once a task has succeeded, is stopped with its runner, and outlives its
runner's death.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from lanewarden.v1 import lane_runner_service_pb2 as pb
from lanewarden.v1 import task_pb2
from tests.integration.pair import Pair, eventually

SCRIPT = """
echo "$LANEWARDEN_IDEMPOTENCY_KEY $$" >> "$1/runs"
test -z "$LANEWARDEN_TOKEN" || exit 9
while ! test -e "$1/go"; do sleep 0.05; done
"""


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    with Pair(tmp_path) as running:
        yield running


def submit(pair: Pair, directory: Path) -> str:
    return pair.submit("true", on_success=["sh", "-c", SCRIPT, "hook", str(directory)])


def runs(directory: Path) -> list[list[str]]:
    """The key and the process id of every run that has begun."""
    path = directory / "runs"
    return [line.split() for line in path.read_text().splitlines()] if path.exists() else []


def hook(pair: Pair, task_id: str) -> task_pb2.Hook:
    return pair.task(task_id).on_success


def done(pair: Pair, task_id: str) -> bool:
    return bool(hook(pair, task_id).state == task_pb2.HOOK_STATE_DONE)


def gone(pid: str) -> bool:
    return not Path(f"/proc/{pid}").exists()


def test_the_command_runs_once_when_its_task_has_succeeded(pair: Pair, tmp_path: Path) -> None:
    """With the key of its task and epoch and without a worker's token; what it came to is shown."""
    task_id = submit(pair, tmp_path)
    eventually(lambda: runs(tmp_path), "the command has begun")
    assert hook(pair, task_id).state == task_pb2.HOOK_STATE_PENDING
    (tmp_path / "go").touch()
    eventually(lambda: done(pair, task_id), "the command is done")
    shown = hook(pair, task_id)
    assert (shown.tries, shown.summary, shown.idempotency_key) == (1, "try 1 exited with code 0", f"{task_id}.1")
    assert [key for key, _ in runs(tmp_path)] == [f"{task_id}.1"]


def test_p04_a_running_command_is_stopped_with_its_runner_and_tried_again(pair: Pair, tmp_path: Path) -> None:
    """A runner that is stopped leaves no process behind; the next start runs the command again, under the same key."""
    task_id = submit(pair, tmp_path)
    ((_, pid),) = eventually(lambda: runs(tmp_path), "the command has begun")
    assert pair.runner.stop() == 0
    assert gone(pid), "a stopped runner has left an on_success command behind"
    pair.runner.start()
    eventually(lambda: len(runs(tmp_path)) == 2, "the command has begun again")
    (tmp_path / "go").touch()
    eventually(lambda: done(pair, task_id), "the command is done")
    assert {key for key, _ in runs(tmp_path)} == {f"{task_id}.1"}
    assert hook(pair, task_id).tries == 2


def test_p02_a_command_outlives_the_death_of_its_runner(pair: Pair, tmp_path: Path) -> None:
    """The runner is killed while the command runs: it runs on, is adopted, and its end is known; nothing runs twice."""
    task_id = submit(pair, tmp_path)
    ((_, pid),) = eventually(lambda: runs(tmp_path), "the command has begun")
    pair.runner.kill()
    assert not gone(pid)
    pair.runner.start()
    pair.wait_for_state(pair.submit("true"), "SUCCEEDED")  # what the restarted runner had to start, it has started
    assert len(runs(tmp_path)) == 1
    (tmp_path / "go").touch()
    eventually(lambda: done(pair, task_id), "the command is done")
    assert len(runs(tmp_path)) == 1


def test_a_failed_command_is_run_again_by_a_retry(pair: Pair, tmp_path: Path) -> None:
    """Its tries spent, it has FAILED and its task has not; RetryTask really runs it again, as a try of its own."""
    script = f"echo x >> {tmp_path}/runs; test -e {tmp_path}/go"
    task_id = pair.submit("true", on_success=["sh", "-c", script])
    eventually(lambda: hook(pair, task_id).state == task_pb2.HOOK_STATE_FAILED, "its tries are spent", seconds=60.0)
    assert len(runs(tmp_path)) == 5
    assert pair.task(task_id).state == task_pb2.TASK_STATE_SUCCEEDED
    (tmp_path / "go").touch()
    pair.lane_runner.RetryTask(pb.RetryTaskRequest(request_id=str(uuid.uuid4()), task_id=task_id))
    eventually(lambda: done(pair, task_id), "the command is done")
    assert len(runs(tmp_path)) == 6
    assert hook(pair, task_id).tries == 6
