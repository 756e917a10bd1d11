"""Incidents as GitHub issues.

An issue carries the keys of its tasks in a comment that people do not see, by which it is found again. GitHub's lists lag
behind its creates, so a look-up that finds nothing means something only after :attr:`GithubIssues.lag_seconds`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from supervisor_svc.sinks import SEND_SECONDS, SinkFailed
from supervisor_svc.sinks.aside import Aside
from supervisor_svc.sinks.http import Answer, Http, NotSent
from supervisor_svc.sinks.tracker import Filed, FilingFailed, Report, Subject

API: Final = "https://api.github.com"
LABEL: Final = "lanewarden"
BODY_TEXT_MAX: Final = 40_000
"""Characters of texts in one issue; GitHub takes 65,536 with all else."""
PAGES_MAX: Final = 10
"""Of a hundred issues each, newest first."""
_SLACK_SECONDS: Final = 1.0
_LIMITED: Final = frozenset({403, 429})


class GithubIssues:
    """Files issues in one repository. ``repository`` is OWNER/NAME; the token needs the right to write issues."""

    name = "github"
    lag_seconds = 60.0

    def __init__(self, repository: str, token: str, *, api: str = API, seconds: float = SEND_SECONDS) -> None:
        self._issues = f"{api}/repos/{repository}/issues"
        self._headers: Mapping[str, str] = {
            "Accept": "application/vnd.github+json",
            "Authorization": f"Bearer {token}",
            "X-GitHub-Api-Version": "2022-11-28",
        }
        self._http = Http(seconds)
        self._aside = Aside(PAGES_MAX * seconds + _SLACK_SECONDS)

    async def find(self, key: str) -> Filed | None:
        """The newest issue of our label that names the key, open or closed."""
        found: list[Filed | None] = []
        await self._aside.run(lambda: found.append(self._find(_mark(key))))
        return found[0]

    async def create(self, report: Report) -> Filed:
        """Open an issue."""
        made: list[Filed] = []
        await self._aside.run(lambda: made.append(self._create(report)))
        return made[0]

    def _find(self, mark: str) -> Filed | None:
        for page in range(1, PAGES_MAX + 1):
            query = f"?labels={LABEL}&state=all&sort=created&direction=desc&per_page=100&page={page}"
            issues = self._json(self._exchange("GET", self._issues + query))
            if not isinstance(issues, list):
                raise SinkFailed("answered with something that is no list of issues")
            for issue in issues:
                if mark in str(issue.get("body") or ""):
                    return _filed(issue)
            if len(issues) < 100:
                return None
        return None

    def _create(self, report: Report) -> Filed:
        issue = {"title": report.title, "body": _body(report), "labels": [LABEL, report.kind]}
        return _filed(self._json(self._exchange("POST", self._issues, json.dumps(issue).encode())))

    def _exchange(self, method: str, url: str, data: bytes | None = None) -> Answer:
        try:
            answer = self._http.exchange(method, url, self._headers, data)
        except NotSent as error:
            raise FilingFailed(error.cause) from None
        if 200 <= answer.status < 300:
            return answer
        told = f"answered HTTP {answer.status}"
        if answer.status in _LIMITED and (wait := _wait_seconds(answer)):
            raise FilingFailed(f"{told}: its rate limit", retry_after_seconds=wait)
        if 400 <= answer.status < 500:
            raise FilingFailed(told)
        raise SinkFailed(told)

    def _json(self, answer: Answer) -> Any:
        try:
            return json.loads(answer.body)
        except ValueError:
            raise SinkFailed("did not answer with JSON") from None


def _wait_seconds(answer: Answer) -> float:
    """What a rate limit asks for: ``Retry-After`` in seconds, else a minute when nothing is left of the hour's requests."""
    asked = answer.headers.get("Retry-After", "")
    if asked.isdigit():
        return min(float(asked), 3_600.0)
    return 60.0 if answer.status == 429 or answer.headers.get("X-RateLimit-Remaining") == "0" else 0.0


def _filed(issue: Any) -> Filed:
    if not isinstance(issue, dict) or not issue.get("number"):
        raise SinkFailed("answered with something that is no issue")
    return Filed(external_id=str(issue["number"]), url=str(issue.get("html_url") or "")[:2048])


def _mark(key: str) -> str:
    return f"<!-- lanewarden-incident: {key} -->"


def _body(report: Report) -> str:
    """The report for people: each task with what became of it and why, in fences that its text cannot end."""
    text_max = BODY_TEXT_MAX // len(report.subjects)
    parts = [f"Filed by lanewarden at {report.at}.", *(_section(each, text_max) for each in report.subjects)]
    return "\n\n".join([*parts, *(_mark(each.key) for each in report.subjects)])


def _section(subject: Subject, text_max: int) -> str:
    text = f"{subject.summary}\n\n{subject.diagnosis}".strip().replace("<!--", "<! --")
    if len(text) > text_max:
        text = text[: text_max - 1] + "…"
    fence = "`" * (max((len(run) for run in _runs(text)), default=0) + 3)
    return f"### `{subject.task_id}`, epoch {subject.epoch}, runner `{subject.runner_id}`\n\n{fence}\n{text}\n{fence}"


def _runs(text: str) -> list[str]:
    """The runs of backticks in a text."""
    return [run for run in "".join(each if each == "`" else " " for each in text).split() if run]
