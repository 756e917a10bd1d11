"""Leases between the two services as real processes that are stopped and continued."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

from lanewarden.v1 import lane_runner_service_pb2 as runner_pb
from lanewarden.v1 import operator_service_pb2 as operator_pb
from tests.integration.pair import Pair, eventually

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
