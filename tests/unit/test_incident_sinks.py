"""Trackers against real files and real servers, which answer late, twice, or not at all."""

from __future__ import annotations

import json
import multiprocessing
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from supervisor_svc.sinks import SinkFailed, SinkUnusable
from supervisor_svc.sinks.incident_github import GithubIssues
from supervisor_svc.sinks.incident_lines import IncidentLines
from supervisor_svc.sinks.incident_webhook import IncidentWebhook
from supervisor_svc.sinks.tracker import FilingFailed, Report, Subject
from supervisor_svc.sinks.trackers import make_tracker, problems


def subject(task_id: str, diagnosis: str = "the disk is full") -> Subject:
    key = f"{task_id}/1/stale"
    return Subject(key=key, task_id=task_id, runner_id="r1", epoch=1, summary=f"gave {task_id} up", diagnosis=diagnosis)


def report(*task_ids: str, diagnosis: str = "the disk is full") -> Report:
    subjects = tuple(subject(each, diagnosis) for each in task_ids or ("t1",))
    return Report(key=subjects[0].key, kind="stale", at="2026-11-30T10:00:00.000Z", subjects=subjects)


class FakeGithub:
    """Issues in memory. ``before`` may answer instead, and ``after`` once an issue is made, or may raise to hang up;
    ``hidden`` keeps the newest issues out of listings.
    """

    def __init__(self) -> None:
        self.issues: list[dict[str, Any]] = []
        self.requests: list[str] = []
        self.hidden = 0
        self.before: Callable[[str], tuple[int, dict[str, str]] | None] = lambda method: None
        self.hang_up_after_create = False

    def answer(self, method: str, path: str, body: bytes) -> tuple[int, dict[str, str], Any]:
        self.requests.append(method)
        if refused := self.before(method):
            return (*refused, {"message": "s3cret"})
        if method == "POST":
            number = len(self.issues) + 1
            self.issues.append({"number": number, "html_url": f"http://x/{number}", **json.loads(body)})
            if self.hang_up_after_create:
                raise ConnectionAbortedError
            return 201, {}, self.issues[-1]
        page = int(parse_qs(urlsplit(path).query)["page"][0])
        shown = self.issues[: len(self.issues) - self.hidden][::-1]
        return 200, {}, shown[(page - 1) * 100 : page * 100]


@contextmanager
def serving(answer: Callable[[str, str, bytes], tuple[int, dict[str, str], Any]]) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            try:
                status, headers, told = answer(self.command, self.path, body)
            except ConnectionAbortedError:
                self.close_connection = True
                return
            data = told if isinstance(told, bytes) else json.dumps(told).encode()
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(data))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = do  # noqa: N815 - the library's names

        def log_message(self, *args: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


async def failure(call: Any) -> SinkFailed:
    with pytest.raises(SinkFailed) as caught:
        await call
    return caught.value


async def test_a_line_per_incident_and_each_found_by_any_of_its_tasks(tmp_path: Path) -> None:
    """A key is filed once, whoever asks; what is filed for several tasks is found by each."""
    path = tmp_path / "i.jsonl"
    tracker = IncidentLines(path)
    assert await tracker.find("t2/1/stale") is None
    first = await tracker.create(report("t1", "t2"))
    assert await tracker.create(report("t2")) == first
    assert await tracker.find("t2/1/stale") == first
    second = await tracker.create(report("t3"))
    assert (first.external_id, second.external_id) == ("line-1", "line-2")
    assert second.url == f"{path.as_uri()}#line-2"
    assert [len(json.loads(line)["subjects"]) for line in path.read_text().splitlines()] == [2, 1]


async def test_a_torn_line_is_nobodys(tmp_path: Path) -> None:
    """What a crash left of a line names no incident, and spoils neither the next line nor a look-up."""
    path = tmp_path / "i.jsonl"
    path.write_text('[]\n7\n{"subjects": 3}\n{"key": "t1/1/st')
    tracker = IncidentLines(path)
    assert await tracker.find("t1/1/stale") is None
    filed = await tracker.create(report())
    assert json.loads(path.read_text().splitlines()[-1])["key"] == "t1/1/stale"
    assert await tracker.find("t1/1/stale") == filed


def _create(path: str, barrier: Any) -> None:
    import asyncio

    barrier.wait()
    asyncio.run(IncidentLines(Path(path)).create(report()))


def test_processes_that_file_the_same_at_once_make_one_line(tmp_path: Path) -> None:
    """Look-up and append are one, under a lock that processes share."""
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(4)
    path = tmp_path / "i.jsonl"
    jobs = [context.Process(target=_create, args=(str(path), barrier)) for _ in range(4)]
    for job in jobs:
        job.start()
    for job in jobs:
        job.join(30)
    assert [job.exitcode for job in jobs] == [0, 0, 0, 0]
    assert len(path.read_text().splitlines()) == 1


async def test_a_webhook_gets_the_key_and_may_name_the_item() -> None:
    """The report as JSON; what the receiver answers names the item, and its key does when it answers nothing of use."""
    told: list[Any] = [{"id": 7, "url": "http://x/7"}, b"thanks", [1]]
    got: list[bytes] = []

    def answer(method: str, path: str, body: bytes) -> tuple[int, dict[str, str], Any]:
        got.append(body)
        return 200, {}, told.pop(0)

    with serving(answer) as url:
        tracker = IncidentWebhook(url)
        assert await tracker.find("t1/1/stale") is None
        named = await tracker.create(report())
        assert (named.external_id, named.url) == ("7", "http://x/7")
        assert (await tracker.create(report())).external_id == "t1/1/stale"
        assert (await tracker.create(report())).external_id == "t1/1/stale"
    assert json.loads(got[0])["key"] == "t1/1/stale"


async def test_a_webhook_that_was_never_reached_has_surely_nothing() -> None:
    """A refused connection is a sure failure; an answer of the server's own trouble is not."""
    with serving(lambda method, path, body: (500, {}, {})) as url:
        unsure = await failure(IncidentWebhook(url).create(report()))
        assert not isinstance(unsure, FilingFailed)
        assert unsure.cause == "answered HTTP 500"
    sure = await failure(IncidentWebhook(url).create(report()))
    assert isinstance(sure, FilingFailed)


async def test_github_issues_are_found_by_their_marks() -> None:
    """An issue carries every task's key out of sight; titles and texts that imitate a mark are not taken for one."""
    fake = FakeGithub()
    with serving(fake.answer) as url:
        tracker = GithubIssues("o/r", "t0ken", api=url)
        assert await tracker.find("t1/1/stale") is None
        imitated = "<!-- lanewarden-incident: t9/1/stale --> ```` "
        filed = await tracker.create(report("t1", "t2", diagnosis=imitated))
        assert (filed.external_id, filed.url) == ("1", "http://x/1")
        assert await tracker.find("t2/1/stale") == filed
        assert await tracker.find("t9/1/stale") is None
    issue = fake.issues[0]
    assert issue["title"] == "stale: task t1 and 1 more"
    assert issue["labels"] == ["lanewarden", "stale"]
    assert "`````\n" in issue["body"]


async def test_github_is_searched_page_by_page() -> None:
    """A hundred issues a page, newest first, until one fits."""
    fake = FakeGithub()
    with serving(fake.answer) as url:
        tracker = GithubIssues("o/r", "t", api=url)
        filed = await tracker.create(report("t1"))
        fake.issues += [{"number": number, "body": None} for number in range(2, 202)]
        fake.requests.clear()
        assert await tracker.find("t1/1/stale") == filed
        assert fake.requests == ["GET"] * 3


async def test_an_issue_of_many_tasks_fits() -> None:
    """Two hundred tasks with the longest diagnosis stay within what GitHub takes, and each is named."""
    fake = FakeGithub()
    names = [f"t{number}" for number in range(200)]
    with serving(fake.answer) as url:
        await GithubIssues("o/r", "t", api=url).create(report(*names, diagnosis="x" * 4096))
    body = fake.issues[0]["body"]
    assert len(body) < 65_536
    assert all(f"incident: {name}/1/stale -->" in body for name in names)


@pytest.mark.parametrize(
    ("status", "headers", "sure", "wait"),
    [
        (401, {}, True, 0.0),
        (403, {}, True, 0.0),
        (403, {"X-RateLimit-Remaining": "0"}, True, 60.0),
        (429, {"Retry-After": "17"}, True, 17.0),
        (429, {"Retry-After": "tomorrow"}, True, 60.0),
        (302, {"Location": "http://127.0.0.1:1/"}, False, 0.0),
        (502, {}, False, 0.0),
    ],
)
async def test_what_githubs_answers_mean(status: int, headers: dict[str, str], sure: bool, wait: float) -> None:
    """A refusal is sure, a rate limit says how long, and trouble on its side leaves open what came of it."""
    fake = FakeGithub()
    fake.before = lambda method: (status, headers)
    with serving(fake.answer) as url:
        failed = await failure(GithubIssues("o/r", "t0ken", api=url).create(report()))
    assert isinstance(failed, FilingFailed) == sure
    assert getattr(failed, "retry_after_seconds", 0.0) == wait
    assert "s3cret" not in failed.cause
    assert "t0ken" not in failed.cause


async def test_an_answer_that_is_lost_leaves_open_whether_there_is_an_issue() -> None:
    """Created, then hung up: unsure. A list that shows it later finds it then."""
    fake = FakeGithub()
    fake.hang_up_after_create, fake.hidden = True, 1
    with serving(fake.answer) as url:
        tracker = GithubIssues("o/r", "t", api=url)
        assert not isinstance(await failure(tracker.create(report())), FilingFailed)
        assert await tracker.find("t1/1/stale") is None
        fake.hidden = 0
        found = await tracker.find("t1/1/stale")
        assert found is not None
        assert found.external_id == "1"


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("jsonl:", "jsonl needs the path"),
        ("webhook:ftp://x", "webhook needs an http"),
        ("github:x", "github needs a repository"),
        ("github:o/r", "github needs --github-token-file"),
        ("mail:me", "'mail' is not a tracker"),
    ],
)
def test_trackers_that_cannot_work_are_refused(spec: str, said: str) -> None:
    """In one sentence that says what would work."""
    assert any(said in problem for problem in problems(spec, token_file=None, api="https://api.github.com"))


def test_trackers_by_their_specs(tmp_path: Path) -> None:
    """A file by default; a token that cannot be read is told by its file's name."""
    token = tmp_path / "token"
    token.write_text("t0ken\n")
    api = "https://api.github.com"

    def made(spec: str, token_file: Path | None = None) -> str:
        assert list(problems(spec, token_file=token_file, api=api)) == []
        return make_tracker(spec, state_dir=tmp_path, token_file=token_file, api=api).name

    assert [made(""), made(f"jsonl:{tmp_path / 'x'}"), made("webhook:http://h/"), made("github:o/r", token)] == [
        "jsonl",
        "jsonl",
        "webhook",
        "github",
    ]
    assert {each.name for each in tmp_path.iterdir()} == {"token", "incidents.jsonl", "x"}
    with pytest.raises(SinkUnusable, match="no-token"):
        make_tracker("github:o/r", state_dir=tmp_path, token_file=tmp_path / "no-token", api=api)
    with pytest.raises(SinkUnusable, match="incidents"):
        make_tracker(f"jsonl:{tmp_path}", state_dir=tmp_path, token_file=None, api=api)
