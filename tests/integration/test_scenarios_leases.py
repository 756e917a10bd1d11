"""Leases between the two services as real processes that are stopped and continued."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

from lanewarden.auth import Role
from lanewarden.errors import Reason
from lanewarden.v1 import lane_runner_service_pb2 as runner_pb
from lanewarden.v1 import operator_service_pb2 as operator_pb
from tests.integration.pair import OPERATOR, Pair, Service, eventually
from tests.integration.puppet import Puppet, state_of
from tests.ports import free_port
from tests.stories.lives import digest, worktree

TTL_SECONDS = 2.0
GRACE_SECONDS = 2.0
STOPPED_SECONDS = 6.0
"""Three leases, and more than a lease and its grace."""
TIMES = ("--lease-ttl-seconds", "2", "--lease-renew-seconds", "0.5", "--lease-grace-seconds", "2")


def shown(pair: Pair) -> operator_pb.Runner:
    """The runner as its supervisor shows it."""
    (runner,) = pair.operator.ListRunners(operator_pb.ListRunnersRequest()).runners
    return runner


def supervision(pair: Pair) -> runner_pb.Supervision:
    """Who supervises the runner, as it tells it."""
    found: runner_pb.Supervision = pair.lane_runner.GetSupervision(runner_pb.GetSupervisionRequest()).supervision
    return found


def live(pair: Pair) -> runner_pb.Supervision | None:
    """The supervision while it is live."""
    found = supervision(pair)
    return found if found.state == runner_pb.SUPERVISION_STATE_LIVE else None


def test_p12_p15_neither_a_blocked_worker_nor_a_stopped_supervisor_is_dead(tmp_path: Path) -> None:
    """A worker whose own loop is blocked for three leases is alive and stays the only attempt. A supervisor that is stopped
    for longer than a lease and its grace, and continued, ends no lease that was being renewed; the runner knew meanwhile
    that nobody supervised it, and its supervisor gets another generation.
    """
    pair = Pair(tmp_path)
    pair.supervisor.command += TIMES
    with pair:
        before = eventually(lambda: live(pair), "supervised")
        lease = shown(pair)
        assert lease.state == operator_pb.RUNNER_STATE_LIVE
        blocked = pair.submit(sys.executable, "-c", f"import time; time.sleep({STOPPED_SECONDS})")
        pair.wait_for_state(blocked, "RUNNING")
        os.kill(pair.supervisor.pid, signal.SIGSTOP)
        stopped = time.monotonic()
        try:
            lapsed = eventually(lambda: None if live(pair) else supervision(pair), "the runner knows")
            assert lapsed.state == runner_pb.SUPERVISION_STATE_LAPSED
            while (left := stopped + STOPPED_SECONDS - time.monotonic()) > 0:  # the guarantee is about this time itself
                task = pair.task(blocked)
                assert (task.attempt, task.premature_exits) == (1, 0)
                time.sleep(min(left, 0.5))
        finally:
            os.kill(pair.supervisor.pid, signal.SIGCONT)
        done = pair.wait_for_state(blocked, "SUCCEEDED")
        assert (done.attempt, done.premature_exits) == (1, 0)
        after = eventually(lambda: live(pair), "supervised again")
        assert after.generation > before.generation
        assert after.supervisor_incarnation == before.supervisor_incarnation
        runner = eventually(lambda: r if (r := shown(pair)).state == operator_pb.RUNNER_STATE_LIVE else None, "live")
        assert runner.generation == lease.generation, "a lease that was being renewed has ended"


def test_h13_a_held_task_outlives_its_supervisor_for_good(tmp_path: Path) -> None:
    """Takeover by lapsed lease, with kill -9 of either service after each step: the supervisor dies for good, the next one
    of the runner's list takes over, and runner and new supervisor die in turn. The task is HELD all along, no worker is
    launched, its worktree stays byte for byte, and the audit names each owner and the one before. Then a ruling given to
    the new supervisor starts exactly one attempt.
    """
    tree = tmp_path / "worktree"
    worktree(tree)
    before = digest(tree)
    pair = Pair(tmp_path, supervisor_flags=(*TIMES, "--supervisor-id", "first"))
    port = free_port()
    second = Service(
        *("supervisor_svc", "--state-dir", str(tmp_path / "second"), "--listen-port", str(port), *TIMES),
        *("--supervisor-id", "second", "--credentials-dir", str(tmp_path / "credentials")),
    )
    pair.runner.command += ("--supervisor", f"127.0.0.1:{port}")
    second.start()
    try:
        with pair, Puppet(pair, tmp_path / "held", cwd=str(tree)) as held:
            asked = held.attempt(1).worker.escalate("May I?", expects_reply=True).escalation_id
            held.worker_gone(held.attempt(1).end)
            generation = 0

            def owner(by: str, after: int) -> runner_pb.Supervision | None:
                now = live(pair)
                return now if now and now.supervisor_id == by and now.generation > after else None

            def is_held(by: str) -> None:
                nonlocal generation
                now = eventually(lambda: owner(by, generation), f"{by} supervises anew")
                task = pair.task(held.task_id)
                assert (state_of(task), task.attempt, list(task.open_holds)) == ("HELD", 1, [asked])
                assert (digest(tree), held.launches) == (before, 1)
                generation = now.generation

            is_held("first")
            pair.supervisor.kill()
            is_held("second")
            pair.runner.kill()
            pair.runner.start()
            is_held("second")
            second.kill()
            second.start()
            is_held("second")
            entries = pair.lane_runner.ListAudit(runner_pb.LaneRunnerServiceListAuditRequest()).entries
            owners = [each.action for each in entries if each.action.startswith("Supervise by second")]
            assert "first" in owners[0], "the audit does not say who owned it before"
            pair.operator = pair.client(port, OPERATOR, Role.OPERATOR, Reason.SUPERVISOR_UNREACHABLE)
            pair.rule(asked, "go on")
            assert held.attempt(2).reason == "ruling"
            assert held.launches == 2
            pair.supervisor.start()
    finally:
        second.kill()
