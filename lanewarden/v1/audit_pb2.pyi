import datetime

from google.protobuf import timestamp_pb2 as _timestamp_pb2
from lanewarden.v1 import task_pb2 as _task_pb2
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class AuditEntry(_message.Message):
    __slots__ = ("sequence", "at", "actor", "action", "task_id", "escalation_id", "request_id", "trace_id", "outcome")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    ACTOR_FIELD_NUMBER: _ClassVar[int]
    ACTION_FIELD_NUMBER: _ClassVar[int]
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    ESCALATION_ID_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TRACE_ID_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    at: _timestamp_pb2.Timestamp
    actor: _task_pb2.Actor
    action: str
    task_id: str
    escalation_id: str
    request_id: str
    trace_id: str
    outcome: str
    def __init__(self, sequence: _Optional[int] = ..., at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., actor: _Optional[_Union[_task_pb2.Actor, _Mapping]] = ..., action: _Optional[str] = ..., task_id: _Optional[str] = ..., escalation_id: _Optional[str] = ..., request_id: _Optional[str] = ..., trace_id: _Optional[str] = ..., outcome: _Optional[str] = ...) -> None: ...
