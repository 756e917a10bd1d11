"""Leases on the real stores of both sides: what is told, what is remembered, what the audit says."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lanewarden.errors import Reason
from lanewarden.v1 import lane_runner_service_pb2 as runner_pb
from supervisor_svc.core.leases import LeaseState
from tests import lease_checks as checks
from tests.lease_kit import TIMING, LeaseKit


@pytest.fixture
def kit(tmp_path: Path) -> Iterator[LeaseKit]:
    made = LeaseKit(tmp_path, ("alpha", "beta"))
    yield made
    made.close()


def test_p18_a_wall_clock_changes_no_lease(kit: LeaseKit) -> None:
    """Whatever anybody sets it to, on either side."""
    checks.check_a_wall_clock_changes_no_lease(kit)


def test_the_holder_counts_from_the_request(kit: LeaseKit) -> None:
    """An answer that took its time makes no lease longer."""
    checks.check_the_holder_counts_from_the_request(kit)


def test_an_end_raises_the_generation(kit: LeaseKit) -> None:
    """On both sides, and a late renewal learns the current one."""
    checks.check_an_end_raises_the_generation(kit)


def test_i06_no_grant_comes_between_the_fence_and_the_act(kit: LeaseKit) -> None:
    """The fence is part of the unit of work that acts."""
    checks.check_no_grant_comes_between_the_fence_and_the_act(kit)


def test_one_start_keeps_its_generation_while_its_lease_lives(kit: LeaseKit) -> None:
    """Registering again changes nothing; after a lapse the same start gets another generation."""
    first = kit.supervise()
    assert kit.supervise() == first
    kit.advance(TIMING.ttl_ms)
    assert kit.supervise() == first + 2
    assert not kit.passes(first)
    assert kit.passes(first + 2)


def test_a_restarted_runner_fences_what_was_sent_to_it_before(kit: LeaseKit) -> None:
    """Nobody supervises it until somebody is heard anew."""
    first = kit.supervise()
    kit.restart_runner()
    assert not kit.passes(first)
    shown = kit.runner.ask("GetSupervision", runner_pb.GetSupervisionRequest()).supervision
    assert (shown.state, shown.generation) == (runner_pb.SUPERVISION_STATE_LAPSED, first + 1)
    assert kit.supervise() == first + 2


def test_a_supervisor_may_act_once_it_was_told_and_not_longer_than_it_was_heard(kit: LeaseKit) -> None:
    """Not on a registration alone; and it stops before the runner's half can have lapsed, its own stalls included."""
    kit.hear(kit.arrive(kit.register()))
    assert kit.right() == 0
    sent = kit.keep_alive()
    kit.hear(kit.arrive(sent))
    assert kit.right() == kit.holder.generation
    kit.advance(TIMING.ttl_ms - TIMING.renewal_ms - 1)
    assert kit.right() == kit.holder.generation
    kit.advance(1)
    assert kit.right() == 0
    assert kit.holder.generation
    kit.hear(kit.arrive(kit.keep_alive()))
    assert kit.right() == kit.holder.generation
    kit.advance(60_000, but="alpha")
    assert kit.right() == 0, "a stall is forgiven to the runner, not to oneself"
    assert kit.state() is not LeaseState.UNREACHABLE


def test_a_new_start_of_a_supervisor_uses_no_generation_of_the_one_before(kit: LeaseKit) -> None:
    """It renews the lease at once, but may act only once the runner has registered with it."""
    first, side = kit.supervise(), kit.sides["alpha"]
    before = side.supervisor.incarnation
    side.restart()
    sent = kit.arrive(kit.keep_alive())
    assert sent.answer.supervisor_incarnation not in ("", before)
    assert kit.right() == 0
    assert kit.supervise() == first + 1
    assert kit.right() == first + 1
    assert not kit.passes(first)


def put_back(name: str, kit: LeaseKit, directory: Path) -> Callable[[], None]:
    """Back a store up; what is returned starts its owner on the copy."""
    store = kit.runner.runner.store if name == "runner" else kit.sides[name].store
    store.backup(directory / "copy")

    def restore() -> None:
        (kit.runner if name == "runner" else kit.sides[name].store).close()
        path = directory / f"{name}.sqlite3"
        for each in directory.glob(f"{path.name}*"):
            each.unlink()
        shutil.copy(directory / "copy", path)
        kit.reopen(name)

    return restore


@pytest.mark.parametrize("name", ["runner", "alpha"])
def test_i07_no_generation_repeats_after_a_backup_was_restored(kit: LeaseKit, tmp_path: Path, name: str) -> None:
    """Whichever side forgets, the other remembers what it was told."""
    kit.supervise()
    restore = put_back(name, kit, tmp_path)
    for _ in range(3):
        kit.advance(TIMING.ttl_ms + TIMING.grace_ms)
        kit.supervise()
    lease, right = kit.lease_generation["alpha"], kit.holder.generation
    restore()
    kit.advance(TIMING.ttl_ms)
    kit.supervise()
    assert kit.lease_generation["alpha"] >= lease + (name == "alpha")
    assert kit.holder.generation > right
    assert not kit.passes(right)


@pytest.mark.parametrize("told", [2**62 + 1, 2**63 - 1])
def test_a_generation_that_leaves_no_next_one_is_refused(kit: LeaseKit, told: int) -> None:
    """Nobody can use the numbers up."""
    kit.supervise()
    for ask, field in ((kit.register, "generation_seen"), (kit.keep_alive, "supervision_generation")):
        sent = ask()
        setattr(sent.request, field, told)
        refusal = kit.arrive(sent).refusal
        assert refusal is not None
        assert (refusal.reason, refusal.metadata["field"]) == (Reason.REQUEST_INVALID, field)
    assert kit.supervise()


def test_h13_the_audit_names_the_old_owner_and_the_new_one(kit: LeaseKit) -> None:
    """An entry per change of hands, by the runner; none for a lease that the same start gets again."""
    kit.supervise()
    kit.advance(TIMING.ttl_ms)
    kit.supervise()
    kit.advance(TIMING.ttl_ms)
    kit.supervise("beta")
    entries = kit.runner.ask("ListAudit", runner_pb.LaneRunnerServiceListAuditRequest()).entries
    assert [entry.actor.role for entry in entries] == ["runner", "runner"]
    assert entries[0].action.startswith("Supervise by alpha at alpha:1, start ")
    assert entries[0].action.endswith(", generation 1 from nobody")
    assert entries[1].action.startswith("Supervise by beta at beta:1, start ")
    assert "from alpha at alpha:1" in entries[1].action
    assert entries[1].action.endswith("generation 4, lapsed")
