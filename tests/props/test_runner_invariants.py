"""Anything that can happen to a lane runner, in any order: the invariants hold after every step."""

from __future__ import annotations

import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any, ClassVar, TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from lane_runner_svc.core.holds import Hold
from lane_runner_svc.core.states import State
from lane_runner_svc.core.task import HookState
from lane_runner_svc.work.hooks import HookRun
from lane_runner_svc.work.session import AttemptRef
from lanewarden.auth import Role
from lanewarden.errors import Reason, Refusal
from lanewarden.store import Emitter
from lanewarden.v1 import lane_runner_service_pb2 as pb
from lanewarden.v1 import worker_service_pb2 as wpb
from tests.runner_invariants import Watch
from tests.runner_kit import KILLED, LANES, LOST, NEVER_STARTED, exit_code, make_runner

T = TypeVar("T")

BREAKER = Emitter("tests.breaker")
UNFINISHED_MAX = 4
MEMORY = Path("/dev/shm")
"""Where there is such a place, syncing costs nothing; no crash is simulated here, only a restart."""
ENDED = (Reason.TASK_TERMINAL, Reason.TASK_SETTLED)
DONE_TOO_SOON = (Reason.COMPLETION_BLOCKED, Reason.TASK_SETTLED)
ENDS = {"done": exit_code(0), "wrong": exit_code(1), "killed": KILLED, "lost": LOST}

# Weights by repetition. One rule rather than one for each act, because hypothesis leaves out some rules in each run, and a
# run without the questions or without the launches says little.
OPERATOR = [
    *("submit", "ruling", "ruling", "ruling", "ack", "message", "gate", "pause", "resume", "resume", "cancel"),
    *("extend", "retry", "reopen", "take_over"),
]
SUPERVISOR = [
    *("relaunch", "settle", "wake", "wake", "claim_incident", "record_incident"),
    *("resolve_incident", "grant", "fenced"),
]
LAUNCHER = [
    "time_passes",
    "time_passes",
    "hook_starts",
    "hook_ends",
    "claim",
    "claim",
    "claim",
    "launched",
    "launched",
    "launch_failed",
    "exited",
    "exited",
    "old_news",
    "restart",
]
WORKER = ["escalate", "escalate", "take", "take", "complete", "progress", "dead_worker_speaks"]
which = st.integers(0, 11)


class RunnerMachine(RuleBasedStateMachine):
    """A runner, the processes that would be there, and everything that people, workers and the launcher may do."""

    happened: ClassVar[Counter[str]] = Counter()
    """How often things came about in all runs of a test, so that it can tell that they did."""

    supervised = True
    """Whether there are sessions among the tasks. Without, more of what is older comes about in a run."""

    def __init__(self) -> None:
        super().__init__()
        self.place = tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None)
        self.kit = make_runner(Path(self.place.name))
        self.generation = 1
        self.kit.supervise(1)
        self.watch = Watch()
        self.task_ids: list[str] = []
        self.paused: dict[str, set[str]] = defaultdict(set)
        """What operators have paused and not resumed; a deadline that has passed and a limit of use are not among it."""
        self.hooks: list[HookRun] = []
        self.starting: list[AttemptRef] = []
        self.living: list[AttemptRef] = []
        self.dead: list[AttemptRef] = []

    def teardown(self) -> None:
        try:
            self.kit.close()  # which asks whether every row had an author (I11)
        finally:
            self.place.cleanup()

    @invariant()
    def the_invariants_hold(self) -> None:
        self.kit.runner.read(self.watch.look)
        for task_id in self.task_ids:
            causes = {cause.value for cause in self.kit.task(task_id).pauses} - {"HOLD_DEADLINE", "USAGE_LIMIT"}
            assert causes == self.paused[task_id], f"{task_id} is paused by {causes}: one cause has touched another"
        assert self.kit.runner.store.unattributed_rows() == 0, "somebody writes without a name (I11)"

    @rule(act=st.sampled_from([*OPERATOR, *SUPERVISOR, *LAUNCHER, *WORKER]), index=which, variant=which)
    def happen(self, act: str, index: int, variant: int) -> None:
        if act in (*OPERATOR, *SUPERVISOR) and not self.task_ids:
            act = "submit"
        if act in WORKER and not self.speakers():
            act = "claim" if variant % 2 else "dead_worker_speaks"
        getattr(self, act)(index, variant)

    # Helpers

    def note(self, what: str) -> None:
        self.happened[what] += 1

    def perhaps(self, act: Callable[[], T], *reasons: Reason) -> T | None:
        """The answer, or None for a refusal, which must be for one of the reasons and change nothing."""
        before = self.kit.dump()
        try:
            return act()
        except Refusal as refusal:
            self.note(refusal.reason.name)
            if refusal.reason not in reasons or self.kit.dump() != before:
                raise
            return None

    def pick(self, things: Sequence[T], index: int) -> T:
        return things[index % len(things)]

    def speakers(self) -> list[AttemptRef]:
        return [*self.living, *self.starting]

    # What operators do

    def submit(self, index: int, variant: int) -> None:
        if sum(not self.kit.task(task_id).terminal for task_id in self.task_ids) < UNFINISHED_MAX:
            spec: dict[str, Any] = {"gates": ["review"]} if variant == 0 else {}
            if variant % 2:
                spec["hold_deadline"] = {"seconds": 7_200}
                spec["approvers"] = [{"identity": "ann"}, {"identity": "bob", "after": {"seconds": 3_600}}]
            if variant % 3:
                spec["on_success"] = ["true"]
            if self.supervised and variant > 6:
                spec["kind"] = "TASK_KIND_SESSION"
            alive = [task_id for task_id in self.task_ids if not self.kit.task(task_id).terminal]
            if alive and index % 3 == 0:
                parent = self.kit.task(self.pick(alive, index))
                spec["parent_task_id"] = "" if parent.stopping else parent.task_id
            task = self.kit.submit(lane=self.pick(LANES, index), premature_exits_max=1, **spec)
            self.task_ids.append(task.task_id)

    def ruling(self, index: int, variant: int) -> None:
        asked = list(self.watch.accepted.escalations)
        if not asked:
            return
        escalation_id, valid = self.pick(asked[::-1], index), variant % 4 != 0
        role = Role.SUPERVISOR if variant > 8 else Role.OPERATOR
        request = pb.SteerRequest(
            request_id=self.kit.fresh_id(),
            ruling={
                "escalation_id": escalation_id,
                "decision": "DECISION_APPROVE",
                "instructions": "go on" if valid else " ",
            },
        )
        answer = self.perhaps(
            lambda: self.kit.ask("Steer", request, role=role),
            Reason.ALREADY_RULED,
            Reason.HOLD_NOT_OPEN,
            *([] if valid else [Reason.RULING_INVALID]),
        )
        if answer is not None:
            assert valid, "an empty ruling was accepted"
            self.watch.accepted.rulings[request.request_id] = escalation_id
            self.note("ruling")
            assert self.kit.ask("Steer", request, role=role) == answer, "a repeat got another answer"

    def ack(self, index: int, variant: int) -> None:
        asked = list(self.watch.accepted.escalations)
        if asked:
            request = pb.AcknowledgeRequest(escalation_id=self.pick(asked[::-1], index))
            if self.perhaps(lambda: self.kit.ask("Acknowledge", request), Reason.HOLD_NOT_OPEN) is not None:
                self.watch.accepted.acks[request.escalation_id] += 1
                self.note("ack")

    def message(self, index: int, variant: int) -> None:
        task_id = self.pick(self.task_ids[::-1], index)
        text = f"message {len(self.watch.accepted.messages)}"
        instruct = variant % 2 == 0
        if instruct:
            answer = self.perhaps(lambda: self.kit.instruct(task_id, text), *ENDED, Reason.WORKER_DEAD)
        else:
            request = pb.SendInputRequest(task_id=task_id, text=text)
            answer = self.perhaps(lambda: self.kit.ask("SendInput", request), *ENDED)
        if answer is not None:
            self.watch.accepted.messages[answer.message.message_id] = (task_id, text)
            self.note("instruction" if instruct else "input")

    def gate(self, index: int, variant: int) -> None:
        decision = self.pick(["APPROVED", "APPROVED", "WAIVED", "REVISE"], variant)
        request = pb.RecordGateRequest(
            task_id=self.pick(self.task_ids[::-1], index), gate="review", decision=f"GATE_DECISION_{decision}"
        )
        self.perhaps(lambda: self.kit.ask("RecordGate", request), Reason.GATE_UNKNOWN, *ENDED)

    def pause(self, index: int, variant: int) -> None:
        task_id = self.pick(self.task_ids[::-1], index)
        if self.perhaps(lambda: self.kit.on_task("PauseTask", task_id), *ENDED) is not None:
            self.paused[task_id].add("OPERATOR")

    def resume(self, index: int, variant: int) -> None:
        task_id, cause = self.pick(self.task_ids[::-1], index), self.pick(["OPERATOR", "TAKEOVER"], variant)
        if variant > 9:  # only a ruling or another deadline clears that one
            with pytest.raises(Refusal):
                self.kit.on_task("ResumeTask", task_id, cause="PAUSE_CAUSE_HOLD_DEADLINE")
            return
        act = lambda: self.kit.on_task("ResumeTask", task_id, cause=f"PAUSE_CAUSE_{cause}")  # noqa: E731
        if self.perhaps(act, *ENDED) is not None:
            self.paused[task_id].discard(cause)
            self.note(f"resume {cause}")

    def take_over(self, index: int, variant: int) -> None:
        task_id = self.pick(self.task_ids[::-1], index)
        if variant < 4 and self.perhaps(lambda: self.kit.on_task("TakeOver", task_id), *ENDED) is not None:
            self.paused[task_id].add("TAKEOVER")
            self.note("take over")

    def retry(self, index: int, variant: int) -> None:
        before = self.kit.task(self.pick(self.task_ids[::-1], index))
        act = lambda: self.kit.on_task("RetryTask", before.task_id)  # noqa: E731
        if self.perhaps(act, *ENDED) is None:
            return
        if before.state is State.FAILED:
            self.watch.accepted.relives[before.task_id] += 1
            assert self.kit.task(before.task_id).state is State.QUEUED
        else:
            assert self.kit.task(before.task_id).state is before.state, "a retry has moved what had not failed"
        self.note(f"retry, {before.state.name}")

    def reopen(self, index: int, variant: int) -> None:
        before = self.kit.task(self.pick(self.task_ids[::-1], index))
        act = lambda: self.kit.on_task("ReopenTask", before.task_id)  # noqa: E731
        if self.perhaps(act, Reason.ILLEGAL_TRANSITION) is not None:
            assert before.terminal, "a task that had not ended was reopened"
            assert not before.hook_running, "a task was reopened under its running command"
            assert self.kit.task(before.task_id).epoch == before.epoch + 1
            self.watch.accepted.relives[before.task_id] += 1
            self.note(f"reopen, {before.state.name}")

    def extend(self, index: int, variant: int) -> None:
        asked = list(self.watch.accepted.escalations)
        if asked:
            escalation_id, seconds = self.pick(asked[::-1], index), 60 + 600 * variant
            if self.perhaps(lambda: self.kit.extend(escalation_id, seconds), Reason.HOLD_NOT_OPEN) is not None:
                hold = self.kit.hold(escalation_id)
                assert (hold.open, hold.expired) == (True, False)
                assert hold.deadline_ms == self.kit.clock.steady_ms() + 1000 * seconds
                self.watch.accepted.deadlines[escalation_id] += 1
                self.note("extend")

    # What time does

    def time_passes(self, index: int, variant: int) -> None:
        """Minutes or hours go by in which nobody looked, then what is due fires, and nothing is due any more."""
        self.kit.clock.advance(self.pick([60, 1_200, 4_000, 15_000], variant))
        open_before = self.open_holds()
        if self.kit.fire():
            self.note("timers fire")
        now_ms, open_after = self.kit.clock.steady_ms(), self.open_holds()
        assert set(open_after) == set(open_before), "a timer has closed a hold"
        for escalation_id, hold in open_after.items():
            assert hold.timer_ms is not None
            assert hold.timer_ms > now_ms, f"a timer of {escalation_id} is due and did not fire"
            assert hold.expired == (hold.deadline_ms is not None and hold.deadline_ms <= now_ms)
            if hold.expired and not open_before[escalation_id].expired:
                self.note("deadline")
        assert self.kit.fire() == 0
        if self.kit.lift():
            self.note("limit ends")
        assert self.kit.lift() == 0

    def open_holds(self) -> dict[str, Hold]:
        holds = {each: self.kit.hold(each) for each in self.watch.accepted.escalations}
        return {escalation_id: hold for escalation_id, hold in holds.items() if hold.open}

    def hook_starts(self, index: int, variant: int) -> None:
        due = [task_id for task_id in self.task_ids if self.kit.task(task_id).hook_state is HookState.PENDING]
        some = due or self.task_ids
        run = self.kit.start_hook(self.pick(some, index)) if some else None
        if run is not None:
            task_id = run.task.task_id
            assert not self.paused[task_id], "an on_success command was started in a pause"
            assert not any(hold.task_id == task_id for hold in self.open_holds().values()), "started over a hold (I1)"
            assert run.idempotency_key == f"{task_id}.{run.task.epoch}"
            self.hooks.append(run)
            self.note("hook starts")

    def hook_ends(self, index: int, variant: int) -> None:
        if self.hooks:
            run = self.pick(self.hooks, index)
            after = self.kit.end_hook(run, done=variant % 3 == 0, interrupted=variant == 1)
            self.hooks.remove(run)
            self.note(f"hook ends, {after.hook_state.name}")
            before = self.kit.dump()
            self.kit.end_hook(run)
            assert self.kit.dump() == before, "the end of a command was told twice and counted twice"

    def cancel(self, index: int, variant: int) -> None:
        task_id = self.pick(self.task_ids[::-1], index)
        if variant < 4 and self.perhaps(lambda: self.kit.cancel(task_id), *ENDED) is not None:
            self.note("cancel")

    # What supervisors do by themselves

    def act(self, method: str, task_id: str, *reasons: Reason, **more: Any) -> Any:
        """The answer to an automatic action, or None; asked again it is the same and changes nothing (P10)."""
        asked = {"request_id": self.kit.fresh_id(), "epoch": self.kit.task(task_id).epoch, **more}
        answer = self.perhaps(lambda: self.kit.act(method, task_id, **asked), *reasons)
        if answer is not None:
            self.note(method)
            before = self.kit.dump()
            assert self.kit.act(method, task_id, **asked) == answer, "a repeat got another answer"
            assert self.kit.dump() == before, "a repeat has changed something"
        return answer

    def relaunch(self, index: int, variant: int) -> None:
        before = self.kit.task(self.pick(self.task_ids[::-1], index))
        refusals = (*ENDED, Reason.ILLEGAL_TRANSITION, Reason.LIMIT_REACHED, Reason.ATTEMPT_STALE)
        attempt = max(before.attempt, 1)
        if self.act("RelaunchTask", before.task_id, *refusals, attempt=attempt) is None:
            return
        after = self.kit.task(before.task_id)
        assert after.relaunches == before.relaunches + 1 <= 2, "a relaunch was not counted, or was one too many (I8)"
        assert not any(hold.task_id == before.task_id for hold in self.open_holds().values()), "a held task"
        assert not self.paused[before.task_id], "a paused task was relaunched"
        if before.worker_alive:
            assert self.kit.stopped[-1].task_id == before.task_id, "its worker was not stopped"

    def settle(self, index: int, variant: int) -> None:
        before = self.kit.task(self.pick(self.task_ids[::-1], index))
        if variant < 7 and self.act("SettleTask", before.task_id, *ENDED, Reason.ILLEGAL_TRANSITION) is not None:
            after = self.kit.task(before.task_id)
            if before.state is State.SETTLED or before.settle_summary is not None:
                assert after == before, "a second settle has changed something (S04)"
                self.note("settled again")
            assert after.state is State.SETTLED or after.settle_summary is not None
            assert not any(hold.task_id == before.task_id for hold in self.open_holds().values()), "a held task"

    def wake(self, index: int, variant: int) -> None:
        before = self.kit.task(self.pick(self.task_ids[::-1], index))
        refusals = (*ENDED, Reason.ILLEGAL_TRANSITION, Reason.LIMIT_REACHED)
        if self.act("WakeTask", before.task_id, *refusals) is not None:
            assert (before.woken, self.kit.task(before.task_id).woken) == (False, True)

    def claim_incident(self, index: int, variant: int) -> None:
        task_id, kind = self.pick(self.task_ids[::-1], index), self.pick(["stale", "churning"], variant)
        self.act("ClaimIncident", task_id, Reason.CLAIM_LOST, kind=kind)

    def incidents(self) -> list[tuple[str, Any]]:
        """Every incident of a present epoch, with its task."""
        shown = {each: self.kit.ask("GetTask", pb.GetTaskRequest(task_id=each)).task for each in self.task_ids}
        return [(task_id, incident) for task_id, task in shown.items() for incident in task.incidents]

    def record_incident(self, index: int, variant: int) -> None:
        if known := self.incidents():
            task_id, incident = self.pick(known[::-1], index)
            came = {"failure": "503"} if variant % 3 == 0 else {"external_id": f"x {incident.key}"}
            generation = max(1, incident.claim_generation - (variant == 11))
            named = {"key": incident.key, "claim_generation": generation, **came}
            self.act("RecordIncident", task_id, Reason.CLAIM_LOST, **named)

    def resolve_incident(self, index: int, variant: int) -> None:
        if known := self.incidents():
            task_id, incident = self.pick(known[::-1], index)
            self.kit.on_task("ResolveIncident", task_id, key=incident.key)

    def grant(self, index: int, variant: int) -> None:
        self.generation += 1
        self.kit.supervise(self.generation, incarnation=f"i{variant % 3}")

    def fenced(self, index: int, variant: int) -> None:
        """I6: who does not supervise any more has no effect, and is told so."""
        method = self.pick(["WakeTask", "RelaunchTask", "SettleTask", "ClaimIncident"], variant)
        task_id, old = self.pick(self.task_ids, index), self.generation - 1 or 99
        more = {"attempt": 1} if method == "RelaunchTask" else {}
        act = lambda: self.kit.act(method, task_id, supervision_generation=old, **more)  # noqa: E731
        assert self.perhaps(act, Reason.SUPERVISION_FENCED) is None, "an old supervisor was heard"

    # What the launcher does

    def claim(self, index: int, variant: int) -> None:
        if variant % 2:
            self.kit.clock.advance(60)
        launch = self.kit.claim(self.pick(LANES, index))
        if launch is None:
            return
        assert launch.ref.task_id not in {ref.task_id for ref in self.speakers()}, "a second worker of a task (I5)"
        assert not self.paused[launch.ref.task_id], "a paused task was claimed"
        assert not any(hold.task_id == launch.ref.task_id for hold in self.open_holds().values()), (
            "a held task was claimed"
        )
        self.starting.append(launch.ref)
        self.note(f"claim as {launch.reason}")

    def launched(self, index: int, variant: int) -> None:
        if self.starting:
            ref = self.pick(self.starting, index)
            self.kit.launched(ref)
            self.starting.remove(ref)
            self.living.append(ref)

    def launch_failed(self, index: int, variant: int) -> None:
        if self.starting and variant < 6:
            ref = self.pick(self.starting, index)
            after = self.kit.exited(ref, NEVER_STARTED) if variant < 2 else self.kit.launch_failed(ref)
            self.bury(ref)
            self.note(f"launch failed, {after.state.name}")

    def exited(self, index: int, variant: int) -> None:
        if self.speakers():
            ref = self.pick(self.speakers(), index)
            end = self.pick(["done", "done", "done", *ENDS], variant)
            if variant == 0:
                after = self.kit.meet_limit(ref, 600 * index)
                self.note("limit met")
            else:
                after = self.kit.exited(ref, ENDS[end], interrupted=variant > 9)
            self.bury(ref)
            self.note(f"exit, {after.state.name}")

    def bury(self, ref: AttemptRef) -> None:
        (self.living if ref in self.living else self.starting).remove(ref)
        self.dead.append(ref)

    def old_news(self, index: int, variant: int) -> None:
        """What is told again of an attempt that has ended changes nothing but the pid that its row shows."""
        if self.dead:
            ref = self.pick(self.dead[::-1], index)
            self.kit.launched(ref)
            before = self.kit.dump()
            self.kit.exited(ref)
            self.kit.launch_failed(ref)
            self.kit.launched(ref)
            assert self.kit.dump() == before

    def restart(self, index: int, variant: int) -> None:
        self.kit.restart()

    # What workers do

    def escalate(self, index: int, variant: int) -> None:
        ref, expects_reply = self.pick(self.speakers(), index), variant % 4 != 0
        question = f"question {len(self.watch.accepted.escalations)}"
        ask = lambda: self.kit.escalate(ref, question, expects_reply=expects_reply)  # noqa: E731
        escalation_id = self.perhaps(ask, Reason.TASK_SETTLED)
        if escalation_id is None:
            assert self.kit.task(ref.task_id).settle_summary is not None
            return
        assert escalation_id not in self.watch.accepted.escalations
        self.watch.accepted.escalations[escalation_id] = (ref.task_id, question)
        self.note("hold" if expects_reply else "notice")

    def take(self, index: int, variant: int) -> None:
        ref = self.pick(self.speakers(), index)
        waiting = self.kit.waiting(ref.task_id)
        some = waiting if variant > 6 else waiting[variant % len(waiting) :][:1] if waiting else []
        for message_id in [message.message_id for message in some]:
            assert self.kit.take(ref, message_id).acknowledged_now
            assert not self.kit.take(ref, message_id).acknowledged_now
            self.watch.accepted.taken.add(message_id)
            self.note("taken")

    def complete(self, index: int, variant: int) -> None:
        ref = self.pick(self.speakers(), index)
        said = self.perhaps(lambda: self.kit.complete(ref, failed=variant == 0), *DONE_TOO_SOON)
        if said is not None:
            self.note("complete")

    def progress(self, index: int, variant: int) -> None:
        request = wpb.ReportProgressRequest(sequence=variant)
        self.kit.say(self.pick(self.speakers(), index), "ReportProgress", request)

    def dead_worker_speaks(self, index: int, variant: int) -> None:
        """I6: it is told so, and nothing changes."""
        if self.dead:
            ref = self.pick(self.dead, index)
            acts: list[Callable[[], Any]] = [
                lambda: self.kit.complete(ref),
                lambda: self.kit.escalate(ref),
                lambda: self.kit.say(ref, "ReportProgress", wpb.ReportProgressRequest()),
                lambda: self.kit.take(ref, self.kit.fresh_id()),
            ]
            assert self.perhaps(self.pick(acts, variant), Reason.ATTEMPT_STALE) is None, "a dead worker was heard"


def run(examples: int, *, derandomize: bool) -> Counter[str]:
    """Let hypothesis choose what happens; returns what came about."""
    RunnerMachine.happened.clear()
    chosen = settings(
        max_examples=examples,
        stateful_step_count=60,
        derandomize=derandomize,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(RunnerMachine, settings=chosen)
    return RunnerMachine.happened


def test_the_invariants_hold_whatever_happens() -> None:
    """I1 to I6, I8, I9, I11 and I13 after every step; a failure is shrunk to the fewest steps that lead to it."""
    happened = run(60, derandomize=True)
    assert {"hold", "ruling", "taken", "exit, HELD", "exit, SUCCEEDED", "ATTEMPT_STALE"} <= set(happened)


@pytest.mark.long
@pytest.mark.timeout(1_800)
def test_the_invariants_hold_in_many_more_orders() -> None:
    """The same with new sequences at every run."""
    run(2_000, derandomize=False)


# What must have come about often in the runs of the test below: an invariant says nothing where nothing happens.
FREQUENT = {
    *("hold", "notice", "ruling", "ack", "input", "instruction", "taken", "complete", "cancel"),
    *("claim as FIRST", "claim as RETRY", "claim as RULING", "launch failed, QUEUED"),
    *("exit, HELD", "exit, QUEUED", "exit, SUCCEEDED", "exit, FAILED", "exit, CANCELED"),
    *("ALREADY_RULED", "HOLD_NOT_OPEN", "RULING_INVALID", "COMPLETION_BLOCKED"),
    *("ATTEMPT_STALE", "TASK_TERMINAL", "WORKER_DEAD", "ILLEGAL_TRANSITION"),
    *("extend", "timers fire", "deadline", "take over", "resume OPERATOR", "resume TAKEOVER"),
    *("retry, FAILED", "retry, HELD", "retry, QUEUED", "reopen, SUCCEEDED", "reopen, FAILED", "reopen, CANCELED"),
    *("hook starts", "hook ends, DONE", "hook ends, PENDING", "limit met", "limit ends"),
}
FREQUENT_WHEN_SUPERVISED = {
    *("RelaunchTask", "SettleTask", "settled again", "WakeTask", "ClaimIncident", "RecordIncident"),
    *("claim as RELAUNCH", "claim as INPUT", "exit, IDLE", "exit, SETTLED", "reopen, SETTLED"),
    *("SUPERVISION_FENCED", "TASK_SETTLED", "LIMIT_REACHED", "CLAIM_LOST"),
}
OFTEN = 5
MIXED = [*OPERATOR, *LAUNCHER, *WORKER]
MOSTLY_SUPERVISED = [
    *(4 * ["message"]),
    *("submit", "submit", "ruling", "ruling", "resume", "retry", "reopen", "reopen", "cancel", "settle"),
    *SUPERVISOR,
    *(4 * ["claim"]),
    *(3 * ["launched"]),
    *(3 * ["exited"]),
    *(6 * ["take"]),
    *("restart", "escalate", "complete", "time_passes"),
]


@pytest.mark.parametrize(
    ("acts", "frequent", "seeds"),
    [(MIXED, FREQUENT, 40), (MOSTLY_SUPERVISED, FREQUENT_WHEN_SUPERVISED, 20)],
    ids=["mixed", "supervised"],
)
def test_everything_happens_and_the_invariants_hold(acts: list[str], frequent: set[str], seeds: int) -> None:
    """The same machine driven by fixed seeds, in which everything that the invariants speak of happens."""
    RunnerMachine.happened.clear()
    for seed in range(seeds):
        random = Random(seed)
        machine = RunnerMachine()
        machine.supervised = acts is not MIXED
        try:
            for _ in range(200):
                machine.happen(random.choice(acts), random.randrange(12), random.randrange(12))
                machine.the_invariants_hold()
        except Exception as error:
            raise AssertionError(f"with seed {seed}") from error
        finally:
            machine.teardown()
    rare = {what for what in frequent if RunnerMachine.happened[what] < OFTEN}
    assert not rare, f"these hardly happened, so the test says little about them: {rare}"


BROKEN = [
    "UPDATE tasks SET state = 'SUCCEEDED', summary = 'x', summary_author = 'RUNNER', version = version + 1",
    "UPDATE tasks SET state = 'RUNNING', version = version + 1",
    "UPDATE tasks SET version = 0",
    "UPDATE tasks SET lane = 'b'",
    "UPDATE attempts SET ended = 'EXITED'",
    "UPDATE holds SET state = 'CANCELED'",
    "UPDATE holds SET state = 'RELEASED', ruling_id = 'r', decision = 'APPROVE'",
    "UPDATE holds SET acks = 1",
    "UPDATE holds SET question = 'what?'",
    "DELETE FROM holds",
    "DELETE FROM messages",
    "UPDATE messages SET state = 'ACKNOWLEDGED'",
    "UPDATE messages SET body = 'y'",
    "UPDATE holds SET deadline_ms = 1",
    "UPDATE holds SET expired = 1",
    "UPDATE holds SET reminders = -1",
    "UPDATE tasks SET pauses = '[\"HOLD_DEADLINE\"]', version = version + 1",
    "UPDATE tasks SET epoch = 2, attempt = 0, version = version + 1",
    "UPDATE tasks SET hook_state = 'PENDING', version = version + 1",
    "UPDATE tasks SET pauses = '[\"USAGE_LIMIT\"]', version = version + 1",
    "UPDATE tasks SET limited_until_ms = 1, version = version + 1",
    "UPDATE tasks SET relaunches = 2, version = version + 1",
    "UPDATE tasks SET state = 'IDLE', version = version + 1",
    "UPDATE messages SET state = 'PARKED'",
]


@pytest.mark.parametrize("sql", BROKEN, ids=lambda sql: sql[:50])
def test_the_watch_sees_what_is_broken(tmp_path: Path, sql: str) -> None:
    """The checker itself can fail: rows that break an invariant are found at the next look."""
    kit, watch = make_runner(tmp_path), Watch()
    ref = kit.running()
    watch.accepted.escalations[kit.escalate(ref)] = (ref.task_id, "may I?")
    sent = kit.ask("SendInput", pb.SendInputRequest(task_id=ref.task_id, text="x"))
    watch.accepted.messages[sent.message.message_id] = (ref.task_id, "x")
    kit.runner.read(watch.look)
    assert kit.task(ref.task_id).state is State.HELD
    kit.runner.store.write_now(lambda uow: uow.execute(sql), emitter=BREAKER)
    with pytest.raises(AssertionError):
        kit.runner.read(watch.look)
    kit.close()
