"""What a supervisor does at the runner by itself, on a real store: fenced, counted, once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.descriptor import ServiceDescriptor

from lane_runner_svc.bootstrap import LANE_RUNNER, WORKER
from lane_runner_svc.core.states import State
from lane_runner_svc.core.task import Author
from lane_runner_svc.store import tasks
from lanewarden.auth import Role
from lanewarden.errors import Reason, Refusal
from lanewarden.v1 import incident_pb2, worker_service_pb2
from lanewarden.v1 import lane_runner_service_pb2 as pb
from tests import action_checks as checks
from tests.runner_checks import changes_nothing, refused
from tests.runner_kit import KILLED, RunnerKit, exit_code, make_runner


@pytest.fixture
def kit(tmp_path: Path) -> Iterator[RunnerKit]:
    """A runner; when it is closed, every row that it wrote had an author (I11)."""
    made = make_runner(tmp_path)
    yield made
    made.close()


def test_p16_an_old_generation_has_no_effect(kit: RunnerKit) -> None:
    """SUPERVISION_FENCED on each of the five, superseded, lapsed or made up; nothing changed."""
    checks.check_an_old_generation_has_no_effect(kit)


def test_s01_a_repeat_is_fenced(kit: RunnerKit) -> None:
    """Two supervisors that ask for the same in the same words: only the one that may act is told that it was done."""
    checks.check_a_repeat_is_fenced(kit)


def test_p16_no_grant_comes_between_the_fence_and_the_effect(kit: RunnerKit) -> None:
    """The fence is part of the transaction."""
    checks.check_no_grant_comes_between(kit)


def test_p16_the_current_generation_may(kit: RunnerKit) -> None:
    """The control: each of the five has its effect under the current generation."""
    kit.supervise(1)
    for name, act in checks.every_action(kit).items():
        before = kit.dump()
        act()
        assert kit.dump() != before, f"{name} had no effect"


def test_p16_nobody_supervises_yet(kit: RunnerKit) -> None:
    """Before the first grant there is no generation that could be quoted."""
    ref = kit.running()
    changes_nothing(
        kit, Reason.SUPERVISION_FENCED, lambda: kit.act("SettleTask", ref.task_id, supervision_generation=1)
    )


@pytest.mark.parametrize("method", ["WakeTask", "RelaunchTask", "SettleTask", "ClaimIncident"])
def test_what_was_decided_about_another_epoch_is_refused(kit: RunnerKit, method: str) -> None:
    """ILLEGAL_TRANSITION with both epochs."""
    kit.supervise(1)
    ref = kit.running()
    refusal = changes_nothing(kit, Reason.ILLEGAL_TRANSITION, lambda: kit.act(method, ref.task_id, epoch=2))
    assert (refusal.metadata["epoch"], refusal.metadata["current_epoch"]) == ("2", "1")


def test_p10_a_relaunch_happens_once(kit: RunnerKit) -> None:
    """The same request, also from a supervisor that was started again: one answer, one worker, one charge."""
    checks.check_a_relaunch_happens_once(kit)


def test_relaunches_are_bounded(kit: RunnerKit) -> None:
    """I8: as many as the epoch may have, and no more."""
    checks.check_relaunches_are_bounded(kit)


def test_held_and_paused_tasks_are_left_alone(kit: RunnerKit) -> None:
    """The refusal names what the task waits for."""
    checks.check_a_held_task_is_left_alone(kit)


def test_a_relaunch_of_a_task_that_waits_ends_its_delay(kit: RunnerKit) -> None:
    """No worker to stop: the next attempt starts at once, as a relaunch, and the relaunch is counted."""
    kit.supervise(1)
    ref = kit.running()
    kit.exited(ref, KILLED)
    assert kit.claim() is None
    kit.act("RelaunchTask", ref.task_id)
    launch = kit.claim()
    assert launch is not None
    assert (launch.reason, kit.task(ref.task_id).relaunches, kit.stopped) == ("RELAUNCH", 1, [])


def test_a_relaunch_during_the_launch_stops_the_worker_once_it_is_there(kit: RunnerKit) -> None:
    """The intent is stored; the launch that was under way is carried out and ended."""
    kit.supervise(1)
    kit.submit()
    launch = kit.claim()
    assert launch is not None
    kit.act("RelaunchTask", launch.ref.task_id)
    kit.stopped.clear()
    kit.launched(launch.ref)
    assert kit.stopped == [launch.ref]
    kit.exited(launch.ref, KILLED)
    assert kit.start().attempt == 2


def test_a_question_asked_while_the_worker_is_stopped_holds(kit: RunnerKit) -> None:
    """A relaunch does not drop a question: the task is HELD, and its ruling starts the next attempt."""
    kit.supervise(1)
    ref = kit.running()
    kit.act("RelaunchTask", ref.task_id)
    escalation_id = kit.escalate(ref)
    assert kit.exited(ref, KILLED).state is State.HELD
    assert kit.claim() is None
    kit.rule(escalation_id)
    launch = kit.claim()
    assert launch is not None
    assert launch.reason == "RULING"


def test_a_worker_that_completes_while_it_is_stopped_has_completed(kit: RunnerKit) -> None:
    """What the worker says of its task outranks a relaunch; and one that has said so is not relaunched or settled."""
    kit.supervise(1)
    ref = kit.running()
    kit.act("RelaunchTask", ref.task_id)
    kit.complete(ref, "done after all")
    for method in ("RelaunchTask", "SettleTask"):
        changes_nothing(kit, Reason.ILLEGAL_TRANSITION, lambda method=method: kit.act(method, ref.task_id))
    ended = kit.exited(ref, KILLED)
    assert (ended.state, ended.summary, ended.summary_author) == (State.SUCCEEDED, "done after all", Author.WORKER)


def test_s05_a_relaunch_keeps_what_the_runner_saw_for_the_diagnosis(kit: RunnerKit) -> None:
    """(c) Killed, then relaunched → the summary is still the runner's; the supervisor's words are in audit and attempt."""
    kit.supervise(1)
    ref = kit.running()
    seen = kit.exited(ref, KILLED)
    kit.act("RelaunchTask", ref.task_id, cause="exited")
    task = kit.task(ref.task_id)
    assert (task.summary, task.summary_author) == (seen.summary, Author.RUNNER)
    ref = kit.start()
    kit.act("RelaunchTask", ref.task_id, cause="no progress")
    attempt = kit.runner.read(lambda reader: tasks.load_attempt(reader, ref.task_id, 1, 2))
    assert attempt is not None
    assert attempt.stop_cause == "no progress"
    assert kit.exited(ref, exit_code(0)).summary == seen.summary
    audit = kit.ask("ListAudit", pb.LaneRunnerServiceListAuditRequest(task_id=ref.task_id))
    assert [e.action for e in audit.entries][-1] == "RelaunchTask attempt 2: no progress"


def test_a_first_relaunch_says_why_in_the_supervisors_name(kit: RunnerKit) -> None:
    """Nobody else has said anything yet: the summary is the cause, and its author the supervisor."""
    kit.supervise(1)
    ref = kit.running()
    kit.act("RelaunchTask", ref.task_id, cause="no progress")
    task = kit.exited(ref, KILLED)
    assert (task.summary, task.summary_author) == ("attempt 1 was relaunched: no progress", Author.SUPERVISOR)


def test_s11_a_dead_worker_is_one_event_and_one_charge(kit: RunnerKit) -> None:
    """Two sweeps see it before its end is stored: both relaunch attempt 1, one is told no; its end costs no retry more."""
    kit.supervise(1)
    ref = kit.running()
    kit.act("RelaunchTask", ref.task_id, cause="exited")
    changes_nothing(kit, Reason.ILLEGAL_TRANSITION, lambda: kit.act("RelaunchTask", ref.task_id, cause="exited"))
    kit.exited(ref, KILLED)
    kit.exited(ref, KILLED)
    task = kit.task(ref.task_id)
    assert (task.relaunches, task.premature_exits, task.state) == (1, 0, State.QUEUED)
    assert kit.start().attempt == 2
    incident = kit.act("ClaimIncident", ref.task_id, kind="exited").incident
    assert kit.act("ClaimIncident", ref.task_id, kind="exited").incident == incident
    assert len(kit.ask("GetTask", pb.GetTaskRequest(task_id=ref.task_id)).task.incidents) == 1


def test_s04_a_settle_is_a_fixed_point(kit: RunnerKit) -> None:
    """50 times, byte for byte."""
    checks.check_a_settle_is_a_fixed_point(kit)


def test_s07_nothing_wakes_a_settled_task(kit: RunnerKit) -> None:
    """No write and no restart; what waited is PARKED, and runs once the task is reopened."""
    checks.check_nothing_wakes_a_settled_task(kit)


def mutating(service: ServiceDescriptor) -> set[str]:
    """The methods that change something."""
    return {method.name for method in service.methods if "request_id" in method.input_type.fields_by_name}


def test_s07_no_method_there_is_leads_out_of_settled(kit: RunnerKit) -> None:
    """Every method of both services that writes, but Reopen, whoever calls it, taken or refused, and a restart after each:
    the task is SETTLED, its inputs are PARKED, and there is nothing to launch.
    """
    kit.supervise(1)
    ref = kit.running(gates=["review"])
    hold = kit.escalate(ref)
    kit.rule(hold)
    kit.take(ref, kit.waiting(ref.task_id)[0].message_id)
    sent = kit.send(ref.task_id)
    key = kit.act("ClaimIncident", ref.task_id).incident.key
    kit.act("SettleTask", ref.task_id)
    kit.exited(ref)
    task_id = ref.task_id
    of_operators: dict[str, Callable[[], object]] = {
        "SubmitTask": lambda: kit.submit(parent_task_id=task_id),
        "SendInput": lambda: kit.send(task_id),
        "Acknowledge": lambda: kit.ask("Acknowledge", pb.AcknowledgeRequest(escalation_id=hold)),
        "Steer": lambda: kit.rule(hold),
        "ExtendHold": lambda: kit.extend(hold, 3600),
        "RecordGate": lambda: kit.review(task_id, "review", "APPROVED"),
        "ResolveIncident": lambda: kit.on_task("ResolveIncident", task_id, key=key),
        **{
            name: partial(kit.on_task, name, task_id)
            for name in ("CancelTask", "PauseTask", "ResumeTask", "RetryTask", "TakeOver")
        },
    }
    filed: dict[str, Any] = {"key": key, "claim_generation": 1, "external_id": "x-1"}
    of_supervisors: dict[str, Callable[[], object]] = {
        "WakeTask": lambda: kit.act("WakeTask", task_id),
        "RelaunchTask": lambda: kit.act("RelaunchTask", task_id, relaunches_max=100),
        "SettleTask": lambda: kit.act("SettleTask", task_id, summary="again"),
        "ClaimIncident": lambda: kit.act("ClaimIncident", task_id, kind="another"),
        "RecordIncident": lambda: kit.act("RecordIncident", task_id, **filed),
    }
    of_workers: dict[str, Callable[[], object]] = {
        "Escalate": lambda: kit.escalate(ref),
        "AcknowledgeMessage": lambda: kit.take(ref, sent),
        "ReportProgress": lambda: kit.say(ref, "ReportProgress", worker_service_pb2.ReportProgressRequest()),
        "NextDirective": lambda: kit.say(
            ref, "NextDirective", worker_service_pb2.NextDirectiveRequest(usage={"tokens": 190_000, "window": 200_000})
        ),
        "ReportDirective": lambda: kit.say(
            ref, "ReportDirective", worker_service_pb2.ReportDirectiveRequest(directive_id=f"{task_id}.1.d1", outcome=1)
        ),
        "Complete": lambda: kit.complete(ref),
    }
    assert {*of_operators, *of_supervisors, "ReopenTask"} == mutating(LANE_RUNNER)
    assert set(of_workers) == mutating(WORKER)
    for name, act in (of_operators | of_supervisors | of_workers).items():
        with suppress(Refusal):
            act()
        kit.restart()
        kit.clock.advance(3600)
        kit.fire()
        kit.lift()
        assert (kit.claim(), kit.start_hook(task_id)) == (None, None), f"something was started after {name}"
        assert kit.task(task_id).state is State.SETTLED, name
        assert kit.message(sent).state == "PARKED", name


def test_an_intent_to_settle_is_kept(kit: RunnerKit) -> None:
    """A crash in between ends settled, never resumed."""
    checks.check_an_intent_to_settle_is_kept(kit)


def test_a_cancel_that_came_first_stays_a_cancel(kit: RunnerKit) -> None:
    """The first stored intent wins: the settle is told that the task is being canceled."""
    kit.supervise(1)
    ref = kit.running()
    kit.cancel(ref.task_id, "not needed")
    changes_nothing(kit, Reason.TASK_TERMINAL, lambda: kit.act("SettleTask", ref.task_id))
    assert kit.exited(ref, KILLED).state is State.CANCELED
    changes_nothing(kit, Reason.TASK_TERMINAL, lambda: kit.act("SettleTask", ref.task_id))


def test_a_settled_task_drops_the_ruling_of_its_epoch(kit: RunnerKit) -> None:
    """A ruling that no worker took ends UNDELIVERED with its hold; the next epoch asks its own questions."""
    kit.supervise(1)
    ref = kit.running()
    ruling = kit.rule(kit.escalate(ref)).message.message_id
    kit.exited(ref, KILLED)
    kit.act("SettleTask", ref.task_id)
    kit.on_task("ReopenTask", ref.task_id)
    assert kit.message(ruling).state == "UNDELIVERED"
    assert kit.waiting(ref.task_id) == []


@pytest.mark.parametrize("field", ["summary", "diagnosis"])
def test_a_text_over_its_limit_is_refused_at_the_door(kit: RunnerKit, field: str) -> None:
    """TOO_LARGE above 4 KiB; exactly 4 KiB of characters of several bytes are kept whole."""
    kit.supervise(1)
    ref = kit.running()
    changes_nothing(kit, Reason.TOO_LARGE, lambda: kit.act("SettleTask", ref.task_id, **{field: "ü" * 2049}))
    changes_nothing(kit, Reason.REQUEST_INVALID, lambda: kit.act("SettleTask", ref.task_id, summary=" \n"))
    kit.exited(ref, KILLED)
    kit.act("SettleTask", ref.task_id, **{field: "ü" * 2048})
    assert getattr(kit.task(ref.task_id), field) == "ü" * 2048


def test_a_wake_is_spent_once(kit: RunnerKit) -> None:
    """I8: one wake in an epoch."""
    checks.check_a_wake_is_spent_once(kit)


def test_a_claim_has_one_holder(kit: RunnerKit) -> None:
    """S01, at the runner: a claim is compared and set in one transaction."""
    checks.check_a_claim_has_one_holder(kit)


def test_a_failed_filing_is_counted_and_its_text_does_not_grow(kit: RunnerKit) -> None:
    """FILING_FAILED with the last failure; 20 tries later it is filed, and stays filed."""
    kit.supervise(1)
    ref = kit.running()
    key = kit.act("ClaimIncident", ref.task_id).incident.key
    known = {"key": key, "claim_generation": 1}
    for tries in range(1, 21):
        failed = kit.act("RecordIncident", ref.task_id, failure="the tracker answers 503", **known).incident
        assert (failed.state, failed.tries) == (incident_pb2.INCIDENT_STATE_FILING_FAILED, tries)
        assert failed.failure == "the tracker answers 503"
    filed = kit.act("RecordIncident", ref.task_id, external_id="x-1", also_task_ids=["t2"], **known).incident
    assert (filed.state, filed.tries, filed.failure) == (incident_pb2.INCIDENT_STATE_FILED, 21, "")
    late = kit.act("RecordIncident", ref.task_id, failure="timed out", **known).incident
    assert late == filed, "a filed incident was unfiled"
    changes_nothing(
        kit, Reason.ILLEGAL_TRANSITION, lambda: kit.act("RecordIncident", ref.task_id, external_id="x-2", **known)
    )
    for both in ({}, {"external_id": "x", "failure": "y"}):
        changes_nothing(
            kit, Reason.REQUEST_INVALID, lambda both=both: kit.act("RecordIncident", ref.task_id, **known, **both)
        )


def test_a_resolved_incident_is_followed_by_another(kit: RunnerKit) -> None:
    """The next occurrence has a key of its own and names the last; by an operator, or a supervisor on their behalf."""
    kit.supervise(1)
    ref = kit.running()
    first = kit.act("ClaimIncident", ref.task_id).incident
    kit.act("RecordIncident", ref.task_id, key=first.key, claim_generation=1, external_id="x-1")
    changes_nothing(kit, Reason.INCIDENT_UNKNOWN, lambda: kit.on_task("ResolveIncident", ref.task_id, key="none"))
    resolved = kit.on_task("ResolveIncident", ref.task_id, key=first.key).incident
    assert resolved.state == incident_pb2.INCIDENT_STATE_RESOLVED
    assert kit.on_task("ResolveIncident", ref.task_id, key=first.key).incident == resolved
    second = kit.act("ClaimIncident", ref.task_id).incident
    assert (second.key, second.follows, second.claim_generation) == (f"{first.key}#2", first.key, 1)
    request = pb.ResolveIncidentRequest(task_id=ref.task_id, key=second.key)
    request.on_behalf_of.identity, request.on_behalf_of.role = "ann", "operator"
    kit.ask("ResolveIncident", request, role=Role.SUPERVISOR)
    kit.exited(ref, exit_code(1))
    kit.on_task("ReopenTask", ref.task_id)
    third = kit.act("ClaimIncident", ref.task_id).incident
    assert (third.key, third.follows) == (f"{ref.task_id}/2/stale", second.key)
    shown = kit.ask("GetTask", pb.GetTaskRequest(task_id=ref.task_id)).task
    assert [incident.key for incident in shown.incidents] == [third.key]


def test_the_incident_of_an_epoch_that_is_over_can_still_be_filed(kit: RunnerKit) -> None:
    """Claimed, its holder died, the task was reopened meanwhile → taken over and recorded; a new one is not begun."""
    kit.supervise(1)
    ref = kit.running()
    key = kit.act("ClaimIncident", ref.task_id).incident.key
    kit.exited(ref, exit_code(1))
    kit.on_task("ReopenTask", ref.task_id)
    kit.supervise(2)
    taken = kit.act("ClaimIncident", ref.task_id, epoch=1).incident
    assert (taken.key, taken.holder, taken.claim_generation) == (key, "s/i2", 2)
    filed = kit.act("RecordIncident", ref.task_id, epoch=1, key=key, claim_generation=2, external_id="x-1").incident
    assert filed.state == incident_pb2.INCIDENT_STATE_FILED
    kit.on_task("ResolveIncident", ref.task_id, key=key)
    refused(Reason.ILLEGAL_TRANSITION, lambda: kit.act("ClaimIncident", ref.task_id, epoch=1))


def test_a_change_that_only_the_view_shows_raises_the_version(kit: RunnerKit) -> None:
    """A supervisor takes a report by its version: inputs, incidents and children must raise it."""
    kit.supervise(1)
    ref = kit.running()
    versions = [kit.task(ref.task_id).version]
    for act in (
        lambda: kit.send(ref.task_id),
        lambda: kit.act("ClaimIncident", ref.task_id),
        lambda: kit.submit(parent_task_id=ref.task_id, lane="b"),
        lambda: kit.take(ref, kit.waiting(ref.task_id)[0].message_id),
    ):
        act()
        versions.append(kit.task(ref.task_id).version)
    assert versions == sorted(set(versions))
