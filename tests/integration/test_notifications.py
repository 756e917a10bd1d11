"""Telling people, from the report to the sink: real gRPC, a real store, a real HTTP server, real programs, kill -9."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from lanewarden import client
from lanewarden.auth import Credentials, Role
from lanewarden.client import Stub
from lanewarden.v1 import escalation_pb2
from lanewarden.v1 import operator_service_pb2 as pb
from lanewarden.v1 import supervisor_service_pb2 as supervisor_pb
from supervisor_svc.bootstrap import OPERATOR, SUPERVISOR
from supervisor_svc.sinks import SinkFailed
from supervisor_svc.sinks.webhook import WebhookSink
from supervisor_svc.store.notifications import Notification
from tests.integration.supervisor_kit import RunnerSide, World, escalation, refused, task, world
from tests.ports import free_port

PATIENCE_SECONDS = 20.0
RELEASED = escalation_pb2.HOLD_STATE_RELEASED


class Hook:
    """A webhook. Each request is answered by the next of ``answers``, the last one for ever: a status, "hang" (until the end
    of the test), "hang up", or "garbage".
    """

    def __init__(self, *answers: int | str) -> None:
        self.keys: list[str] = []
        self.bodies: list[dict[str, Any]] = []
        self.paths: list[str] = []
        self.answers = list(answers) or [200]
        self.news = threading.Condition()
        self.over = threading.Event()
        hook = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                with hook.news:
                    hook.keys.append(self.headers["Idempotency-Key"])
                    hook.bodies.append(json.loads(body))
                    hook.paths.append(self.path)
                    answer = hook.answers.pop(0) if len(hook.answers) > 1 else hook.answers[0]
                    hook.news.notify_all()
                hook.reply(self, answer)

            def do_GET(self) -> None:
                with hook.news:
                    hook.paths.append(f"GET {self.path}")
                self.send_response(200)
                self.end_headers()

            def log_message(self, *words: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/hook"
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    def reply(self, handler: BaseHTTPRequestHandler, answer: int | str) -> None:
        match answer:
            case "hang":
                self.over.wait(PATIENCE_SECONDS)
            case "hang up":
                handler.connection.close()
            case "garbage":
                handler.wfile.write(b"nonsense\r\n\r\n")
            case int(status):
                handler.send_response(status)
                if 300 <= status < 400:
                    handler.send_header("Location", f"{self.url}/elsewhere")
                handler.send_header("Content-Length", "0")
                handler.end_headers()

    async def until(self, count: int) -> list[str]:
        """The keys of the requests, once there are so many."""

        def wait() -> bool:
            with self.news:
                return self.news.wait_for(lambda: len(self.keys) >= count, PATIENCE_SECONDS)

        assert await asyncio.to_thread(wait), f"not so many requests: {self.keys}"
        return self.keys

    def close(self) -> None:
        self.over.set()
        self.server.shutdown()
        self.server.server_close()


@contextmanager
def hooked(*answers: int | str) -> Iterator[Hook]:
    hook = Hook(*answers)
    try:
        yield hook
    finally:
        hook.close()


async def listed(operator: Stub, **fields: Any) -> list[pb.Notification]:
    return list((await operator.ListNotifications(pb.ListNotificationsRequest(**fields))).notifications)


async def eventually(operator: Stub, *, delivered: int) -> list[pb.Notification]:
    """The notifications once so many are delivered."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            found = await listed(operator)
            if sum(each.HasField("delivered_at") for each in found) >= delivered:
                return found
            await asyncio.sleep(0.01)


def item(sequence: int, what: escalation_pb2.Escalation) -> supervisor_pb.ReportItem:
    return supervisor_pb.ReportItem(sequence=sequence, escalation=what)


async def test_h03_h17_one_notice_one_alert_through_every_sink(tmp_path: Path) -> None:
    """A hold that nobody rules on makes one notification per reminder and one alert, naming it and who owes the answer;
    sent in that order through each sink, and listed.
    """
    lines, out = tmp_path / "n.jsonl", tmp_path / "out"
    command = f"command:/bin/sh -c {shlex.quote(f'cat >> {shlex.quote(str(out))}; echo >> {shlex.quote(str(out))}')}"
    with hooked() as hook:
        async with world(tmp_path, notify=(f"jsonl:{lines}", f"webhook:{hook.url}", command)) as w:
            reminded = escalation(owed_by="ada", reminders=1)
            expired = escalation(owed_by="ada", reminders=1, expired=True)
            expired.deadline_at.FromMilliseconds(7)
            for _ in range(2):
                await w.side.report(item(3, reminded), item(4, expired), item(5, expired))
            found = await eventually(w.operator, delivered=12)
            expected = ["e1/opened/1", "e1/approver/ada", "e1/reminder/1", "e1/expired/7"]
            assert [each.key for each in reversed(found) if each.sink == "webhook"] == expected
            assert {each.sink for each in found} == {"jsonl", "webhook", "command"}
            assert {(each.tries, each.failure) for each in found} == {(1, "")}
            assert {each.to for each in found} == {"", "ada"}
        assert hook.keys == expected
        for told in (lines, out):
            objects = [json.loads(line) for line in told.read_text().splitlines()]
            assert objects == hook.bodies
    alert = hook.bodies[-1]
    assert (alert["kind"], alert["to"], alert["key"]) == ("expired", "ada", "e1/expired/7")
    assert alert["escalation"]["escalation_id"] == "e1"
    assert alert["escalation"]["question"] == "left or right?"


async def test_a_ruling_and_a_cancel_are_told(tmp_path: Path) -> None:
    """Whoever was told of a hold is told of its end, once the runner has said so."""
    lines = tmp_path / "n.jsonl"
    async with world(tmp_path, notify=(f"jsonl:{lines}",)) as w:
        await w.side.escalate(3, escalation("e2"))
        ruled = escalation(hold_state=RELEASED)
        canceled = escalation("e2", hold_state=escalation_pb2.HOLD_STATE_CANCELED)
        await w.side.report(item(4, ruled), item(5, canceled))
        await eventually(w.operator, delivered=4)
    keys = [json.loads(line)["key"] for line in lines.read_text().splitlines()]
    assert keys == ["e1/opened/1", "e2/opened/1", "e1/ruled/1", "e2/canceled/1"]


async def test_a_webhook_that_fails_is_tried_again_under_the_same_key(tmp_path: Path) -> None:
    """Errors and answers that are none fail a try, which is shown; the next try carries the same key and the same body."""
    with hooked(503, "hang up", 204) as hook:
        async with world(tmp_path, notify=(f"webhook:{hook.url}",)) as w:
            await hook.until(1)
            (row,) = await eventually(w.operator, delivered=1)
            assert (row.tries, row.failure) == (3, "")
        assert hook.keys == ["e1/opened/1"] * 3
        assert hook.bodies[0] == hook.bodies[1] == hook.bodies[2]


@pytest.mark.parametrize(
    ("answer", "cause"),
    [
        (404, "answered HTTP 404"),
        (500, "answered HTTP 500"),
        (302, "answered HTTP 302"),
        (307, "answered HTTP 307"),
        ("hang", "timed out"),
        ("hang up", "closed the connection"),
        ("garbage", "did not answer with HTTP"),
    ],
)
async def test_whatever_is_not_a_2xx_fails_the_try(answer: int | str, cause: str) -> None:
    """With a short cause, within its time, and without following anybody anywhere."""
    sent = Notification(
        sink="webhook",
        key="k1",
        escalation_id="e1",
        kind="opened",
        addressee="",
        payload="{}",
        changed_ms=0,
        next_try_ms=0,
    )
    with hooked(answer, 200) as hook:
        sink = WebhookSink("webhook", hook.url, seconds=0.3 if answer == "hang" else 10.0)
        with pytest.raises(SinkFailed) as caught:
            await sink.send(sent)
        assert caught.value.cause == cause
        await sink.send(sent)
        assert hook.keys == ["k1", "k1"]
        assert hook.paths == ["/hook", "/hook"]


async def test_a_sink_that_hangs_delays_no_other_sink_and_no_call(tmp_path: Path) -> None:
    """While a webhook and a program hang, the file gets its lines and the supervisor answers; the stop is not held up."""
    lines, started = tmp_path / "n.jsonl", tmp_path / "started"
    hangs = f"command:/bin/sh -c {shlex.quote(f'echo $$ > {shlex.quote(str(started))}; sleep 600')}"
    with hooked("hang") as hook:
        async with world(tmp_path, notify=(f"webhook:{hook.url}", hangs, f"jsonl:{lines}")) as w:
            await hook.until(1)
            async with asyncio.timeout(5):
                for sequence in range(3, 23):
                    await w.side.escalate(sequence, escalation(f"n{sequence}"))
                found = await eventually(w.operator, delivered=21)
            assert {each.sink for each in found if each.HasField("delivered_at")} == {"jsonl"}
            assert {each.tries for each in found if each.sink != "jsonl"} == {0}
            stopping = asyncio.get_running_loop().time()
        assert asyncio.get_running_loop().time() - stopping < 8
        assert not Path(f"/proc/{started.read_text().strip()}/fd").exists()


async def test_listing_pages_newest_first_and_is_for_viewers_too(tmp_path: Path) -> None:
    """By escalation, a page at a time; what waits for a sink that is gone says so."""
    async with world(tmp_path, notify=(f"jsonl:{tmp_path}/n.jsonl",)) as w:
        for sequence in range(3, 8):
            await w.side.report(item(sequence, escalation(reminders=sequence)))
        await w.side.escalate(8, escalation("e2"))
        viewer = w.stub(OPERATOR, Role.VIEWER)
        keys, token = [], ""
        while True:
            request = pb.ListNotificationsRequest(escalation_id="e1", page_size=2, page_token=token)
            page = await viewer.ListNotifications(request)
            keys += [each.key for each in page.notifications]
            assert len(page.notifications) <= 2
            if not (token := page.next_page_token):
                break
        assert keys == [*(f"e1/reminder/{number}" for number in range(7, 2, -1)), "e1/opened/1"]
        assert [each.escalation_id for each in await listed(viewer)][:2] == ["e2", "e1"]
        assert (
            await refused(w.stub(OPERATOR, Role.RUNNER).ListNotifications(request))
        ).reason.name == "ROLE_NOT_ALLOWED"
        await eventually(w.operator, delivered=7)
        await w.stop()
        with hooked("hang") as hook:
            await w.start(notify=(f"webhook:{hook.url}",))
            await w.side.register()
            await w.side.escalate(9, escalation("e3"))
            await hook.until(1)
            await w.stop()
        await w.start()
        (waiting,) = await listed(w.operator, escalation_id="e3")
        assert (waiting.sink, waiting.failure) == ("webhook", "this sink is not configured any more")


class Process:
    """A supervisor as a process, killed and started again in one state directory."""

    def __init__(self, path: Path, *flags: str) -> None:
        self.path = path
        self.port = free_port()
        self.command = [sys.executable, "-m", "supervisor_svc", "--state-dir", str(path), *flags]
        self.process: subprocess.Popen[str] | None = None

    def start(self, *, stdout: int | None = None) -> subprocess.Popen[str]:
        self.process = subprocess.Popen(
            [*self.command, "--listen-port", str(self.port)], stderr=subprocess.PIPE, stdout=stdout, text=True
        )
        assert self.process.stderr is not None
        assert json.loads(self.process.stderr.readline())["message"] == "ready"
        return self.process

    def end(self, number: signal.Signals) -> int:
        assert self.process is not None
        self.process.send_signal(number)
        self.process.communicate(timeout=PATIENCE_SECONDS)
        return self.process.returncode

    @asynccontextmanager
    async def connected(self) -> AsyncIterator[tuple[RunnerSide, Stub]]:
        tokens = Credentials.load(self.path / "credentials").tokens
        address = f"127.0.0.1:{self.port}"
        async with (
            client.connect(address, token=tokens[Role.RUNNER]) as runner,
            client.connect(address, token=tokens[Role.OPERATOR]) as operator,
        ):
            yield RunnerSide(runner.stub(SUPERVISOR), f"127.0.0.1:{free_port()}"), operator.stub(OPERATOR)


@contextmanager
def supervisor(path: Path, *flags: str) -> Iterator[Process]:
    made = Process(path, *flags)
    try:
        yield made
    finally:
        if made.process is not None and made.process.poll() is None:
            made.end(signal.SIGKILL)


async def test_i02_killed_between_send_and_record_it_sends_again_under_the_same_key(tmp_path: Path) -> None:
    """SIGKILL while the webhook has the request and has not answered: after the restart it gets it again, same key, once."""
    with hooked("hang", 200) as hook, supervisor(tmp_path, "--notify", f"webhook:{hook.url}") as process:
        process.start()
        async with process.connected() as (side, operator):
            await side.register()
            await side.escalate(1, escalation())
            await hook.until(1)
            process.end(signal.SIGKILL)
            process.start()
            await hook.until(2)
            (row,) = await eventually(operator, delivered=1)
            assert (row.key, row.tries) == ("e1/opened/1", 1)
            await side.escalate(2, escalation("e2"))
            await eventually(operator, delivered=2)
        assert hook.keys == ["e1/opened/1", "e1/opened/1", "e2/opened/1"]
        assert process.end(signal.SIGTERM) == 0


async def test_standard_output_is_for_people_and_a_stop_is_clean(tmp_path: Path) -> None:
    """One line per notification on standard output and nothing else there."""
    with supervisor(tmp_path, "--notify", "stdout") as process:
        started = process.start(stdout=subprocess.PIPE)
        async with process.connected() as (side, operator):
            await side.register()
            await side.escalate(1, escalation(task_name="migrate", owed_by="ada"))
            await eventually(operator, delivered=1)
        started.send_signal(signal.SIGTERM)
        out, _ = started.communicate(timeout=PATIENCE_SECONDS)
        assert started.returncode == 0
        (line,) = out.splitlines()
        assert line.endswith(" opened e1 (migrate), owed by ada: left or right?")


async def test_a_program_gets_the_environment_of_the_supervisor(tmp_path: Path) -> None:
    """What the supervisor was started with, and the key."""
    out = tmp_path / "out"
    script = f'echo "$HOME $LANEWARDEN_NOTIFICATION_KEY" > {shlex.quote(str(out))}'
    flags = ("--notify", f"command:sh -c {shlex.quote(script)}")
    with supervisor(tmp_path / "state", *flags) as process:
        process.start()
        async with process.connected() as (side, operator):
            await side.register()
            await side.escalate(1, escalation())
            await eventually(operator, delivered=1)
    assert out.read_text() == f"{os.environ.get('HOME', '')} e1/opened/1\n"


@pytest.mark.parametrize(
    ("sink", "code", "said"),
    [("webhook:gopher://h/", 2, "webhook needs"), ("jsonl:/dev/null/x", 1, "/dev/null/x: Not a directory")],
)
def test_r08_a_sink_that_cannot_work_stops_the_start(tmp_path: Path, sink: str, code: int, said: str) -> None:
    """One line that says what is wrong, and an exit code."""
    command = [*Process(tmp_path, "--notify", sink).command, "--listen-port", "0"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode, done.stderr.count("\n")) == (code, 1)
    assert said in done.stderr


async def test_a_supervisor_that_lost_its_past_tells_of_open_holds_under_the_same_keys(tmp_path: Path) -> None:
    """A new supervisor that is told everything again sends what is still owed, under the keys that were used before."""
    with hooked() as hook:
        for path in (tmp_path / "one", tmp_path / "two"):
            async with retold(path, hook) as w:
                await eventually(w.operator, delivered=2)
        assert hook.keys == ["e1/opened/1", "e2/opened/1"] * 2


@asynccontextmanager
async def retold(path: Path, hook: Hook) -> AsyncIterator[World]:
    """A supervisor to which a runner has told its whole past: two open holds, and three escalations that owe nothing."""
    path.mkdir()
    closed = [
        escalation("e3", hold_state=RELEASED),
        escalation("e4", hold_state=escalation_pb2.HOLD_STATE_CANCELED),
        escalation("e5", hold_state=escalation_pb2.HOLD_STATE_UNSPECIFIED, expects_reply=False),
    ]
    async with world(path, notify=(f"webhook:{hook.url}",)) as w:
        await w.side.report(
            supervisor_pb.ReportItem(sequence=3, task=task()),
            item(4, escalation("e2")),
            *(item(sequence, each) for sequence, each in enumerate(closed, start=5)),
        )
        yield w
