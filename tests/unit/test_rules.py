"""The checks of request fields."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from lanewarden import rules
from lanewarden.errors import Reason, Refusal
from tests import echo_service as echo

UUID = "6f9619ff-8b86-d011-b42d-00c04fc964ff"
GOOD: dict[str, Any] = {"text": "x", "kind": 1, "at": Timestamp(seconds=1), "items": ["a"]}


def refusal_of(message: Any) -> Refusal:
    with pytest.raises(Refusal) as caught:
        rules.check(message)
    return caught.value


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"text": "x" * 4096},
        {"text": "é" * 2048},
        {"body": "x" * 1024 * 1024},
        {"name": "0a.b_c-" + "d" * 56},
        {"request_id": UUID},
        {"request_id": UUID.upper()},
        {"items": ["x"] * 1000},
        {"few": ["abc", "é"]},
        {"labels": {"k": "v"}},
        {"kind": 1},
        {"count": 2**63 - 1},
        {"small": 10},
        {"share": 0.5},
        {"blob": b"\0" * 8},
        {"at": Timestamp(seconds=253402300799, nanos=999999999)},
        {"wait": Duration(seconds=-1, nanos=-5)},
        {"child": echo.request(child=echo.request(text="deep"))},
        {"children": [echo.message("Strict", **GOOD)]},
    ],
)
def test_accepted(fields: dict[str, Any]) -> None:
    """Values at their bounds pass."""
    rules.check(echo.request(**fields))


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"text": "a\0b"}, "text"),
        ({"body": "\0"}, "body"),
        ({"name": "-a"}, "name"),
        ({"name": "a" * 64}, "name"),
        ({"name": "a\n"}, "name"),
        ({"name": "a/b"}, "name"),
        ({"request_id": UUID[:-1]}, "request_id"),
        ({"request_id": UUID + "\n"}, "request_id"),
        ({"items": ["a", "b\0"]}, "items[1]"),
        ({"labels": {"a\0": "v"}}, "labels[0].key"),
        ({"labels": {"a": "\0"}}, "labels[0].value"),
        ({"kind": 7}, "kind"),
        ({"count": 2**63}, "count"),
        ({"small": 11}, "small"),
        ({"share": float("nan")}, "share"),
        ({"share": float("-inf")}, "share"),
        ({"at": Timestamp(seconds=253402300800)}, "at"),
        ({"at": Timestamp(nanos=-1)}, "at"),
        ({"wait": Duration(seconds=1, nanos=-1)}, "wait"),
        ({"wait": Duration(seconds=2**62)}, "wait"),
        ({"child": echo.request(child=echo.request(text="\0"))}, "child.child.text"),
        ({"children": [echo.message("Strict", **(GOOD | {"text": ""}))]}, "children[0].text"),
        ({"children": [echo.message("Strict", **(GOOD | {"kind": 0}))]}, "children[0].kind"),
        ({"children": [echo.message("Strict", **(GOOD | {"at": None}))]}, "children[0].at"),
        ({"children": [echo.message("Strict", **(GOOD | {"items": []}))]}, "children[0].items"),
    ],
)
def test_refused_by_path(fields: dict[str, Any], field: str) -> None:
    """One bad value is exactly one violation, named by its path."""
    refusal = refusal_of(echo.request(**fields))
    assert refusal.reason is Reason.REQUEST_INVALID
    assert [each.field for each in refusal.violations] == [field]


@pytest.mark.parametrize(
    ("fields", "metadata"),
    [
        ({"text": "x" * 4097}, {"field": "text", "bytes": "4097", "limit": "4096"}),
        ({"text": "é" * 2049}, {"field": "text", "bytes": "4098", "limit": "4096"}),
        ({"few": ["ab", "abcd"]}, {"field": "few[1]", "bytes": "4", "limit": "3"}),
        ({"few": ["a", "b", "c"]}, {"field": "few", "items": "3", "limit": "2"}),
        ({"items": ["a"] * 1001}, {"field": "items", "items": "1001", "limit": "1000"}),
        ({"blob": b"123456789"}, {"field": "blob", "bytes": "9", "limit": "8"}),
        ({"labels": {"k": "v" * 4097}}, {"field": "labels[0].value", "bytes": "4097", "limit": "4096"}),
    ],
)
def test_too_large(fields: dict[str, Any], metadata: dict[str, str]) -> None:
    """A value or a list over its bound is TOO_LARGE, with field, size and limit."""
    refusal = refusal_of(echo.request(**fields))
    assert (refusal.reason, dict(refusal.metadata)) == (Reason.TOO_LARGE, metadata)


def test_list_of_violations_is_bounded() -> None:
    """A request that is wrong in a thousand places is told of the first few and of how many more there are."""
    refusal = refusal_of(echo.request(items=["\0"] * 1000))
    assert len(refusal.violations) == rules.VIOLATIONS_MAX
    assert refusal.violations[-1].description == f"{1000 - rules.VIOLATIONS_MAX + 1} more"
