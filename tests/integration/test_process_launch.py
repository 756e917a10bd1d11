"""Launching workers: what a worker is given, what a failed launch says, and that a launch happens once."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import stat
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from lane_runner_svc.process import ExitKind, LaunchFailed, Spawner, WorkerIdentity
from lane_runner_svc.process.directory import AttemptDirectory
from lane_runner_svc.process.kernel import boot_id, children, start_ticks
from tests.integration.process_kit import Rig, shim_pid, until


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    made = Rig(tmp_path)
    yield made
    await made.close()


async def test_worker_runs_and_its_end_is_told(rig: Rig) -> None:
    """Output and exit code of a worker reach the runner; nothing of it, and no zombie, is left."""
    identity = await rig.host.launch(rig.spec("sh", "-c", "echo out; echo err >&2; exit 3"))
    record = await rig.end()
    assert (record.key, record.kind, record.code, record.signal) == (rig.key(), ExitKind.EXITED, 3, None)
    assert not record.stop_requested
    assert rig.log() == "out\nerr\n"
    assert record.log_bytes == 8
    assert not rig.host.is_alive(rig.key())
    assert not Path(f"/proc/{identity.pid}").exists()
    assert rig.spawner.pid is not None
    await until(lambda: children(rig.spawner.pid or 0) == [])


async def test_identity_is_the_kernels(rig: Rig) -> None:
    """The identity that launch returns, that the host keeps and that is on disk is that of the running process."""
    identity = await rig.host.launch(rig.spec("sleep", "1000"))
    assert Path(f"/proc/{identity.pid}/cmdline").read_bytes() == b"sleep\x001000\0"
    expected = WorkerIdentity(pid=identity.pid, start_ticks=start_ticks(identity.pid) or 0, boot_id=boot_id())
    assert identity == expected == rig.host.identity(rig.key())
    assert AttemptDirectory(rig.attempts_dir, rig.key()).identity() == expected
    assert rig.host.is_alive(rig.key())


async def test_worker_gets_only_what_was_given(rig: Rig, tmp_path: Path) -> None:
    """A worker has its environment and two marks, no stdin, no descriptor of ours, default signals, its own group."""
    program = (
        "import json, os, signal; print(json.dumps({'env': dict(os.environ), 'cwd': os.getcwd(),"
        "'fds': [n for n in os.listdir('/proc/self/fd') if os.path.exists('/proc/self/fd/' + n)],"
        "'stdin': os.readlink('/proc/self/fd/0'), 'group': os.getpgrp() == os.getsid(0) == os.getpid(),"
        "'status': open('/proc/self/status').read()}))"
    )
    env = {"A": "é\udcff", "EMPTY": ""}
    await rig.host.launch(rig.spec(sys.executable, "-I", "-c", program, cwd=str(tmp_path), env=env))
    assert (await rig.end()).code == 0
    seen = json.loads(rig.log())
    marks = {name: seen["env"].pop(name) for name in ("LANEWARDEN_ATTEMPT_ID", "LANEWARDEN_LAUNCH_ID")}
    seen["env"].pop("LC_CTYPE", None)  # the interpreter's own doing in a C locale
    assert seen["env"] == {"PATH": os.defpath} | env
    assert marks["LANEWARDEN_ATTEMPT_ID"] == f"{rig.task_id}/1/1"
    assert (seen["cwd"], sorted(seen["fds"]), seen["stdin"]) == (str(tmp_path), ["0", "1", "2"], "/dev/null")
    assert seen["group"]
    status = dict(line.split(":\t", 1) for line in seen["status"].splitlines() if ":\t" in line)
    assert int(status["SigBlk"], 16) == 0
    assert f"Umask:\t{status['Umask']}\n" in Path("/proc/self/status").read_text()
    ours = sum(1 << number - 1 for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGCHLD))
    assert int(status["SigIgn"], 16) & ours == 0


async def test_worker_inherits_no_descriptor_of_its_runner(tmp_path: Path) -> None:
    """Even one that the runner leaves inheritable, open before the spawner was started, is not open in a worker."""
    leaked = os.open(os.devnull, os.O_RDONLY)
    os.set_inheritable(leaked, True)
    rig = Rig(tmp_path)
    try:
        await rig.host.launch(rig.spec("sh", "-c", "ls /proc/$$/fd"))
        assert (await rig.end()).code == 0
        assert rig.log() == "0\n1\n2\n"
    finally:
        os.close(leaked)
        await rig.close()


FAILURES = {
    "missing program": (["./missing"], "work", "no such program: ./missing", "ENOENT"),
    "missing on PATH": (["no-such-program-anywhere"], "work", "no such program: no-such-program-anywhere", "ENOENT"),
    "no permission": (["./plain"], "work", "no permission to run: ./plain", "EACCES"),
    "no interpreter": (
        ["./orphan"],
        "work",
        "the interpreter that this program names does not exist: ./orphan",
        "ENOENT",
    ),
    "text without shebang": (
        ["./text"],
        "work",
        "not an executable format (a script needs a #! line): ./text",
        "ENOEXEC",
    ),
    "cwd missing": (["true"], "nowhere", "no such working directory: {cwd}", "ENOENT"),
    "cwd is a file": (["true"], "work/plain", "working directory is not a directory: {cwd}", "ENOTDIR"),
    "empty argv": ([], "work", "no program to run: argv is empty", "EINVAL"),
    "NUL": (["a\0b"], "work", "a NUL character in argv", "EINVAL"),
    "too long": (
        ["true", "x" * 200_000],
        "work",
        "arguments and environment are too long for the kernel: true",
        "E2BIG",
    ),
    "longer than any": (
        ["true", "x" * 9_000_000],
        "work",
        "arguments and environment are too long for the kernel",
        "E2BIG",
    ),
}


@pytest.mark.parametrize("name", FAILURES)
async def test_p07_failed_launch_names_its_cause(rig: Rig, tmp_path: Path, name: str) -> None:
    """A launch that cannot be is one error that says what to repair; nothing runs, then or later."""
    argv, where, cause, errno = FAILURES[name]
    work = tmp_path / "work"
    work.mkdir()
    for file, text, mode in [
        ("plain", "#!/bin/sh\n", 0o644),
        ("text", "echo hello\n", 0o755),
        ("orphan", "#!/no/such/interpreter\n", 0o755),
    ]:
        (work / file).write_text(text)
        (work / file).chmod(mode)
    with pytest.raises(LaunchFailed) as failure:
        await rig.host.launch(rig.spec(*argv, cwd=str(tmp_path / where)))
    assert (failure.value.cause, failure.value.errno) == (cause.format(cwd=tmp_path / where), errno)
    assert not rig.host.is_alive(rig.key())
    found = await rig.host.adopt([rig.key()])
    record = found[rig.key()]
    assert not isinstance(record, WorkerIdentity)
    assert record.kind is ExitKind.NEVER_STARTED
    assert rig.alive() == []
    assert rig.ends.empty()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may enter every directory")
async def test_p07_cwd_without_permission(rig: Rig, tmp_path: Path) -> None:
    """A working directory that may not be entered is named as the cause."""
    (tmp_path / "closed").mkdir(mode=0)
    with pytest.raises(LaunchFailed, match="no permission to enter working directory"):
        await rig.host.launch(rig.spec("true", cwd=str(tmp_path / "closed")))


async def test_p10_launch_is_idempotent(rig: Rig) -> None:
    """However often and however concurrently an attempt is launched, one process runs, and all get its identity."""
    spec = rig.spec("sh", "-c", "echo started; exec sleep 1000")
    identities = await asyncio.gather(*(rig.host.launch(spec) for _ in range(5)))
    identities.append(await rig.host.launch(spec))
    assert len(set(identities)) == 1
    await rig.runs_only(identities[0].pid)


async def test_p10_launch_of_an_ended_attempt_runs_nothing(rig: Rig) -> None:
    """A launch whose reply was lost, retried after the worker has ended: same identity, same end, no second worker."""
    spec = rig.spec("sh", "-c", "echo once; exit 4")
    first, record = await rig.host.launch(spec), await rig.end()
    assert (await rig.host.launch(spec), await rig.end()) == (first, record)
    assert rig.log() == "once\n"


async def test_p10_no_worker_starts_where_there_has_been_one(rig: Rig, tmp_path: Path) -> None:
    """A shim that dies with its spawner before the launch was answered leaves a worker that may have run. The launch is
    tried again, and the attempt ends as lost: nothing runs twice.
    """
    await rig.host.launch(rig.spec("sh", "-c", "echo first; exec sleep 1000"))
    await until(lambda: rig.log() == "first\n")
    await rig.host.close()
    os.kill(shim_pid(rig.directory()), signal.SIGKILL)
    other = Rig(tmp_path, task_id=rig.task_id)
    try:
        await other.host.launch(rig.spec("sh", "-c", "echo second"))
        assert (await other.end()).kind is ExitKind.SHIM_LOST
        assert rig.log() == "first\n"
        assert rig.alive() == []
    finally:
        await other.close()


async def test_second_host_cannot_start_a_running_attempt(rig: Rig, tmp_path: Path) -> None:
    """A launch by another host of an attempt that runs finds that worker: the lock decides, not anybody's memory."""
    spec = rig.spec("sleep", "1000")
    first = await rig.host.launch(spec)
    other = Rig(tmp_path, task_id=rig.task_id)
    try:
        assert await other.host.launch(spec) == first
        await rig.runs_only(first.pid)
    finally:
        await other.host.close()
        other.spawner.close()


async def test_secrets_never_reach_the_disk(rig: Rig) -> None:
    """No file of the attempt directory holds a value of the environment or an argument; all are private."""
    token = "s3cr3t-token-value"
    await rig.host.launch(rig.spec("sh", "-c", "sleep 1000", token, env={"LANEWARDEN_TOKEN": token}))
    files = list(rig.directory().iterdir())
    assert {"worker.json", "shim.lock", "shim.sock", "output.log"} <= {file.name for file in files}
    for file in files:
        assert stat.S_IMODE(file.stat().st_mode) & 0o077 == 0
        assert file.is_socket() or token not in file.read_text()
    assert stat.S_IMODE(rig.directory().stat().st_mode) == 0o700
    assert stat.S_IMODE(rig.directory().parent.stat().st_mode) == 0o700
    assert token.encode() not in Path(f"/proc/{shim_pid(rig.directory())}/cmdline").read_bytes()


async def test_twenty_launches_at_once(rig: Rig) -> None:
    """Concurrent launches all succeed, each with its own worker and its own output."""
    count = 20
    specs = [rig.spec("sh", "-c", f"echo {n}", attempt=n) for n in range(1, count + 1)]
    identities = await asyncio.gather(*(rig.host.launch(spec) for spec in specs))
    records = [await rig.end() for _ in range(count)]
    assert len({identity.pid for identity in identities}) == count
    assert {record.key.attempt for record in records} == set(range(1, count + 1))
    assert all(rig.log(n) == f"{n}\n" for n in range(1, count + 1))


async def test_a_slow_launch_does_not_delay_another(rig: Rig) -> None:
    """A shim that has not reported yet holds up nobody else's launch."""
    rig.directory(1).mkdir(parents=True)
    log = rig.host.log_path(rig.key(1))
    os.mkfifo(log)  # the first shim waits in its open of the log until somebody reads
    slow = asyncio.create_task(rig.host.launch(rig.spec("sleep", "1000", attempt=1)))
    await until(lambda: (rig.directory(1) / "shim.sock").exists())
    fast = await rig.host.launch(rig.spec("sleep", "1000", attempt=2))
    await rig.runs_only(fast.pid)
    assert not slow.done()
    reader = os.open(log, os.O_RDONLY | os.O_NONBLOCK)
    assert (await slow).pid in rig.alive()
    os.close(reader)


async def test_shim_that_dies_before_it_is_ready_is_a_failed_launch(rig: Rig) -> None:
    """A shim killed before its worker existed fails its launch, and the attempt is sealed."""
    rig.directory().mkdir(parents=True)
    os.mkfifo(rig.host.log_path(rig.key()))  # the shim waits in its open of the log
    launch = asyncio.create_task(rig.host.launch(rig.spec("sleep", "1000")))
    await until(lambda: (rig.directory() / "shim.sock").exists())
    os.kill(shim_pid(rig.directory()), signal.SIGKILL)
    with pytest.raises(LaunchFailed, match="the shim ended before it was ready"):
        await launch
    assert (rig.directory() / "exit.json").exists()
    assert rig.alive() == []


async def test_spawner_that_was_killed_is_replaced(rig: Rig) -> None:
    """After the spawner's death running workers go on, and the next launch works."""
    first = await rig.host.launch(rig.spec("sleep", "1000", attempt=1))
    assert rig.spawner.pid is not None
    os.kill(rig.spawner.pid, signal.SIGKILL)
    second = await rig.host.launch(rig.spec("sleep", "1000", attempt=2))
    assert sorted(rig.alive()) == sorted([first.pid, second.pid])
    assert rig.host.is_alive(rig.key(1))


@pytest.mark.parametrize("after", [0.0, 0.01, 0.02, 0.03, 0.05])
async def test_spawner_killed_under_a_launch(rig: Rig, after: float) -> None:
    """Whenever the spawner dies, a launch under way ends in exactly one worker."""
    assert rig.spawner.pid is not None
    asyncio.get_running_loop().call_later(after, os.kill, rig.spawner.pid, signal.SIGKILL)
    identity = await rig.host.launch(rig.spec("sleep", "1000"))
    await rig.runs_only(identity.pid)


async def test_spawner_that_cannot_live_is_a_failed_launch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A spawner that dies each time costs two tries, not for ever; and the attempt is sealed."""
    rig = Rig(tmp_path)
    starts = 0
    real_start = Spawner.start

    def start_and_kill(self: Spawner) -> None:
        nonlocal starts
        starts += 1
        real_start(self)
        os.kill(self.pid or 0, signal.SIGKILL)

    monkeypatch.setattr(Spawner, "start", start_and_kill)
    with pytest.raises(LaunchFailed, match="died, twice"):
        await rig.host.launch(rig.spec("true"))
    assert starts == 2
    assert (rig.directory() / "exit.json").exists()
    await rig.close()


async def test_attempt_directory_longer_than_a_socket_address(tmp_path: Path) -> None:
    """The socket is bound and reached by short names, so the state directory may be as deep as it likes."""
    rig = Rig(tmp_path / ("d" * 100) / ("e" * 100))
    await rig.host.launch(rig.spec("sleep", "1000"))
    address = str(rig.directory() / "shim.sock")
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as probe, pytest.raises(OSError, match="too long"):
        probe.connect(address)
    await rig.host.stop(rig.key(), grace_seconds=0)
    assert (await rig.end()).signal == signal.SIGTERM
    await rig.close()


@pytest.mark.parametrize("task_id", ["", "..", "a/b", "a\0b"])
async def test_task_id_is_never_a_path(rig: Rig, task_id: str) -> None:
    """A task id that would leave the attempts directory is refused before anything happens."""
    rig.task_id = task_id
    with pytest.raises(ValueError, match="plain file name"):
        await rig.host.launch(rig.spec("true"))
    rig.task_id = "nothing-was-launched"
