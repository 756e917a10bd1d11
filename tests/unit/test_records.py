"""Copies of frozen records."""

from __future__ import annotations

import dataclasses
from dataclasses import FrozenInstanceError, dataclass

import pytest

from lanewarden.records import made, replace


@dataclass(frozen=True, kw_only=True)
class Record:
    """Like a task: frozen, without slots, with defaults."""

    name: str
    count: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Slotted:
    """Like most records."""

    name: str


def test_a_copy_is_what_dataclasses_would_make() -> None:
    """The change is in the copy alone, and the copy is as frozen as the original."""
    record = Record(name="a")
    copy = replace(record, count=1)
    assert copy == dataclasses.replace(record, count=1)
    assert (record.count, copy.count) == (0, 1)
    with pytest.raises(FrozenInstanceError):
        copy.count = 2  # type: ignore[misc]


def test_a_record_with_slots_is_copied_too() -> None:
    """Whoever imports this ``replace`` need not know which records have slots."""
    assert replace(Slotted(name="a"), name="b") == Slotted(name="b")


@pytest.mark.parametrize("record", [Record(name="a"), Slotted(name="a")])
def test_a_field_that_is_not_there_is_an_error(record: Record | Slotted) -> None:
    """A misspelt field never makes a record that carries it along."""
    with pytest.raises(TypeError):
        replace(record, nmae="b")  # type: ignore[call-arg]


@pytest.mark.parametrize("values", [{"name": "a"}, {"name": "a", "count": 0, "more": 1}])
def test_a_record_is_made_of_exactly_its_fields(values: dict[str, object]) -> None:
    """A row that lacks a column, or has one too many, is no record."""
    assert made(Record, {"name": "a", "count": 0}) == Record(name="a")
    with pytest.raises(TypeError):
        made(Record, values)
