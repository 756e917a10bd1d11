"""Holds, end to end: both services as processes, workers that wait and workers that exit."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from lanewarden.auth import Role
from lanewarden.client_sync import connect
from lanewarden.errors import Reason, Refusal
from lanewarden.v1 import escalation_pb2, worker_service_pb2
from lanewarden.v1 import lane_runner_service_pb2 as runner_pb
from lanewarden.v1 import operator_service_pb2 as operator_pb
from tests.integration.pair import LANE_RUNNER, OPERATOR, Pair, eventually
from tests.integration.puppet import NOTICED_SECONDS_MAX, Puppet, fresh, refused, state_of

RACES = 12
OPTIONS = {"left": "the left one", "right": "the right one"}


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    with Pair(tmp_path_factory.mktemp("pair"), lanes=2) as running:
        yield running


def restart(pair: Pair, *names: str) -> None:
    """Kill the services and start them again."""
    for name in names:
        service = getattr(pair, name)
        service.kill()
        service.start()


def hold(pair: Pair, escalation_id: str) -> escalation_pb2.Escalation:
    """The escalation as its runner has it."""
    request = runner_pb.ListHoldsRequest(states=escalation_pb2.HoldState.keys()[1:])
    holds: list[escalation_pb2.Escalation] = pair.lane_runner.ListHolds(request).holds
    return next(each for each in holds if each.escalation_id == escalation_id)


def known(pair: Pair, escalation_id: str) -> escalation_pb2.Escalation:
    """The escalation as the supervisor has it, once it does."""

    def look() -> escalation_pb2.Escalation | None:
        try:
            request = operator_pb.GetEscalationRequest(escalation_id=escalation_id)
            found: escalation_pb2.Escalation = pair.operator.GetEscalation(request).escalation
        except Refusal as refusal:
            if refusal.reason is Reason.ESCALATION_UNKNOWN:
                return None
            raise
        return found

    return eventually(look, f"the supervisor has {escalation_id}")


def ruling(escalation_id: str, instructions: str = "go on", **fields: Any) -> escalation_pb2.Ruling:
    values = {"decision": escalation_pb2.DECISION_APPROVE, "instructions": instructions, **fields}
    return escalation_pb2.Ruling(escalation_id=escalation_id, **values)


def rule_at_runner(pair: Pair, escalation_id: str, instructions: str = "go on") -> str:
    """Rule without the supervisor; the ruling's id."""
    request = runner_pb.SteerRequest(request_id=fresh(), ruling=ruling(escalation_id, instructions))
    return str(eventually(lambda: pair.lane_runner.Steer(request), "ruled at the runner").message.message_id)


def run_in(pair: Pair, lane: str) -> None:
    """Have a task succeed in the lane: its launcher has looked at everything that was queued there before."""
    pair.wait_for_state(pair.submit("true", lane=lane), "SUCCEEDED")


def test_h01_an_exit_without_an_answer_is_a_hold(pair: Pair, tmp_path: Path) -> None:
    """A worker asks and exits 0: HELD within a second, no relaunch and no budget spent over restarts of both services;
    the answer starts exactly one attempt with the ruling first, and only its acknowledgement closes the hold.
    """
    with Puppet(pair, tmp_path / "worker", lane="lane-1") as puppet:
        first = puppet.attempt(1)
        asked = first.worker.escalate("May I?", expects_reply=True).escalation_id
        seconds, held = puppet.worker_gone(first.end)
        assert seconds <= NOTICED_SECONDS_MAX
        assert (state_of(held), held.attempt, held.premature_exits, list(held.open_holds)) == ("HELD", 1, 0, [asked])
        known(pair, asked)
        pair.operator.SendInput(
            operator_pb.OperatorServiceSendInputRequest(request_id=fresh(), task_id=puppet.task_id, text="by the way")
        )
        before = puppet.task()
        restart(pair, "supervisor", "runner")
        run_in(pair, "lane-1")
        assert puppet.task() == before, "nothing was written to the held task"
        assert puppet.launches == 1

        ruled = pair.rule(asked, "go left").message_id
        second = puppet.attempt(2)
        messages = list(second.worker.messages())
        assert (second.reason, [message.kind for message in messages]) == ("ruling", ["ruling", "input"])
        assert messages[0].ruling is not None
        assert (messages[0].message_id, messages[0].ruling.instructions) == (ruled, "go left")
        assert hold(pair, asked).hold_state == escalation_pb2.HOLD_STATE_RELEASED
        blocked = refused(lambda: second.worker.complete("done"))
        assert (blocked.reason, blocked.metadata["blockers"]) == (Reason.COMPLETION_BLOCKED, f"hold:{asked}")
        assert second.worker.acknowledge(messages[0])
        closed = hold(pair, asked)
        assert (closed.hold_state, closed.HasField("closed_at")) == (escalation_pb2.HOLD_STATE_ACKNOWLEDGED, True)

        second.worker.complete("done")
        second.end()
        final = pair.wait_for_state(puppet.task_id, "SUCCEEDED", "FAILED")
        assert (state_of(final), final.summary, final.attempt, puppet.launches) == ("SUCCEEDED", "done", 2, 2)
        eventually(lambda: known(pair, asked).HasField("closed_at"), "the supervisor knows that the hold is closed")


def test_h02_a_waiting_worker_gets_the_ruling_on_its_stream(pair: Pair, tmp_path: Path) -> None:
    """A worker that waits in AwaitRuling is told on its stream and is not launched again; a second acknowledgement of
    the ruling changes nothing.
    """
    with Puppet(pair, tmp_path / "worker") as puppet:
        first = puppet.attempt(1)
        asked = first.worker.escalate("May I?", expects_reply=True).escalation_id
        stream = first.stub.AwaitRuling(worker_service_pb2.AwaitRulingRequest(escalation_id=asked), timeout_seconds=30)
        assert next(stream).waiting.escalation_id == asked
        known(pair, asked)
        ruled = pair.rule(asked).message_id
        news = list(stream)
        assert [event.message.message_id for event in news] == [ruled], "the ruling, and then the stream ends"
        acknowledge = [first.stub.AcknowledgeMessage(_acknowledgement(ruled)) for _ in range(2)]
        assert [answer.acknowledged_now for answer in acknowledge] == [True, False]
        assert hold(pair, asked).hold_state == escalation_pb2.HOLD_STATE_ACKNOWLEDGED
        assert state_of(puppet.task()) == "RUNNING"
        first.worker.complete("done")
        first.end()
        final = pair.wait_for_state(puppet.task_id, "SUCCEEDED", "FAILED")
        assert (state_of(final), final.attempt, puppet.launches) == ("SUCCEEDED", 1, 1)


def _acknowledgement(message_id: str) -> worker_service_pb2.AcknowledgeMessageRequest:
    return worker_service_pb2.AcknowledgeMessageRequest(request_id=fresh(), message_id=message_id)


@pytest.mark.parametrize("alive", [True, False], ids=["waits", "has exited"])
def test_h04_acks_and_instructions_release_nothing(pair: Pair, tmp_path: Path, alive: bool) -> None:
    """Three acks and an instruction: still held, as old as before and without another attempt; the latest ack shows who,
    when a ruling is to be expected, and how often.
    """
    with Puppet(pair, tmp_path / "worker") as puppet:
        first = puppet.attempt(1)
        asked = first.worker.escalate("May I?", expects_reply=True).escalation_id
        if not alive:
            puppet.worker_gone(first.end)
        opened = known(pair, asked)
        for number in range(1, 4):
            ack = operator_pb.OperatorServiceAcknowledgeRequest(
                request_id=fresh(), escalation_id=asked, note=f"note {number}"
            )
            ack.expected_by.FromSeconds(opened.opened_at.seconds + 3600 * number)
            pair.operator.Acknowledge(ack)
        steer = operator_pb.OperatorServiceSteerRequest(request_id=fresh(), task_id=puppet.task_id)
        steer.instruction.text = "while you wait, tidy up"
        pair.operator.Steer(steer)

        held = puppet.task()
        assert (state_of(held), list(held.open_holds), held.worker_alive) == ("HELD", [asked], alive)
        eventually(lambda: known(pair, asked).acks == 3, "the supervisor shows the third ack")
        for shown in (hold(pair, asked), known(pair, asked)):
            assert (shown.hold_state, shown.acks) == (escalation_pb2.HOLD_STATE_OPEN, 3)
            assert (shown.opened_at, shown.HasField("ruling")) == (opened.opened_at, False)
            assert (shown.ack.note, shown.ack.acked_by.role) == ("note 3", "operator")
            assert shown.ack.expected_by.seconds == opened.opened_at.seconds + 3 * 3600
        run_in(pair, held.spec.lane if not alive else _other_lane(held.spec.lane))
        assert (state_of(puppet.task()), puppet.launches) == ("HELD", 1)


def _other_lane(lane: str) -> str:
    return "lane-2" if lane == "lane-1" else "lane-1"


@pytest.mark.parametrize("restarted", [None, "supervisor", "runner"])
def test_h05_an_answer_before_the_wait_is_returned_at_once(pair: Pair, tmp_path: Path, restarted: str | None) -> None:
    """A ruling that comes right after the question, and even a restart before anybody waits: the wait returns it as its
    first news and ends; once acknowledged it does not come again.
    """
    with Puppet(pair, tmp_path / "worker") as puppet:
        first = puppet.attempt(1)
        asked = first.worker.escalate("May I?", expects_reply=True).escalation_id
        ruled = rule_at_runner(pair, asked)
        if restarted:
            restart(pair, restarted)
        wait = worker_service_pb2.AwaitRulingRequest(escalation_id=asked)
        news = eventually(lambda: list(first.stub.AwaitRuling(wait, timeout_seconds=5)), "the wait is answered")
        assert [event.message.message_id for event in news] == [ruled]
        assert first.worker.acknowledge(first.worker.await_ruling(asked))
        assert list(first.worker.messages()) == []
        assert (state_of(puppet.task()), puppet.launches) == ("RUNNING", 1)


def test_h06_of_two_operators_one_wins(pair: Pair, tmp_path: Path) -> None:
    """Two rule at the same instant, one through the supervisor and one at the runner: one ruling is the hold's, and the
    other learns who ruled what when.
    """
    with Puppet(pair, tmp_path / "worker") as puppet, ThreadPoolExecutor(2) as threads:
        worker = puppet.attempt(1).worker
        asked = [worker.escalate(f"May I? ({n})", expects_reply=True).escalation_id for n in range(RACES)]
        known(pair, asked[-1])
        for number, escalation_id in enumerate(asked):
            together = threading.Barrier(2)
            # The way through the supervisor is the longer one: in every other race it gets a head start.
            after_ours = partial(eventually, partial(_has_ruling, pair, escalation_id), "the supervisor has a ruling")
            our_start, their_start = (together.wait, together.wait) if number % 2 else (lambda: None, after_ours)
            ours = operator_pb.OperatorServiceSteerRequest(request_id=fresh(), ruling=ruling(escalation_id, "ours"))
            theirs = runner_pb.SteerRequest(request_id=fresh(), ruling=ruling(escalation_id, "theirs"))
            futures = {
                ours.request_id: threads.submit(_race, our_start, pair.operator.Steer, ours),
                theirs.request_id: threads.submit(_race, their_start, pair.lane_runner.Steer, theirs),
            }
            outcomes = {request_id: future.result() for request_id, future in futures.items()}
            lost = [outcome for outcome in outcomes.values() if outcome is not None]
            won = [request_id for request_id, outcome in outcomes.items() if outcome is None]
            record = hold(pair, escalation_id).ruling
            assert (won, [refusal.reason for refusal in lost]) == ([record.ruling_id], [Reason.ALREADY_RULED])
            told = lost[0].metadata
            assert (told["ruling_id"], told["ruled_by"]) == (record.ruling_id, record.ruled_by.identity)
            assert (told["decision"], _stamp(told["ruled_at"])) == ("APPROVE", record.ruled_at)
        rulings = [message.ruling for message in worker.messages() if message.ruling]
        assert [each.escalation_id for each in rulings] == asked, "one ruling each reaches the worker"


def _stamp(text: str) -> Timestamp:
    stamp = Timestamp()
    stamp.FromJsonString(text)
    return stamp


def _has_ruling(pair: Pair, escalation_id: str) -> bool:
    return known(pair, escalation_id).HasField("ruling")


def _race(start: Callable[[], object], steer: Callable[[Any], object], request: Any) -> Refusal | None:
    start()
    try:
        steer(request)
    except Refusal as refusal:
        return refusal
    return None


NOT_RULINGS: dict[str, tuple[dict[str, Any], str]] = {
    "no decision": ({"decision": escalation_pb2.DECISION_UNSPECIFIED}, "no_decision"),
    "empty instructions": ({"instructions": ""}, "empty_instructions"),
    "blank instructions": ({"instructions": " \n"}, "empty_instructions"),
    "choose without an option": ({"decision": escalation_pb2.DECISION_CHOOSE}, "no_option"),
    "option not offered": ({"decision": escalation_pb2.DECISION_CHOOSE, "option_key": "up"}, "option_not_offered"),
    "gate that the task has not": ({"ratifies": ["review"]}, "gate_unknown"),
}


def test_h08_what_is_no_ruling_leaves_the_hold_open(pair: Pair, tmp_path: Path) -> None:
    """No decision, no instructions, an option that was not offered, a worker's or a viewer's credential: refused for its
    own reason at both services, and the hold is as open as before.
    """
    with Puppet(pair, tmp_path / "worker") as puppet:
        first = puppet.attempt(1)
        asked = first.worker.escalate("Which?", options=OPTIONS).escalation_id
        known(pair, asked)
        before = hold(pair, asked)
        for what, (fields, rule) in NOT_RULINGS.items():
            for steer, kind in _doors(pair.operator, pair.lane_runner):
                request = kind(request_id=fresh(), ruling=ruling(asked, **fields))
                refusal = refused(partial(steer, request))
                assert (refusal.reason, refusal.metadata["rule"]) == (Reason.RULING_INVALID, rule), what
        for token, reason in ((first.token, Reason.CREDENTIAL_INVALID), (_viewer(pair), Reason.ROLE_NOT_ALLOWED)):
            with (
                connect(f"127.0.0.1:{pair.supervisor_port}", token=token) as supervisor,
                connect(f"127.0.0.1:{pair.runner_port}", token=token) as runner,
            ):
                for steer, kind in _doors(supervisor.stub(OPERATOR), runner.stub(LANE_RUNNER)):
                    request = kind(request_id=fresh(), ruling=ruling(asked))
                    assert refused(partial(steer, request)).reason is reason
        assert hold(pair, asked) == before
        assert state_of(puppet.task()) == "HELD"
        choice = ruling(asked, decision=escalation_pb2.DECISION_CHOOSE, option_key="left")
        assert pair.operator.Steer(operator_pb.OperatorServiceSteerRequest(request_id=fresh(), ruling=choice))


def _doors(operator: Any, lane_runner: Any) -> list[tuple[Callable[[Any], Any], type[Any]]]:
    return [(operator.Steer, operator_pb.OperatorServiceSteerRequest), (lane_runner.Steer, runner_pb.SteerRequest)]


def _viewer(pair: Pair) -> str:
    return pair.credentials.tokens[Role.VIEWER]
