"""kill -9 of the runner as it stores an automatic action, with real processes: carried out once, or not at all."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lanewarden.auth import Role
from lanewarden.errors import Reason, Refusal
from lanewarden.v1 import lane_runner_service_pb2 as pb
from lanewarden.v1 import message_pb2
from tests.integration.pair import DEADLINE_SECONDS, LANE_RUNNER, PASSING, Pair, eventually
from tests.integration.puppet import Puppet, fresh, refused, state_of
from tests.integration.supervising import generation, supervise
from tests.integration.test_main_job_kills import alive

CRASHING_RUNNER = Path(__file__).with_name("crashing_runner.py")
SETTLE: dict[str, Any] = {"summary": "given up", "diagnosis": "no word for 15 minutes"}
RELAUNCH: dict[str, Any] = {"attempt": 1, "cause": "no progress", "relaunches_max": 1}


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """Both services; somebody supervises the runner."""
    with Pair(tmp_path_factory.mktemp("pair")) as running:
        supervise(running)
        yield running


def ask(pair: Pair, rpc: str, **fields: Any) -> Any:
    """An automatic action under the generation that is current now; a grant that comes between is followed."""
    stub = pair.client(pair.runner_port, LANE_RUNNER, Role.SUPERVISOR, Reason.RUNNER_UNREACHABLE)
    while True:
        quoted = generation(pair)
        try:
            return getattr(stub, rpc)(getattr(pb, f"{rpc}Request")(supervision_generation=quoted, epoch=1, **fields))
        except Refusal as refusal:
            if refusal.reason is not Reason.SUPERVISION_FENCED or generation(pair) == quoted:
                raise


def killed_at(pair: Pair, point: str, rpc: str, emitter: str, **fields: Any) -> None:
    """Ask a runner that is killed at that point of the action's commit, and start a sound one."""
    sound = pair.runner.command
    pair.runner.kill()
    pair.runner.command = [sys.executable, str(CRASHING_RUNNER), point, emitter, *sound[3:]]
    pair.runner.start()
    assert refused(lambda: ask(pair, rpc, **fields)).reason in PASSING
    assert pair.runner.process is not None
    assert pair.runner.process.wait(DEADLINE_SECONDS) == -signal.SIGKILL
    pair.runner.command = sound
    pair.runner.start()


@pytest.mark.parametrize("point", ["before_commit", "after_commit"])
def test_s07_a_runner_killed_as_it_stores_a_settle(pair: Pair, tmp_path: Path, point: str) -> None:
    """Stored: it ends SETTLED by itself, the worker stopped. Not stored: nothing came of it. Asked again: settled, once."""
    asked: dict[str, Any] = {"request_id": fresh(), **SETTLE}
    with Puppet(pair, tmp_path / "worker", stop_grace={"seconds": 1}) as puppet:
        pid = puppet.attempt(1).pid
        sent = pb.SendInputRequest(request_id=fresh(), task_id=puppet.task_id, text="read this")
        eventually(lambda: pair.lane_runner.SendInput(sent), "input sent")
        asked["task_id"] = puppet.task_id
        killed_at(pair, point, "SettleTask", "lane_runner.task.settle", **asked)
        if point == "before_commit":
            assert state_of(eventually(puppet.task, "the task is there")) == "RUNNING"
            assert alive(pid)
        else:
            pair.wait_for_state(puppet.task_id, "SETTLED")
        eventually(lambda: ask(pair, "SettleTask", **asked), "asked again")
        task = pair.wait_for_state(puppet.task_id, "SETTLED")
        assert (task.summary, task.diagnosis, task.attempt) == (*SETTLE.values(), 1)
        assert (puppet.launches, alive(pid)) == (1, False)
        shown = pair.lane_runner.GetTask(pb.GetTaskRequest(task_id=puppet.task_id)).messages
        assert [message.state for message in shown] == [message_pb2.MESSAGE_STATE_PARKED]
        reopen = pb.ReopenTaskRequest(request_id=fresh(), task_id=puppet.task_id)
        assert pair.lane_runner.ReopenTask(reopen).task.epoch == 2


@pytest.mark.parametrize("point", ["before_commit", "after_commit"])
def test_p10_a_runner_killed_as_it_stores_a_relaunch(pair: Pair, tmp_path: Path, point: str) -> None:
    """Asked again with its id: one answer, one other worker, one charge; the first is gone before the second is there."""
    asked: dict[str, Any] = {"request_id": fresh(), **RELAUNCH}
    with Puppet(pair, tmp_path / "worker", stop_grace={"seconds": 1}) as puppet:
        first = puppet.attempt(1)
        asked["task_id"] = puppet.task_id
        killed_at(pair, point, "RelaunchTask", "lane_runner.task.relaunch", **asked)
        answer = eventually(lambda: ask(pair, "RelaunchTask", **asked), "asked again")
        assert answer.task.relaunches == 1
        second = puppet.attempt(2)
        assert (second.reason, alive(first.pid)) == ("relaunch", False)
        assert eventually(lambda: ask(pair, "RelaunchTask", **asked), "asked a third time") == answer
        more = {**asked, "request_id": fresh()}
        assert refused(lambda: ask(pair, "RelaunchTask", **more)).reason is Reason.ATTEMPT_STALE
        more["attempt"] = 2
        assert refused(lambda: ask(pair, "RelaunchTask", **more)).reason is Reason.LIMIT_REACHED
        second.end()
        task = pair.wait_for_state(puppet.task_id, "SUCCEEDED")
        assert (task.relaunches, task.premature_exits, puppet.launches) == (1, 0, 2)


def test_s13_a_session_of_real_workers(pair: Pair, tmp_path: Path) -> None:
    """Input starts a round with the reason ``input``; what comes during it is the next round; then it rests."""
    with Puppet(pair, tmp_path / "worker", kind="TASK_KIND_SESSION") as puppet:
        assert state_of(puppet.task()) == "IDLE"
        sends = [
            pb.SendInputRequest(request_id=fresh(), task_id=puppet.task_id, text=text)
            for text in ("one", "two", "three")
        ]
        pair.lane_runner.SendInput(sends[0])
        for number, batch in ((1, ["one"]), (2, ["two", "three"])):
            attempt = puppet.attempt(number)
            assert attempt.reason == "input"
            if number == 1:
                for request in sends[1:]:
                    pair.lane_runner.SendInput(request)
            waiting = [message for message in attempt.worker.messages() if message.text in batch]
            assert [message.text for message in waiting] == batch
            for message in waiting:
                attempt.worker.acknowledge(message)
            attempt.end()
        task = pair.wait_for_state(puppet.task_id, "IDLE")
        assert (task.worker_alive, task.premature_exits, puppet.launches) == (False, 0, 2)
