"""The real grpcurl, as people use it by hand: by reflection, with no copy of the contract."""

from __future__ import annotations

import functools
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

CALL_SECONDS = 30.0
_CODE = re.compile(r"^  Code: (\w+)$", re.MULTILINE)
_DETAIL = re.compile(r"^  \d+\)\t(\{.*\})$", re.MULTILINE)


@functools.cache
def find() -> str | None:
    """The program, beside the interpreter or on PATH, if it works."""
    found = shutil.which("grpcurl", path=str(Path(sys.executable).parent)) or shutil.which("grpcurl")
    if found is None:
        return None
    try:
        subprocess.run([found, "-version"], check=True, capture_output=True, timeout=CALL_SECONDS)
    except (OSError, subprocess.SubprocessError):
        return None
    return found


@dataclass(frozen=True)
class Refused(Exception):  # noqa: N818 - a refusal is a result
    """What grpcurl shows of a call that failed: the code's name and the details, by their type."""

    code: str
    details: Mapping[str, Any]
    shown: str

    @property
    def reason(self) -> str:
        """``ErrorInfo.reason``."""
        return str(self.details["google.rpc.ErrorInfo"]["reason"])

    @property
    def metadata(self) -> Mapping[str, str]:
        """``ErrorInfo.metadata``."""
        found: Mapping[str, str] = self.details["google.rpc.ErrorInfo"].get("metadata", {})
        return found

    @property
    def fields(self) -> list[str]:
        """The fields of ``BadRequest``."""
        return [each["field"] for each in self.details["google.rpc.BadRequest"]["field_violations"]]


@dataclass(frozen=True)
class Curl:
    """grpcurl on one server. ``how`` are the flags that connect to it."""

    how: tuple[str, ...]
    target: str
    token: str = ""

    def with_token(self, token: str) -> Curl:
        """The same server with another credential."""
        return replace(self, token=token)

    def list(self) -> set[str]:
        """The services that reflection lists."""
        return set(self._run(self.target, "list").split())

    def describe(self, symbol: str = "") -> str:
        """What reflection says of a symbol, or of every service."""
        return self._run(self.target, "describe", *([symbol] if symbol else []))

    def call(self, method: str, /, **request: Any) -> Any:
        """The response of ``package.Service/Method``; raises :class:`Refused`."""
        return json.loads(self.text(method, **request) or "{}")

    def text(self, method: str, /, **request: Any) -> str:
        """The response as grpcurl prints it; of a stream all of them."""
        credential = ("-H", f"authorization: Bearer {self.token}") if self.token else ()
        return self._run(*credential, "-d", json.dumps(request), self.target, method)

    def _run(self, *words: str) -> str:
        program = find()
        assert program is not None
        command = [program, *self.how, *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=CALL_SECONDS, check=False)
        if done.returncode == 0:
            return done.stdout
        code = _CODE.search(done.stderr)
        details = [json.loads(found) for found in _DETAIL.findall(done.stderr)]
        by_type = {detail.pop("@type").removeprefix("type.googleapis.com/"): detail for detail in details}
        raise Refused(code[1] if code else f"exit {done.returncode}", by_type, done.stderr)
