"""Frozen records, copied with changes at a tenth of what ``dataclasses`` takes.

A record of forty fields is made anew several times in every unit of work, and ``dataclasses`` sets each field through the
guard that keeps it frozen. Here the fields travel together, as the dictionary that they are; so a record whose copies
count is a frozen dataclass without slots.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

T = TypeVar("T")

if TYPE_CHECKING:
    from dataclasses import replace as replace  # the same function to a type checker, which knows the fields by it
else:

    def replace(record: T, /, **changes: Any) -> T:
        """A copy of a frozen dataclass with some fields changed; one with slots is copied the slow way.

        Raises:
            TypeError: it has no such field.
        """
        if not hasattr(record, "__dict__"):
            return dataclasses.replace(record, **changes)
        values = vars(record) | changes
        if len(values) != len(vars(record)):
            raise TypeError(f"{type(record).__name__} lacks a field of {sorted(changes)}")
        return _made(type(record), values)


def made(kind: type[T], values: Mapping[str, Any]) -> T:
    """A frozen dataclass without slots, from all of its fields.

    Raises:
        TypeError: ``values`` is not exactly its fields.
    """
    if values.keys() != kind.__dataclass_fields__.keys():  # type: ignore[attr-defined]
        raise TypeError(f"{kind.__name__} is not made of {sorted(values)}")
    return _made(kind, values)


def _made(kind: type[T], values: Mapping[str, Any]) -> T:
    record = object.__new__(kind)
    vars(record).update(values)
    return record
