"""Trackers as people name them: ``jsonl:PATH``, ``webhook:URL``, ``github:OWNER/NAME``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from supervisor_svc.sinks import SinkUnusable
from supervisor_svc.sinks.aside import cause_of
from supervisor_svc.sinks.http import problem as url_problem
from supervisor_svc.sinks.incident_github import GithubIssues
from supervisor_svc.sinks.incident_lines import IncidentLines
from supervisor_svc.sinks.incident_webhook import IncidentWebhook
from supervisor_svc.sinks.tracker import Tracker

FILE: Final = "incidents.jsonl"
_REPOSITORY: Final = re.compile(r"[A-Za-z0-9-]{1,39}/[A-Za-z0-9._-]{1,100}")


def problems(spec: str, *, token_file: Path | None, api: str) -> Iterator[str]:
    """Sentences about a tracker that cannot work. A target is not repeated, since it may hold a secret."""
    kind, _, target = spec.partition(":")
    match kind:
        case "":
            return
        case "jsonl":
            if not target.strip():
                yield "incidents: jsonl needs the path of a file, as in jsonl:PATH"
        case "webhook":
            if wrong := url_problem(target):
                yield f"incidents: webhook {wrong}"
        case "github":
            if not _REPOSITORY.fullmatch(target):
                yield "incidents: github needs a repository, as in github:OWNER/NAME"
            if token_file is None:
                yield "incidents: github needs --github-token-file"
            if wrong := url_problem(api):
                yield f"github_api: {wrong}"
        case _:
            yield f"incidents: {kind!r} is not a tracker; use jsonl:PATH, webhook:URL or github:OWNER/NAME"


def make_tracker(spec: str, *, state_dir: Path, token_file: Path | None, api: str) -> Tracker:
    """The tracker of a spec that has no :func:`problems`; without one, a file in the state directory.

    Raises:
        SinkUnusable: a file that cannot be written, or a token that cannot be read.
    """
    kind, _, target = spec.partition(":")
    if kind == "webhook":
        return IncidentWebhook(target)
    if kind == "github":
        assert token_file is not None, "checked by problems"
        return GithubIssues(target, _token(token_file), api=api.rstrip("/"))
    lines = IncidentLines(Path(target) if target else state_dir / FILE)
    lines.check()
    return lines


def _token(path: Path) -> str:
    try:
        token = path.read_text(encoding="ascii").strip()
    except (OSError, ValueError) as error:
        cause = cause_of(error) if isinstance(error, OSError) else "does not hold a token"
        raise SinkUnusable(f"github_token_file: {path}: {cause}") from error
    if not token or not token.isprintable():
        raise SinkUnusable(f"github_token_file: {path}: does not hold a token")
    return token
