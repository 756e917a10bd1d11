"""What is guaranteed of context windows and one-shot signals, as checks on one runner: real store and handlers.

A *turn* is one NextDirective. The writer is a command where a check plays its end, and the worker where it is told to
write.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from lane_runner_svc import emitters
from lane_runner_svc.core.checkpoints import CheckpointState, Failure, Written, committed, failed, of_exit
from lane_runner_svc.core.directives import Context
from lane_runner_svc.core.task import Exit, ExitKind
from lane_runner_svc.rpc import contexts as rpc_contexts
from lane_runner_svc.store import contexts
from lane_runner_svc.work import checkpoints, directives
from lane_runner_svc.work.session import AttemptRef
from lanewarden.errors import Reason, Refusal
from lanewarden.v1 import context_pb2
from lanewarden.v1 import worker_service_pb2 as pb
from tests.runner_kit import KILLED, RunnerKit, exit_code, finished

K = 1000
WINDOW = 1000 * K
RUNGS = (20 * K, 30 * K)
STEP = 35 * K
ANY_WRITER = "/bin/true"


class Turns:
    """A task with a context window, and its worker."""

    def __init__(self, kit: RunnerKit, **spec: Any) -> None:
        self.kit = kit
        asked = {"rungs": RUNGS, "window_tokens": WINDOW, **spec}
        self.ref: AttemptRef = kit.running(context=context_pb2.ContextSpec(**asked))

    def ask(self, tokens: int, **more: Any) -> pb.NextDirectiveResponse:
        """One turn with so many tokens in use."""
        usage = pb.ContextUsage(tokens=tokens, measurement_id=more.pop("measurement_id", ""))
        assert not self.waits_ms, "the turn waits for a checkpoint that is being written, and here nothing can"
        answer = self.kit.say(self.ref, "NextDirective", pb.NextDirectiveRequest(usage=usage, **more))
        assert isinstance(answer, pb.NextDirectiveResponse)
        return answer

    def told(self, tokens: int, **more: Any) -> str:
        """What one turn came to."""
        return pb.Directive.Name(self.ask(tokens, **more).directive).removeprefix("DIRECTIVE_")

    def report(self, directive_id: str, *, done: bool = True, **more: Any) -> bool:
        """Say how a directive went; whether that counts."""
        outcome = pb.DIRECTIVE_OUTCOME_DONE if done else pb.DIRECTIVE_OUTCOME_FAILED
        request = pb.ReportDirectiveRequest(directive_id=directive_id, outcome=outcome, **more)
        return bool(self.kit.say(self.ref, "ReportDirective", request).reported_now)

    def write(self, written: Written) -> str:
        """The command that is writing comes to that; the id of its checkpoint."""
        (each,) = self.kit.runner.read(lambda reader: contexts.in_flight(reader, self.ref.task_id))
        work = lambda session: checkpoints.ended(session, each.checkpoint_id, written)  # noqa: E731
        finished(self.kit.runner.do(work, emitter=emitters.CHECKPOINT, task_id=self.ref.task_id))
        return each.checkpoint_id

    @property
    def waits_ms(self) -> int:
        """How long the next turn would wait for a checkpoint that is being written."""
        wish = rpc_contexts.wish(rpc_contexts.spec_of(self.kit.task(self.ref.task_id)))
        now_ms = self.kit.clock.steady_ms()
        return self.kit.runner.read(lambda reader: directives.wait_ms(reader, self.ref, wish, now_ms))

    @property
    def context(self) -> Context:
        """The context window as stored."""
        return self.kit.runner.read(lambda reader: contexts.load(reader, self.ref.task_id, self.ref.epoch))

    @property
    def checkpoints(self) -> list[context_pb2.Checkpoint]:
        """Every start of the writer."""
        return list(self.kit.on_task("ListCheckpoints", self.ref.task_id).checkpoints)

    @property
    def states(self) -> list[str]:
        """What each start of the writer came to."""
        return [
            context_pb2.CheckpointState.Name(each.state).removeprefix("CHECKPOINT_STATE_") for each in self.checkpoints
        ]

    def signals(self, kind: str = "REDUCE_CONTEXT") -> list[str | None]:
        """How each signal of that kind was discharged, oldest first; None while it is outstanding."""
        sql = "SELECT discharged_how FROM signals WHERE task_id = ? AND kind = ? ORDER BY position"
        return [row[0] for row in self.kit.runner.read(lambda reader: reader.query(sql, (self.ref.task_id, kind)))]


def outstanding(kit: RunnerKit, task_id: str) -> list[str]:
    """The kinds of what is asked of a task, as it is shown."""
    found = kit.on_task("GetTask", task_id).task.signals
    return [context_pb2.SignalKind.Name(each.kind).removeprefix("SIGNAL_KIND_") for each in found]


def check_acting_discharges_whatever_the_act(kit: RunnerKit) -> None:
    """C01, C02: a writer that is denied, 35 K tokens at every turn: one COMPACT discharges the signal, and 12 and 24 turns
    have the same number. The rungs stay consumed, and the writer was started once.
    """
    counts = []
    for turns_max in (12, 24):
        turns = Turns(kit, writer=[ANY_WRITER])
        told = Counter[str]()
        for _ in range(turns_max):
            told[turns.told(STEP)] += 1
            if told["WAIT"] == 1 and not turns.checkpoints[0].ended_at.seconds:
                turns.write(failed(Failure.AUTH, "denied"))
        assert turns.states == ["FAILED"]
        assert (turns.context.consumed, turns.context.cycle) == (RUNGS[-1], 1)
        how = turns.signals()
        assert len(how) == 1
        assert how[0] is not None
        assert how[0].startswith("COMPACT")
        counts.append(told["COMPACT"] + told["REBUILD"])
        kit.exited(turns.ref)
    assert counts == [1, 1]


def check_only_an_inserted_rebuild_rearms(kit: RunnerKit) -> None:
    """C02, C08: a rebuild that was inserted arms the ladder again; one that failed to insert, or has not been reported, does
    not, and never leads to a COMPACT. What it has put in does not push the ladder.
    """
    turns = Turns(kit)
    wrote = turns.ask(STEP)
    assert turns.report(wrote.directive_id, content="all of it")
    first = turns.ask(STEP)
    assert (first.directive, first.checkpoint.content) == (pb.DIRECTIVE_REBUILD, "all of it")
    assert (turns.context.cycle, turns.context.consumed) == (1, RUNGS[-1])
    assert turns.report(first.directive_id, done=False)
    assert [turns.told(STEP) for _ in range(5)] == ["CONTINUE"] * 5
    assert [turns.told(WINDOW) for _ in range(2)] == ["REBUILD", "REBUILD"], "a real overflow asks again, for the same"
    last = turns.ask(WINDOW)
    assert turns.report(last.directive_id, inserted_tokens=19 * K)
    assert (turns.context.cycle, turns.context.consumed) == (2, 0)
    assert turns.told(38 * K) == "CONTINUE", "19 K were put in, and the first rung is at 20 K"
    assert turns.told(40 * K) == "CHECKPOINT"


def check_a_cycle_ends_once(kit: RunnerKit) -> None:
    """C08: two rebuilds were given from one checkpoint; the report of the first, after that of the second, takes neither the
    rungs nor the checkpoints of the new cycle away.
    """
    turns = Turns(kit)
    turns.report(turns.ask(STEP).directive_id, content="the first cycle")
    first, second = turns.ask(STEP), turns.ask(WINDOW)
    assert first.checkpoint.checkpoint_id == second.checkpoint.checkpoint_id
    turns.report(second.directive_id, inserted_tokens=K)
    turns.report(turns.ask(22 * K).directive_id, content="the second cycle")
    before = turns.context
    assert turns.report(first.directive_id, inserted_tokens=2 * K), "it is stored"
    assert turns.context == before
    wrote = turns.ask(WINDOW)
    turns.report(wrote.directive_id, done=False)
    assert turns.ask(WINDOW).checkpoint.content == "the second cycle"


def check_only_what_is_there_pushes_no_ladder(kit: RunnerKit) -> None:
    """Of what a rebuild has put in, no more is left out than has been in use since: a worker that says too much, one that
    shrinks its context by itself and the next attempt, which begins anew, have their rungs where they are.
    """
    turns = Turns(kit)
    turns.report(turns.ask(STEP).directive_id, content="so far")
    turns.report(turns.ask(STEP).directive_id, inserted_tokens=10**9)
    assert [turns.told(tokens) for tokens in (10 * K, 29 * K)] == ["CONTINUE", "CONTINUE"]
    kit.exited(turns.ref, KILLED)
    turns.ref = kit.start()
    assert [turns.told(tokens) for tokens in (K, 20 * K, 21 * K)] == ["CONTINUE", "CONTINUE", "CHECKPOINT"]


def check_each_further_rung_is_tried_once(kit: RunnerKit) -> None:
    """C04, C06: the budget of a writer that cannot be started, as of one that fails, ends with the rung: the next one is
    tried, and that again only as the budget allows.
    """
    came_to = (Written(state=CheckpointState.NOT_STARTED, detail="no such program"), failed(Failure.AUTH, "denied"))
    for written in came_to:
        turns = Turns(kit, rungs=[20 * K, 30 * K, 40 * K], writer=[ANY_WRITER], writer_failures_max=1)
        for tokens, starts in ((21 * K, 1), (22 * K, 1), (31 * K, 2), (32 * K, 2)):
            assert turns.told(tokens) == "CONTINUE"
            assert len(turns.states) == starts, f"at {tokens} tokens"
            if turns.states[-1] == "WRITING":
                turns.write(written)
        kit.exited(turns.ref)


def check_a_skipped_start_consumes_nothing(kit: RunnerKit) -> None:
    """C06: while one writer writes, another is not started, and the rung that it would have been for is there for the
    next turn.
    """
    turns = Turns(kit, rungs=[20 * K, 30 * K, 40 * K], writer=[ANY_WRITER])
    assert turns.told(21 * K) == "CONTINUE"
    assert turns.told(31 * K) == "CONTINUE"
    assert (turns.states, turns.context.consumed) == (["WRITING"], 20 * K)
    turns.write(committed("the first"))
    assert turns.told(31 * K) == "CONTINUE"
    assert (turns.states, turns.context.consumed) == (["SUCCEEDED", "WRITING"], 30 * K)
    turns.write(failed(Failure.AUTH, "denied"))
    assert turns.told(41 * K) == "WAIT"
    turns.write(failed(Failure.AUTH, "denied"))
    rebuild = turns.ask(41 * K)
    assert (rebuild.directive, rebuild.checkpoint.content) == (pb.DIRECTIVE_REBUILD, "the first"), (
        "nobody waited for it"
    )


def check_lateness_is_no_failure(kit: RunnerKit) -> None:
    """C03: 180 s after its start the reduction stops waiting for the writer, which goes on; at 310 s it commits: no failure
    is counted, and what it has written is used.
    """
    turns = Turns(kit, writer=[ANY_WRITER])
    assert turns.told(STEP, measurement_id="m") == "WAIT"
    kit.clock.advance(179)
    assert turns.waits_ms == 1000
    kit.clock.advance(1)
    assert turns.told(STEP, measurement_id="m") == "COMPACT"
    assert (turns.states, turns.context.failures) == (["TIMED_OUT"], 0)
    assert not turns.checkpoints[0].HasField("ended_at")
    kit.clock.advance(130)
    turns.write(committed("late"))
    assert (turns.states, turns.context.failures) == (["SUCCEEDED"], 0)
    assert turns.ask(WINDOW).checkpoint.content == "late"


def check_only_the_marker_commits(kit: RunnerKit) -> None:
    """C07: a file that is there and was not committed is no checkpoint, whatever the writer's end; one that is, is, even if
    the end was lost.
    """
    ends = (exit_code(0), exit_code(1), KILLED, Exit(kind=ExitKind.SHIM_LOST))
    for end in ends:
        turns = Turns(kit, writer=[ANY_WRITER])
        assert turns.told(STEP) == "WAIT"
        turns.write(of_exit(end, marked=False, content="half of it", stopped=False, going_down=False))
        assert turns.told(STEP) == "COMPACT"
        kit.exited(turns.ref)
        turns = Turns(kit, writer=[ANY_WRITER])
        turns.ask(STEP)
        turns.write(of_exit(end, marked=True, content="all of it", stopped=False, going_down=False))
        assert turns.told(STEP) == "REBUILD"
        kit.exited(turns.ref)


def check_a_retry_needs_three_things(kit: RunnerKit) -> None:
    """C04, C05: a failure that may pass, more tokens than at the last try, and room; and no more tries than the budget,
    which each reduction begins anew.
    """
    for failure in Failure:
        turns = Turns(kit, writer=[ANY_WRITER], writer_failures_max=2)
        assert turns.told(STEP) == "WAIT"
        turns.write(failed(failure, "failed"))
        assert [turns.told(STEP) for _ in range(3)] == ["COMPACT", "CONTINUE", "CONTINUE"]
        assert len(turns.states) == 1, "usage has not grown"
        turns.ask(STEP + 1)
        again = failure in (Failure.TRANSIENT, Failure.LOST)
        assert len(turns.states) == 1 + again
        if again:
            turns.write(failed(failure, "failed"))
            turns.ask(STEP + 2)
            turns.write(failed(failure, "failed"))
            turns.ask(STEP + 3)
            assert len(turns.states) == 3, "two failures since the reduction are all there are"
        kit.exited(turns.ref)
    turns = Turns(kit, writer=[ANY_WRITER], rungs=[20 * K])
    assert turns.told(WINDOW - 13 * K - 1) == "WAIT"
    turns.write(failed(Failure.TRANSIENT, "failed"))
    turns.ask(WINDOW - 13 * K)
    assert len(turns.states) == 1, "there is no room"


def check_reductions_have_a_budget(kit: RunnerKit) -> None:
    """I10: however long the worker goes on, overflowing at every turn, an epoch has its budget of reductions; then WRAP_UP
    comes, once.
    """
    for turns_max in (10, 20):
        turns = Turns(kit, reductions_max=3, rungs=[WINDOW])
        told = Counter[str]()
        for _ in range(turns_max):
            answer = turns.ask(WINDOW)
            told[pb.Directive.Name(answer.directive)] += 1
            if answer.directive == pb.DIRECTIVE_CHECKPOINT:
                turns.report(answer.directive_id, done=False)
        assert (told["DIRECTIVE_COMPACT"], told["DIRECTIVE_WRAP_UP"]) == (3, 1)
        assert None not in turns.signals()
        assert len(turns.signals("WRAP_UP")) == 1
        kit.exited(turns.ref)


def check_a_measurement_counts_once(kit: RunnerKit) -> None:
    """The same measurement never overflows twice, and neither does one of the turn of the reduction or before."""
    turns = Turns(kit, rungs=[WINDOW], reductions_max=9)
    wrote = turns.ask(WINDOW, turn=7, measurement_id="m1")
    turns.report(wrote.directive_id, done=False)
    assert turns.told(WINDOW, turn=7, measurement_id="m1") == "COMPACT", "the signal needs no measurement"
    assert turns.told(WINDOW, turn=9, measurement_id="m1") == "CONTINUE"
    assert turns.told(WINDOW, turn=7, measurement_id="m2") == "CONTINUE"
    assert turns.told(WINDOW, turn=6, measurement_id="m3") == "CONTINUE"
    assert turns.told(WINDOW, turn=8, measurement_id="m4") == "COMPACT"
    assert turns.told(K, measurement_id="m5") == "CONTINUE"
    assert turns.told(WINDOW, measurement_id="m4") == "CONTINUE", "it has been used, though it is not the latest"
    kit.exited(turns.ref, KILLED)
    turns.ref = kit.start()
    assert turns.told(WINDOW, turn=1, measurement_id="m5") == "COMPACT", "the next worker's m5 is another one"
    kit.exited(turns.ref)
    turns = Turns(kit)
    turns.report(turns.ask(STEP, turn=1).directive_id, content="so far")
    rebuild = turns.ask(STEP, turn=2)
    turns.report(rebuild.directive_id, inserted_tokens=K)
    assert turns.told(STEP, turn=2) == "CONTINUE", "it was measured before the context was rebuilt"
    assert turns.told(STEP, turn=3) == "CHECKPOINT"


def check_a_stop_is_about_one_attempt(kit: RunnerKit) -> None:
    """A stop that was carried out swallows no later one: a second relaunch stops the second attempt; one that names the
    first is refused. A cancel after a reopen stops the worker of the new epoch.
    """
    kit.supervise()
    first = kit.running()
    kit.act("RelaunchTask", first.task_id)
    assert outstanding(kit, first.task_id) == ["STOP"]
    kit.exited(first, KILLED)
    second = kit.start()
    assert outstanding(kit, first.task_id) == []
    kit.act("RelaunchTask", second.task_id)
    assert kit.stopped == [first, second]
    kit.exited(second, KILLED)
    third = kit.start()
    with pytest.raises(Refusal) as stale:
        kit.act("RelaunchTask", third.task_id, attempt=second.attempt)
    assert stale.value.reason is Reason.ATTEMPT_STALE
    for epoch in (1, 2):
        kit.cancel(third.task_id)
        assert outstanding(kit, third.task_id) == ["CANCEL", "STOP"]
        assert kit.stopped[-1].epoch == epoch
        kit.exited(third, KILLED)
        assert outstanding(kit, third.task_id) == []
        kit.on_task("ReopenTask", third.task_id)
        third = kit.start()
    assert len(kit.stopped) == 4
    kit.exited(third)


def check_a_pause_is_outstanding_until_it_is_resumed(kit: RunnerKit) -> None:
    """Raised once, however often it is asked for; the worker sees it; neither its end nor the task's answers it, ResumeTask
    does, and who did is stored.
    """
    turns = Turns(kit)
    for _ in range(2):
        kit.on_task("PauseTask", turns.ref.task_id)
    assert turns.signals("PAUSE") == [None]
    assert [each.kind for each in turns.ask(K).signals] == [context_pb2.SIGNAL_KIND_PAUSE]
    kit.cancel(turns.ref.task_id)
    kit.exited(turns.ref)
    kit.on_task("ReopenTask", turns.ref.task_id)
    kit.on_task("PauseTask", turns.ref.task_id)
    assert outstanding(kit, turns.ref.task_id) == ["PAUSE"]
    kit.on_task("ResumeTask", turns.ref.task_id)
    assert turns.signals("PAUSE") == ["resumed"]
    kit.cancel(turns.ref.task_id)
    assert outstanding(kit, turns.ref.task_id) == []


def check_nobody_writes_for_a_worker_that_is_gone(kit: RunnerKit) -> None:
    """What an attempt was writing itself is superseded by its end, and its rung is there for the next; the signal, the
    budget and what was committed stay.
    """
    turns = Turns(kit)
    turns.report(turns.ask(21 * K).directive_id, content="kept")
    assert turns.told(STEP) == "CHECKPOINT"
    kit.exited(turns.ref, KILLED)
    assert (turns.states, turns.context.consumed) == (["SUCCEEDED", "SUPERSEDED"], 20 * K)
    assert outstanding(kit, turns.ref.task_id) == ["REDUCE_CONTEXT"]
    turns.ref = kit.start()
    assert turns.ask(K).checkpoint.content == "kept"
    assert (turns.context.reductions, turns.context.failures) == (1, 0)


def check_a_retry_finds_what_its_task_left(kit: RunnerKit) -> None:
    """C09: the end of a task aborts a command that writes, which is no failure of it, and overtakes the reduction that is
    due. A retry is in the same epoch: its worker finds the rung again, and a reduction is asked for again.
    """
    turns = Turns(kit, writer=[ANY_WRITER])
    assert turns.told(STEP) == "WAIT"
    kit.complete(turns.ref, failed=True)
    kit.exited(turns.ref)
    assert (turns.states, turns.signals()) == (["SUPERSEDED"], ["the task is FAILED"])
    assert (turns.context.consumed, turns.context.failures) == (0, 0)
    kit.on_task("RetryTask", turns.ref.task_id)
    turns.ref = kit.start()
    assert turns.told(K) == "CONTINUE"
    assert turns.told(STEP) == "WAIT"
    turns.write(committed("so far"))
    assert turns.ask(STEP).checkpoint.content == "so far"
