import datetime

from google.protobuf import timestamp_pb2 as _timestamp_pb2
from lanewarden.v1 import escalation_pb2 as _escalation_pb2
from lanewarden.v1 import task_pb2 as _task_pb2
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class MessageState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    MESSAGE_STATE_UNSPECIFIED: _ClassVar[MessageState]
    MESSAGE_STATE_PENDING: _ClassVar[MessageState]
    MESSAGE_STATE_IN_FLIGHT: _ClassVar[MessageState]
    MESSAGE_STATE_ACKNOWLEDGED: _ClassVar[MessageState]
    MESSAGE_STATE_PARKED: _ClassVar[MessageState]
    MESSAGE_STATE_UNDELIVERED: _ClassVar[MessageState]
MESSAGE_STATE_UNSPECIFIED: MessageState
MESSAGE_STATE_PENDING: MessageState
MESSAGE_STATE_IN_FLIGHT: MessageState
MESSAGE_STATE_ACKNOWLEDGED: MessageState
MESSAGE_STATE_PARKED: MessageState
MESSAGE_STATE_UNDELIVERED: MessageState

class Message(_message.Message):
    __slots__ = ("message_id", "task_id", "sequence", "ruling", "instruction", "input", "state", "sent_by", "sent_at")
    MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    RULING_FIELD_NUMBER: _ClassVar[int]
    INSTRUCTION_FIELD_NUMBER: _ClassVar[int]
    INPUT_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    SENT_BY_FIELD_NUMBER: _ClassVar[int]
    SENT_AT_FIELD_NUMBER: _ClassVar[int]
    message_id: str
    task_id: str
    sequence: int
    ruling: _escalation_pb2.RulingRecord
    instruction: _escalation_pb2.Instruction
    input: Input
    state: MessageState
    sent_by: _task_pb2.Actor
    sent_at: _timestamp_pb2.Timestamp
    def __init__(self, message_id: _Optional[str] = ..., task_id: _Optional[str] = ..., sequence: _Optional[int] = ..., ruling: _Optional[_Union[_escalation_pb2.RulingRecord, _Mapping]] = ..., instruction: _Optional[_Union[_escalation_pb2.Instruction, _Mapping]] = ..., input: _Optional[_Union[Input, _Mapping]] = ..., state: _Optional[_Union[MessageState, str]] = ..., sent_by: _Optional[_Union[_task_pb2.Actor, _Mapping]] = ..., sent_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class Input(_message.Message):
    __slots__ = ("text",)
    TEXT_FIELD_NUMBER: _ClassVar[int]
    text: str
    def __init__(self, text: _Optional[str] = ...) -> None: ...
