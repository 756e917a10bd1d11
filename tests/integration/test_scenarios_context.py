"""C01 to C09: context pressure on the real runner, over its Unix socket, with real workers and real checkpoint writers.

The clock of the services is moved where a scenario waits for minutes.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lanewarden.errors import Reason, Refusal
from lanewarden.v1 import context_pb2
from lanewarden.v1 import lane_runner_service_pb2 as runner_pb
from lanewarden.v1 import operator_service_pb2 as operator_pb
from tests.integration.context_kit import WINDOW, K, Scene
from tests.integration.moved_clock import ClockFile
from tests.integration.pair import Pair, eventually
from tests.integration.puppet import fresh

CONTEXT_WORKER = str(Path(__file__).with_name("context_worker.py"))
STEP = 35 * K
LANES = 5


class Stage:
    """A pair whose clock can be moved."""

    def __init__(self, directory: Path) -> None:
        self.clock = ClockFile.create(directory / "clock")
        self.pair = Pair(
            directory,
            lanes=LANES,
            through=("tests.integration.moved_service", str(directory / "clock")),
            # Leases that outlast the time that passes at once.
            supervisor_flags=(
                *("--lease-ttl-seconds", "300", "--lease-renew-seconds", "100"),
                *("--parked-seconds", "600", "--first-progress-seconds", "600"),
            ),
        )

    def pass_time(self, seconds: float) -> None:
        """Let so much time pass, and the runner notice."""
        self.clock.move(seconds)
        eventually(lambda: self.clock.get("runner") == self.clock.get("moved"), "the runner's clock was moved")


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    made = Stage(tmp_path_factory.mktemp("stage"))
    with made.pair:
        yield made


@pytest.fixture
def pair(stage: Stage) -> Pair:
    return stage.pair


def live(pair: Pair, directory: Path, turns_max: int, **spec: Any) -> str:
    """Submit a worker that lives so many turns, with a writer that is always denied; the task."""
    context = context_pb2.ContextSpec(
        **{"rungs": [20 * K, 30 * K], "window_tokens": WINDOW, "writer": ["/bin/sh", "-c", "exit 77"], **spec}
    )
    argv = (sys.executable, CONTEXT_WORKER, str(STEP), str(turns_max))
    return pair.submit(*argv, env={"PYTHONPATH": str(Path(__file__).parents[2])}, context=context, name=directory.name)


def test_c01_reductions_do_not_grow_with_the_turns(pair: Pair, tmp_path: Path) -> None:
    """A writer that is denied, rungs at 20 K and 30 K, 35 K at every turn of a window of 1 M: 12 and 24 turns have the same
    number of reductions, within the cap and also where the cap would allow many; as many summaries were made. With the
    rungs out of reach there is none.
    """
    runs = {
        (12, 1): live(pair, tmp_path, 12, reductions_max=1),
        (24, 1): live(pair, tmp_path, 24, reductions_max=1),
        (12, 100): live(pair, tmp_path, 12, reductions_max=100),
        (24, 100): live(pair, tmp_path, 24, reductions_max=100),
        "control": live(pair, tmp_path, 24, rungs=[900 * K]),
    }
    told = {run: json.loads(pair.wait_for_state(task, "SUCCEEDED", "FAILED").summary) for run, task in runs.items()}
    for turns_max, cap in ((12, 1), (24, 1), (12, 100), (24, 100)):
        wanted = {"compact": 1, "continue": turns_max - 1, "summaries": 1}
        assert told[turns_max, cap] == wanted, f"{turns_max} turns, a cap of {cap}"
    assert told["control"] == {"continue": 24}


def test_c02_the_fallback_discharges_and_does_not_rearm(pair: Pair, tmp_path: Path) -> None:
    """After the COMPACT that stands in for a rebuild the signal is discharged, the rungs are still consumed, and the writer
    was started once, however the worker goes on.
    """
    with Scene(pair, tmp_path / "scene") as scene:
        scene.always("77")
        assert scene.turn(STEP).kind == "compact"
        assert [scene.told(STEP) for _ in range(10)] == ["continue"] * 10
        assert scene.signals() == [f"COMPACT {scene.task_id}.1.d1"]
        assert (scene.stored().consumed, scene.stored().cycle, scene.stored().reductions) == (30 * K, 1, 1)
        assert scene.states == ["failed"]
        assert (scene.checkpoints[0].failure, scene.checkpoints[0].retryable) == (
            context_pb2.CHECKPOINT_FAILURE_AUTH,
            False,
        )
        assert not pair.task(scene.task_id).signals


def test_c03_a_late_writer_has_not_failed(stage: Stage, tmp_path: Path) -> None:
    """It succeeds at 310 s, after the reduction has waited its 180 s: it was timed out and in flight meanwhile, no failure
    is counted, nobody says that it was given up, and the next reduction uses what it has written.
    """
    with Scene(stage.pair, tmp_path / "scene") as scene:
        assert scene.told(STEP) == "wait"
        turning = scene.turning(STEP)
        stage.pass_time(179)
        assert not turning.done(), "it waits for 180 s"
        stage.pass_time(2)
        assert turning.result().kind == "compact"
        assert scene.states == ["timed_out"]
        assert "still being written" in scene.checkpoints[0].detail
        stage.pass_time(130)
        assert scene.tell(1, "commit") == "succeeded"
        assert scene.stored().failures == 0
        rebuild = scene.turn(WINDOW)
        assert (rebuild.kind, rebuild.content) == ("rebuild", f"at {STEP} tokens")
        said = [f"{event}" for event in stage.pair.runner.log if scene.task_id in f"{event}"]
        assert not [line for line in said if "gave up" in line or "given up" in line or "FAILED" in line]


def test_c04_failures_are_counted_by_cycle(pair: Pair, tmp_path: Path) -> None:
    """Two failures are the budget of a cycle; the next rung finds the recovered provider without a restart; after the
    rebuild one failure is the first of a new budget, so that it is tried again.
    """
    with Scene(pair, tmp_path / "scene", rungs=[20 * K, 30 * K, 40 * K], writer_failures_max=2) as scene:
        scene.always("75")
        for tokens, states in ((21 * K, 1), (22 * K, 2), (23 * K, 2)):
            assert scene.told(tokens) == "continue"
            scene.until_states(*["failed"] * states)
        assert scene.stored().failures == 2
        scene.always("commit")
        assert scene.told(31 * K) == "continue"
        scene.until_states("failed", "failed", "succeeded")
        scene.always("75")
        rebuild = scene.turn(41 * K)
        assert (rebuild.kind, rebuild.content) == ("rebuild", f"at {31 * K} tokens")
        assert scene.attempt.worker.report_directive(rebuild.directive_id, inserted_tokens=2 * K)
        assert (scene.stored().cycle, scene.stored().failures) == (2, 0)
        for tokens, failures in ((23 * K, 1), (24 * K, 2)):
            assert scene.told(tokens) == "continue"
            scene.until_states("failed", "failed", "succeeded", *["failed"] * (1 + failures))
            assert scene.stored().failures == failures


@pytest.mark.parametrize(("code", "retried"), [(75, True), (77, False), (64, False), (1, False)])
def test_c05_a_retry_needs_a_class_and_tokens(pair: Pair, tmp_path: Path, code: int, retried: bool) -> None:
    """The first writer ever fails at the last rung: if that may pass, another try comes, later in tokens and never while
    usage does not grow; after a refused credential, a bad request and anything unknown, none.
    """
    with Scene(pair, tmp_path / "scene", rungs=[30 * K]) as scene:
        scene.always(str(code))
        assert scene.turn(STEP).kind == "compact"
        assert [scene.told(STEP) for _ in range(5)] == ["continue"] * 5
        assert scene.states == ["failed"]
        scene.always("commit")
        assert scene.told(STEP + K) == "continue"
        scene.until_states(*(["failed", "succeeded"] if retried else ["failed"]))


def test_c06_a_skipped_start_consumes_no_rung(pair: Pair, tmp_path: Path) -> None:
    """A rung that is crossed while a writer writes, and one whose writer cannot be started, is there at the next turn; and
    what a writer has committed before anybody waited for it is used.
    """
    with Scene(pair, tmp_path / "scene", rungs=[20 * K, 30 * K, 40 * K]) as scene:
        assert [scene.told(tokens) for tokens in (21 * K, 31 * K)] == ["continue", "continue"]
        assert (scene.states, scene.stored().consumed) == (["writing"], 20 * K)
        assert scene.tell(1, "commit") == "succeeded"
        scene.program.unlink()
        assert scene.told(31 * K) == "continue"
        scene.until_states("succeeded", "not_started")
        assert scene.stored().consumed == 20 * K
        scene.write_program()
        scene.always("77")
        assert scene.told(32 * K) == "continue"
        scene.until_states("succeeded", "not_started", "failed")
        assert scene.stored().consumed == 30 * K
        rebuild = scene.turn(41 * K)
        assert (rebuild.kind, rebuild.content) == ("rebuild", f"at {21 * K} tokens")


@pytest.mark.parametrize("what", ["forget", "foreign"])
def test_c07_a_file_is_no_checkpoint(pair: Pair, tmp_path: Path, what: str) -> None:
    """A writer that leaves its file and exits with 0, but never commits it, or commits another one: no checkpoint. Nothing
    of it can be read, and the reduction compacts.
    """
    with Scene(pair, tmp_path / "scene") as scene:
        scene.always(what)
        assert scene.turn(STEP).kind == "compact"
        (found,) = scene.checkpoints
        assert (found.failure, found.content_bytes) == (context_pb2.CHECKPOINT_FAILURE_UNCOMMITTED, 0)
        asked = operator_pb.OperatorServiceGetCheckpointRequest(checkpoint_id=found.checkpoint_id)
        assert eventually(lambda: pair.operator.GetCheckpoint(asked), "shown").checkpoint.content == ""


def test_c08_a_rebuild_that_is_not_inserted_never_compacts(pair: Pair, tmp_path: Path) -> None:
    """The same check again says to go on, as do later ones; and when the window has really overflowed, the same checkpoint
    is asked for again, within the budget. Nothing compacts.
    """
    with Scene(pair, tmp_path / "scene", reductions_max=3) as scene:
        scene.always("commit")
        rebuild = scene.turn(STEP)
        assert scene.attempt.worker.report_directive(rebuild.directive_id, done=False, detail="the provider refused it")
        assert not scene.attempt.worker.report_directive(rebuild.directive_id), "the first report stands"
        assert [scene.told(STEP, measurement_id="again") for _ in range(3)] == ["continue"] * 3
        assert [scene.told(STEP) for _ in range(3)] == ["continue"] * 3
        told = [scene.told(WINDOW) for _ in range(5)]
        assert told == ["rebuild", "rebuild", "wrap_up", "continue", "continue"]
        assert (scene.stored().cycle, scene.states) == (1, ["succeeded"])


def test_c09_a_restart_in_mid_cycle_keeps_everything(pair: Pair, tmp_path: Path) -> None:
    """SIGKILL to the runner while a writer writes: it goes on, and is adopted, with the rungs, the signal and the budget. A
    stop of the runner that stops its writer as well is no failure of that: its rung can be tried again.
    """
    with Scene(pair, tmp_path / "scene", reductions_max=2) as scene:
        assert scene.told(STEP) == "wait"
        scene.until_writing(1)
        before = scene.stored()
        pair.runner.kill()
        pair.runner.start()
        assert scene.stored() == before
        assert (scene.signals(), scene.states) == ([""], ["writing"])
        turning = scene.turning(STEP)
        assert scene.tell(1, "commit") == "succeeded"
        rebuild = turning.result()
        assert (rebuild.kind, rebuild.reductions, rebuild.content) == ("rebuild", 1, f"at {STEP} tokens")
        assert scene.attempt.worker.report_directive(rebuild.directive_id)
        assert scene.told(21 * K) == "continue"
        scene.until_states("succeeded", "writing")
        pair.runner.stop()
        pair.runner.start()
        assert scene.states == ["succeeded", "superseded"]
        after = scene.stored()
        assert (after.failures, after.consumed, after.cycle, after.reductions) == (0, 0, 2, 1)
        scene.attempt_number = 2
        scene.always("commit")
        assert scene.told(21 * K) == "continue"
        scene.until_states("succeeded", "superseded", "succeeded")


def test_a_window_too_small_is_refused_with_the_arithmetic(pair: Pair, tmp_path: Path) -> None:
    """At the door where the task names its window, else at its first measurement; a smaller reserve makes room."""
    with pytest.raises(Refusal) as refused:
        pair.submit("/bin/true", context=context_pb2.ContextSpec(window_tokens=16 * K))
    assert refused.value.reason is Reason.REQUEST_INVALID
    assert refused.value.metadata["field"] == "spec.context.window_tokens"
    for number in ("16000", "13000", "3000", "4096", "17096"):
        assert number in refused.value.message
    with Scene(pair, tmp_path / "scene", window_tokens=0, rungs=[]) as scene:
        with pytest.raises(Refusal) as refused:
            scene.attempt.worker.next_directive(K, 16 * K)
        assert "3000" in refused.value.message
        with pytest.raises(Refusal) as refused:
            scene.attempt.worker.next_directive(K)
        assert refused.value.metadata["field"] == "usage.window"
        assert scene.attempt.worker.next_directive(K, 20 * K).kind == "continue"


def test_a_pause_and_a_checkpoint_are_shown(pair: Pair, tmp_path: Path) -> None:
    """A worker sees at its next turn that it is to be paused; people see, at either service, what is outstanding and what
    was written; and a checkpoint that is not there has a reason of its own.
    """
    with Scene(pair, tmp_path / "scene") as scene:
        scene.always("commit")
        assert scene.told(21 * K) == "continue"
        scene.until_states("succeeded")
        pair.lane_runner.PauseTask(runner_pb.PauseTaskRequest(request_id=fresh(), task_id=scene.task_id))
        assert scene.turn(22 * K).signals == ("pause",)
        (signal,) = pair.task(scene.task_id).signals
        assert (signal.kind, signal.raised_by.rpartition(" ")[2]) == (context_pb2.SIGNAL_KIND_PAUSE, "(operator)")
        listed = operator_pb.OperatorServiceListCheckpointsRequest(task_id=scene.task_id)
        (found,) = eventually(lambda: pair.operator.ListCheckpoints(listed), "listed").checkpoints
        asked = operator_pb.OperatorServiceGetCheckpointRequest(checkpoint_id=found.checkpoint_id)
        content = pair.operator.GetCheckpoint(asked).checkpoint.content
        assert (content, found.content_bytes, found.content) == (f"at {21 * K} tokens", len(content), "")
        with pytest.raises(Refusal) as refused:
            pair.lane_runner.GetCheckpoint(runner_pb.GetCheckpointRequest(checkpoint_id="none"))
        assert refused.value.reason is Reason.CHECKPOINT_UNKNOWN
        pair.lane_runner.ResumeTask(runner_pb.ResumeTaskRequest(request_id=fresh(), task_id=scene.task_id))
        assert not pair.task(scene.task_id).signals


def test_the_end_of_a_task_ends_its_writer(pair: Pair, tmp_path: Path) -> None:
    """Nobody needs what it writes any more: it is superseded in the transaction of the end, and its process is stopped."""
    with Scene(pair, tmp_path / "scene") as scene:
        assert scene.told(STEP) == "wait"
        scene.until_writing(1)
        scene.end()
        pair.wait_for_state(scene.task_id, "SUCCEEDED")
        assert (scene.states, scene.signals()) == (["superseded"], ["the task is SUCCEEDED"])
        scene.until_gone(1)


def test_a_writer_that_hangs_is_stopped(stage: Stage, tmp_path: Path) -> None:
    """After an hour, for nothing else of its task can be written meanwhile; as it may be only the host that is slow, another
    is started later in tokens.
    """
    with Scene(stage.pair, tmp_path / "scene") as scene:
        assert scene.told(21 * K) == "continue"
        scene.until_writing(1)
        stage.pass_time(3601)
        scene.until_states("failed")
        scene.until_gone(1)
        assert scene.checkpoints[0].failure == context_pb2.CHECKPOINT_FAILURE_LOST
        scene.always("commit")
        assert scene.told(22 * K) == "continue"
        scene.until_states("failed", "succeeded")
