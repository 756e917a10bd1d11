"""Sinks on real files, pipes and programs: each ends in time, and says in a few words why it failed."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import signal
import socket
import ssl
import stat
import time
from pathlib import Path

import pytest

from supervisor_svc.sinks import SinkFailed
from supervisor_svc.sinks.aside import cause_of
from supervisor_svc.sinks.command import KEY_VARIABLE, CommandSink
from supervisor_svc.sinks.files import JsonLinesSink, StdoutSink
from supervisor_svc.sinks.webhook import WebhookSink
from supervisor_svc.store.notifications import Notification

PATIENCE_SECONDS = 20.0
PAYLOAD = {"key": "e1/opened/1", "kind": "opened", "at": "T", "to": "", "escalation": {"escalation_id": "e1"}}


def notification(key: str = "e1/opened/1", *, filler: str = "") -> Notification:
    return Notification(
        sink="s",
        key=key,
        escalation_id="e1",
        kind="opened",
        addressee="",
        payload=json.dumps({**PAYLOAD, "key": key, "filler": filler}),
        changed_ms=0,
        next_try_ms=0,
    )


async def cause(call: object) -> str:
    with pytest.raises(SinkFailed) as caught:
        await call  # type: ignore[misc]
    return caught.value.cause


async def test_json_lines_are_appended_whole(tmp_path: Path) -> None:
    """One object per line at the end of the file, which only its user may read and which may be moved away."""
    path = tmp_path / "n.jsonl"
    sink = JsonLinesSink("jsonl", path)
    await sink.send(notification("a"))
    await sink.send(notification("b"))
    assert [json.loads(line)["key"] for line in path.read_text().splitlines()] == ["a", "b"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.rename(tmp_path / "old")
    await sink.send(notification("c"))
    assert json.loads(path.read_text())["key"] == "c"


async def test_a_torn_line_spoils_no_other(tmp_path: Path) -> None:
    """After a line that was written in part, the next one begins on a line of its own."""
    path = tmp_path / "n.jsonl"
    path.write_text('{"key": "to')
    await JsonLinesSink("jsonl", path).send(notification("b"))
    torn, whole = path.read_text().splitlines()
    assert (torn, json.loads(whole)["key"]) == ('{"key": "to', "b")


async def test_a_full_disk_fails_the_try() -> None:
    """The system's word for it, in a few words."""
    assert await cause(JsonLinesSink("jsonl", Path("/dev/full")).send(notification())) == "No space left on device"


async def test_standard_output_gets_a_line_for_people() -> None:
    """The line, and nothing else."""
    read, write = os.pipe()
    await StdoutSink("stdout", descriptor=write).send(notification())
    assert os.read(read, 1000) == b"T opened e1: \n"
    os.close(read)
    os.close(write)


async def test_a_reader_that_does_not_read_holds_up_nothing() -> None:
    """A write to a full pipe fails in time, while the event loop runs; until it ends, the next try is refused at once."""
    read, write = os.pipe()
    os.set_blocking(write, False)
    try:
        while True:
            os.write(write, b"x" * 65536)
    except BlockingIOError:
        os.set_blocking(write, True)
    sink = StdoutSink("stdout", descriptor=write, seconds=0.1)
    assert await cause(sink.send(notification())) == "not done within 0.1 s"
    assert await cause(sink.send(notification())) == "the try before has not ended yet"
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            os.read(read, 1 << 20)
            try:
                await sink.send(notification())
                break
            except SinkFailed:
                await asyncio.sleep(0.01)
    os.close(read)
    os.close(write)


async def test_a_command_gets_the_json_and_the_key(tmp_path: Path) -> None:
    """The JSON on standard input, also a large one, the key beside the given environment."""
    out = tmp_path / "out"
    script = f'cat > {shlex.quote(str(out))}; test "${KEY_VARIABLE}" = k1 && test "$MARK" = yes'
    sink = CommandSink("command", ["/bin/sh", "-c", script], environment={**os.environ, "MARK": "yes"})
    await sink.send(notification("k1", filler="x" * 300_000))
    assert json.loads(out.read_text())["key"] == "k1"
    assert await cause(sink.send(notification("k2"))) == "exited with code 1"


async def test_a_command_that_takes_its_time_gets_all_of_it(tmp_path: Path) -> None:
    """A program that first does something else is given no less, however large the JSON."""
    out = tmp_path / "out"
    script = f"sleep 0.2; cat > {shlex.quote(str(out))}"
    sink = CommandSink("command", ["/bin/sh", "-c", script], environment=os.environ)
    await sink.send(notification("k1", filler="x" * 300_000))
    assert json.loads(out.read_text())["filler"] == "x" * 300_000


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["/bin/sh", "-c", "exit 3"], "exited with code 3"),
        (["/bin/sh", "-c", "kill -9 $$"], "ended by signal 9"),
        (["/no/such/program"], "No such file or directory"),
    ],
)
async def test_a_command_that_fails_says_how(argv: list[str], said: str) -> None:
    """Its exit code, its signal, or why it did not start."""
    assert await cause(CommandSink("command", argv, environment={}).send(notification())) == said


async def test_a_command_that_reads_nothing_is_still_judged_by_its_exit(tmp_path: Path) -> None:
    """A program may ignore the JSON, however large."""
    sink = CommandSink("command", ["/bin/sh", "-c", "exit 0"], environment={})
    await sink.send(notification(filler="x" * 300_000))


async def pids(path: Path) -> list[int]:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not path.exists() or len(path.read_text().split()) < 2:
            await asyncio.sleep(0.01)
    return [int(word) for word in path.read_text().split()]


async def gone(pid: int) -> bool:
    """Whether the process ends; a zombie that nobody reaps yet has ended."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except (FileNotFoundError, ProcessLookupError):
            return True
        await asyncio.sleep(0.01)
    os.kill(pid, signal.SIGKILL)
    return False


FORKS = ["/bin/sh", "-c", 'sleep 600 & echo $$ $! > "$0"; wait']


async def test_a_command_that_hangs_is_killed_with_its_children(tmp_path: Path) -> None:
    """In time, with its process group, and the try says so."""
    sink = CommandSink("command", [*FORKS, str(tmp_path / "p")], environment={}, seconds=1.0)
    assert await cause(sink.send(notification())) == "killed because it did not end within 1 s"
    for pid in await pids(tmp_path / "p"):
        assert await gone(pid)


async def test_a_command_is_not_left_behind_when_the_supervisor_stops(tmp_path: Path) -> None:
    """Whoever stops waiting for a program ends it."""
    sink = CommandSink("command", [*FORKS, str(tmp_path / "p")], environment={}, seconds=600)
    sending = asyncio.ensure_future(sink.send(notification()))
    found = await pids(tmp_path / "p")
    sending.cancel()
    await asyncio.gather(sending, return_exceptions=True)
    for pid in found:
        assert await gone(pid)


async def test_a_webhook_that_nobody_serves_says_so() -> None:
    """In the system's words, without the URL."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))  # taken, and not listening
        url = f"http://127.0.0.1:{probe.getsockname()[1]}/s3cret"
        assert await cause(WebhookSink("webhook", url).send(notification())) == "Connection refused"


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (socket.gaierror(-2, "s3cret"), "the host's name is not known"),
        (ssl.SSLError(1, "s3cret"), "TLS failed"),
        (TimeoutError("s3cret"), "timed out"),
        (OSError(28, "s3cret"), "No space left on device"),
        (OSError("s3cret"), "OSError"),
    ],
)
def test_causes_are_short_and_never_the_text_of_an_exception(error: OSError, said: str) -> None:
    """The system's word where there is one, otherwise the kind of the error."""
    assert cause_of(error) == said
