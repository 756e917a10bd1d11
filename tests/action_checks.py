"""What must hold of automatic actions, sessions and claims, as plain functions: the tests call them, and the tests of
mutants see them fail.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lane_runner_svc.core.states import State
from lane_runner_svc.core.task import Author, HookState
from lanewarden.errors import Reason
from lanewarden.v1 import incident_pb2
from lanewarden.v1 import lane_runner_service_pb2 as pb
from tests.runner_checks import changes_nothing, refused
from tests.runner_kit import KILLED, NEVER_STARTED, RunnerKit, exit_code

ACTIONS = ("WakeTask", "RelaunchTask", "SettleTask", "ClaimIncident", "RecordIncident")


class GrantFirst:
    """A store at which, whenever a unit of work is handed in, another supervisor is granted the runner just before it."""

    def __init__(self, kit: RunnerKit) -> None:
        self._kit = kit
        self._store = kit.runner.store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def write(self, *args: Any, **named: Any) -> Any:
        self._kit.runner.store = self._store
        self._kit.supervise(2)
        return await self._store.write(*args, **named)


def every_action(kit: RunnerKit) -> dict[str, Callable[..., Any]]:
    """Each of the five on a task for which it has an effect, to be called with what it quotes."""
    resting = kit.submit(kind="TASK_KIND_SESSION", lane="b").task_id
    kit.send(resting)
    running = kit.running().task_id
    key = kit.act("ClaimIncident", running).incident.key
    filed: dict[str, Any] = {"key": key, "claim_generation": 1, "external_id": "x-1"}
    acts: dict[str, Callable[..., Any]] = {
        "WakeTask": lambda **quoted: kit.act("WakeTask", resting, **quoted),
        "RelaunchTask": lambda **quoted: kit.act("RelaunchTask", running, **quoted),
        "SettleTask": lambda **quoted: kit.act("SettleTask", running, **quoted),
        "ClaimIncident": lambda **quoted: kit.act("ClaimIncident", resting, **quoted),
        "RecordIncident": lambda **quoted: kit.act("RecordIncident", running, **(filed | quoted)),
    }
    assert tuple(acts) == ACTIONS
    return acts


def check_an_old_generation_has_no_effect(kit: RunnerKit) -> None:
    """P16: superseded, lapsed or made up → SUPERVISION_FENCED with both numbers, nothing changed, on each of the five."""
    kit.supervise(1)
    acts = every_action(kit)
    kit.supervise(2, live=False)
    for act in acts.values():
        changes_nothing(kit, Reason.SUPERVISION_FENCED, act)
    kit.supervise(3)
    for act in acts.values():
        for generation in (1, 2, 4):
            refusal = changes_nothing(
                kit, Reason.SUPERVISION_FENCED, lambda act=act, old=generation: act(supervision_generation=old)
            )
            assert refusal.metadata == {"generation": str(generation), "current_generation": "3"}


def check_no_grant_comes_between(kit: RunnerKit) -> None:
    """P16: the generation was current when the request came, and is not when its unit of work begins → fenced."""
    kit.supervise(1)
    ref = kit.running()
    kit.runner.store = GrantFirst(kit)  # type: ignore[assignment]
    refused(Reason.SUPERVISION_FENCED, lambda: kit.act("SettleTask", ref.task_id))
    assert kit.task(ref.task_id).settle_summary is None, "an old supervisor has settled a task"
    kit.runner.store = GrantFirst(kit)  # type: ignore[assignment]
    quoted = {"supervision_generation": 1}
    refused(Reason.SUPERVISION_FENCED, lambda: kit.act("ClaimIncident", ref.task_id, **quoted))


def check_a_repeat_is_fenced(kit: RunnerKit) -> None:
    """S01: what the one who supervises had done, asked for again in the same words by one who does not → fenced."""
    kit.supervise(1)
    asked, task_id = kit.fresh_id(), kit.running().task_id
    kit.supervise(2)
    kit.act("SettleTask", task_id, request_id=asked)
    quoted = {"request_id": asked, "supervision_generation": 1}
    changes_nothing(kit, Reason.SUPERVISION_FENCED, lambda: kit.act("SettleTask", task_id, **quoted))
    kit.act("SettleTask", task_id, request_id=asked)


def check_a_relaunch_happens_once(kit: RunnerKit) -> None:
    """P10: carried out, its answer lost, asked again with its id by a supervisor that was started again → the same answer,
    one worker, one charge; another request for the attempt → a conflict, and later ATTEMPT_STALE.
    """
    kit.supervise(1)
    ref = kit.running()
    asked = kit.fresh_id()
    first = kit.act("RelaunchTask", ref.task_id, request_id=asked)
    assert (first.task.relaunches, kit.stopped) == (1, [ref])
    kit.restart()
    kit.supervise(2)
    assert kit.act("RelaunchTask", ref.task_id, request_id=asked) == first, "a repeat got another answer"
    changes_nothing(kit, Reason.ILLEGAL_TRANSITION, lambda: kit.act("RelaunchTask", ref.task_id))
    queued = kit.exited(ref, KILLED)
    assert (queued.state, queued.relaunches, queued.premature_exits) == (State.QUEUED, 1, 0)
    changes_nothing(kit, Reason.ILLEGAL_TRANSITION, lambda: kit.act("RelaunchTask", ref.task_id))
    again = kit.claim()
    assert again is not None, "a relaunch waits for nothing"
    assert (again.ref.attempt, again.reason) == (2, "RELAUNCH")
    assert kit.act("RelaunchTask", ref.task_id, request_id=asked, attempt=1) == first
    refusal = changes_nothing(kit, Reason.ATTEMPT_STALE, lambda: kit.act("RelaunchTask", ref.task_id, attempt=1))
    assert (refusal.metadata["attempt"], refusal.metadata["current_attempt"]) == ("1", "2")
    assert (kit.task(ref.task_id).relaunches, kit.stopped) == (1, [ref])


def check_relaunches_are_bounded(kit: RunnerKit) -> None:
    """I8: R of an epoch, whoever asks and whatever a retry makes of the other budgets; the next is LIMIT_REACHED."""
    kit.supervise(1)
    ref = kit.running()
    for attempt in (1, 2):
        kit.act("RelaunchTask", ref.task_id)
        kit.exited(ref, exit_code(0))
        assert kit.task(ref.task_id).state is State.QUEUED, "a worker that was stopped is not done"
        ref = kit.start()
        assert (ref.attempt, kit.task(ref.task_id).relaunches) == (attempt + 1, attempt)
    changes_nothing(kit, Reason.LIMIT_REACHED, lambda: kit.act("RelaunchTask", ref.task_id))
    kit.exited(ref, exit_code(1))
    kit.on_task("RetryTask", ref.task_id)
    ref = kit.start()
    changes_nothing(kit, Reason.LIMIT_REACHED, lambda: kit.act("RelaunchTask", ref.task_id))
    kit.exited(ref, exit_code(1))
    kit.on_task("ReopenTask", ref.task_id)
    assert kit.task(ref.task_id).relaunches == 0


def check_a_held_task_is_left_alone(kit: RunnerKit) -> None:
    """With an open hold, and in a pause: neither woken, relaunched nor settled; the refusal says what it waits for."""
    kit.supervise(1)
    ref = kit.running()
    kit.send(ref.task_id)
    escalation_id = kit.escalate(ref)
    for method in ("WakeTask", "RelaunchTask", "SettleTask"):
        refusal = changes_nothing(kit, Reason.ILLEGAL_TRANSITION, lambda method=method: kit.act(method, ref.task_id))
        assert escalation_id in refusal.message
        assert (refusal.metadata["state"], refusal.metadata["holds"]) == ("HELD", escalation_id)
    kit.rule(escalation_id)
    kit.on_task("TakeOver", ref.task_id)
    for method in ("WakeTask", "RelaunchTask", "SettleTask"):
        refusal = changes_nothing(kit, Reason.ILLEGAL_TRANSITION, lambda method=method: kit.act(method, ref.task_id))
        assert refusal.metadata["pauses"] == "TAKEOVER"


def check_a_settle_is_a_fixed_point(kit: RunnerKit) -> None:
    """S04: settled 50 times, with other words each time → every stored byte is that of the first."""
    kit.supervise(1)
    ref = kit.running()
    kit.send(ref.task_id)
    kit.exited(ref, KILLED)
    first = kit.act("SettleTask", ref.task_id)
    settled = kit.task(ref.task_id)
    assert (settled.state, settled.summary_author) == (State.SETTLED, Author.SUPERVISOR)
    assert (settled.summary, settled.diagnosis) == ("given up: no progress", "the worker was killed by SIGSEGV")
    before = kit.dump()
    for number in range(50):
        again = kit.act(
            "SettleTask", ref.task_id, summary=f"again {number}: {first.task.summary}", diagnosis="x" * number
        )
        assert again == first, "a settled task was settled otherwise"
    assert kit.dump() == before, "settling again has changed something"


def check_nothing_wakes_a_settled_task(kit: RunnerKit) -> None:
    """S07: no kind of write and no restart leads out; what waited is PARKED and listed, and runs once it is reopened."""
    kit.supervise(1)
    ref = kit.running(on_success=["true"])
    waiting = [kit.send(ref.task_id, "one"), kit.instruct(ref.task_id, "two").message.message_id]
    kit.act("SettleTask", ref.task_id)
    waiting.append(kit.send(ref.task_id, "three"))  # before the worker has gone
    kit.exited(ref, exit_code(0))
    assert kit.task(ref.task_id).state is State.SETTLED
    for _ in range(3):
        for act in (
            lambda: kit.send(ref.task_id),
            lambda: kit.instruct(ref.task_id),
            lambda: kit.cancel(ref.task_id),
            lambda: kit.on_task("RetryTask", ref.task_id),
            lambda: kit.on_task("ResumeTask", ref.task_id),
            lambda: kit.on_task("PauseTask", ref.task_id),
            lambda: kit.act("WakeTask", ref.task_id),
            lambda: kit.act("RelaunchTask", ref.task_id, relaunches_max=100),
        ):
            changes_nothing(kit, Reason.TASK_SETTLED, act)
        kit.restart()
        kit.clock.advance(3600)
        kit.fire()
        assert (kit.claim(), kit.start_hook(ref.task_id)) == (None, None), "something of a settled task was started"
    assert [kit.message(each).state for each in waiting] == ["PARKED"] * 3
    assert kit.task(ref.task_id).hook_state is HookState.NONE
    shown = kit.ask("GetTask", pb.GetTaskRequest(task_id=ref.task_id))
    assert {message.message_id for message in shown.messages} == set(waiting)
    kit.on_task("ReopenTask", ref.task_id)
    assert [message.message_id for message in kit.waiting(ref.task_id)] == waiting
    assert kit.start().attempt == 1
    assert kit.task(ref.task_id).epoch == 2


def check_an_intent_to_settle_is_kept(kit: RunnerKit) -> None:
    """Stored, then the runner dies → however the worker ends, whatever it says meanwhile: SETTLED, not launched again."""
    kit.supervise(1)
    for end in (exit_code(0), exit_code(1), KILLED):
        ref = kit.running()
        kit.act("SettleTask", ref.task_id)
        assert kit.stopped.pop() == ref
        refused(Reason.TASK_SETTLED, lambda: kit.complete(ref))  # noqa: B023 - called at once
        refused(Reason.TASK_SETTLED, lambda: kit.escalate(ref))  # noqa: B023 - called at once
        changes_nothing(kit, Reason.TASK_SETTLED, lambda: kit.cancel(ref.task_id))  # noqa: B023 - called at once
        changes_nothing(kit, Reason.TASK_SETTLED, lambda: kit.act("RelaunchTask", ref.task_id))  # noqa: B023
        kit.restart()
        assert kit.exited(ref, end).state is State.SETTLED, f"{end}: not settled"
        assert kit.claim() is None
    launch = kit.submit() and kit.claim()
    assert launch is not None
    kit.act("SettleTask", launch.ref.task_id)
    kit.restart()
    assert kit.exited(launch.ref, NEVER_STARTED).state is State.SETTLED


def check_a_wake_is_spent_once(kit: RunnerKit) -> None:
    """Input that no worker takes → one wake in the epoch, which ends a delay and spends no budget; another is refused."""
    kit.supervise(1)
    ref = kit.running()
    changes_nothing(kit, Reason.ILLEGAL_TRANSITION, lambda: kit.act("WakeTask", ref.task_id))
    kit.send(ref.task_id)
    delayed = kit.exited(ref, KILLED)
    assert delayed.not_before_ms > kit.clock.steady_ms()
    asked = kit.fresh_id()
    woken = kit.act("WakeTask", ref.task_id, request_id=asked)
    assert woken.task.woken
    assert kit.claim() is not None, "a task that was woken waits for nothing"
    kit.restart()
    assert kit.act("WakeTask", ref.task_id, request_id=asked) == woken
    changes_nothing(kit, Reason.LIMIT_REACHED, lambda: kit.act("WakeTask", ref.task_id))
    task = kit.task(ref.task_id)
    assert (task.premature_exits, task.relaunches) == (delayed.premature_exits, 0)


def check_a_claim_has_one_holder(kit: RunnerKit) -> None:
    """Claimed once; its holder's again; taken over from one that supervises no more; what is filed stays whose it is."""
    kit.supervise(1)
    ref = kit.running()
    kit.act("SettleTask", ref.task_id)
    kit.exited(ref, KILLED)
    mine = kit.act("ClaimIncident", ref.task_id).incident
    assert (mine.key, mine.holder, mine.claim_generation) == (f"{ref.task_id}/1/stale", "s/i1", 1)
    assert kit.act("ClaimIncident", ref.task_id).incident == mine
    assert kit.act("ClaimIncident", ref.task_id, kind="churning").incident == mine, "an epoch has one incident (I8)"
    kit.supervise(2)
    theirs = kit.act("ClaimIncident", ref.task_id).incident
    assert (theirs.key, theirs.holder, theirs.claim_generation) == (mine.key, "s/i2", 2)
    kit.supervise(3, incarnation="i1")  # the first one is back, and does not know what has happened meanwhile
    filed = {"key": mine.key, "external_id": "GH-1", "url": "https://example.org/1"}
    refusal = changes_nothing(
        kit, Reason.CLAIM_LOST, lambda: kit.act("RecordIncident", ref.task_id, claim_generation=1, **filed)
    )
    assert (refusal.metadata["holder"], refusal.metadata["generation"]) == ("s/i2", "2")
    changes_nothing(kit, Reason.CLAIM_LOST, lambda: kit.act("RecordIncident", ref.task_id, claim_generation=2, **filed))
    assert kit.act("ClaimIncident", ref.task_id).incident.claim_generation == 3
    done = kit.act("RecordIncident", ref.task_id, claim_generation=3, **filed).incident
    assert (done.state, done.external_id, done.tries) == (incident_pb2.INCIDENT_STATE_FILED, "GH-1", 1)
    kit.supervise(4)
    refusal = changes_nothing(kit, Reason.CLAIM_LOST, lambda: kit.act("ClaimIncident", ref.task_id))
    assert (refusal.metadata["holder"], refusal.metadata["external_id"]) == ("s/i1", "GH-1")


def session_with(kit: RunnerKit, *texts: str) -> tuple[str, list[str]]:
    """A session that rests no more, and the ids of its inputs."""
    task = kit.submit(kind="TASK_KIND_SESSION", premature_exits_max=2)
    assert task.state is State.IDLE
    return task.task_id, [kit.send(task.task_id, text) for text in texts]


def check_inputs_make_rounds(kit: RunnerKit) -> None:
    """S13: N inputs while one round runs, one of them during its claim → one next round with all N in order, then rest."""
    task_id, (first,) = session_with(kit, "first")
    launch = kit.claim()
    assert launch is not None
    during_claim = kit.send(task_id, "during the claim")
    kit.launched(launch.ref)
    assert launch.reason == "INPUT"
    later = [during_claim, *(kit.send(task_id, f"input {number}") for number in range(5))]
    kit.take(launch.ref, first)
    assert kit.exited(launch.ref).state is State.QUEUED
    ref = kit.start()
    assert [message.message_id for message in kit.waiting(task_id)] == later
    for message_id in later:
        kit.take(ref, message_id)
    rests = kit.exited(ref)
    assert (rests.state, rests.attempt, rests.premature_exits) == (State.IDLE, 2, 0)
    before = kit.dump()
    kit.clock.advance(24 * 3600)
    assert (kit.claim(), kit.dump()) == (None, before), "a session at rest costs something"


def check_a_round_takes_its_inputs(kit: RunnerKit) -> None:
    """A round that ends with code 0 and leaves an input of its batch → delivered again, within the budget, then FAILED."""
    task_id, (taken, left) = session_with(kit, "taken", "left")
    ref = kit.start()
    kit.take(ref, taken)
    for exits in (1, 2):
        again = kit.exited(ref)
        assert (again.state, again.premature_exits) == (State.QUEUED, exits), "unread input was taken for a round"
        ref = kit.start()
        assert [message.message_id for message in kit.waiting(task_id)] == [left]
    ended = kit.exited(ref)
    assert ended.state is State.FAILED
    assert "without acknowledging 1 inputs" in ended.summary


def check_a_child_tells_its_parent(kit: RunnerKit) -> None:
    """S14: however a child ends, its parent's inbox has it with the end: not empty, and marked when it is no success."""
    kit.supervise(1)
    parent = kit.submit(kind="TASK_KIND_SESSION", lane="b").task_id
    for end, mark in (("SUCCEEDED", ""), ("FAILED", "ERROR: "), ("SETTLED", "ERROR: "), ("CANCELED", "ERROR: ")):
        child = kit.running(parent_task_id=parent)
        assert kit.ask("GetTask", pb.GetTaskRequest(task_id=parent)).task.children_open == 1
        if end == "SETTLED":
            kit.act("SettleTask", child.task_id)
        if end == "CANCELED":
            kit.cancel(child.task_id)
        known = {message.message_id for message in kit.waiting(parent)}
        ended = kit.exited(child, exit_code(1 if end == "FAILED" else 0))
        assert ended.state.name == end
        told = [message for message in kit.waiting(parent) if message.message_id not in known]
        assert len(told) == 1, f"the parent was told {len(told)} times of a child that {end}"
        assert (told[0].kind, told[0].sent_by.identity) == ("INPUT", f"task {child.task_id}")
        assert told[0].body.startswith(f"{mark}child task {child.task_id} (true) {end}: {ended.summary}")
        assert kit.task(parent).state is State.QUEUED, "a parent that rests has work now"
        assert kit.ask("GetTask", pb.GetTaskRequest(task_id=parent)).task.children_open == 0
