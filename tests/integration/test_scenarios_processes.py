"""Worker processes, end to end: killed, orphaned, deaf, loud, never born, dying for ever."""

from __future__ import annotations

import datetime as dt
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from lanewarden.auth import Role
from lanewarden.client_sync import connect
from lanewarden.errors import Reason
from lanewarden.v1 import lane_runner_service_pb2 as runner_pb
from lanewarden.v1 import operator_service_pb2 as operator_pb
from lanewarden.v1 import task_pb2, write_trace_service_pb2
from lanewarden.worker import Worker
from tests.integration.pair import DEADLINE_SECONDS, Pair, Service, eventually
from tests.integration.process_kit import Bystander, marked, shim_pid, with_variable
from tests.integration.puppet import NOTICED_SECONDS_MAX, Puppet, fresh, refused, state_of

LANES = 4
MIB = 1 << 20
GRACE_SECONDS = 0.5
STOP_SECONDS_MAX = GRACE_SECONDS + 3.0
"""How long a process tree may live once its stop has begun."""
LEASE_SECONDS = 10.0
LIMIT_SECONDS = 3
LAUNCH_ROWS_MAX = 12
"""Row changes that one failed launch may cost: claim, attempt, task, reports."""
CRASHING_RUNNER = Path(__file__).with_name("crashing_runner.py")
TRACE = write_trace_service_pb2.DESCRIPTOR.services_by_name["WriteTraceService"]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    with Pair(tmp_path_factory.mktemp("pair"), lanes=LANES) as running:
        yield running


def output(pair: Pair, task_id: str) -> bytes:
    """What is kept of the latest attempt's output, as the runner serves it."""
    request = runner_pb.TailLogRequest(task_id=task_id)
    return b"".join(piece.data for piece in pair.lane_runner.TailLog(request, timeout_seconds=DEADLINE_SECONDS))


def log_path(pair: Pair, task_id: str) -> Path:
    """The log of a task's first attempt, for looking at it while no runner is there to ask."""
    return pair.directory / "runner" / "attempts" / task_id / "1-1" / "output.log"


# P01


def test_p01_a_killed_worker_is_known_within_a_second(pair: Pair, tmp_path: Path) -> None:
    """SIGKILL to a worker: its task's state, at the runner and at the supervisor, and a warning say so within a second; an
    instruction to it is refused as WORKER_DEAD with its pid, attempt, when it was last seen, and a remedy that works.
    """
    with Puppet(pair, tmp_path / "worker") as puppet:
        first = puppet.attempt(1)
        # While it is paused the next attempt does not start, so that the dead one can be spoken to at leisure.
        pair.lane_runner.PauseTask(runner_pb.PauseTaskRequest(request_id=fresh(), task_id=puppet.task_id))
        shown = eventually(partial(_alive_at_supervisor, pair, puppet.task_id), "the supervisor knows the worker")
        killed_wall = time.time()

        killed_at = 0.0

        def kill() -> float:
            nonlocal killed_at
            os.kill(first.pid, signal.SIGKILL)
            killed_at = time.monotonic()
            return killed_at

        seconds, task = puppet.worker_gone(kill)
        assert seconds <= NOTICED_SECONDS_MAX
        assert not next(event.task for event in shown if not event.task.worker_alive).HasField("finished_at")
        assert time.monotonic() - killed_at <= NOTICED_SECONDS_MAX
        shown.close()
        assert (state_of(task), task.exit_signal, task.premature_exits) == ("QUEUED", signal.SIGKILL, 1)
        line = eventually(lambda: _ended_line(pair, puppet.task_id), "the runner logs the end")
        assert (line["level"], line["attempt"], line["end"]) == ("WARNING", 1, "was killed by SIGKILL")
        assert _wall(line["time"]) - killed_wall <= NOTICED_SECONDS_MAX

        steer = operator_pb.OperatorServiceSteerRequest(request_id=fresh(), task_id=puppet.task_id)
        steer.instruction.text = "hurry up"
        refusal = refused(lambda: pair.operator.Steer(steer))
        assert refusal.reason is Reason.WORKER_DEAD
        told = refusal.metadata
        assert (told["pid"], told["attempt"]) == (str(first.pid), "1")
        assert told["exit"] == "was killed by SIGKILL"
        assert abs(_wall(told["last_seen"]) - killed_wall) <= NOTICED_SECONDS_MAX
        assert "send it as input" in told["remedy"]

        remedy = operator_pb.OperatorServiceSendInputRequest(
            request_id=fresh(), task_id=puppet.task_id, text="hurry up"
        )
        pair.operator.SendInput(remedy)
        pair.lane_runner.ResumeTask(runner_pb.ResumeTaskRequest(request_id=fresh(), task_id=puppet.task_id))
        second = puppet.attempt(2)
        assert [(message.kind, message.text) for message in second.worker.messages()] == [("input", "hurry up")]


def _alive_at_supervisor(pair: Pair, task_id: str) -> Any:
    """A watch of the task at the supervisor that begins with a worker that is alive, or None."""
    request = operator_pb.OperatorServiceWatchTasksRequest(task_id=task_id)
    events = pair.operator.WatchTasks(request, timeout_seconds=DEADLINE_SECONDS)
    if next(events).task.worker_alive:
        return events
    events.close()
    return None


def _ended_line(pair: Pair, task_id: str) -> dict[str, Any] | None:
    lines = (line for line in pair.runner.log if line["message"] == "worker ended" and line["task"] == task_id)
    return next(lines, None)


def _wall(stamp: str) -> float:
    return dt.datetime.fromisoformat(stamp).timestamp()


# P02

CHATTER = """
echo run >> "$1/runs"
line=0
while [ ! -e "$1/stop" ]; do echo "line $line"; line=$((line + 1)); sleep 0.002; done
echo "$line" > "$1/draft"
mv "$1/draft" "$1/lines"
exit "$2"
"""


@dataclass(frozen=True, slots=True)
class Chatter:
    """A worker that prints numbered lines until it is told to stop, then exits with a code of its own."""

    pair: Pair
    directory: Path
    task_id: str

    @classmethod
    def submit(cls, pair: Pair, directory: Path, *, code: int) -> Chatter:
        directory.mkdir()
        return cls(pair, directory, pair.submit("/bin/sh", "-c", CHATTER, "chatter", str(directory), str(code)))

    def printed_more(self) -> None:
        """Return once it has printed something since the call."""
        path = log_path(self.pair, self.task_id)
        before = path.stat().st_size if path.exists() else 0
        eventually(lambda: path.exists() and path.stat().st_size > before, f"{self.task_id} prints")

    def stop(self) -> int:
        """How many lines it has printed in all."""
        (self.directory / "stop").touch()
        lines = self.directory / "lines"
        eventually(lines.exists, f"{self.task_id} stops")
        return int(lines.read_text())

    def check(self, lines: int, *, state: str, code: int) -> None:
        task = self.pair.wait_for_state(self.task_id, "SUCCEEDED", "FAILED")
        assert (state_of(task), task.exit_code, task.attempt) == (state, code, 1)
        assert output(self.pair, self.task_id).decode() == "".join(f"line {number}\n" for number in range(lines))
        assert (self.directory / "runs").read_text() == "run\n"
        assert marked(self.task_id) == []


@pytest.mark.timeout(900)
@pytest.mark.parametrize("repetitions", [5, pytest.param(100, marks=pytest.mark.long)])
def test_p02_workers_outlive_their_runner(pair: Pair, tmp_path: Path, repetitions: int) -> None:
    """SIGKILL to the runner while two workers print: they go on, one ends before the next start and one after; the output
    of both is complete, both exit codes are known, neither ran twice and nothing of them is left.
    """
    for number in range(repetitions):
        ends_between = Chatter.submit(pair, tmp_path / f"{number}-between", code=7)
        ends_after = Chatter.submit(pair, tmp_path / f"{number}-after", code=0)
        ends_between.printed_more()
        ends_after.printed_more()
        pair.runner.kill()
        ends_between.printed_more()
        lines_between = ends_between.stop()
        ends_after.printed_more()
        pair.runner.start()
        ends_after.printed_more()
        lines_after = ends_after.stop()
        ends_between.check(lines_between, state="FAILED", code=7)
        ends_after.check(lines_after, state="SUCCEEDED", code=0)


# P03


@pytest.mark.parametrize("boot", ["this", "another"])
def test_p03_a_restarted_runner_does_not_take_a_stranger_for_its_worker(pair: Pair, tmp_path: Path, boot: str) -> None:
    """Runner, shim and worker are gone, and the stored pid is a stranger's: one who started later, or after a reboot. The
    task is reclaimed as soon as the runner is back and runs again; no signal reaches the stranger.
    """
    stranger = Bystander()
    with Puppet(pair, tmp_path / "worker") as puppet:
        first = puppet.attempt(1)
        directory = pair.directory / "runner" / "attempts" / puppet.task_id / "1-1"
        pair.runner.kill()
        os.kill(shim_pid(directory), signal.SIGKILL)
        eventually(lambda: not Path(f"/proc/{first.pid}").exists(), "the worker is gone with its shim")
        stored = json.loads((directory / "worker.json").read_text())
        theirs = {"pid": stranger.pid}
        if boot == "another":
            theirs |= {"start_ticks": stranger.start_ticks, "boot_id": "another-boot"}
        (directory / "worker.json").write_text(json.dumps(stored | theirs))
        pair.runner.start()
        back = time.monotonic()
        task = eventually(lambda: _reclaimed(pair, puppet.task_id), "the task is reclaimed")
        assert time.monotonic() - back <= NOTICED_SECONDS_MAX
        assert task.premature_exits == 1
        assert stranger.untouched()
        assert puppet.attempt(2).pid != first.pid
        assert stranger.untouched()
    assert stranger.end() == 0


def _reclaimed(pair: Pair, task_id: str) -> task_pb2.Task | None:
    """The task, once its first attempt is over."""
    task = pair.task(task_id)
    return None if task.worker_alive and task.attempt == 1 else task


# P04

DEAF = {
    "ignores SIGTERM": "trap '' TERM; echo ready; while :; do sleep 1; done",
    "forks on": "trap '' TERM; echo ready; while :; do (sleep 1000 &); sleep 0.05; done",
    "has a grandchild in a session of its own": (
        "trap '' TERM; setsid sh -c 'setsid sleep 1000 & sleep 1000' & sleep 0.1; echo ready; wait"
    ),
    "is stopped": "echo ready; kill -STOP $$; sleep 1000",
}


def test_p04_nothing_is_left_after_the_pair_is_told_to_stop(tmp_path: Path) -> None:
    """SIGTERM to both services while workers ignore theirs, fork on, hide in another session, or are stopped: every tree
    is empty within grace + 3 s, the services exit 0, and no shim, spawner or grandchild is left.
    """
    ours = f"PAIR_MARK={uuid.uuid4()}"
    name, _, value = ours.partition("=")
    with Pair(tmp_path / "state", lanes=len(DEAF), runner_env={name: value}) as pair:
        grace: dict[str, Any] = {"stop_grace": {"nanos": int(GRACE_SECONDS * 1e9)}}
        task_ids = [pair.submit("/bin/sh", "-c", script, **grace) for script in DEAF.values()]
        for task_id in task_ids:
            eventually(partial(output, pair, task_id), f"{task_id} is ready")
        assert all(map(marked, task_ids))
        assert len(with_variable(ours)) > len(DEAF)

        assert pair.runner.process is not None
        pair.runner.process.terminate()
        told = time.monotonic()
        eventually(lambda: not any(map(marked, task_ids)), "no worker is left")
        assert time.monotonic() - told <= STOP_SECONDS_MAX
        assert (pair.runner.process.wait(DEADLINE_SECONDS), pair.supervisor.stop()) == (0, 0)
        eventually(lambda: not with_variable(ours), "no shim and no spawner is left")


# P05


def test_p05_a_flood_of_output_is_bounded_and_blocks_nobody(pair: Pair) -> None:
    """A worker writes 64 MiB to stderr against a log bound of 1 MiB: it ends by itself, the log stays within its bound,
    and what is served of it is its end, whole lines of it included.
    """
    flood = f"head -c {64 * MIB} /dev/zero | tr '\\0' x >&2; echo; echo the end"
    task_id = pair.submit("/bin/sh", "-c", flood, log_bytes_max=MIB)
    task = pair.wait_for_state(task_id, "SUCCEEDED", "FAILED", seconds=60)
    assert (state_of(task), task.exit_code) == ("SUCCEEDED", 0)
    path = log_path(pair, task_id)
    kept = sum(part.stat().st_size for part in path.parent.glob(f"{path.name}*"))
    assert MIB // 2 <= kept <= MIB
    served = output(pair, task_id)
    assert len(served) == kept
    assert served.endswith(b"xxx\nthe end\n")


# P06


@pytest.mark.parametrize("emitter", ["attempt.claim", "attempt.launch", "attempt.exit"])
@pytest.mark.parametrize("point", ["before_commit", "after_commit"])
def test_p06_a_runner_killed_around_a_launch_runs_the_task_once(
    pair: Pair, tmp_path: Path, point: str, emitter: str
) -> None:
    """The runner is killed right before or right after it stores a claim, a launch or an end: once it is back the task
    has run exactly once, without anybody's doing and within the time of a lease.
    """
    runs = tmp_path / "runs"
    pair.runner.kill()
    sound = pair.runner.command
    arguments = sound[sound.index("lane_runner_svc") + 1 :]
    pair.runner.command = [sys.executable, str(CRASHING_RUNNER), point, f"lane_runner.{emitter}", *arguments]
    pair.runner.start()
    with ThreadPoolExecutor(1) as threads:
        submitted = threads.submit(pair.submit, "/bin/sh", "-c", 'echo run >> "$1"', "once", str(runs))
        assert pair.runner.process is not None
        assert pair.runner.process.wait(DEADLINE_SECONDS) == -signal.SIGKILL
        pair.runner.command = sound
        pair.runner.start()
        started = time.monotonic()
        task = pair.wait_for_state(submitted.result(), "SUCCEEDED", "FAILED")
    assert time.monotonic() - started <= LEASE_SECONDS
    assert (state_of(task), task.premature_exits, runs.read_text()) == ("SUCCEEDED", 0, "run\n")


# P07


def test_p07_a_launch_that_always_fails_ends_failed(pair: Pair, tmp_path: Path) -> None:
    """Program or directory deleted after the submit, or not executable any more: as many launches as the budget has, each
    delay within a bound that doubles, then FAILED with the cause; written rows are bounded by the launches.
    """
    launches_max = 3
    trace = pair.client(pair.runner_port, TRACE, Role.VIEWER, Reason.RUNNER_UNREACHABLE)
    gone, locked, place = tmp_path / "gone", tmp_path / "locked", tmp_path / "place"
    for program in (gone, locked):
        shutil.copy("/bin/true", program)
    place.mkdir()
    with Puppet(pair, tmp_path / "worker", lane="lane-1") as puppet:
        first = puppet.attempt(1)
        spec: dict[str, Any] = {"lane": "lane-1", "launch_failures_max": launches_max}
        causes = {
            pair.submit(str(gone), **spec): "no such program",
            pair.submit("true", **spec, cwd=str(place)): "no such working directory",
            pair.submit(str(locked), **spec): "no permission to run",
        }
        gone.unlink()
        place.rmdir()
        locked.chmod(0o644)
        before = _rows(trace)
        with ThreadPoolExecutor(len(causes)) as threads:
            watched = {task_id: threads.submit(_watched, pair, task_id) for task_id in causes}
            first.end()
        for task_id, cause in causes.items():
            seen = watched[task_id].result()
            _, end = seen[-1]
            assert (state_of(end), end.attempt, end.launch_failures) == ("FAILED", launches_max, launches_max)
            assert cause in end.summary
            assert pair.task(task_id).version == end.version, "nothing follows the end"
            for (heard_ms, task), (next_heard_ms, _) in pairwise(seen):
                if task.launch_failures and state_of(task) == "QUEUED":
                    due_ms = task.not_before.ToMilliseconds()
                    assert due_ms - heard_ms <= 1000 << (task.launch_failures - 1)
                    assert next_heard_ms >= due_ms, "no launch before its time"
        launches = launches_max * len(causes)
        assert 0 < _rows(trace) - before <= LAUNCH_ROWS_MAX * (launches + 1)
        assert trace.GetWriteRates(write_trace_service_pb2.GetWriteRatesRequest()).unattributed_rows == 0


def _watched(pair: Pair, task_id: str) -> list[tuple[float, task_pb2.Task]]:
    """Every state of the task that its runner announced, up to its end, and when that was heard (wall clock, ms)."""
    seen = []
    request = runner_pb.WatchTasksRequest(task_id=task_id)
    for event in pair.lane_runner.WatchTasks(request, timeout_seconds=DEADLINE_SECONDS):
        seen.append((time.time() * 1000, event.task))
        if event.task.HasField("finished_at"):
            return seen
    raise AssertionError("the watch goes on until the task is over")


def _rows(trace: Any) -> int:
    emitters = trace.ListEmitters(write_trace_service_pb2.ListEmittersRequest()).emitters
    return sum(each.rows for each in emitters)


# P08


def test_p08_a_worker_that_always_dies_ends_failed(pair: Pair, tmp_path: Path) -> None:
    """A worker that kills itself at once, whenever it is started: one run more than the budget of premature exits, good
    starts do not refill it, then FAILED and why.
    """
    runs = tmp_path / "runs"
    task_id = pair.submit("/bin/sh", "-c", 'echo run >> "$1"; kill -9 $$', "dies", str(runs), premature_exits_max=2)
    task = pair.wait_for_state(task_id, "SUCCEEDED", "FAILED")
    assert (state_of(task), task.attempt, task.premature_exits) == ("FAILED", 3, 3)
    assert "was killed by SIGKILL" in task.summary
    assert runs.read_text() == "run\n" * 3


# P09

LIMITED = f"""
date +%s%N >> "$1/started"
test -e "$1/met" && exec {sys.executable} -m lanewarden worker complete --summary 'the limit is over'
touch "$1/met"
{sys.executable} -m lanewarden worker progress --retry-at {LIMIT_SECONDS}s --note 'try later'
exit 75
"""


def test_p09_a_usage_limit_is_waited_for(pair: Pair, tmp_path: Path) -> None:
    """A shell script that names the end of its limit and exits with 75: paused until then though its runner is killed
    meanwhile, launched then by nobody's doing, and no budget is spent (it has none).
    """
    task_id = pair.submit("/bin/sh", "-c", LIMITED, "limited", str(tmp_path), premature_exits_max=0)
    waiting = eventually(lambda: pair.task(task_id) if pair.task(task_id).pauses else None, "it waits for its limit")
    assert (state_of(waiting), list(waiting.pauses)) == ("QUEUED", [task_pb2.PAUSE_CAUSE_USAGE_LIMIT])
    assert waiting.summary == "attempt 1 met a limit of use"
    pair.runner.kill()
    pair.runner.start()
    task = pair.wait_for_state(task_id, "SUCCEEDED", "FAILED")
    assert (state_of(task), task.attempt, task.premature_exits) == ("SUCCEEDED", 2, 0)
    first_ns, second_ns = map(int, (tmp_path / "started").read_text().split())
    assert second_ns - first_ns >= LIMIT_SECONDS * 10**9
    assert task.finished_at.ToMilliseconds() - waiting.not_before.ToMilliseconds() <= LEASE_SECONDS * 1000


# P11


def test_p11_late_words_of_an_attempt_are_kept_and_change_nothing(pair: Pair, tmp_path: Path) -> None:
    """A caller with the token of attempt 1 speaks while attempt 2 runs: ATTEMPT_STALE on each, the task as it was, and each
    word in the evidence, asked of the supervisor, after a restart of the runner.
    """
    with Puppet(pair, tmp_path / "worker") as puppet:
        first = puppet.attempt(1)
        os.kill(first.pid, signal.SIGKILL)
        puppet.attempt(2)
        before = eventually(lambda: puppet.task() if puppet.task().worker_alive else None, "attempt 2 runs")
        for say in (
            lambda: first.worker.complete("done, though nobody asked"),
            lambda: first.worker.progress(99),
            lambda: first.worker.escalate("may I still?", expects_reply=True),
        ):
            refusal = refused(say)
            assert refusal.reason is Reason.ATTEMPT_STALE
            assert (refusal.metadata["attempt"], refusal.metadata["current_attempt"]) == ("1", "2")
        assert puppet.task() == before
        pair.runner.kill()
        pair.runner.start()
        asked = operator_pb.OperatorServiceListEvidenceRequest(task_id=puppet.task_id)
        entries = eventually(lambda: pair.operator.ListEvidence(asked).entries, "the evidence is shown")
        assert [(each.attempt, each.method) for each in entries] == [
            (1, "Complete"),
            (1, "ReportProgress"),
            (1, "Escalate"),
        ]
        assert "done, though nobody asked" in entries[0].content
        assert first.token not in str(entries)
        assert puppet.task().attempt == 2
        nobody = connect(f"unix:{first.socket}", token="0" * 64, unreachable=Reason.RUNNER_UNREACHABLE)
        with Worker(nobody) as stranger:
            assert refused(lambda: stranger.complete("me too")).reason is Reason.CREDENTIAL_INVALID
        assert len(pair.operator.ListEvidence(asked).entries) == len(entries)


# P20

LOOKS_AT_REST = 50


@pytest.mark.parametrize("name", ["supervisor", "runner"])
def test_p20_a_second_process_on_a_state_directory_writes_nothing(pair: Pair, name: str) -> None:
    """The same service once more on a directory in use: it exits with an error at once, names the process that has the
    directory, and every file there is as it was; the first goes on.
    """
    service: Service = getattr(pair, name)
    before = _listing_at_rest(pair.directory / name)
    second = subprocess.run(service.command, capture_output=True, text=True, timeout=DEADLINE_SECONDS, check=False)
    assert second.returncode == 1
    assert second.stderr.count("\n") == 1
    assert f"is in use by process {service.pid}" in second.stderr
    assert _listing(pair.directory / name) == before
    pair.wait_for_state(pair.submit("true"), "SUCCEEDED")


def _listing_at_rest(directory: Path) -> dict[str, tuple[int, int, int]]:
    """The listing once the first process has put away what came before: as it is over many looks in a row."""
    looks: list[dict[str, tuple[int, int, int]]] = []

    def look() -> dict[str, tuple[int, int, int]] | None:
        now = _listing(directory)
        if looks and looks[-1] != now:
            looks.clear()
        looks.append(now)
        return now if len(looks) >= LOOKS_AT_REST else None

    return eventually(look, f"{directory} is at rest")


def _listing(directory: Path) -> dict[str, tuple[int, int, int]]:
    """Every file below the directory: inode, size, time of the last change."""
    entries = ((path, path.lstat()) for path in directory.rglob("*"))
    return {str(path): (stat.st_ino, stat.st_size, stat.st_mtime_ns) for path, stat in entries}
