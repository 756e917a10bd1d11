"""For each guard of the lane runner, a mutant without it that a check of the real tests must kill.

Each check passes on the build as it is (the control), and fails as soon as its guard is patched away.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lane_runner_svc.core import holds as core_holds
from lane_runner_svc.core.happenings import Exited, HoldOpened, HoldReleased
from lane_runner_svc.core.holds import Actor, Decision, Hold, HoldState, Ruling
from lane_runner_svc.core.task import Task
from lane_runner_svc.store import holds, tasks
from lane_runner_svc.work import attempts, inbox
from lane_runner_svc.work import tasks as task_work
from lane_runner_svc.work.session import Session
from lanewarden.errors import Refusal
from tests import runner_checks as checks
from tests.runner_kit import RunnerKit, make_runner

Patch = pytest.MonkeyPatch
NOBODY = Actor(identity="nobody", role="operator")


def released(hold: Hold) -> Hold:
    """A hold that was released by nothing that anybody said."""
    ruling = Ruling(
        ruling_id=f"made up for {hold.escalation_id}",
        escalation_id=hold.escalation_id,
        decision=Decision.APPROVE,
        instructions="taken for a yes",
        option_key="",
        ratifies=(),
        ruled_by=NOBODY,
        ruled_wall_ms=1,
    )
    return replace(hold, state=HoldState.RELEASED, ruling=ruling)


def let_go(session: Session, task_id: str) -> None:
    """Release every open hold of a task."""
    for hold in holds.of_task(session.uow, task_id):
        if hold.open:
            session.save_hold(released(hold))
            session.happen(tasks.load(session.uow, task_id), HoldReleased(open_holds=0))


def ack_releases(patch: Patch) -> None:
    """An ack is taken for a ruling."""
    stamp = core_holds.stamp
    patch.setattr(inbox, "stamp", lambda hold, **said: released(stamp(hold, **said)))


def instruction_releases(patch: Patch) -> None:
    """An instruction is taken for a ruling."""
    instruct = inbox.instruct

    def mutant(session: Session, task_id: str, **said: Any) -> Any:
        result = instruct(session, task_id, **said)
        let_go(session, task_id)
        return result

    patch.setattr(inbox, "instruct", mutant)


def complete_asks_nobody(patch: Patch) -> None:
    """Complete does not consult the judge."""
    patch.setattr(task_work, "blockers", lambda _reader, _task: ())


def exit_0_asks_nobody(patch: Patch) -> None:
    """An exit does not consult the judge."""
    patch.setattr(attempts, "blockers", lambda _reader, _task: ())


def ruling_goes_to_the_lane(patch: Patch) -> None:
    """A ruling is bound to the lane: whoever asked there last gets it."""
    rule = inbox.rule

    def mutant(session: Session, ruling: Ruling, *, named_task_id: str) -> Any:
        lane = tasks.load(session.uow, holds.load(session.uow, ruling.escalation_id).task_id).lane
        latest = session.uow.one(
            "SELECT escalation_id FROM holds JOIN tasks USING (task_id)"
            " WHERE lane = ? AND holds.state = 'OPEN' ORDER BY holds.position DESC",
            (lane,),
        )
        assert latest is not None
        return rule(session, replace(ruling, escalation_id=latest[0]), named_task_id=named_task_id)

    patch.setattr(inbox, "rule", mutant)


def no_attempt_fence(patch: Patch) -> None:
    """Whoever speaks for a task is believed."""
    patch.setattr(attempts, "check_current", lambda _task, _attempt, _ref: None)


def hold_without_state(patch: Patch) -> None:
    """The hold is stored, the task goes on as if nothing had been asked."""
    happen = Session.happen

    def mutant(session: Session, task: Task, happening: Any) -> Task:
        return task if isinstance(happening, HoldOpened) else happen(session, task, happening)

    patch.setattr(Session, "happen", mutant)


def unheard_ruling_is_ignored(patch: Patch) -> None:
    """An exit does not look at rulings that the worker never acknowledged."""

    def mutant(**facts: Any) -> Exited:
        others = [blocker for blocker in facts["blockers"] if blocker.kind != "hold"]
        return Exited(**{**facts, "unacknowledged": (), "blockers": others})

    patch.setattr(attempts, "Exited", mutant)


def last_ruling_wins(patch: Patch) -> None:
    """A second ruling replaces the first."""
    patch.setattr(inbox, "release", lambda hold, ruling: replace(hold, state=HoldState.RELEASED, ruling=ruling))


def pause_is_only_shown(patch: Patch) -> None:
    """The claim does not look at pauses."""
    queued = tasks.queued
    patch.setattr(tasks, "queued", lambda uow, lane: [replace(task, pauses=frozenset()) for task in queued(uow, lane)])


def full_inbox_turns_rulings_away(patch: Patch) -> None:
    """The limit of waiting messages is the same for all."""
    send = inbox._send

    def mutant(session: Session, task: Task, message_id: str, kind: str, *rest: Any) -> Any:
        counted = send(session, task, message_id, "INPUT", *rest) if kind == "RULING" else None
        return counted or send(session, task, message_id, kind, *rest)

    patch.setattr(inbox, "_send", mutant)


MUTANTS: list[tuple[Callable[[Patch], None], Callable[[RunnerKit], None]]] = [
    (ack_releases, checks.check_an_ack_releases_nothing),
    (instruction_releases, checks.check_an_instruction_releases_nothing),
    (complete_asks_nobody, checks.check_complete_asks_the_judge),
    (exit_0_asks_nobody, checks.check_exit_0_asks_the_judge),
    (ruling_goes_to_the_lane, checks.check_a_ruling_finds_its_own_task),
    (no_attempt_fence, checks.check_a_stale_attempt_has_no_effect),
    (hold_without_state, checks.check_a_hold_outlives_its_worker),
    (unheard_ruling_is_ignored, checks.check_an_unacknowledged_ruling_comes_again),
    (last_ruling_wins, checks.check_the_first_ruling_wins),
    (pause_is_only_shown, checks.check_a_paused_task_is_not_launched),
    (full_inbox_turns_rulings_away, checks.check_a_full_inbox_takes_a_ruling),
]


def failure(check: Callable[[RunnerKit], None], directory: Path) -> Exception | None:
    """What the check finds on a new runner, or None."""
    kit = make_runner(directory)
    try:
        check(kit)
    except (AssertionError, Refusal) as found:
        return found
    finally:
        kit.close()
    return None


@pytest.mark.parametrize(("mutate", "check"), MUTANTS, ids=lambda each: each.__name__)
def test_each_guard_is_guarded(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    mutate: Callable[[Patch], None],
    check: Callable[[RunnerKit], None],
) -> None:
    """The check passes with the guard and fails without it."""
    (tmp_path / "control").mkdir()
    (tmp_path / "mutant").mkdir()
    assert failure(check, tmp_path / "control") is None
    mutate(monkeypatch)
    assert failure(check, tmp_path / "mutant") is not None, "nobody misses this guard"


def test_every_check_has_a_mutant() -> None:
    """A check that no mutant fails may be one that cannot fail."""
    named = {check for name, check in vars(checks).items() if name.startswith("check_")}
    assert named == {check for _, check in MUTANTS}
