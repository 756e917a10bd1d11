"""Checks a request against the rules in its descriptor (see ``protos/lanewarden/v1/rules.proto``).

Beside the stated rules it refuses what no handler can use: NUL in a text, an enum number without a name, a
time or a duration out of protobuf's range, a number that is not finite or that SQLite cannot hold. So a
handler that has got a request may convert every field of it without fear.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from lanewarden.errors import Reason, Refusal, invalid, refuse
from lanewarden.v1 import rules_pb2

TEXT_BYTES_DEFAULT = 4 * 1024
ITEMS_DEFAULT = 1000
VIOLATIONS_MAX = 32
INTEGER_MAX = 2**63 - 1

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")

_RULES: Any = rules_pb2.rules  # the stubs do not type extensions

Found = list[tuple[str, str]]
Walk = Callable[[Any, str, Found], None]  # (message, path before its fields, what is wrong so far)
Test = Callable[[Any, str, Found], None]  # (value, path, what is wrong so far)


def check(message: Message) -> None:
    """Return if ``message`` keeps its rules; otherwise raise ``TOO_LARGE``, or ``REQUEST_INVALID`` with
    every violation.
    """
    checker(message.DESCRIPTOR)(message)


@functools.cache
def checker(descriptor: Descriptor) -> Callable[[Message], None]:
    """The check of one message type, built once; a server keeps it beside the method."""
    walk = _walk(descriptor)

    def run(message: Message) -> None:
        found: Found = []
        walk(message, "", found)
        if found:
            raise _refusal(found)

    return run


def _refusal(found: Found) -> Refusal:
    if len(found) > VIOLATIONS_MAX:
        found = [*found[: VIOLATIONS_MAX - 1], ("(more)", f"{len(found) - VIOLATIONS_MAX + 1} more")]
    return invalid(*found)


@functools.cache
def _walk(descriptor: Descriptor) -> Walk:
    special = _SPECIAL.get(descriptor.full_name)
    if special is not None:
        return special
    steps = [step for each in descriptor.fields if (step := _step(each)) is not None]

    def walk(message: Any, path: str, found: Found) -> None:
        for step in steps:
            step(message, path, found)

    return walk


def _step(field: FieldDescriptor) -> Walk | None:
    """The part of a walk that looks at one field, or None if nothing can be wrong with it."""
    rules: rules_pb2.FieldRules = field.GetOptions().Extensions[_RULES]
    if field.is_repeated:
        return _items(field, rules)
    if field.message_type is not None:
        return _submessage(field.name, _later(field.message_type), required=rules.required)
    test = _test(field, rules)
    if test is None and not rules.required:
        return None
    return _scalar(field.name, test, required=rules.required)


def _scalar(name: str, test: Test | None, *, required: bool) -> Walk:
    def step(message: Any, path: str, found: Found) -> None:
        value = getattr(message, name)
        if value:
            if test is not None:
                test(value, path + name, found)
        elif required:
            found.append((path + name, "must be set"))

    return step


def _submessage(name: str, inner: Walk, *, required: bool) -> Walk:
    def step(message: Any, path: str, found: Found) -> None:
        if message.HasField(name):
            inner(getattr(message, name), f"{path}{name}.", found)
        elif required:
            found.append((path + name, "must be set"))

    return step


def _items(field: FieldDescriptor, rules: rules_pb2.FieldRules) -> Walk:
    name, limit, required = field.name, rules.items_max or ITEMS_DEFAULT, rules.required
    entry = field.message_type
    is_map = entry is not None and entry.GetOptions().map_entry
    each = _entries(entry, rules) if entry is not None and is_map else _elements(field, rules)

    def step(message: Any, path: str, found: Found) -> None:
        items = getattr(message, name)
        if not items:
            if required:
                found.append((path + name, "must not be empty"))
            return
        if len(items) > limit:
            at = path + name
            raise refuse(
                Reason.TOO_LARGE,
                f"{at} has {len(items)} items; at most {limit} are accepted",
                field=at,
                items=len(items),
                limit=limit,
            )
        if each is not None:
            each(items, path + name, found)

    return step


def _elements(field: FieldDescriptor, rules: rules_pb2.FieldRules) -> Test | None:
    if field.message_type is not None:
        inner = _later(field.message_type)

        def messages(items: Any, path: str, found: Found) -> None:
            for index, item in enumerate(items):
                inner(item, f"{path}[{index}].", found)

        return messages
    test = _test(field, rules)
    if test is None:
        return None

    def values(items: Any, path: str, found: Found) -> None:
        for index, item in enumerate(items):
            test(item, f"{path}[{index}]", found)

    return values


def _entries(entry: Descriptor, rules: rules_pb2.FieldRules) -> Test:
    """Maps: the rules of the field hold for its values, the defaults for its keys."""
    key_field, value_field = (entry.fields_by_name[name] for name in ("key", "value"))
    key_test = _test(key_field, rules_pb2.FieldRules())
    inner = _later(value_field.message_type) if value_field.message_type is not None else None
    value_test = None if inner else _test(value_field, rules)

    def entries(items: Any, path: str, found: Found) -> None:
        for index, key in enumerate(items):
            at = f"{path}[{index}]"
            if key_test is not None:
                key_test(key, f"{at}.key", found)
            if inner is not None:
                inner(items[key], f"{at}.value.", found)
            elif value_test is not None:
                value_test(items[key], f"{at}.value", found)

    return entries


def _later(descriptor: Descriptor) -> Walk:
    """The walk of a submessage, found at its first use, because message types may contain themselves."""

    def walk(message: Any, path: str, found: Found) -> None:
        _walk(descriptor)(message, path, found)

    return walk


def _test(field: FieldDescriptor, rules: rules_pb2.FieldRules) -> Test | None:
    """What must hold for one value that is not its type's default."""
    match field.cpp_type:
        case FieldDescriptor.CPPTYPE_STRING if field.type == FieldDescriptor.TYPE_STRING:
            return _text(rules)
        case FieldDescriptor.CPPTYPE_STRING if rules.bytes_max:
            return functools.partial(_size, limit=rules.bytes_max)
        case FieldDescriptor.CPPTYPE_ENUM if field.enum_type is not None:
            return functools.partial(_enum, numbers=frozenset(field.enum_type.values_by_number))
        case FieldDescriptor.CPPTYPE_FLOAT | FieldDescriptor.CPPTYPE_DOUBLE:
            return _finite
        case FieldDescriptor.CPPTYPE_UINT32 if not rules.bytes_max:
            return None
        case FieldDescriptor.CPPTYPE_UINT32 | FieldDescriptor.CPPTYPE_UINT64:
            return functools.partial(_at_most, limit=rules.bytes_max or INTEGER_MAX)
    return None


def _text(rules: rules_pb2.FieldRules) -> Test:
    limit = rules.bytes_max or TEXT_BYTES_DEFAULT
    surely_short = limit // 4  # a character takes at most four bytes
    pattern, wanted = None, ""
    if rules.name:
        pattern, wanted = _NAME, "must be a letter or digit, then up to 62 letters, digits, '.', '-' or '_'"
    elif rules.uuid:
        pattern, wanted = _UUID, "must be a UUID of 36 characters"

    def text(value: str, path: str, found: Found) -> None:
        if len(value) > surely_short:
            _size(value.encode(), path, found, limit=limit)
        if "\0" in value:
            found.append((path, "must not contain NUL"))
        elif pattern is not None and not pattern.fullmatch(value):
            found.append((path, wanted))

    return text


def _size(value: bytes, path: str, _found: Found, *, limit: int) -> None:
    if len(value) > limit:
        raise refuse(
            Reason.TOO_LARGE,
            f"{path} has {len(value)} bytes; at most {limit} are accepted",
            field=path,
            bytes=len(value),
            limit=limit,
        )


def _enum(value: int, path: str, found: Found, *, numbers: frozenset[int]) -> None:
    if value not in numbers:
        found.append((path, f"has no value {value}"))


def _finite(value: float, path: str, found: Found) -> None:
    if not math.isfinite(value):
        found.append((path, "must be a finite number"))


def _at_most(value: int, path: str, found: Found, *, limit: int) -> None:
    if value > limit:
        found.append((path, f"must be at most {limit}"))


# Ranges: google/protobuf/timestamp.proto and duration.proto.
_TIMESTAMP_SECONDS = (-62_135_596_800, 253_402_300_799)
_DURATION_SECONDS_MAX = 315_576_000_000
_NANOS_MAX = 999_999_999


def _timestamp(message: Any, path: str, found: Found) -> None:
    first, last = _TIMESTAMP_SECONDS
    if not (first <= message.seconds <= last and 0 <= message.nanos <= _NANOS_MAX):
        found.append((path[:-1], "must be a time of the years 1 to 9999"))


def _duration(message: Any, path: str, found: Found) -> None:
    seconds, nanos = message.seconds, message.nanos
    in_range = abs(seconds) <= _DURATION_SECONDS_MAX and abs(nanos) <= _NANOS_MAX
    if not in_range or seconds * nanos < 0:
        found.append((path[:-1], "must be a duration within 10,000 years, seconds and nanos of one sign"))


_SPECIAL: dict[str, Walk] = {
    "google.protobuf.Timestamp": _timestamp,
    "google.protobuf.Duration": _duration,
}
