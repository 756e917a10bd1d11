"""For each guard of the lane runner, a mutant without it that a check of the real tests must kill.

Each check passes on the build as it is (the control), and fails as soon as its guard is patched away.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lane_runner_svc.core import holds as core_holds
from lane_runner_svc.core import lives as core_lives
from lane_runner_svc.core import timers as core_timers
from lane_runner_svc.core.happenings import Exited, HoldOpened, HoldReleased
from lane_runner_svc.core.holds import Actor, Decision, Hold, HoldState, Ruling
from lane_runner_svc.core.task import PauseCause, Task
from lane_runner_svc.rpc import commands, lane_runner
from lane_runner_svc.store import holds, tasks
from lane_runner_svc.work import attempts, hooks, inbox, timers
from lane_runner_svc.work import tasks as task_work
from lane_runner_svc.work.session import AttemptRef, Session
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


def text_is_taken_for_a_ruling(patch: Patch) -> None:
    """Whatever is said about a hold approves it."""
    rule = inbox.rule

    def mutant(session: Session, ruling: Ruling, **named: Any) -> Any:
        meant = Decision.APPROVE if ruling.decision is Decision.UNSPECIFIED else ruling.decision
        return rule(session, replace(ruling, decision=meant), **named)

    patch.setattr(inbox, "rule", mutant)


def rulings_are_not_checked(patch: Patch) -> None:
    """A decision is enough."""
    check = inbox.check_ruling

    def mutant(ruling: Ruling, **facts: Any) -> None:
        if ruling.decision is Decision.UNSPECIFIED:
            check(ruling, **facts)

    patch.setattr(inbox, "check_ruling", mutant)


def check_completion_asks_nobody(patch: Patch) -> None:
    """CheckCompletion does not consult the judge."""
    patch.setattr(lane_runner, "attempts", SimpleNamespace(blockers=lambda _reader, _task: ()))


def on_success_asks_nobody(patch: Patch) -> None:
    """The on_success command does not consult the judge."""
    patch.setattr(hooks, "blockers", lambda _reader, _task: ())


def payload_says_who_acts(patch: Patch) -> None:
    """Whoever is named in the payload is believed to have acted."""

    def mutant(call: Any, request: Any) -> Actor:
        named = request.on_behalf_of
        if named.identity:
            return Actor(identity=named.identity, role=named.role)
        return Actor(identity=call.identity.name, role=call.identity.role.value)

    patch.setattr(commands, "actor_of", mutant)


def deadline_approves(patch: Patch) -> None:
    """Silence until the deadline is taken for consent."""
    fire = core_timers.fire

    def mutant(hold: Hold, patience: Any, now_ms: int) -> Hold:
        fired = fire(hold, patience, now_ms)
        return released(fired) if fired.expired else fired

    patch.setattr(core_timers, "fire", mutant)


def deadline_rejects(patch: Patch) -> None:
    """Silence until the deadline is taken for a no: the hold is closed."""
    fire = core_timers.fire

    def mutant(hold: Hold, patience: Any, now_ms: int) -> Hold:
        fired = fire(hold, patience, now_ms)
        return replace(fired, state=HoldState.CANCELED) if fired.expired else fired

    patch.setattr(core_timers, "fire", mutant)


def deadline_does_not_park(patch: Patch) -> None:
    """A deadline that has passed is only shown."""
    patch.setattr(timers, "PauseCause", SimpleNamespace(HOLD_DEADLINE=PauseCause.OPERATOR))


def ack_moves_the_deadline(patch: Patch) -> None:
    """Whoever is looking into it gets more time."""
    restart = core_timers.restart_reminders

    def mutant(hold: Hold, patience: Any, now_ms: int) -> Hold:
        restarted = restart(hold, patience, now_ms)
        return restarted if hold.deadline_ms is None else replace(restarted, deadline_ms=now_ms + patience.deadline_ms)

    patch.setattr(core_timers, "restart_reminders", mutant)


def ack_forgives_the_deadline(patch: Patch) -> None:
    """An ack after the deadline un-parks the task."""
    acknowledge = inbox.acknowledge

    def mutant(session: Session, **said: Any) -> Hold:
        acked = acknowledge(session, **said)
        session.save_hold(replace(acked, expired=False))
        timers.unpark(session, tasks.load(session.uow, acked.task_id))
        return acked

    patch.setattr(inbox, "acknowledge", mutant)


def resume_clears_the_park(patch: Patch) -> None:
    """ResumeTask clears every cause."""

    def mutant(session: Session, task_id: str, _cause: Any = None) -> Task:
        task = tasks.load(session.uow, task_id)
        return session.save(task, replace(task, pauses=frozenset()))

    patch.setattr(task_work, "resume", mutant)


def resume_of_the_park_is_possible(patch: Patch) -> None:
    """ResumeTask clears the park when it is asked to."""

    def mutant(session: Session, task_id: str, cause: PauseCause = PauseCause.OPERATOR) -> Task:
        task = tasks.load(session.uow, task_id)
        return session.save(task, replace(task, pauses=task.pauses - {cause}))

    patch.setattr(task_work, "resume", mutant)


def epoch_is_no_fence(patch: Patch) -> None:
    """A worker is known by the number of its attempt."""
    load_attempt, check_current = tasks.load_attempt, attempts.check_current

    def load(reader: Any, task_id: str, _epoch: int, attempt: int) -> Any:
        return load_attempt(reader, task_id, tasks.load(reader, task_id).epoch, attempt)

    def check(task: Task, attempt: Any, ref: AttemptRef) -> None:
        check_current(task, attempt, replace(ref, epoch=task.epoch))

    patch.setattr(tasks, "load_attempt", load)
    patch.setattr(attempts, "check_current", check)


def reviews_are_for_ever(patch: Patch) -> None:
    """A gate that was passed in one epoch is passed in all."""
    decisions = holds.gate_decisions

    def mutant(reader: Any, task_id: str, epoch: int) -> Any:
        return {gate: row for each in range(1, epoch + 1) for gate, row in decisions(reader, task_id, each).items()}

    patch.setattr(holds, "gate_decisions", mutant)


def end_of_a_command_is_of_any_epoch(patch: Patch) -> None:
    """The end of a try is known by its number."""
    end = hooks.end

    def mutant(session: Session, ref: AttemptRef, **said: Any) -> Task:
        return end(session, replace(ref, epoch=tasks.load(session.uow, ref.task_id).epoch), **said)

    patch.setattr(hooks, "end", mutant)


def command_ignores_pauses(patch: Patch) -> None:
    """A pause is about attempts only."""
    start = hooks.start

    def mutant(session: Session, task_id: str) -> Any:
        task = tasks.load(session.uow, task_id)
        session.save(task, replace(task, pauses=frozenset()))
        return start(session, task_id)

    patch.setattr(hooks, "start", mutant)


def retry_counts_tries_anew(patch: Patch) -> None:
    """The tries after a retry begin at 1 again."""
    retry = core_lives.retry
    patch.setattr(core_lives, "retry", lambda task: replace(retry(task), hook_tries=0))


def park_outlives_its_task(patch: Patch) -> None:
    """The end of a task leaves its pauses as they are."""
    save = Session.save

    def mutant(session: Session, before: Task, after: Task, *, cause: str = "") -> Task:
        parked = replace(after, pauses=before.pauses) if after.terminal else after
        return save(session, before, parked, cause=cause)

    patch.setattr(Session, "save", mutant)


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
    (text_is_taken_for_a_ruling, checks.check_no_text_is_a_ruling),
    (rulings_are_not_checked, checks.check_no_text_is_a_ruling),
    (check_completion_asks_nobody, checks.check_check_completion_asks_the_judge),
    (on_success_asks_nobody, checks.check_on_success_asks_the_judge),
    (payload_says_who_acts, checks.check_a_role_is_not_read_from_the_payload),
    (deadline_approves, checks.check_a_deadline_decides_nothing),
    (deadline_rejects, checks.check_a_deadline_decides_nothing),
    (deadline_does_not_park, checks.check_a_deadline_decides_nothing),
    (ack_moves_the_deadline, checks.check_an_ack_moves_no_deadline),
    (ack_forgives_the_deadline, checks.check_an_ack_moves_no_deadline),
    (resume_clears_the_park, checks.check_a_park_is_not_resumed),
    (resume_of_the_park_is_possible, checks.check_a_park_is_not_resumed),
    (epoch_is_no_fence, checks.check_an_epoch_is_a_fence),
    (reviews_are_for_ever, checks.check_an_epoch_is_a_fence),
    (end_of_a_command_is_of_any_epoch, checks.check_an_epoch_is_a_fence),
    (command_ignores_pauses, checks.check_a_command_waits_for_its_pause),
    (retry_counts_tries_anew, checks.check_no_try_is_numbered_twice),
    (park_outlives_its_task, checks.check_a_closed_hold_parks_nothing),
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
