import datetime

from google.protobuf import duration_pb2 as _duration_pb2
from lanewarden.v1 import escalation_pb2 as _escalation_pb2
from lanewarden.v1 import rules_pb2 as _rules_pb2
from lanewarden.v1 import task_pb2 as _task_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class RegisterRequest(_message.Message):
    __slots__ = ("request_id", "runner_id", "incarnation", "address", "lanes", "version", "store_id")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    RUNNER_ID_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    LANES_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    STORE_ID_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    runner_id: str
    incarnation: str
    address: str
    lanes: _containers.RepeatedScalarFieldContainer[str]
    version: str
    store_id: str
    def __init__(self, request_id: _Optional[str] = ..., runner_id: _Optional[str] = ..., incarnation: _Optional[str] = ..., address: _Optional[str] = ..., lanes: _Optional[_Iterable[str]] = ..., version: _Optional[str] = ..., store_id: _Optional[str] = ...) -> None: ...

class RegisterResponse(_message.Message):
    __slots__ = ("generation", "ttl", "renew_interval", "supervisor_id", "supervisor_incarnation", "taken_sequence")
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    TTL_FIELD_NUMBER: _ClassVar[int]
    RENEW_INTERVAL_FIELD_NUMBER: _ClassVar[int]
    SUPERVISOR_ID_FIELD_NUMBER: _ClassVar[int]
    SUPERVISOR_INCARNATION_FIELD_NUMBER: _ClassVar[int]
    TAKEN_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    generation: int
    ttl: _duration_pb2.Duration
    renew_interval: _duration_pb2.Duration
    supervisor_id: str
    supervisor_incarnation: str
    taken_sequence: int
    def __init__(self, generation: _Optional[int] = ..., ttl: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., renew_interval: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., supervisor_id: _Optional[str] = ..., supervisor_incarnation: _Optional[str] = ..., taken_sequence: _Optional[int] = ...) -> None: ...

class KeepAliveRequest(_message.Message):
    __slots__ = ("runner_id", "incarnation", "generation", "loop_lag")
    RUNNER_ID_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    LOOP_LAG_FIELD_NUMBER: _ClassVar[int]
    runner_id: str
    incarnation: str
    generation: int
    loop_lag: _duration_pb2.Duration
    def __init__(self, runner_id: _Optional[str] = ..., incarnation: _Optional[str] = ..., generation: _Optional[int] = ..., loop_lag: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class KeepAliveResponse(_message.Message):
    __slots__ = ("ttl", "renew_interval", "sweep", "taken_sequence")
    TTL_FIELD_NUMBER: _ClassVar[int]
    RENEW_INTERVAL_FIELD_NUMBER: _ClassVar[int]
    SWEEP_FIELD_NUMBER: _ClassVar[int]
    TAKEN_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    ttl: _duration_pb2.Duration
    renew_interval: _duration_pb2.Duration
    sweep: int
    taken_sequence: int
    def __init__(self, ttl: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., renew_interval: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., sweep: _Optional[int] = ..., taken_sequence: _Optional[int] = ...) -> None: ...

class EscalateRequest(_message.Message):
    __slots__ = ("request_id", "runner_id", "incarnation", "sequence", "escalation")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    RUNNER_ID_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    ESCALATION_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    runner_id: str
    incarnation: str
    sequence: int
    escalation: _escalation_pb2.Escalation
    def __init__(self, request_id: _Optional[str] = ..., runner_id: _Optional[str] = ..., incarnation: _Optional[str] = ..., sequence: _Optional[int] = ..., escalation: _Optional[_Union[_escalation_pb2.Escalation, _Mapping]] = ...) -> None: ...

class EscalateResponse(_message.Message):
    __slots__ = ("taken_sequence",)
    TAKEN_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    taken_sequence: int
    def __init__(self, taken_sequence: _Optional[int] = ...) -> None: ...

class ReportRequest(_message.Message):
    __slots__ = ("request_id", "runner_id", "incarnation", "items")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    RUNNER_ID_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    runner_id: str
    incarnation: str
    items: _containers.RepeatedCompositeFieldContainer[ReportItem]
    def __init__(self, request_id: _Optional[str] = ..., runner_id: _Optional[str] = ..., incarnation: _Optional[str] = ..., items: _Optional[_Iterable[_Union[ReportItem, _Mapping]]] = ...) -> None: ...

class ReportItem(_message.Message):
    __slots__ = ("sequence", "task", "escalation", "first_told")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    TASK_FIELD_NUMBER: _ClassVar[int]
    ESCALATION_FIELD_NUMBER: _ClassVar[int]
    FIRST_TOLD_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    task: _task_pb2.Task
    escalation: _escalation_pb2.Escalation
    first_told: bool
    def __init__(self, sequence: _Optional[int] = ..., task: _Optional[_Union[_task_pb2.Task, _Mapping]] = ..., escalation: _Optional[_Union[_escalation_pb2.Escalation, _Mapping]] = ..., first_told: _Optional[bool] = ...) -> None: ...

class ReportResponse(_message.Message):
    __slots__ = ("taken_sequence",)
    TAKEN_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    taken_sequence: int
    def __init__(self, taken_sequence: _Optional[int] = ...) -> None: ...
