"""The services on databases and disks that are not as they should be."""

from __future__ import annotations

import errno
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import FileIO
from pathlib import Path

import pytest

from lanewarden.errors import Reason
from lanewarden.v1 import escalation_pb2, task_pb2
from lanewarden.v1 import lane_runner_service_pb2 as runner_pb
from lanewarden.v1 import operator_service_pb2 as operator_pb
from tests.integration.pair import DEADLINE_SECONDS, Pair, Service, eventually
from tests.integration.puppet import Puppet, fresh, refused, state_of

MODULES = {"supervisor": "supervisor_svc", "runner": "lane_runner_svc"}
DISK_BYTES = 8 << 20
PAGE_BYTES = 4096
LEASE_ENDS_SECONDS = 3.0
"""TTL and grace of the leases in the tests of a full disk."""
SHORT_LEASE = (
    *("--lease-ttl-seconds", "2", "--lease-grace-seconds", "1"),
    *("--lease-renew-seconds", "0.5", "--lease-rpc-deadline-seconds", "1"),
)


# R04: databases that no service may open


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The state directories of both services, as a clean stop leaves them."""
    directory = tmp_path_factory.mktemp("sound")
    services = [
        Service(module, "--state-dir", str(directory / name), "--listen-port", "0") for name, module in MODULES.items()
    ]
    for service in services:
        service.start()
    assert [service.stop() for service in services] == [0, 0]
    return directory


def corrupt(database: Path) -> None:
    content = bytearray(database.read_bytes())
    content[PAGE_BYTES : 3 * PAGE_BYTES] = b"\xff" * 2 * PAGE_BYTES
    database.write_bytes(content)


def overwrite(database: Path) -> None:
    database.write_bytes(b"a letter to the editor\n" * 1000)


def truncate(database: Path) -> None:
    database.write_bytes(b"")


def advance_schema(database: Path) -> None:
    with sqlite3.connect(database) as connection:
        (name,) = connection.execute("SELECT max(migration_set) FROM _sqlite_migrations").fetchone()
        values = (name, "from_the_future", "2100-01-01")
        connection.execute("INSERT INTO _sqlite_migrations (migration_set, name, applied_at) VALUES (?, ?, ?)", values)
    connection.close()


def make_read_only(database: Path) -> None:
    database.chmod(0o444)


FAULTS: dict[str, tuple[Callable[[Path], None], tuple[str, str]]] = {
    "corrupt": (corrupt, ("is damaged", "restore it from a backup")),
    "not a database": (overwrite, ("not a database", "restore it from a backup")),
    "empty": (truncate, ("is empty", "restore it from a backup")),
    "newer schema": (advance_schema, ("newer schema", "start the build that wrote it")),
    "read-only": (make_read_only, ("is read-only", "write permission")),
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("name", MODULES)
def test_r04_a_database_that_is_not_sound_is_refused_and_kept(
    sound: Path, tmp_path: Path, name: str, fault: str
) -> None:
    """The service exits with an error and one line that says what is wrong and what to do; it does not start empty: the
    file is byte for byte as before, and nothing that could be taken for another one stands beside it.
    """
    state = tmp_path / name
    shutil.copytree(sound / name, state)
    database = state / f"{name}.sqlite3"
    damage, words = FAULTS[fault]
    damage(database)
    before = database.read_bytes()
    command = [sys.executable, "-m", MODULES[name], "--state-dir", str(state), "--listen-port", "0"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_SECONDS, check=False)
    assert ended.returncode not in (0, None)
    assert ended.stderr.count("\n") == 1
    for word in (str(database), *words):
        assert word in ended.stderr
    assert database.read_bytes() == before
    # A look at a database in WAL mode makes an index and an empty log; both may be deleted by anybody.
    beside = {path.name for path in state.glob("*.sqlite3*") if path.suffix != ".sqlite3-shm" and path.stat().st_size}
    assert beside <= {database.name}


# R04: a disk that is full


@contextmanager
def small_disk(directory: Path) -> Iterator[Path]:
    """A file system of a few MiB at the directory; the test is skipped where this user may not mount one."""
    directory.mkdir(parents=True)
    options = ["-t", "tmpfs", "-o", f"size={DISK_BYTES},mode=700", "tmpfs", str(directory)]
    try:
        subprocess.run(["mount", *options], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("this user may not mount a small file system")
    try:
        yield directory
    finally:
        subprocess.run(["umount", "--lazy", str(directory)], check=True)


@contextmanager
def full(disk: Path) -> Iterator[None]:
    """Not a byte is free inside the block."""
    filler = disk / "filler"
    try:
        with filler.open("wb", buffering=0) as file:
            while _written(file):
                pass
        yield
    finally:
        filler.unlink()


def _written(file: FileIO) -> bool:
    try:
        return bool(file.write(bytes(PAGE_BYTES)))
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        return False


def pair_on(directory: Path) -> Pair:
    """A pair with short leases."""
    pair = Pair(directory)
    pair.supervisor.command += SHORT_LEASE
    return pair


def pids(pair: Pair) -> tuple[int, int]:
    """Both processes, which must be alive."""
    for service in (pair.supervisor, pair.runner):
        assert service.process is not None
        assert service.process.poll() is None, service.log[-3:]
    return pair.supervisor.pid, pair.runner.pid


def submission() -> runner_pb.SubmitTaskRequest:
    return runner_pb.SubmitTaskRequest(request_id=fresh(), spec=task_pb2.TaskSpec(argv=["true"], cwd="/"))


def lease_goes_on(pair: Pair) -> None:
    """Return once the lease has outlived TTL and grace from now on; it is live whenever it is looked at."""
    # A supervisor that has just started shows leases as live that it has extended; this one must have been renewed.
    eventually(lambda: _runner(pair).HasField("last_seen"), "the runner is heard of")
    eventually(lambda: _runner(pair).state == operator_pb.RUNNER_STATE_LIVE, "the lease is live")
    until = time.time() + LEASE_ENDS_SECONDS

    def look() -> bool:
        runner = _runner(pair)
        assert runner.state == operator_pb.RUNNER_STATE_LIVE
        return bool(runner.last_seen.ToMilliseconds() / 1000 > until)

    eventually(look, "the runner is heard of again and again")


def _runner(pair: Pair) -> operator_pb.Runner:
    (runner,) = pair.operator.ListRunners(operator_pb.ListRunnersRequest()).runners
    found: operator_pb.Runner = runner
    return found


def test_r04_a_full_disk_at_the_runner(tmp_path: Path) -> None:
    """New work and questions are refused as STORE_FULL with nothing half done; the hold stays open and the lease live;
    a ruling given meanwhile is kept and starts the worker once there is room, without a restart.
    """
    with (
        small_disk(tmp_path / "runner") as disk,
        pair_on(tmp_path) as pair,
        Puppet(pair, tmp_path / "held") as held,
        Puppet(pair, tmp_path / "runs") as runs,
    ):
        asked = held.attempt(1).worker.escalate("May I?", expects_reply=True).escalation_id
        held.worker_gone(held.attempt(1).end)
        assert pair.open_escalation(held.task_id).escalation_id == asked
        worker = runs.attempt(1).worker
        # A change that is not reported yet: the lease must not wait until the report can be crossed off.
        pair.supervisor.kill()
        worker.progress(1)
        with full(disk):
            pair.supervisor.start()
            before = pids(pair)
            lease_goes_on(pair)
            again = submission()
            assert refused(lambda: pair.lane_runner.SubmitTask(again)).reason is Reason.STORE_FULL
            through = operator_pb.OperatorServiceSubmitTaskRequest(request_id=fresh(), spec=again.spec)
            assert refused(lambda: pair.operator.SubmitTask(through)).reason is Reason.STORE_FULL
            assert refused(lambda: worker.escalate("Me too?", expects_reply=True)).reason is Reason.STORE_FULL
            assert state_of(runs.task()) == "RUNNING"
            ruled = pair.rule(asked)
            assert ruled.delivery == escalation_pb2.DELIVERY_STATE_STORED
            assert (list(held.task().open_holds), held.launches) == ([asked], 1)
        assert pair.lane_runner.SubmitTask(again).task.task_id
        ruling = next(held.attempt(2).worker.messages())
        assert ruling.message_id == ruled.message_id
        assert worker.escalate("Me too?", expects_reply=True).hold_state == "open"
        assert pids(pair) == before


def test_r04_a_full_disk_at_the_supervisor(tmp_path: Path) -> None:
    """Rulings and submissions are refused as STORE_FULL and never half taken; the runner works on, its lease stays live
    though its reports cannot be stored; they arrive once there is room, without a restart.
    """
    with (
        small_disk(tmp_path / "supervisor") as disk,
        pair_on(tmp_path) as pair,
        Puppet(pair, tmp_path / "worker") as puppet,
    ):
        worker = puppet.attempt(1).worker
        first = worker.escalate("May I?", expects_reply=True).escalation_id
        assert pair.open_escalation(puppet.task_id).escalation_id == first
        before = pids(pair)
        with full(disk):
            steer = operator_pb.OperatorServiceSteerRequest(request_id=fresh())
            steer.ruling.escalation_id = first
            steer.ruling.decision = escalation_pb2.DECISION_APPROVE
            steer.ruling.instructions = "go on"
            assert refused(lambda: pair.operator.Steer(steer)).reason is Reason.STORE_FULL
            through = operator_pb.OperatorServiceSubmitTaskRequest(request_id=fresh(), spec=submission().spec)
            assert refused(lambda: pair.operator.SubmitTask(through)).reason is Reason.STORE_FULL
            second = worker.escalate("Me too?", expects_reply=True).escalation_id
            lease_goes_on(pair)
            assert [each.escalation_id for each in pair.inbox(puppet.task_id)] == [first]
            assert list(puppet.task().open_holds) == [first, second]
        eventually(lambda: len(pair.inbox(puppet.task_id)) == 2, "the second question arrives")
        assert pair.operator.Steer(steer).message_id == steer.request_id
        assert worker.await_ruling(first, timeout_seconds=DEADLINE_SECONDS).instructions == "go on"
        assert pids(pair) == before
