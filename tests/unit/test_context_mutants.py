"""For each guard of the context windows and the one-shot signals, a mutant without it that a check must kill.

Each check passes on the build as it is (the control), and fails as soon as its guard is patched away.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lane_runner_svc.core import checkpoints as core_checkpoints
from lane_runner_svc.core import directives as core
from lane_runner_svc.core.checkpoints import Checkpoint, CheckpointState, Failure
from lane_runner_svc.core.directives import Context, Directive
from lane_runner_svc.core.signals import SignalKind
from lane_runner_svc.store import signals
from lane_runner_svc.work import checkpoints, directives
from lane_runner_svc.work.session import Session
from lanewarden.records import replace
from tests import context_checks as checks
from tests.runner_kit import RunnerKit
from tests.unit.test_runner_mutants import Patch, failure


def acted_as(patch: Patch, change: Callable[..., Any]) -> None:
    """Acting does what ``change`` does with the act and its arguments."""
    act = directives._act
    patch.setattr(directives, "_act", lambda *arguments: change(act, *arguments))


def discharge_only_on_a_rebuild(patch: Patch) -> None:
    """The fallback forgets to discharge what it has served."""

    def mutant(act: Any, session: Any, ref: Any, task: Any, decision: Any, directive_id: str) -> None:
        if decision.directive is Directive.REBUILD:
            act(session, ref, task, decision, directive_id)

    acted_as(patch, mutant)


def discharge_rearms(patch: Patch) -> None:
    """Whoever discharges the signal arms the ladder again."""
    act = core._act

    def mutant(*arguments: Any) -> Any:
        decision = act(*arguments)
        return replace(decision, context=core.rebuilt(decision.context, 0))

    patch.setattr(core, "_act", mutant)


def failed_rebuild_rearms(patch: Patch) -> None:
    """A rebuild begins a new cycle whatever came of it."""
    report = directives.report

    def mutant(session: Any, ref: Any, directive_id: str, said: Any) -> bool:
        now = report(session, ref, directive_id, said)
        if not said.done:
            task = directives.current(session, ref)
            directives._rearm(session, task, directives.contexts.load(session.uow, task.task_id, task.epoch).cycle, 0)
        return now

    patch.setattr(directives, "report", mutant)


def failed_rebuild_compacts(patch: Patch) -> None:
    """After a rebuild there is no checkpoint any more, so that the next act is to compact."""
    patch.setattr(directives.contexts, "usable_checkpoint", _once(directives.contexts.usable_checkpoint))


def _once(look: Callable[..., str | None]) -> Callable[..., str | None]:
    def mutant(reader: Any, context: Context) -> str | None:
        return None if context.reductions else look(reader, context)

    return mutant


def every_report_of_a_rebuild_rearms(patch: Patch) -> None:
    """Nobody asks whether the cycle of a rebuild has ended already."""
    rearm = directives._rearm

    def mutant(session: Any, task: Any, _cycle: int, inserted_tokens: int) -> None:
        now = directives.contexts.load(session.uow, task.task_id, task.epoch)
        rearm(session, task, now.cycle, inserted_tokens)

    patch.setattr(directives, "_rearm", mutant)


def injected_context_pushes_the_ladder(patch: Patch) -> None:
    """What a rebuild has put in counts like anything else."""
    rebuilt = core.rebuilt
    patch.setattr(core, "rebuilt", lambda context, inserted: rebuilt(context, 0))


def skipped_start_consumes_its_rung(patch: Patch) -> None:
    """A rung is consumed when it is crossed."""
    judge = core.judge

    def judged(context: Context, usage: Any, seen: Any, ladder: Any, wish: Any, now_ms: int) -> Any:
        decision = judge(context, usage, seen, ladder, wish, now_ms)
        consumed = max(decision.context.consumed, core._reached(decision.context, ladder))
        return replace(decision, context=replace(decision.context, consumed=consumed))

    patch.setattr(core, "judge", judged)


def finished_writer_is_forgotten(patch: Patch) -> None:
    """Only the latest start of the writer is looked at for a checkpoint."""

    def mutant(reader: Any, context: Context) -> str | None:
        latest = directives.contexts.latest_checkpoint(reader, context.task_id, context.epoch)
        return latest.checkpoint_id if latest and latest.state is CheckpointState.SUCCEEDED else None

    patch.setattr(directives.contexts, "usable_checkpoint", mutant)


def injected_context_never_leaves(patch: Patch) -> None:
    """What a rebuild has put in is left out of the ladder, though less is in use."""
    noted = core._noted
    patch.setattr(core, "_noted", lambda context, usage: replace(noted(context, usage), injected=context.injected))


def cap_holds_at_the_next_rung(patch: Patch) -> None:
    """A writer that could not be started is not tried again, however far usage grows."""
    starts = core._starts

    def mutant(context: Context, writer: Any, ladder: Any, wish: Any) -> bool:
        return context.failures < wish.writer_failures_max and starts(context, writer, ladder, wish)

    patch.setattr(core, "_starts", mutant)


def impatient(patch: Patch) -> None:
    """A writer is waited for a second less."""
    until = core.waited_until_ms
    patch.setattr(core, "waited_until_ms", lambda writer, wish: max(0, until(writer, wish) - 1000))


def timeout_is_a_failure(patch: Patch) -> None:
    """Who stops waiting for a writer counts it as failed."""
    act = core._act

    def mutant(*arguments: Any) -> Any:
        decision = act(*arguments)
        late = replace(decision.context, failures=decision.context.failures + decision.timed_out)
        return replace(decision, context=late)

    patch.setattr(core, "_act", mutant)


def late_writer_is_given_up(patch: Patch) -> None:
    """What a writer commits after it was waited for is lost."""
    flight = frozenset({CheckpointState.WRITING})
    patch.setattr(Checkpoint, "in_flight", property(lambda checkpoint: checkpoint.state in flight))


def presence_is_a_checkpoint(patch: Patch) -> None:
    """A file that is there was written whole."""
    of_exit = core_checkpoints.of_exit

    def mutant(exit_: Any, *, marked: bool, content: str | None, **more: Any) -> Any:
        return of_exit(exit_, marked=marked or content is not None, content=content, **more)

    patch.setattr(checks, "of_exit", mutant)


def any_failure_is_tried_again(patch: Patch) -> None:
    """Nobody asks of what class it was."""
    patch.setattr(Failure, "retryable", property(lambda _: True))


def retry_without_growth(patch: Patch) -> None:
    """A failure that may pass is tried again at every turn."""
    noted = core._noted
    patch.setattr(core, "_noted", lambda context, usage: replace(noted(context, usage), tried_tokens=-1))


def retries_have_no_budget(patch: Patch) -> None:
    """Failures are not counted."""
    written = core.written
    patch.setattr(core, "written", lambda *all_: replace(written(*all_), failures=0))


def retry_without_room(patch: Patch) -> None:
    """A writer is tried again though the window has overflowed."""
    starts = core._starts

    def mutant(context: Context, writer: Any, ladder: Any, wish: Any) -> bool:
        return starts(context, writer, replace_limit(ladder), wish)

    def replace_limit(ladder: Any) -> Any:
        return core.Ladder(rungs=ladder.rungs, limit=10**9)

    patch.setattr(core, "_starts", mutant)


def reductions_are_not_counted(patch: Patch) -> None:
    """There is no budget."""
    act = core._act

    def mutant(context: Context, *rest: Any) -> Any:
        decision = act(replace(context, reductions=0), *rest)
        return replace(decision, context=replace(decision.context, reductions=context.reductions))

    patch.setattr(core, "_act", mutant)


def measurements_count_again(patch: Patch) -> None:
    """Nobody asks whether a measurement has been used, or is older than the reduction."""
    patch.setattr(core, "_counts", lambda _context, _usage: True)


def only_the_latest_measurement_is_known(patch: Patch) -> None:
    """A measurement that comes again after another one counts again."""
    noted = core._noted
    patch.setattr(core, "_noted", lambda context, usage: replace(noted(context, usage), earlier_ids=()))


def measurements_of_all_attempts_are_one(patch: Patch) -> None:
    """The id alone tells measurements apart, whoever gave it."""
    counts = core._counts

    def mutant(context: Context, usage: Any) -> bool:
        return usage.measurement_id != context.measurement_id and counts(context, usage)

    patch.setattr(core, "_counts", mutant)


def boundary_is_not_looked_at(patch: Patch) -> None:
    """A measurement of the turn of the reduction is taken for a new one."""
    act = core._act

    def mutant(*arguments: Any) -> Any:
        decision = act(*arguments)
        return replace(decision, context=replace(decision.context, boundary_turn=0))

    patch.setattr(core, "_act", mutant)


def stops_are_about_the_task(patch: Patch) -> None:
    """A stop is stored once for a task, and its first one answers for ever."""
    stop = Session.stop

    def mutant(session: Session, task: Any, *, cause: str) -> None:
        sql = "SELECT 1 FROM signals WHERE task_id = ? AND kind = 'STOP'"
        if session.uow.one(sql, (task.task_id,)) is None:
            stop(session, task, cause=cause)

    patch.setattr(Session, "stop", mutant)


def end_answers_a_pause(patch: Patch) -> None:
    """Whatever was asked of a task is answered by its end."""
    over = Session._over

    def mutant(session: Session, task: Any) -> None:
        over(session, task)
        session.discharge(task.task_id, SignalKind.PAUSE, by=session.by, how="the task has ended")

    patch.setattr(Session, "_over", mutant)


def resume_answers_nothing(patch: Patch) -> None:
    """Who resumes a task leaves the request to pause it outstanding."""
    discharge = signals.discharge

    def mutant(uow: Any, signal_id: str, *, how: str, **more: Any) -> None:
        if how != "resumed":
            discharge(uow, signal_id, how=how, **more)

    patch.setattr(signals, "discharge", mutant)


def end_of_a_task_keeps_the_rung(patch: Patch) -> None:
    """What the end of a task supersedes has consumed its rung."""
    patch.setattr(core, "written", lambda context, _checkpoint, _state: context)


def end_of_a_task_answers_for_good(patch: Patch) -> None:
    """A reduction that the end of a task has overtaken is not asked for again."""
    patch.setattr(core, "withdrawn", lambda context: context)


def attempts_leave_their_writing(patch: Patch) -> None:
    """What a worker was writing is in flight for ever."""
    patch.setattr(checkpoints, "worker_ended", lambda _session, _ref: None)


MUTANTS: list[tuple[Callable[[Patch], None], Callable[[RunnerKit], None]]] = [
    (discharge_only_on_a_rebuild, checks.check_acting_discharges_whatever_the_act),
    (discharge_rearms, checks.check_acting_discharges_whatever_the_act),
    (discharge_rearms, checks.check_only_an_inserted_rebuild_rearms),
    (failed_rebuild_rearms, checks.check_only_an_inserted_rebuild_rearms),
    (every_report_of_a_rebuild_rearms, checks.check_a_cycle_ends_once),
    (failed_rebuild_compacts, checks.check_only_an_inserted_rebuild_rearms),
    (injected_context_pushes_the_ladder, checks.check_only_an_inserted_rebuild_rearms),
    (skipped_start_consumes_its_rung, checks.check_a_skipped_start_consumes_nothing),
    (finished_writer_is_forgotten, checks.check_a_skipped_start_consumes_nothing),
    (injected_context_never_leaves, checks.check_only_what_is_there_pushes_no_ladder),
    (cap_holds_at_the_next_rung, checks.check_each_further_rung_is_tried_once),
    (impatient, checks.check_lateness_is_no_failure),
    (timeout_is_a_failure, checks.check_lateness_is_no_failure),
    (late_writer_is_given_up, checks.check_lateness_is_no_failure),
    (presence_is_a_checkpoint, checks.check_only_the_marker_commits),
    (any_failure_is_tried_again, checks.check_a_retry_needs_three_things),
    (retry_without_growth, checks.check_a_retry_needs_three_things),
    (retries_have_no_budget, checks.check_a_retry_needs_three_things),
    (retry_without_room, checks.check_a_retry_needs_three_things),
    (reductions_are_not_counted, checks.check_reductions_have_a_budget),
    (measurements_count_again, checks.check_a_measurement_counts_once),
    (only_the_latest_measurement_is_known, checks.check_a_measurement_counts_once),
    (measurements_of_all_attempts_are_one, checks.check_a_measurement_counts_once),
    (boundary_is_not_looked_at, checks.check_a_measurement_counts_once),
    (stops_are_about_the_task, checks.check_a_stop_is_about_one_attempt),
    (end_answers_a_pause, checks.check_a_pause_is_outstanding_until_it_is_resumed),
    (resume_answers_nothing, checks.check_a_pause_is_outstanding_until_it_is_resumed),
    (end_of_a_task_keeps_the_rung, checks.check_a_retry_finds_what_its_task_left),
    (end_of_a_task_answers_for_good, checks.check_a_retry_finds_what_its_task_left),
    (attempts_leave_their_writing, checks.check_nobody_writes_for_a_worker_that_is_gone),
]


@pytest.mark.parametrize(("mutate", "check"), MUTANTS, ids=lambda each: each.__name__)
def test_each_guard_is_guarded(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    mutate: Callable[[Patch], None],
    check: Callable[[RunnerKit], None],
) -> None:
    """The check passes with the guard (in the suite of the checks themselves) and fails without it."""
    mutate(monkeypatch)
    assert failure(check, tmp_path) is not None, "nobody misses this guard"


def test_every_check_has_a_mutant() -> None:
    """A check that no mutant fails may be one that cannot fail."""
    named = {check for name, check in vars(checks).items() if name.startswith("check_")}
    assert named == {check for _, check in MUTANTS}
