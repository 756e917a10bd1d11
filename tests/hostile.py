"""Requests that nobody means well with: valid ones, and what random, truncating and hostile hands make of them."""

from __future__ import annotations

import math
import uuid
from collections.abc import Iterator, Mapping, Sequence
from random import Random
from typing import Any

from google.protobuf import message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from lanewarden.v1 import rules_pb2

Known = Mapping[str, Sequence[Any]]
"""Values that mean something to the server, by the name of the field."""

MARK = "~~~~~~~~"
BAD_UTF8 = (b"\xed\xa0\x80\xed\xb0\x80~~", b"\xff\xfe\xfd\xfc\xc0\x80\xc1\xf5", b"\xe2\x82~~~~~\xc3")
"""As long as the mark: lone surrogates, bytes that never occur, characters cut short."""
TEXTS = (
    *(
        "\0",
        "a\0b",
        " ",
        "\n",
        "\r\n\t",
        "\u2028",
        "\u202eabc\ufeff",
        "\U0010ffff" * 40,
        "{0}%s%n$(x)`x`",
        "'; DROP TABLE tasks",
    ),
    *("../../../../etc/passwd", "-", "--help", "0", "-1", "9" * 40, "1e999", "nan", "null", "é" * 64, "x" * 5000),
    *("unix:/nowhere", "dns:///[::1", "[::]:0", "127.0.0.1:99999", "127.0.0.1:-1", ":", "a,b", "\\", '"'),
)
INTEGERS = (0, 1, 2, 999, 1000, 1001, 2**31 - 1, 2**31, 2**32 - 1, 2**53 + 1, 2**63 - 1, 2**63, 2**64 - 1)
ENUMS = (0, 1, 2, 3, 99, -1, 2**31 - 1, -(2**31))
SECONDS = (
    0,
    1,
    -1,
    -62_135_596_801,
    -62_135_596_800,
    253_402_300_799,
    253_402_300_800,
    315_576_000_000,
    2**63 - 1,
    -(2**63),
)
NANOS = (0, 1, -1, 999_999_999, 1_000_000_000, -999_999_999, 2**31 - 1, -(2**31))
DOUBLES = (0.0, -0.0, math.inf, -math.inf, math.nan, 5e-324, 1.7e308)
DEPTH_MAX = 6
WIRES = (
    b"\x00", b"\x07", b"\xff" * 12, b"\x0a\xff\xff\xff\xff\x0f", b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\x7f",
    b"\x0b" * 5000, b"\x0b" * 90 + b"\x0c" * 90, b"\x0c", b"\x08\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01",
    b"\x0a\x02" * 2000, b"\xfa\xff\xff\xff\x0f\x00", b"\x12\x00" * 4000, b"\x0d\x01", b"\x09\x01\x02",
)  # fmt: skip
"""Bytes that are no message, or hardly one: bad tags, lengths beyond the end, groups without end, varints too long."""


def _is_repeated(field: FieldDescriptor) -> bool:
    return bool(field.is_repeated)


def _is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and bool(field.message_type.GetOptions().map_entry)


class Forge:
    """Makes requests of a message type; ``known`` is what a valid one is made of."""

    def __init__(self, random: Random, known: Known) -> None:
        self.random = random
        self.known = known

    def valid(self, descriptor: Descriptor, depth: int = 0) -> Any:
        """A message that a server may well accept."""
        message = message_factory.GetMessageClass(descriptor)()
        for field in descriptor.fields:
            required = field.GetOptions().Extensions[rules_pb2.rules].required
            likely = 0.9 if field.name in self.known else 0.5
            if depth < DEPTH_MAX and (required or self.random.random() < likely):
                for _ in range(self.random.randint(1, 2) if _is_repeated(field) else 1):
                    self._set(message, field, self._plausible(field, depth))
        return message

    def requests(self, descriptor: Descriptor, per_kind: int) -> Iterator[bytes]:
        """``per_kind`` of each random kind, and every field once with each hostile value of its type."""
        for _ in range(per_kind):
            data = self.valid(descriptor).SerializeToString()
            yield data
            yield self.random.randbytes(self.random.randint(0, 200))
            yield data[: self.random.randint(0, len(data))]
            yield self._mutated(data)
            yield self._hostile(descriptor).SerializeToString()
        yield from WIRES
        for data in WIRES:
            yield self.valid(descriptor).SerializeToString() + data
        yield from self._field_by_field(descriptor)

    def _field_by_field(self, descriptor: Descriptor) -> Iterator[bytes]:
        for path in _paths(descriptor):
            field = path[-1]
            for value in _hostile_values(field):
                message = self.valid(descriptor)
                self._set(self._at(message, path[:-1]), field, value, alone=True)
                yield message.SerializeToString()
            if field.type == FieldDescriptor.TYPE_STRING and not _is_repeated(field):
                for bad in BAD_UTF8:
                    message = self.valid(descriptor)
                    self._set(self._at(message, path[:-1]), field, MARK, alone=True)
                    yield message.SerializeToString().replace(MARK.encode(), bad)
            if _is_repeated(field) and not _is_map(field):
                message = self.valid(descriptor)
                for _ in range(2000):
                    self._set(self._at(message, path[:-1]), field, self._plausible(field, DEPTH_MAX))
                yield message.SerializeToString()

    def _hostile(self, descriptor: Descriptor) -> Any:
        """Several wrong fields at once."""
        message = self.valid(descriptor)
        for path in _paths(descriptor):
            values = _hostile_values(path[-1])
            if values and self.random.random() < 0.4:
                self._set(self._at(message, path[:-1]), path[-1], self.random.choice(values), alone=True)
        return message

    def _at(self, message: Any, path: Sequence[FieldDescriptor]) -> Any:
        """The message in which the path ends, made if it is not there; in a list, the first."""
        for field in path:
            if _is_repeated(field):
                if not getattr(message, field.name):
                    self._set(message, field, self.valid(field.message_type))
                message = getattr(message, field.name)[0]
            else:
                if not message.HasField(field.name):
                    self._set(message, field, self.valid(field.message_type))
                message = getattr(message, field.name)
        return message

    def _mutated(self, data: bytes) -> bytes:
        """A few bytes changed, removed, doubled or put in."""
        changed = bytearray(data)
        for _ in range(self.random.randint(1, 4)):
            at = self.random.randint(0, len(changed))
            match self.random.randint(0, 3):
                case 0 if at < len(changed):
                    changed[at] ^= 1 << self.random.randint(0, 7)
                case 1:
                    del changed[at : at + self.random.randint(1, 8)]
                case 2:
                    changed[at:at] = changed[at : at + self.random.randint(1, 32)]
                case _:
                    changed[at:at] = self.random.randbytes(self.random.randint(1, 4))
        return bytes(changed)

    def _plausible(self, field: FieldDescriptor, depth: int) -> Any:
        rules = field.GetOptions().Extensions[rules_pb2.rules]
        if _is_map(field):
            return self.random.choice([("NAME", "value"), ("LANG", "C")])
        if field.message_type is not None:
            found = [each for each in self.known.get(field.name, ()) if isinstance(each, Message)]
            return self.random.choice(found) if found else self.valid(field.message_type, depth + 1)
        if (found := self.known.get(field.name)) and self.random.random() < 0.95:
            return self.random.choice(found)
        if rules.uuid:
            return str(uuid.UUID(int=self.random.getrandbits(128), version=4))
        if field.enum_type is not None:
            return self.random.choice([number for number in field.enum_type.values_by_number if number or depth])
        if field.type == FieldDescriptor.TYPE_STRING:
            return self.random.choice(["a", "name-1", "lane-1"] if rules.name else ["a", "some text", "zwei Wörter"])
        if field.type == FieldDescriptor.TYPE_BOOL:
            return self.random.random() < 0.5
        return self.random.randint(0, 5)

    def _set(self, message: Any, field: FieldDescriptor, value: Any, *, alone: bool = False) -> None:
        if alone:
            message.ClearField(field.name)
        if _is_map(field):
            getattr(message, field.name)[value[0]] = value[1]
        elif _is_repeated(field):
            getattr(message, field.name).append(value)
        elif field.message_type is not None:
            getattr(message, field.name).CopyFrom(value)
        else:
            setattr(message, field.name, value)


def _paths(descriptor: Descriptor, before: tuple[FieldDescriptor, ...] = ()) -> Iterator[tuple[FieldDescriptor, ...]]:
    """Every field of a message and of those in it."""
    for field in descriptor.fields:
        path = (*before, field)
        yield path
        if field.message_type is not None and not _is_map(field) and len(path) < DEPTH_MAX:
            yield from _paths(field.message_type, path)


def _hostile_values(field: FieldDescriptor) -> Sequence[Any]:
    """What no caller should send in a field, and edges that one may."""
    if _is_map(field):
        return [(text, text) for text in TEXTS] + [
            ("A=B", "1"),
            ("", ""),
            ("LD_PRELOAD", "x"),
            ("LANEWARDEN_TOKEN", "x"),
        ]
    if field.message_type is not None:
        return [message_factory.GetMessageClass(field.message_type)()]
    if field.enum_type is not None:
        return ENUMS
    if field.containing_type.full_name in ("google.protobuf.Timestamp", "google.protobuf.Duration"):
        return SECONDS if field.name == "seconds" else NANOS
    match field.type:
        case FieldDescriptor.TYPE_STRING:
            return ("", *TEXTS)
        case FieldDescriptor.TYPE_UINT32:
            return [value for value in INTEGERS if value < 2**32]
        case FieldDescriptor.TYPE_UINT64:
            return INTEGERS
        case FieldDescriptor.TYPE_INT32:
            return ENUMS
        case FieldDescriptor.TYPE_INT64:
            return SECONDS
        case FieldDescriptor.TYPE_DOUBLE:
            return DOUBLES
        case FieldDescriptor.TYPE_BOOL:
            return (False, True)
    raise AssertionError(f"no hostile values for {field.full_name}")
