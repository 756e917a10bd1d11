"""W05: a unit of work that has the store of a running service to itself, for longer than a lease and its grace."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from lanewarden.auth import Role
from lanewarden.errors import Reason
from lanewarden.v1 import escalation_pb2
from lanewarden.v1 import operator_service_pb2 as operator_pb
from lanewarden.v1 import write_trace_service_pb2 as trace_pb
from tests.integration.holding_service import HELD_FOR, HOLDER, ORIGIN
from tests.integration.pair import Pair, eventually
from tests.integration.puppet import Attempt, Puppet, fresh, state_of

TRACE = trace_pb.DESCRIPTOR.services_by_name["WriteTraceService"]
SHORT = ("--lease-ttl-seconds", "2", "--lease-renew-seconds", "0.5", "--lease-grace-seconds", "1")
AFTERWARDS_SECONDS = 40.0


def store_held(pair: Pair, port: int) -> list[trace_pb.Finding]:
    """What a service finds of its store, while it lasts."""
    ledger = pair.client(port, TRACE, Role.VIEWER, Reason.SUPERVISOR_UNREACHABLE)
    found = ledger.ListFindings(trace_pb.ListFindingsRequest()).findings
    return [each for each in found if each.kind == trace_pb.FINDING_KIND_STORE_HELD and not each.HasField("ended_at")]


@contextmanager
def held(file: Path) -> Iterator[None]:
    """The store of the service whose file this is has a holder."""
    file.touch()
    try:
        yield
    finally:
        file.unlink()


def lease(pair: Pair) -> tuple[str, int, int]:
    """What the supervisor says of the runner: its state, its generation, under which the supervisor may act."""
    (runner,) = pair.operator.ListRunners(operator_pb.ListRunnersRequest()).runners
    return operator_pb.RunnerState.Name(runner.state), runner.generation, runner.supervision_generation


def rule(pair: Pair, escalation_id: str) -> None:
    """Rule, and send the same request until it is answered."""
    ruling = escalation_pb2.Ruling(
        escalation_id=escalation_id, decision=escalation_pb2.DECISION_APPROVE, instructions="go on"
    )
    request = operator_pb.OperatorServiceSteerRequest(request_id=fresh(), ruling=ruling)
    eventually(lambda: pair.operator.Steer(request), "ruled", AFTERWARDS_SECONDS)


def take(attempt: Attempt, escalation_id: str) -> None:
    """The worker takes the ruling."""
    ruling = attempt.worker.await_ruling(escalation_id, timeout_seconds=AFTERWARDS_SECONDS)
    attempt.worker.acknowledge(ruling)


@pytest.mark.parametrize("package", ["supervisor_svc", "lane_runner_svc"])
@pytest.mark.parametrize(
    ("held_seconds", "flags"),
    [
        pytest.param(4.0, SHORT, id="more than a lease"),
        pytest.param(20.0, (), id="20s", marks=[pytest.mark.long, pytest.mark.timeout(180)]),
    ],
)
def test_w05_who_holds_the_store_is_named_and_nothing_is_lost(
    tmp_path: Path, package: str, held_seconds: float, flags: tuple[str, ...]
) -> None:
    """Meanwhile a worker asks and an operator rules on its last question. The finding names the holder and nobody who waits;
    the lease, the supervision and the worker live on throughout; then the question is there once, and each ruling is taken.
    """
    through = ("tests.integration.holding_service", str(tmp_path))
    with (
        Pair(tmp_path, through=through, supervisor_flags=flags) as pair,
        Puppet(pair, tmp_path / "worker") as puppet,
        ThreadPoolExecutor(2) as others,
    ):
        attempt = puppet.attempt(1)
        first = attempt.worker.escalate("one?", expects_reply=True).escalation_id
        pair.open_escalation(puppet.task_id)
        before = eventually(lambda: found if (found := lease(pair))[2] else None, "supervised")
        assert before[0] == "RUNNER_STATE_LIVE"
        port = pair.supervisor_port if package == "supervisor_svc" else pair.runner_port
        with held(tmp_path / package):
            until = time.monotonic() + held_seconds
            eventually(lambda: store_held(pair, port), "the store is held")
            asking = others.submit(attempt.worker.escalate, "two?", expects_reply=True)
            ruling = others.submit(rule, pair, first)
            while time.monotonic() < until:
                assert lease(pair) == before, "a lease that is renewed has ended"
                [found] = store_held(pair, port)
                names = [(each.emitter, each.origin) for each in found.emitters]
                assert (found.entity_id, names) == (HELD_FOR.id, [(HOLDER.name, ORIGIN)]), "who waits is blamed"
                time.sleep(0.1)
        second = asking.result(AFTERWARDS_SECONDS).escalation_id
        ruling.result(AFTERWARDS_SECONDS)
        take(attempt, first)
        eventually(lambda: len(pair.inbox(puppet.task_id)) == 2, "both questions are in the inbox", AFTERWARDS_SECONDS)
        rule(pair, second)
        take(attempt, second)
        assert {each.escalation_id for each in pair.inbox(puppet.task_id)} == {first, second}
        task = puppet.task()
        assert (state_of(task), task.attempt, task.worker_alive, puppet.launches) == ("RUNNING", 1, True, 1)
        assert lease(pair) == before
        assert not store_held(pair, port)
