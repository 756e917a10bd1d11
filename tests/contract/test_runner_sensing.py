"""Progress that is derived from what a program does, on a real store: each step once, and of the attempt that makes it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lane_runner_svc import emitters
from lane_runner_svc.core import sensing as core
from lane_runner_svc.core.sensing import Source
from lane_runner_svc.core.states import State
from lane_runner_svc.store import tasks
from lane_runner_svc.work import sensing
from lane_runner_svc.work.session import AttemptRef
from lanewarden.records import replace
from lanewarden.v1 import worker_service_pb2
from tests.runner_kit import KILLED, RunnerKit, finished, make_runner

LINES, FILES = Source.OUTPUT_LINES, Source.FILES


@pytest.fixture
def kit(tmp_path: Path) -> Iterator[RunnerKit]:
    """A runner; when it is closed, every row that it wrote had an author (I11)."""
    made = make_runner(tmp_path)
    yield made
    made.close()


def sense(kit: RunnerKit, ref: AttemptRef, source: Source, reading: int) -> int | None:
    """The task's progress after a reading."""
    work = lambda session: sensing.sense(session, ref=ref, source=source, reading=reading)  # noqa: E731
    finished(kit.runner.do(work, emitter=emitters.SENSE, task_id=ref.task_id))
    return kit.task(ref.task_id).progress


def check_each_line_counts_once(kit: RunnerKit) -> None:
    """Whatever is read twice, also by another start of the runner; the next attempt's lines add to those before."""
    ref = kit.running(progress_from={"output_lines": True})
    assert kit.task(ref.task_id).progress is None
    assert [sense(kit, ref, LINES, total) for total in (3, 3, 7)] == [3, 3, 7]
    kit.restart()
    assert [sense(kit, ref, LINES, total) for total in (7, 8)] == [7, 8]
    kit.exited(ref, KILLED)
    again = kit.start()
    assert [sense(kit, again, LINES, total) for total in (2, 4)] == [10, 12]


def check_what_was_there_before_is_no_step(kit: RunnerKit) -> None:
    """The first look at files finds them, and each look that finds something else is one step."""
    ref = kit.running(progress_from={"files": "*.out"})
    assert [sense(kit, ref, FILES, print_) for print_ in (17, 17, 4, 4, 17)] == [None, None, 1, 1, 2]


def check_an_attempt_that_is_over_makes_no_step(kit: RunnerKit) -> None:
    """A reading that comes late, of an attempt that has ended or of one before the present, changes no row."""
    ref = kit.running(progress_from={"output_lines": True})
    sense(kit, ref, LINES, 1)
    kit.exited(ref, KILLED)
    before = kit.dump()
    sense(kit, ref, LINES, 9)
    assert kit.dump() == before
    kit.start()
    before = kit.dump()
    sense(kit, ref, LINES, 9)
    assert kit.dump() == before


def check_a_held_task_is_not_read(kit: RunnerKit) -> None:
    """While it waits for a ruling no row changes (H03); what it wrote meanwhile counts once it goes on."""
    ref = kit.running(progress_from={"output_lines": True})
    hold = kit.escalate(ref)
    before = kit.dump()
    assert sense(kit, ref, LINES, 5) is None
    assert kit.dump() == before
    kit.rule(hold)
    assert kit.task(ref.task_id).state is State.RUNNING
    assert sense(kit, ref, LINES, 6) == 6


CHECKS = (
    check_each_line_counts_once,
    check_what_was_there_before_is_no_step,
    check_an_attempt_that_is_over_makes_no_step,
    check_a_held_task_is_not_read,
)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_derived_progress(kit: RunnerKit, check: object) -> None:
    """See each check."""
    assert callable(check)
    check(kit)


def forgets_the_last_reading(patch: pytest.MonkeyPatch) -> None:
    """Every reading is the first."""
    patch.setattr(sensing, "steps", lambda source, before, now: core.steps(source, None, now))


def counts_the_first_look(patch: pytest.MonkeyPatch) -> None:
    """What was there before is a step."""
    patch.setattr(sensing, "steps", lambda source, before, now: core.steps(source, before or 0, now))


def believes_old_attempts(patch: pytest.MonkeyPatch) -> None:
    """Whoever writes is the present attempt."""
    load = tasks.load
    patch.setattr(sensing.tasks, "load", lambda reader, task_id: replace(load(reader, task_id), attempt=1))


def reads_the_held(patch: pytest.MonkeyPatch) -> None:
    """A hold stops no sensor."""
    held = type("AnyState", (), {"RUNNING": State.HELD})
    patch.setattr(sensing, "State", held)


@pytest.mark.parametrize(
    ("mutant", "check"),
    [
        (forgets_the_last_reading, check_each_line_counts_once),
        (counts_the_first_look, check_what_was_there_before_is_no_step),
        (believes_old_attempts, check_an_attempt_that_is_over_makes_no_step),
        (reads_the_held, check_a_held_task_is_not_read),
    ],
    ids=lambda each: each.__name__,
)
def test_each_guard_of_derived_progress_is_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mutant: object, check: object
) -> None:
    """Without it a check of the above fails; with it (the control) all pass."""
    kit = make_runner(tmp_path)
    assert callable(mutant)
    assert callable(check)
    with monkeypatch.context() as patch:
        mutant(patch)
        with pytest.raises(AssertionError):
            check(kit)
    kit.close()


def test_what_a_worker_reports_itself_counts_beside_a_source(kit: RunnerKit) -> None:
    """The higher of the two is the progress, and neither takes it back."""
    ref = kit.running(progress_from={"output_lines": True})
    kit.say(ref, "ReportProgress", worker_service_pb2.ReportProgressRequest(sequence=5, note="half"))
    assert sense(kit, ref, LINES, 2) == 7
    kit.say(ref, "ReportProgress", worker_service_pb2.ReportProgressRequest(sequence=6))
    task = kit.task(ref.task_id)
    assert (task.progress, task.progress_note) == (7, "half")
