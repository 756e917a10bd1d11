import datetime

from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from lanewarden.v1 import rules_pb2 as _rules_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class CheckpointState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    CHECKPOINT_STATE_UNSPECIFIED: _ClassVar[CheckpointState]
    CHECKPOINT_STATE_WRITING: _ClassVar[CheckpointState]
    CHECKPOINT_STATE_TIMED_OUT: _ClassVar[CheckpointState]
    CHECKPOINT_STATE_SUCCEEDED: _ClassVar[CheckpointState]
    CHECKPOINT_STATE_FAILED: _ClassVar[CheckpointState]
    CHECKPOINT_STATE_NOT_STARTED: _ClassVar[CheckpointState]
    CHECKPOINT_STATE_SUPERSEDED: _ClassVar[CheckpointState]

class CheckpointFailure(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    CHECKPOINT_FAILURE_UNSPECIFIED: _ClassVar[CheckpointFailure]
    CHECKPOINT_FAILURE_TRANSIENT: _ClassVar[CheckpointFailure]
    CHECKPOINT_FAILURE_AUTH: _ClassVar[CheckpointFailure]
    CHECKPOINT_FAILURE_BAD_REQUEST: _ClassVar[CheckpointFailure]
    CHECKPOINT_FAILURE_UNCOMMITTED: _ClassVar[CheckpointFailure]
    CHECKPOINT_FAILURE_LOST: _ClassVar[CheckpointFailure]
    CHECKPOINT_FAILURE_UNKNOWN: _ClassVar[CheckpointFailure]

class SignalKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SIGNAL_KIND_UNSPECIFIED: _ClassVar[SignalKind]
    SIGNAL_KIND_REDUCE_CONTEXT: _ClassVar[SignalKind]
    SIGNAL_KIND_WRAP_UP: _ClassVar[SignalKind]
    SIGNAL_KIND_PAUSE: _ClassVar[SignalKind]
    SIGNAL_KIND_CANCEL: _ClassVar[SignalKind]
    SIGNAL_KIND_STOP: _ClassVar[SignalKind]
CHECKPOINT_STATE_UNSPECIFIED: CheckpointState
CHECKPOINT_STATE_WRITING: CheckpointState
CHECKPOINT_STATE_TIMED_OUT: CheckpointState
CHECKPOINT_STATE_SUCCEEDED: CheckpointState
CHECKPOINT_STATE_FAILED: CheckpointState
CHECKPOINT_STATE_NOT_STARTED: CheckpointState
CHECKPOINT_STATE_SUPERSEDED: CheckpointState
CHECKPOINT_FAILURE_UNSPECIFIED: CheckpointFailure
CHECKPOINT_FAILURE_TRANSIENT: CheckpointFailure
CHECKPOINT_FAILURE_AUTH: CheckpointFailure
CHECKPOINT_FAILURE_BAD_REQUEST: CheckpointFailure
CHECKPOINT_FAILURE_UNCOMMITTED: CheckpointFailure
CHECKPOINT_FAILURE_LOST: CheckpointFailure
CHECKPOINT_FAILURE_UNKNOWN: CheckpointFailure
SIGNAL_KIND_UNSPECIFIED: SignalKind
SIGNAL_KIND_REDUCE_CONTEXT: SignalKind
SIGNAL_KIND_WRAP_UP: SignalKind
SIGNAL_KIND_PAUSE: SignalKind
SIGNAL_KIND_CANCEL: SignalKind
SIGNAL_KIND_STOP: SignalKind

class ContextSpec(_message.Message):
    __slots__ = ("window_tokens", "rungs", "reserve_tokens", "reduced_tokens", "reductions_max", "writer", "writer_wait", "writer_failures_max")
    WINDOW_TOKENS_FIELD_NUMBER: _ClassVar[int]
    RUNGS_FIELD_NUMBER: _ClassVar[int]
    RESERVE_TOKENS_FIELD_NUMBER: _ClassVar[int]
    REDUCED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    REDUCTIONS_MAX_FIELD_NUMBER: _ClassVar[int]
    WRITER_FIELD_NUMBER: _ClassVar[int]
    WRITER_WAIT_FIELD_NUMBER: _ClassVar[int]
    WRITER_FAILURES_MAX_FIELD_NUMBER: _ClassVar[int]
    window_tokens: int
    rungs: _containers.RepeatedScalarFieldContainer[int]
    reserve_tokens: int
    reduced_tokens: int
    reductions_max: int
    writer: _containers.RepeatedScalarFieldContainer[str]
    writer_wait: _duration_pb2.Duration
    writer_failures_max: int
    def __init__(self, window_tokens: _Optional[int] = ..., rungs: _Optional[_Iterable[int]] = ..., reserve_tokens: _Optional[int] = ..., reduced_tokens: _Optional[int] = ..., reductions_max: _Optional[int] = ..., writer: _Optional[_Iterable[str]] = ..., writer_wait: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., writer_failures_max: _Optional[int] = ...) -> None: ...

class Checkpoint(_message.Message):
    __slots__ = ("checkpoint_id", "task_id", "epoch", "attempt", "cycle", "state", "failure", "retryable", "detail", "tokens", "started_at", "ended_at", "content_bytes", "content")
    CHECKPOINT_ID_FIELD_NUMBER: _ClassVar[int]
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    CYCLE_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    RETRYABLE_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    STARTED_AT_FIELD_NUMBER: _ClassVar[int]
    ENDED_AT_FIELD_NUMBER: _ClassVar[int]
    CONTENT_BYTES_FIELD_NUMBER: _ClassVar[int]
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    checkpoint_id: str
    task_id: str
    epoch: int
    attempt: int
    cycle: int
    state: CheckpointState
    failure: CheckpointFailure
    retryable: bool
    detail: str
    tokens: int
    started_at: _timestamp_pb2.Timestamp
    ended_at: _timestamp_pb2.Timestamp
    content_bytes: int
    content: str
    def __init__(self, checkpoint_id: _Optional[str] = ..., task_id: _Optional[str] = ..., epoch: _Optional[int] = ..., attempt: _Optional[int] = ..., cycle: _Optional[int] = ..., state: _Optional[_Union[CheckpointState, str]] = ..., failure: _Optional[_Union[CheckpointFailure, str]] = ..., retryable: _Optional[bool] = ..., detail: _Optional[str] = ..., tokens: _Optional[int] = ..., started_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., ended_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., content_bytes: _Optional[int] = ..., content: _Optional[str] = ...) -> None: ...

class Signal(_message.Message):
    __slots__ = ("signal_id", "kind", "epoch", "attempt", "cause", "raised_by", "raised_at")
    SIGNAL_ID_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    CAUSE_FIELD_NUMBER: _ClassVar[int]
    RAISED_BY_FIELD_NUMBER: _ClassVar[int]
    RAISED_AT_FIELD_NUMBER: _ClassVar[int]
    signal_id: str
    kind: SignalKind
    epoch: int
    attempt: int
    cause: str
    raised_by: str
    raised_at: _timestamp_pb2.Timestamp
    def __init__(self, signal_id: _Optional[str] = ..., kind: _Optional[_Union[SignalKind, str]] = ..., epoch: _Optional[int] = ..., attempt: _Optional[int] = ..., cause: _Optional[str] = ..., raised_by: _Optional[str] = ..., raised_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...
