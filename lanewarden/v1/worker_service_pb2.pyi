import datetime

from google.protobuf import timestamp_pb2 as _timestamp_pb2
from lanewarden.v1 import context_pb2 as _context_pb2
from lanewarden.v1 import escalation_pb2 as _escalation_pb2
from lanewarden.v1 import message_pb2 as _message_pb2
from lanewarden.v1 import rules_pb2 as _rules_pb2
from lanewarden.v1 import task_pb2 as _task_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class StartReason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    START_REASON_UNSPECIFIED: _ClassVar[StartReason]
    START_REASON_FIRST: _ClassVar[StartReason]
    START_REASON_RETRY: _ClassVar[StartReason]
    START_REASON_RULING: _ClassVar[StartReason]
    START_REASON_INPUT: _ClassVar[StartReason]
    START_REASON_RELAUNCH: _ClassVar[StartReason]

class Directive(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    DIRECTIVE_UNSPECIFIED: _ClassVar[Directive]
    DIRECTIVE_CONTINUE: _ClassVar[Directive]
    DIRECTIVE_WAIT: _ClassVar[Directive]
    DIRECTIVE_CHECKPOINT: _ClassVar[Directive]
    DIRECTIVE_REBUILD: _ClassVar[Directive]
    DIRECTIVE_COMPACT: _ClassVar[Directive]
    DIRECTIVE_WRAP_UP: _ClassVar[Directive]

class DirectiveOutcome(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    DIRECTIVE_OUTCOME_UNSPECIFIED: _ClassVar[DirectiveOutcome]
    DIRECTIVE_OUTCOME_DONE: _ClassVar[DirectiveOutcome]
    DIRECTIVE_OUTCOME_FAILED: _ClassVar[DirectiveOutcome]

class Outcome(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    OUTCOME_UNSPECIFIED: _ClassVar[Outcome]
    OUTCOME_SUCCEEDED: _ClassVar[Outcome]
    OUTCOME_FAILED: _ClassVar[Outcome]
START_REASON_UNSPECIFIED: StartReason
START_REASON_FIRST: StartReason
START_REASON_RETRY: StartReason
START_REASON_RULING: StartReason
START_REASON_INPUT: StartReason
START_REASON_RELAUNCH: StartReason
DIRECTIVE_UNSPECIFIED: Directive
DIRECTIVE_CONTINUE: Directive
DIRECTIVE_WAIT: Directive
DIRECTIVE_CHECKPOINT: Directive
DIRECTIVE_REBUILD: Directive
DIRECTIVE_COMPACT: Directive
DIRECTIVE_WRAP_UP: Directive
DIRECTIVE_OUTCOME_UNSPECIFIED: DirectiveOutcome
DIRECTIVE_OUTCOME_DONE: DirectiveOutcome
DIRECTIVE_OUTCOME_FAILED: DirectiveOutcome
OUTCOME_UNSPECIFIED: Outcome
OUTCOME_SUCCEEDED: Outcome
OUTCOME_FAILED: Outcome

class GetAssignmentRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetAssignmentResponse(_message.Message):
    __slots__ = ("task", "reason", "holds")
    TASK_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    HOLDS_FIELD_NUMBER: _ClassVar[int]
    task: _task_pb2.Task
    reason: StartReason
    holds: _containers.RepeatedCompositeFieldContainer[_escalation_pb2.Escalation]
    def __init__(self, task: _Optional[_Union[_task_pb2.Task, _Mapping]] = ..., reason: _Optional[_Union[StartReason, str]] = ..., holds: _Optional[_Iterable[_Union[_escalation_pb2.Escalation, _Mapping]]] = ...) -> None: ...

class WorkerServiceEscalateRequest(_message.Message):
    __slots__ = ("request_id", "question", "options", "expects_reply", "key")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    QUESTION_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    EXPECTS_REPLY_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    question: str
    options: _containers.RepeatedCompositeFieldContainer[_escalation_pb2.Option]
    expects_reply: bool
    key: str
    def __init__(self, request_id: _Optional[str] = ..., question: _Optional[str] = ..., options: _Optional[_Iterable[_Union[_escalation_pb2.Option, _Mapping]]] = ..., expects_reply: _Optional[bool] = ..., key: _Optional[str] = ...) -> None: ...

class WorkerServiceEscalateResponse(_message.Message):
    __slots__ = ("escalation",)
    ESCALATION_FIELD_NUMBER: _ClassVar[int]
    escalation: _escalation_pb2.Escalation
    def __init__(self, escalation: _Optional[_Union[_escalation_pb2.Escalation, _Mapping]] = ...) -> None: ...

class AwaitRulingRequest(_message.Message):
    __slots__ = ("escalation_id",)
    ESCALATION_ID_FIELD_NUMBER: _ClassVar[int]
    escalation_id: str
    def __init__(self, escalation_id: _Optional[str] = ...) -> None: ...

class AwaitRulingResponse(_message.Message):
    __slots__ = ("waiting", "message")
    WAITING_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    waiting: _escalation_pb2.Escalation
    message: _message_pb2.Message
    def __init__(self, waiting: _Optional[_Union[_escalation_pb2.Escalation, _Mapping]] = ..., message: _Optional[_Union[_message_pb2.Message, _Mapping]] = ...) -> None: ...

class ReceiveMessagesRequest(_message.Message):
    __slots__ = ("stored_only",)
    STORED_ONLY_FIELD_NUMBER: _ClassVar[int]
    stored_only: bool
    def __init__(self, stored_only: _Optional[bool] = ...) -> None: ...

class ReceiveMessagesResponse(_message.Message):
    __slots__ = ("message",)
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    message: _message_pb2.Message
    def __init__(self, message: _Optional[_Union[_message_pb2.Message, _Mapping]] = ...) -> None: ...

class AcknowledgeMessageRequest(_message.Message):
    __slots__ = ("request_id", "message_id")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    message_id: str
    def __init__(self, request_id: _Optional[str] = ..., message_id: _Optional[str] = ...) -> None: ...

class AcknowledgeMessageResponse(_message.Message):
    __slots__ = ("message", "acknowledged_now")
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    ACKNOWLEDGED_NOW_FIELD_NUMBER: _ClassVar[int]
    message: _message_pb2.Message
    acknowledged_now: bool
    def __init__(self, message: _Optional[_Union[_message_pb2.Message, _Mapping]] = ..., acknowledged_now: _Optional[bool] = ...) -> None: ...

class ReportProgressRequest(_message.Message):
    __slots__ = ("request_id", "sequence", "note", "retry_at")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    NOTE_FIELD_NUMBER: _ClassVar[int]
    RETRY_AT_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    sequence: int
    note: str
    retry_at: _timestamp_pb2.Timestamp
    def __init__(self, request_id: _Optional[str] = ..., sequence: _Optional[int] = ..., note: _Optional[str] = ..., retry_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class ReportProgressResponse(_message.Message):
    __slots__ = ("sequence", "advanced")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    ADVANCED_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    advanced: bool
    def __init__(self, sequence: _Optional[int] = ..., advanced: _Optional[bool] = ...) -> None: ...

class ContextUsage(_message.Message):
    __slots__ = ("tokens", "window", "measurement_id")
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    WINDOW_FIELD_NUMBER: _ClassVar[int]
    MEASUREMENT_ID_FIELD_NUMBER: _ClassVar[int]
    tokens: int
    window: int
    measurement_id: str
    def __init__(self, tokens: _Optional[int] = ..., window: _Optional[int] = ..., measurement_id: _Optional[str] = ...) -> None: ...

class NextDirectiveRequest(_message.Message):
    __slots__ = ("request_id", "usage", "turn")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    TURN_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    usage: ContextUsage
    turn: int
    def __init__(self, request_id: _Optional[str] = ..., usage: _Optional[_Union[ContextUsage, _Mapping]] = ..., turn: _Optional[int] = ...) -> None: ...

class NextDirectiveResponse(_message.Message):
    __slots__ = ("directive", "directive_id", "cause", "checkpoint", "reductions", "reductions_max", "signals")
    DIRECTIVE_FIELD_NUMBER: _ClassVar[int]
    DIRECTIVE_ID_FIELD_NUMBER: _ClassVar[int]
    CAUSE_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    REDUCTIONS_FIELD_NUMBER: _ClassVar[int]
    REDUCTIONS_MAX_FIELD_NUMBER: _ClassVar[int]
    SIGNALS_FIELD_NUMBER: _ClassVar[int]
    directive: Directive
    directive_id: str
    cause: str
    checkpoint: _context_pb2.Checkpoint
    reductions: int
    reductions_max: int
    signals: _containers.RepeatedCompositeFieldContainer[_context_pb2.Signal]
    def __init__(self, directive: _Optional[_Union[Directive, str]] = ..., directive_id: _Optional[str] = ..., cause: _Optional[str] = ..., checkpoint: _Optional[_Union[_context_pb2.Checkpoint, _Mapping]] = ..., reductions: _Optional[int] = ..., reductions_max: _Optional[int] = ..., signals: _Optional[_Iterable[_Union[_context_pb2.Signal, _Mapping]]] = ...) -> None: ...

class ReportDirectiveRequest(_message.Message):
    __slots__ = ("request_id", "directive_id", "outcome", "content", "failure", "inserted_tokens", "detail")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    DIRECTIVE_ID_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    INSERTED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    directive_id: str
    outcome: DirectiveOutcome
    content: str
    failure: _context_pb2.CheckpointFailure
    inserted_tokens: int
    detail: str
    def __init__(self, request_id: _Optional[str] = ..., directive_id: _Optional[str] = ..., outcome: _Optional[_Union[DirectiveOutcome, str]] = ..., content: _Optional[str] = ..., failure: _Optional[_Union[_context_pb2.CheckpointFailure, str]] = ..., inserted_tokens: _Optional[int] = ..., detail: _Optional[str] = ...) -> None: ...

class ReportDirectiveResponse(_message.Message):
    __slots__ = ("reported_now",)
    REPORTED_NOW_FIELD_NUMBER: _ClassVar[int]
    reported_now: bool
    def __init__(self, reported_now: _Optional[bool] = ...) -> None: ...

class CompleteRequest(_message.Message):
    __slots__ = ("request_id", "outcome", "summary")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    SUMMARY_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    outcome: Outcome
    summary: str
    def __init__(self, request_id: _Optional[str] = ..., outcome: _Optional[_Union[Outcome, str]] = ..., summary: _Optional[str] = ...) -> None: ...

class CompleteResponse(_message.Message):
    __slots__ = ("task",)
    TASK_FIELD_NUMBER: _ClassVar[int]
    task: _task_pb2.Task
    def __init__(self, task: _Optional[_Union[_task_pb2.Task, _Mapping]] = ...) -> None: ...
