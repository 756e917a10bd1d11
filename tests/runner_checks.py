"""What must hold of a runner, as plain functions: the tests call them, and the tests of mutants see them fail.

They raise ``AssertionError`` and nothing of pytest, so that a failure is a failure wherever they are called.
"""

from __future__ import annotations

from collections.abc import Callable

from lane_runner_svc.core.holds import HoldState
from lane_runner_svc.core.states import State
from lane_runner_svc.core.task import HookState, PauseCause
from lane_runner_svc.work import inbox
from lanewarden.auth import Role
from lanewarden.errors import Reason, Refusal
from lanewarden.store import Emitter
from lanewarden.v1 import lane_runner_service_pb2 as pb
from lanewarden.v1 import worker_service_pb2
from tests.runner_kit import KILLED, RunnerKit

OTHER_HANDS = Emitter("tests.other_hands")
HOUR = 3600


def refused(reason: Reason, act: Callable[[], object]) -> Refusal:
    """The refusal of ``act``, which must be for that reason."""
    try:
        act()
    except Refusal as refusal:
        found = refusal
    else:
        raise AssertionError(f"not refused; {reason.name} was to be expected")
    assert found.reason is reason, f"refused as {found}, not as {reason.name}"
    return found


def changes_nothing(kit: RunnerKit, reason: Reason, act: Callable[[], object]) -> Refusal:
    """The refusal of ``act``, which must be for that reason and leave every row as it was."""
    before = kit.dump()
    refusal = refused(reason, act)
    assert kit.dump() == before, "a refused request has changed something"
    return refusal


def check_a_hold_outlives_its_worker(kit: RunnerKit) -> None:
    """H01: asked, exited with code 0 → HELD, for as long as it takes, at no cost."""
    ref = kit.running()
    escalation_id = kit.escalate(ref)
    assert kit.task(ref.task_id).state is State.HELD, "a task is HELD from the commit of its question on"
    held = kit.exited(ref)
    assert (held.state, held.worker_alive) == (State.HELD, False)
    kit.clock.advance(24 * 3600)
    assert kit.claim() is None, "a held task was claimed"
    kit.restart()
    assert kit.claim() is None, "a held task was claimed after a restart"
    assert kit.task(ref.task_id) == held, "silence has changed a held task"
    assert kit.hold(escalation_id).state is HoldState.OPEN


def check_an_ack_releases_nothing(kit: RunnerKit) -> None:
    """H04: acked three times → stamped, and as open as before."""
    ref = kit.running()
    escalation_id = kit.escalate(ref)
    kit.exited(ref)
    for _ in range(3):
        kit.clock.advance(60)
        kit.ask("Acknowledge", pb.AcknowledgeRequest(escalation_id=escalation_id, note="looking"))
    hold = kit.hold(escalation_id)
    assert (hold.state, hold.acks, hold.ruling) == (HoldState.OPEN, 3, None)
    assert kit.task(ref.task_id).state is State.HELD
    assert kit.claim() is None, "an ack has started an attempt"


def check_an_instruction_releases_nothing(kit: RunnerKit) -> None:
    """H04: steered without a ruling → in the inbox, and the hold as open as before."""
    ref = kit.running()
    escalation_id = kit.escalate(ref)
    kit.exited(ref)
    kit.instruct(ref.task_id, "please go on, approved")
    assert kit.hold(escalation_id).state is HoldState.OPEN
    assert kit.task(ref.task_id).state is State.HELD
    assert kit.claim() is None, "an instruction has started an attempt"
    assert [message.kind for message in kit.waiting(ref.task_id)] == ["INSTRUCTION"]


def check_complete_asks_the_judge(kit: RunnerKit) -> None:
    """H11: Complete with a hold, then with an unacknowledged ruling, and with a gate open → refused, naming each."""
    ref = kit.running(gates=["review"])
    escalation_id = kit.escalate(ref)
    refusal = refused(Reason.COMPLETION_BLOCKED, lambda: kit.complete(ref))
    assert refusal.metadata["blockers"] == f"hold:{escalation_id},gate:review"
    ruling = kit.rule(escalation_id)
    refusal = refused(Reason.COMPLETION_BLOCKED, lambda: kit.complete(ref))
    assert "its ruling is not acknowledged" in refusal.message
    kit.take(ref, ruling.message.message_id)
    refusal = refused(Reason.COMPLETION_BLOCKED, lambda: kit.complete(ref))
    assert refusal.metadata["blockers"] == "gate:review"
    assert kit.task(ref.task_id).outcome is None
    assert kit.task(ref.task_id).state is State.RUNNING


def check_exit_0_asks_the_judge(kit: RunnerKit) -> None:
    """H15: exit 0 with a gate that was never reviewed → FAILED, by name: missing evidence is not success."""
    ref = kit.running(gates=["review"])
    ended = kit.exited(ref)
    assert ended.state is State.FAILED, "exit 0 was taken for success"
    assert "gate review: never reviewed" in ended.summary


def check_a_ruling_finds_its_own_task(kit: RunnerKit) -> None:
    """H18: a lane runs A, then B; the late ruling on A's hold is A's."""
    first = kit.running(lane="a")
    hold_a = kit.escalate(first)
    kit.exited(first)
    second = kit.running(lane="a")
    hold_b = kit.escalate(second)
    response = kit.rule(hold_a)
    assert response.task.task_id == first.task_id, "the ruling went to another task"
    assert kit.hold(hold_b).state is HoldState.OPEN
    assert kit.task(second.task_id).state is State.HELD
    assert kit.waiting(second.task_id) == []
    kit.exited(second)
    assert kit.start("a").task_id == first.task_id, "the ruling has started another task"


def check_a_stale_attempt_has_no_effect(kit: RunnerKit) -> None:
    """P11: whatever attempt 1 says after attempt 2 has started → ATTEMPT_STALE, and nothing changed (I6)."""
    old = kit.running()
    kit.ask("SendInput", pb.SendInputRequest(task_id=old.task_id, text="more"))
    kit.exited(old, KILLED)
    new = kit.start()
    assert (new.task_id, new.attempt) == (old.task_id, 2)
    message_id = kit.waiting(old.task_id)[0].message_id
    for act in (
        lambda: kit.complete(old),
        lambda: kit.complete(old, failed=True),
        lambda: kit.say(old, "ReportProgress", worker_service_pb2.ReportProgressRequest(sequence=9)),
        lambda: kit.escalate(old),
        lambda: kit.escalate(old, expects_reply=False),
        lambda: kit.take(old, message_id),
        lambda: kit.say(old, "GetAssignment", worker_service_pb2.GetAssignmentRequest()),
    ):
        refusal = changes_nothing(kit, Reason.ATTEMPT_STALE, act)
        assert (refusal.metadata["attempt"], refusal.metadata["current_attempt"]) == ("1", "2")
    kit.exited(old)
    assert kit.task(old.task_id).state is State.RUNNING, "the end of attempt 1 has ended attempt 2"


def check_an_unacknowledged_ruling_comes_again(kit: RunnerKit) -> None:
    """H10: ruled, the worker exits with code 0 without acknowledging → not done; the next attempt gets it first."""
    ref = kit.running()
    escalation_id = kit.escalate(ref)
    ruling = kit.rule(escalation_id)
    again = kit.exited(ref)
    assert (again.state, again.premature_exits) == (State.QUEUED, 1)
    kit.clock.advance(60)
    launch = kit.claim()
    assert launch is not None
    assert launch.reason == "RULING"
    kit.launched(launch.ref)
    assert kit.waiting(ref.task_id)[0].message_id == ruling.message.message_id
    kit.take(launch.ref, ruling.message.message_id)
    assert kit.hold(escalation_id).state is HoldState.ACKNOWLEDGED
    assert kit.exited(launch.ref).state is State.SUCCEEDED


def check_the_first_ruling_wins(kit: RunnerKit) -> None:
    """H06: two rulings on one hold → one wins, the other learns who ruled what when, and changes nothing."""
    ref = kit.running()
    escalation_id = kit.escalate(ref)
    first = kit.rule(escalation_id, by="ann")
    refusal = changes_nothing(kit, Reason.ALREADY_RULED, lambda: kit.rule(escalation_id, decision="REJECT", by="bob"))
    assert refusal.metadata["ruled_by"] == "ann"
    assert refusal.metadata["ruling_id"] == first.message.message_id
    assert refusal.metadata["decision"] == "APPROVE"
    assert [message.message_id for message in kit.waiting(ref.task_id)] == [first.message.message_id]


def check_a_paused_task_is_not_launched(kit: RunnerKit) -> None:
    """H16: while paused, neither queue, backoff, input, instruction, ruling nor restart starts anything."""
    ref = kit.running()
    escalation_id = kit.escalate(ref)
    kit.ask("PauseTask", pb.PauseTaskRequest(task_id=ref.task_id))
    assert kit.task(ref.task_id).state is State.HELD, "a pause has changed the state of a held task"
    kit.exited(ref, KILLED)
    kit.ask("SendInput", pb.SendInputRequest(task_id=ref.task_id, text="more"))
    kit.rule(escalation_id)
    assert kit.task(ref.task_id).state is State.QUEUED
    for _ in range(3):
        kit.clock.advance(3600)
        assert kit.claim() is None, "a paused task was claimed"
        kit.restart()
    kit.ask("ResumeTask", pb.ResumeTaskRequest(task_id=ref.task_id))
    assert kit.start().attempt == 2


def check_a_full_inbox_takes_a_ruling(kit: RunnerKit) -> None:
    """A held task's inbox is full and nobody is there to empty it: inputs are refused, the ruling is not."""
    ref = kit.running()
    escalation_id = kit.escalate(ref)
    kit.exited(ref)
    for number in range(inbox.WAITING_MAX):
        kit.ask("SendInput", pb.SendInputRequest(task_id=ref.task_id, text=f"input {number}"))
    changes_nothing(
        kit,
        Reason.LIMIT_REACHED,
        lambda: kit.ask("SendInput", pb.SendInputRequest(task_id=ref.task_id, text="one too many")),
    )
    kit.rule(escalation_id)
    assert kit.waiting(ref.task_id)[0].kind == "RULING", "the ruling is not the first message"
    assert kit.start().attempt == 2


def check_no_text_is_a_ruling(kit: RunnerKit) -> None:
    """H08: words without a decision, a decision without words, an option that was not offered → refused by its rule."""
    ref = kit.running()
    escalation_id = kit.escalate(ref, options=[{"key": "left", "text": "left"}])
    for rule, said in {
        "no_decision": {"decision": "UNSPECIFIED", "instructions": "approved, go on"},
        "empty_instructions": {"decision": "APPROVE", "instructions": " \n"},
        "no_option": {"decision": "CHOOSE"},
        "option_not_offered": {"decision": "CHOOSE", "option_key": "up"},
        "gate_unknown": {"ratifies": ["review"]},
    }.items():
        refusal = changes_nothing(kit, Reason.RULING_INVALID, lambda said=said: kit.rule(escalation_id, **said))
        assert refusal.metadata["rule"] == rule
    assert kit.hold(escalation_id).open


def check_check_completion_asks_the_judge(kit: RunnerKit) -> None:
    """H11: a merge script that asks is told every blocker."""
    ref = kit.running(gates=["review"])
    escalation_id = kit.escalate(ref)
    found = kit.ask("CheckCompletion", pb.CheckCompletionRequest(task_id=ref.task_id)).blockers
    assert [(each.kind, each.name) for each in found] == [("hold", escalation_id), ("gate", "review")]


def check_on_success_asks_the_judge(kit: RunnerKit) -> None:
    """I1: a task that is said to have SUCCEEDED while something blocks (other hands were at the store, or an older release)
    → its command is not run, and says why.
    """
    ref = kit.running(gates=["review"], on_success=["true"])
    escalation_id = kit.escalate(ref)
    kit.exited(ref)
    sql = "UPDATE tasks SET state = 'SUCCEEDED', hook_state = 'PENDING', summary = 'x', summary_author = 'RUNNER'"
    kit.runner.store.write_now(lambda uow: uow.execute(sql), emitter=OTHER_HANDS)
    assert kit.start_hook(ref.task_id) is None, "the command was run over a hold"
    task = kit.task(ref.task_id)
    assert (task.hook_state, task.hook_tries) == (HookState.FAILED, 0)
    assert escalation_id in task.hook_summary
    assert "gate review" in task.hook_summary


def check_a_role_is_not_read_from_the_payload(kit: RunnerKit) -> None:
    """I3: on_behalf_of is believed from a supervisor only, and only for one who may do it himself."""
    ref = kit.running()
    escalation_id = kit.escalate(ref)

    def rule(caller: Role, **person: str) -> object:
        ruling = {"escalation_id": escalation_id, "decision": "DECISION_APPROVE", "instructions": "go on"}
        return kit.ask("Steer", pb.SteerRequest(ruling=ruling, on_behalf_of=person), role=caller)

    ann = {"identity": "ann", "role": "operator"}
    changes_nothing(kit, Reason.ROLE_NOT_ALLOWED, lambda: rule(Role.OPERATOR, **ann))
    for role in ("worker", "viewer", "runner", "", "owner"):
        changes_nothing(
            kit, Reason.ROLE_NOT_ALLOWED, lambda role=role: rule(Role.SUPERVISOR, identity="ann", role=role)
        )
    changes_nothing(kit, Reason.REQUEST_INVALID, lambda: rule(Role.SUPERVISOR, role="operator"))
    rule(Role.SUPERVISOR, **ann)
    ruling = kit.hold(escalation_id).ruling
    assert ruling is not None
    assert (ruling.ruled_by.identity, ruling.ruled_by.role) == ("ann", "operator")


def check_a_deadline_decides_nothing(kit: RunnerKit) -> None:
    """H17: passed → parked, flagged, as open as before; nothing is started, and a ruling after it is as good as any."""
    ref = kit.running(hold_deadline={"seconds": HOUR})
    escalation_id = kit.escalate(ref)
    kit.exited(ref)
    kit.clock.advance(2 * HOUR)
    assert kit.fire() == 1
    assert kit.fire() == 0, "one deadline has fired twice"
    hold, task = kit.hold(escalation_id), kit.task(ref.task_id)
    assert (hold.state, hold.expired, hold.ruling) == (HoldState.OPEN, True, None), "a deadline has decided"
    assert (task.state, task.pauses) == (State.HELD, {PauseCause.HOLD_DEADLINE})
    assert kit.claim() is None
    kit.rule(escalation_id)
    assert kit.task(ref.task_id).pauses == frozenset()
    assert kit.start().attempt == 2


def check_an_ack_moves_no_deadline(kit: RunnerKit) -> None:
    """H04: the deadline stays where it was, before it and after it; the reminders begin anew."""
    ref = kit.running(hold_deadline={"seconds": HOUR}, approvers=[{"identity": "ann"}])
    escalation_id = kit.escalate(ref)
    before = kit.hold(escalation_id)
    for passed in (False, True):
        kit.clock.advance(HOUR // 2)
        kit.fire()
        kit.ask("Acknowledge", pb.AcknowledgeRequest(escalation_id=escalation_id))
        hold = kit.hold(escalation_id)
        assert hold.deadline_ms == before.deadline_ms, "an ack has moved the deadline"
        assert (hold.expired, hold.owed_by) == (passed, "ann")
        assert hold.next_reminder_ms == kit.clock.steady_ms() + 15 * 60 * 1000
    assert kit.task(ref.task_id).pauses == {PauseCause.HOLD_DEADLINE}


def check_a_park_is_not_resumed(kit: RunnerKit) -> None:
    """H16: ResumeTask clears the operator's pause and the takeover, each alone; the park goes with its hold or deadline."""
    ref = kit.running(hold_deadline={"seconds": HOUR})
    escalation_id = kit.escalate(ref)
    kit.exited(ref)
    kit.on_task("PauseTask", ref.task_id)
    kit.on_task("TakeOver", ref.task_id)
    kit.clock.advance(2 * HOUR)
    kit.fire()
    operator, takeover, park = PauseCause.OPERATOR, PauseCause.TAKEOVER, PauseCause.HOLD_DEADLINE
    assert kit.task(ref.task_id).pauses == {operator, takeover, park}
    kit.on_task("ResumeTask", ref.task_id)
    assert kit.task(ref.task_id).pauses == {takeover, park}, "clearing one cause has cleared another"
    kit.on_task("ResumeTask", ref.task_id, cause="PAUSE_CAUSE_TAKEOVER")
    assert kit.task(ref.task_id).pauses == {park}, "clearing one cause has cleared another"
    park_cause = {"cause": "PAUSE_CAUSE_HOLD_DEADLINE"}
    changes_nothing(kit, Reason.REQUEST_INVALID, lambda: kit.on_task("ResumeTask", ref.task_id, **park_cause))
    kit.extend(escalation_id, HOUR)
    assert kit.task(ref.task_id).pauses == frozenset()
    assert kit.hold(escalation_id).open


def check_an_epoch_is_a_fence(kit: RunnerKit) -> None:
    """I6: what belongs to the last life of a task (its worker, its reviews, its command) says nothing in the next, though
    the numbers of the attempts begin anew.
    """
    old = kit.running(gates=["review"], on_success=["true"])
    kit.review(old.task_id, "review", "APPROVED")
    assert kit.exited(old).state is State.SUCCEEDED
    old_run = kit.start_hook(old.task_id)
    assert old_run is not None
    refused(Reason.ILLEGAL_TRANSITION, lambda: kit.on_task("ReopenTask", old.task_id))  # its command runs
    kit.end_hook(old_run)
    kit.on_task("ReopenTask", old.task_id)
    new = kit.start()
    assert (new.epoch, new.attempt) == (2, 1)
    assert (old.epoch, old.attempt) == (1, 1)
    changes_nothing(kit, Reason.ATTEMPT_STALE, lambda: kit.complete(old, failed=True))
    changes_nothing(kit, Reason.ATTEMPT_STALE, lambda: kit.escalate(old))
    kit.exited(old)
    assert kit.task(old.task_id).state is State.RUNNING, "the end of the last life's worker has ended this one's"
    refused(Reason.COMPLETION_BLOCKED, lambda: kit.complete(new))
    kit.review(old.task_id, "review", "APPROVED")
    assert kit.exited(new).state is State.SUCCEEDED
    run = kit.start_hook(old.task_id)
    assert run is not None
    assert run.idempotency_key != old_run.idempotency_key
    kit.end_hook(old_run)
    assert kit.task(old.task_id).hook_running, "the end of the last life's command has ended this one's"


def check_a_command_waits_for_its_pause(kit: RunnerKit) -> None:
    """H16: what was paused or taken over is not merged; it can still be paused, and resumed, after its success."""
    ref = kit.running(on_success=["true"])
    kit.on_task("TakeOver", ref.task_id)
    assert kit.exited(ref).state is State.SUCCEEDED
    assert kit.start_hook(ref.task_id) is None, "the command of a task that was taken over was started"
    kit.on_task("PauseTask", ref.task_id)
    kit.on_task("ResumeTask", ref.task_id, cause="PAUSE_CAUSE_TAKEOVER")
    assert kit.start_hook(ref.task_id) is None, "the command of a paused task was started"
    kit.on_task("ResumeTask", ref.task_id)
    run = kit.start_hook(ref.task_id)
    assert run is not None
    assert kit.start_hook(ref.task_id) is None, "a command runs twice at once"
    kit.end_hook(run)
    refused(Reason.TASK_TERMINAL, lambda: kit.on_task("PauseTask", ref.task_id))


def check_no_try_is_numbered_twice(kit: RunnerKit) -> None:
    """A try of a command has a directory of its own: what is retried after all tries failed is a new try."""
    ref = kit.running(on_success=["true"])
    kit.exited(ref)
    numbers = []
    for _ in range(2):
        while kit.task(ref.task_id).hook_state is HookState.PENDING:
            run = kit.start_hook(ref.task_id)
            assert run is not None
            numbers.append(run.number)
            kit.end_hook(run, done=False)
        assert kit.task(ref.task_id).hook_state is HookState.FAILED
        kit.on_task("RetryTask", ref.task_id)
    assert numbers == list(range(1, 11))


def check_a_closed_hold_parks_nothing(kit: RunnerKit) -> None:
    """H14: canceled after its deadline and reopened → the next life is not parked by a hold that is closed."""
    ref = kit.running(hold_deadline={"seconds": HOUR})
    kit.escalate(ref)
    kit.exited(ref)
    kit.clock.advance(2 * HOUR)
    kit.fire()
    assert kit.cancel(ref.task_id).pauses == frozenset()
    kit.on_task("ReopenTask", ref.task_id)
    assert kit.start().epoch == 2
