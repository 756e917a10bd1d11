from google.protobuf import descriptor_pb2 as _descriptor_pb2
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor
RULES_FIELD_NUMBER: _ClassVar[int]
rules: _descriptor.FieldDescriptor

class FieldRules(_message.Message):
    __slots__ = ("bytes_max", "required", "name", "uuid", "items_max")
    BYTES_MAX_FIELD_NUMBER: _ClassVar[int]
    REQUIRED_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    UUID_FIELD_NUMBER: _ClassVar[int]
    ITEMS_MAX_FIELD_NUMBER: _ClassVar[int]
    bytes_max: int
    required: bool
    name: bool
    uuid: bool
    items_max: int
    def __init__(self, bytes_max: _Optional[int] = ..., required: _Optional[bool] = ..., name: _Optional[bool] = ..., uuid: _Optional[bool] = ..., items_max: _Optional[int] = ...) -> None: ...
