"""For each guard of automatic actions, sessions and claims, a mutant without it that a check of the real tests must kill.

Each check passes on the build as it is (the control), and fails as soon as its guard is patched away.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lane_runner_svc import runner
from lane_runner_svc.core import happenings, lives, moves
from lane_runner_svc.core import incidents as core_incidents
from lane_runner_svc.core import settle as core_settle
from lane_runner_svc.core.incidents import Incident, IncidentState
from lane_runner_svc.core.states import Event, State
from lane_runner_svc.core.task import Effect, Step, Task
from lane_runner_svc.rpc import actions as rpc_actions
from lane_runner_svc.store import messages, supervision
from lane_runner_svc.work import actions, attempts, incidents
from lane_runner_svc.work.session import Session
from lane_runner_svc.work.supervision import fence
from tests import action_checks as checks
from tests.runner_kit import RunnerKit
from tests.unit.test_runner_mutants import failure

Patch = pytest.MonkeyPatch


def fence_outside_the_transaction(patch: Patch) -> None:
    """The generation is looked at when the request comes, and the effect stored later."""
    patch.setattr(actions, "fence", lambda _session, _generation: None)
    patch.setattr(incidents, "fence", lambda _session, _generation: None)
    command = rpc_actions.ActionHandlers._command

    async def mutant(self: Any, request: Any, *args: Any, **named: Any) -> Any:
        if "supervision_generation" in request.DESCRIPTOR.fields_by_name:
            early: Any = type("Early", (), {"uow": None})()
            with patch.context() as looking:
                looking.setattr(supervision, "load", lambda _uow: self._runner.read(load))
                fence(early, request.supervision_generation)
        return await command(self, request, *args, **named)

    load = supervision.load
    patch.setattr(rpc_actions.ActionHandlers, "_command", mutant)


def a_lapsed_generation_may_act(patch: Patch) -> None:
    """Only the number is compared."""
    load = supervision.load
    patch.setattr(supervision, "load", lambda reader: replace(load(reader), live=True))


def no_fence(patch: Patch) -> None:
    """Whoever is a supervisor may act."""
    patch.setattr(actions, "fence", lambda _session, _generation: None)


def claims_are_not_fenced(patch: Patch) -> None:
    """Whoever is a supervisor may claim."""
    patch.setattr(incidents, "fence", lambda _session, _generation: None)


def repeats_are_not_fenced(patch: Patch) -> None:
    """Whoever asks for what was done is told OK."""
    patch.setattr(runner, "fence", lambda _session, _generation: None)


def relaunch_is_not_counted(patch: Patch) -> None:
    """The worker is replaced, and the budget is as it was."""
    relaunch = core_settle.relaunch

    def mutant(task: Task, **said: Any) -> Step:
        step = relaunch(task, **said)
        return replace(step, task=replace(step.task, relaunches=task.relaunches))

    patch.setattr(core_settle, "relaunch", mutant)


def relaunch_has_no_intent(patch: Patch) -> None:
    """That a relaunch is under way is not stored."""
    relaunch = core_settle.relaunch

    def mutant(task: Task, **said: Any) -> Step:
        step = relaunch(replace(task, relaunch_cause=None), **said)
        return replace(step, task=replace(step.task, relaunch_cause=None))

    patch.setattr(core_settle, "relaunch", mutant)


def generation_is_content(patch: Patch) -> None:
    """A supervisor that was started again repeats itself, and is told that its request_id was used."""
    patch.setattr(runner, "_content", lambda request: request.SerializeToString(deterministic=True))


def retry_refills_relaunches(patch: Patch) -> None:
    """Fresh budgets, this one among them."""
    fresh = lives._fresh
    patch.setattr(lives, "_fresh", lambda task: replace(fresh(task), relaunches=0))


def holds_are_not_looked_at(patch: Patch) -> None:
    """An open hold does not keep a supervisor off."""
    patch.setattr(actions.holds, "open_ids", lambda _reader, _task_id: [])


def pauses_are_not_looked_at(patch: Patch) -> None:
    """A task that a person has in hand is a task like any other."""
    leave_alone = core_settle._leave_alone
    patch.setattr(
        core_settle,
        "_leave_alone",
        lambda task, holds, event: leave_alone(replace(task, pauses=frozenset()), holds, event),
    )


def settle_again_settles(patch: Patch) -> None:
    """A second settle writes its own words."""
    settle = actions.settle

    def mutant(session: Session, quote: Any, *, summary: str, diagnosis: str) -> Task:
        task = settle(session, quote, summary=summary, diagnosis=diagnosis)
        if task.state is not State.SETTLED:
            return task
        return session.save(task, replace(task, summary=summary, diagnosis=diagnosis))

    patch.setattr(actions, "settle", mutant)


def settle_parks_nothing(patch: Patch) -> None:
    """What waits ends with the task, as it does with any other end."""
    patch.setattr(messages, "park_waiting", lambda uow, task_id: messages.end_waiting(uow, task_id, "UNDELIVERED"))


def settle_leaves_messages(patch: Patch) -> None:
    """What waits goes on waiting."""
    patch.setattr(messages, "park_waiting", lambda _uow, _task_id: None)


def intent_to_settle_is_forgotten(patch: Patch) -> None:
    """The end of the worker is judged as if nobody had asked for anything."""
    patch.setattr(Task, "stopping", property(lambda task: task.cancel_cause is not None))


def a_worker_that_is_stopped_is_done(patch: Patch) -> None:
    """Exit 0 on SIGTERM is taken for success."""
    done = Event.EXITED_DONE
    patch.setattr(happenings, "relaunched", lambda task, now: moves.move(task, done, now, summary="exited with code 0"))


def wake_is_not_stored(patch: Patch) -> None:
    """A wake leaves no trace."""
    wake = core_settle.wake

    def mutant(task: Task, **said: Any) -> Step:
        step = wake(task, **said)
        return replace(step, task=replace(step.task, woken=False))

    patch.setattr(core_settle, "wake", mutant)


def wake_of_nothing(patch: Patch) -> None:
    """A task is woken for no input."""
    wake = core_settle.wake
    patch.setattr(core_settle, "wake", lambda task, **said: wake(task, **{**said, "inputs": 1}))


def claim_without_compare(patch: Patch) -> None:
    """Whoever claims has the claim."""

    def mutant(incident: Incident, holder: str) -> Incident:
        generation = incident.claim_generation + 1
        return replace(incident, holder=holder, claim_generation=generation, state=IncidentState.CLAIMED)

    patch.setattr(core_incidents, "claim", mutant)


def record_without_compare(patch: Patch) -> None:
    """Whoever has filed records."""
    record = core_incidents.record

    def mutant(incident: Incident, filing: Any, **said: Any) -> Incident:
        return record(incident, filing, holder=incident.holder, claim_generation=incident.claim_generation)

    patch.setattr(core_incidents, "record", mutant)


def filed_is_taken_over(patch: Patch) -> None:
    """A claim is compared, and what was filed is filed again."""
    claim = core_incidents.claim
    patch.setattr(
        core_incidents, "claim", lambda incident, holder: claim(replace(incident, state=IncidentState.CLAIMED), holder)
    )


def rounds_end_at_exit(patch: Patch) -> None:
    """Exit 0 ends a round, whatever it has left unread."""
    patch.setattr(attempts, "_inputs_left", lambda _reader, _task, _attempt: (0, False))


def every_input_is_of_the_round(patch: Patch) -> None:
    """An input that came during a round counts as left by it."""
    left = attempts._inputs_left
    patch.setattr(
        attempts,
        "_inputs_left",
        lambda reader, task, attempt: left(reader, task, replace(attempt, inputs_through=messages.SEQUENCE_MAX)),
    )


def parents_are_not_told(patch: Patch) -> None:
    """A child ends in silence."""
    carry_out = Session._carry_out

    def mutant(self: Session, effect: Effect, task: Task) -> None:
        if effect is not Effect.TELL_PARENT:
            carry_out(self, effect, task)

    patch.setattr(Session, "_carry_out", mutant)


def errors_are_not_marked(patch: Patch) -> None:
    """Every end of a child reads alike."""
    patch.setattr("lane_runner_svc.core.family.ERROR_MARK", "")


MUTANTS: list[tuple[Callable[[Patch], None], Callable[[RunnerKit], None]]] = [
    (no_fence, checks.check_an_old_generation_has_no_effect),
    (claims_are_not_fenced, checks.check_an_old_generation_has_no_effect),
    (a_lapsed_generation_may_act, checks.check_an_old_generation_has_no_effect),
    (fence_outside_the_transaction, checks.check_no_grant_comes_between),
    (repeats_are_not_fenced, checks.check_a_repeat_is_fenced),
    (relaunch_is_not_counted, checks.check_a_relaunch_happens_once),
    (relaunch_has_no_intent, checks.check_a_relaunch_happens_once),
    (generation_is_content, checks.check_a_relaunch_happens_once),
    (relaunch_is_not_counted, checks.check_relaunches_are_bounded),
    (retry_refills_relaunches, checks.check_relaunches_are_bounded),
    (a_worker_that_is_stopped_is_done, checks.check_relaunches_are_bounded),
    (holds_are_not_looked_at, checks.check_a_held_task_is_left_alone),
    (pauses_are_not_looked_at, checks.check_a_held_task_is_left_alone),
    (settle_again_settles, checks.check_a_settle_is_a_fixed_point),
    (settle_parks_nothing, checks.check_nothing_wakes_a_settled_task),
    (settle_leaves_messages, checks.check_nothing_wakes_a_settled_task),
    (intent_to_settle_is_forgotten, checks.check_an_intent_to_settle_is_kept),
    (wake_is_not_stored, checks.check_a_wake_is_spent_once),
    (wake_of_nothing, checks.check_a_wake_is_spent_once),
    (claim_without_compare, checks.check_a_claim_has_one_holder),
    (record_without_compare, checks.check_a_claim_has_one_holder),
    (filed_is_taken_over, checks.check_a_claim_has_one_holder),
    (rounds_end_at_exit, checks.check_a_round_takes_its_inputs),
    (rounds_end_at_exit, checks.check_inputs_make_rounds),
    (every_input_is_of_the_round, checks.check_inputs_make_rounds),
    (parents_are_not_told, checks.check_a_child_tells_its_parent),
    (errors_are_not_marked, checks.check_a_child_tells_its_parent),
]


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
