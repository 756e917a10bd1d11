"""Incidents as lines of a file, one JSON object each."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from supervisor_svc.sinks import SEND_SECONDS, SinkUnusable
from supervisor_svc.sinks.aside import Aside, cause_of
from supervisor_svc.sinks.tracker import Filed, Report

T = TypeVar("T")


class IncidentLines:
    """Appends each incident once, whoever else writes to the file: look-up and append are one, under a lock."""

    name = "jsonl"
    lag_seconds = 0.0

    def __init__(self, path: Path, *, seconds: float = SEND_SECONDS) -> None:
        self._path = path
        self._aside = Aside(seconds)

    def check(self) -> None:
        """Raise :class:`SinkUnusable` unless the file can be written; it is made if it is missing."""
        try:
            self._locked(lambda file: None)
        except OSError as error:
            raise SinkUnusable(f"incidents: {self._path}: {cause_of(error)}") from error

    async def find(self, key: str) -> Filed | None:
        """The line that names the key."""
        found: list[Filed | None] = []
        await self._aside.run(lambda: found.append(self._locked(lambda file: self._find(file, [key]))))
        return found[0]

    async def create(self, report: Report) -> Filed:
        """Append a line, unless one names a key of the report already; durable when it returns."""
        made: list[Filed] = []
        await self._aside.run(lambda: made.append(self._locked(lambda file: self._append(file, report))))
        return made[0]

    def _locked(self, work: Callable[[Any], T]) -> T:
        descriptor = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "r+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            return work(file)

    def _find(self, file: Any, keys: Sequence[str]) -> Filed | None:
        wanted = set(keys)
        file.seek(0)
        for number, line in enumerate(file, 1):
            try:
                told = json.loads(line)
                named = {each["key"] for each in told["subjects"]}
            except (ValueError, TypeError, KeyError):
                continue  # a line that was torn, or is not ours
            if named & wanted:
                return self._line(number)
        return None

    def _append(self, file: Any, report: Report) -> Filed:
        if found := self._find(file, [each.key for each in report.subjects]):
            return found
        file.seek(0)
        lines = sum(1 for _ in file)
        size = file.seek(0, os.SEEK_END)
        torn = size > 0 and os.pread(file.fileno(), 1, size - 1) != b"\n"
        file.write((b"\n" if torn else b"") + report.json().encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())
        return self._line(lines + 1)

    def _line(self, number: int) -> Filed:
        return Filed(external_id=f"line-{number}", url=f"{self._path.absolute().as_uri()}#line-{number}")
