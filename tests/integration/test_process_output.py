"""A worker's output: never in its way, bounded on disk, counted."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from lane_runner_svc.process import ExitKind, OutputTotals, files
from lane_runner_svc.process.outputlog import OutputLog
from tests.integration.process_kit import Rig, shim_pid, until

MIB = 1 << 20


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    made = Rig(tmp_path)
    yield made
    await made.close()


@pytest.mark.parametrize("size_mib", [64, pytest.param(1024, marks=pytest.mark.long)])
async def test_p05_flood_on_stderr_blocks_nobody(rig: Rig, size_mib: int) -> None:
    """A worker that floods stderr ends in its own time, all is counted, and the log stays within its bound."""
    flood = f"import os\nfor _ in range({size_mib}): os.write(2, (b'x' * 63 + b'\\n') * 16384)"
    await rig.host.launch(rig.spec(sys.executable, "-c", flood, log_bytes_max=4 * MIB))
    async with asyncio.timeout(100):
        record = await rig.ends.get()
    parts = [rig.directory() / "output.log", rig.directory() / "output.log.1"]
    assert (record.kind, record.code) == (ExitKind.EXITED, 0)
    assert (record.log_bytes, record.log_bytes_dropped) == (size_mib * MIB, 0)
    assert 2 * MIB <= sum(part.stat().st_size for part in parts) <= 4 * MIB
    assert all((part.read_bytes() + b"\n").startswith((b"x", b"\n")) for part in parts)


async def test_p05_grandchild_that_holds_stdout_open_does_not_hide_the_end(rig: Rig, tmp_path: Path) -> None:
    """The worker's end is seen although a process in another session still holds its stdout and writes to it."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    script = f"setsid sh -c 'trap \"\" TERM; while :; do echo noise; done' & read x < {fifo}; exit 6"
    await rig.host.launch(rig.spec("sh", "-c", script))
    await until(lambda: rig.outputs and rig.outputs[-1].log_lines > 0)
    fifo.write_text("end\n")
    record = await rig.end()
    assert record.code == 6
    assert time.time() * 1000 - record.ended_wall_ms < 1000
    assert rig.alive() == []


async def test_last_words_are_kept(rig: Rig) -> None:
    """What a worker wrote right before its end is in the log, whole and in order, when the end is told."""
    await rig.host.launch(rig.spec(sys.executable, "-c", "print('\\n'.join(map(str, range(20000))))"))
    await rig.end()
    assert rig.log() == "".join(f"{n}\n" for n in range(20000))


async def test_output_totals_are_told(rig: Rig, tmp_path: Path) -> None:
    """The runner hears how much was written while the worker runs, at most about ten times a second."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    script = f"echo one; echo two; read x < {fifo}; for i in $(seq 3000); do echo $i; done; read x < {fifo}"
    await rig.host.launch(rig.spec("sh", "-c", script))
    await until(lambda: OutputTotals(log_bytes=8, log_lines=2) in rig.outputs)
    started = time.monotonic()
    fifo.write_text("go\n")
    await until(lambda: rig.outputs[-1].log_lines == 3002)
    assert len(rig.outputs) <= 4 + (time.monotonic() - started) / 0.1
    fifo.write_text("go\n")
    await rig.end()


def test_log_keeps_the_latest_within_its_bound(tmp_path: Path) -> None:
    """Both files together never exceed the bound, whatever the sizes of the writes, and hold the latest output."""
    log = OutputLog(str(tmp_path / "log"), 1000)
    written = b""
    for n in range(300):
        line = b"%d " % n * (n % 40) + b"\n"
        log.write(line)
        written += line
        parts = [path.read_bytes() for path in (tmp_path / "log.1", tmp_path / "log") if path.exists()]
        assert sum(map(len, parts)) <= 1000
        assert written.endswith(b"".join(parts))
    assert (log.bytes_total, log.lines_total, log.bytes_dropped) == (len(written), 300, 0)


def test_p05_disk_full_drops_output_and_counts_it() -> None:
    """A disk that takes nothing costs output, never the worker: it is counted, nothing is raised."""
    log = OutputLog("/dev/full", 1 << 20)
    log.write(b"lost\n")
    log.write(b"too\n")
    assert (log.bytes_total, log.lines_total, log.bytes_dropped) == (9, 2, 9)


def test_a_record_is_whole_or_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is durable under another name before it gets its own, and its name is durable before anybody is told."""
    path = tmp_path / "exit.json"
    steps: list[tuple[str, ...]] = []
    fsync, rename = os.fsync, os.rename

    def noted_fsync(fd: int) -> None:
        target = Path(os.readlink(f"/proc/self/fd/{fd}"))
        steps.append(("fsync", str(target), target.read_text() if target.is_file() else ""))
        fsync(fd)

    def noted_rename(old: str, new: str) -> None:
        steps.append(("rename", old, new))
        rename(old, new)

    monkeypatch.setattr(os, "fsync", noted_fsync)
    monkeypatch.setattr(os, "rename", noted_rename)
    files.reserve(str(path))
    files.write_durably(str(path), b"the end")
    assert steps == [
        ("fsync", f"{path}.tmp", "the end"),
        ("rename", f"{path}.tmp", str(path)),
        ("fsync", str(tmp_path), ""),
    ]
    assert [each.name for each in tmp_path.iterdir()] == ["exit.json"]


async def test_end_is_told_although_the_record_cannot_be_written(rig: Rig) -> None:
    """A disk that fails delays the exit record, not the news; the shim writes it once the disk lets it."""
    await rig.host.launch(rig.spec("sh", "-c", "echo up; exec sleep 1000"))
    obstacle = rig.directory() / "exit.json"
    (obstacle / "in the way").mkdir(parents=True)
    await rig.host.stop(rig.key(), grace_seconds=5)
    record = await rig.end()
    (obstacle / "in the way").rmdir()
    obstacle.rmdir()
    await until(obstacle.is_file)
    assert (await rig.host.adopt([rig.key()]))[rig.key()] == record


async def test_shim_ends_although_its_directory_was_removed(rig: Rig) -> None:
    """Without a directory nobody can read a record: the shim tells its runner and is gone, it does not try for ever."""
    await rig.host.launch(rig.spec("sleep", "1000"))
    shim = shim_pid(rig.directory())
    shutil.rmtree(rig.directory())
    await rig.host.stop(rig.key(), grace_seconds=5)
    record = await rig.end()
    assert (record.kind, record.stop_requested) == (ExitKind.SIGNALED, True)
    await until(lambda: is_over(shim))


def is_over(pid: int) -> bool:
    """Whether the process is gone, or only waits to be reaped."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True
