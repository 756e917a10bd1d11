import datetime

from google.protobuf import timestamp_pb2 as _timestamp_pb2
from lanewarden.v1 import rules_pb2 as _rules_pb2
from lanewarden.v1 import task_pb2 as _task_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class HoldState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    HOLD_STATE_UNSPECIFIED: _ClassVar[HoldState]
    HOLD_STATE_OPEN: _ClassVar[HoldState]
    HOLD_STATE_RELEASED: _ClassVar[HoldState]
    HOLD_STATE_ACKNOWLEDGED: _ClassVar[HoldState]
    HOLD_STATE_CANCELED: _ClassVar[HoldState]

class DeliveryState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    DELIVERY_STATE_UNSPECIFIED: _ClassVar[DeliveryState]
    DELIVERY_STATE_STORED: _ClassVar[DeliveryState]
    DELIVERY_STATE_PENDING: _ClassVar[DeliveryState]
    DELIVERY_STATE_IN_FLIGHT: _ClassVar[DeliveryState]
    DELIVERY_STATE_ACKNOWLEDGED: _ClassVar[DeliveryState]
    DELIVERY_STATE_UNDELIVERED: _ClassVar[DeliveryState]
    DELIVERY_STATE_REFUSED: _ClassVar[DeliveryState]

class Decision(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    DECISION_UNSPECIFIED: _ClassVar[Decision]
    DECISION_APPROVE: _ClassVar[Decision]
    DECISION_REJECT: _ClassVar[Decision]
    DECISION_REVISE: _ClassVar[Decision]
    DECISION_CHOOSE: _ClassVar[Decision]
HOLD_STATE_UNSPECIFIED: HoldState
HOLD_STATE_OPEN: HoldState
HOLD_STATE_RELEASED: HoldState
HOLD_STATE_ACKNOWLEDGED: HoldState
HOLD_STATE_CANCELED: HoldState
DELIVERY_STATE_UNSPECIFIED: DeliveryState
DELIVERY_STATE_STORED: DeliveryState
DELIVERY_STATE_PENDING: DeliveryState
DELIVERY_STATE_IN_FLIGHT: DeliveryState
DELIVERY_STATE_ACKNOWLEDGED: DeliveryState
DELIVERY_STATE_UNDELIVERED: DeliveryState
DELIVERY_STATE_REFUSED: DeliveryState
DECISION_UNSPECIFIED: Decision
DECISION_APPROVE: Decision
DECISION_REJECT: Decision
DECISION_REVISE: Decision
DECISION_CHOOSE: Decision

class Option(_message.Message):
    __slots__ = ("key", "text")
    KEY_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    key: str
    text: str
    def __init__(self, key: _Optional[str] = ..., text: _Optional[str] = ...) -> None: ...

class Ruling(_message.Message):
    __slots__ = ("escalation_id", "decision", "instructions", "option_key", "ratifies")
    ESCALATION_ID_FIELD_NUMBER: _ClassVar[int]
    DECISION_FIELD_NUMBER: _ClassVar[int]
    INSTRUCTIONS_FIELD_NUMBER: _ClassVar[int]
    OPTION_KEY_FIELD_NUMBER: _ClassVar[int]
    RATIFIES_FIELD_NUMBER: _ClassVar[int]
    escalation_id: str
    decision: Decision
    instructions: str
    option_key: str
    ratifies: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, escalation_id: _Optional[str] = ..., decision: _Optional[_Union[Decision, str]] = ..., instructions: _Optional[str] = ..., option_key: _Optional[str] = ..., ratifies: _Optional[_Iterable[str]] = ...) -> None: ...

class Instruction(_message.Message):
    __slots__ = ("text",)
    TEXT_FIELD_NUMBER: _ClassVar[int]
    text: str
    def __init__(self, text: _Optional[str] = ...) -> None: ...

class RulingRecord(_message.Message):
    __slots__ = ("ruling_id", "ruling", "ruled_by", "ruled_at", "delivery", "refusal")
    RULING_ID_FIELD_NUMBER: _ClassVar[int]
    RULING_FIELD_NUMBER: _ClassVar[int]
    RULED_BY_FIELD_NUMBER: _ClassVar[int]
    RULED_AT_FIELD_NUMBER: _ClassVar[int]
    DELIVERY_FIELD_NUMBER: _ClassVar[int]
    REFUSAL_FIELD_NUMBER: _ClassVar[int]
    ruling_id: str
    ruling: Ruling
    ruled_by: _task_pb2.Actor
    ruled_at: _timestamp_pb2.Timestamp
    delivery: DeliveryState
    refusal: str
    def __init__(self, ruling_id: _Optional[str] = ..., ruling: _Optional[_Union[Ruling, _Mapping]] = ..., ruled_by: _Optional[_Union[_task_pb2.Actor, _Mapping]] = ..., ruled_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., delivery: _Optional[_Union[DeliveryState, str]] = ..., refusal: _Optional[str] = ...) -> None: ...

class Ack(_message.Message):
    __slots__ = ("acked_by", "acked_at", "expected_by", "note")
    ACKED_BY_FIELD_NUMBER: _ClassVar[int]
    ACKED_AT_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_BY_FIELD_NUMBER: _ClassVar[int]
    NOTE_FIELD_NUMBER: _ClassVar[int]
    acked_by: _task_pb2.Actor
    acked_at: _timestamp_pb2.Timestamp
    expected_by: _timestamp_pb2.Timestamp
    note: str
    def __init__(self, acked_by: _Optional[_Union[_task_pb2.Actor, _Mapping]] = ..., acked_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., expected_by: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., note: _Optional[str] = ...) -> None: ...

class Escalation(_message.Message):
    __slots__ = ("escalation_id", "runner_id", "task_id", "task_name", "lane", "epoch", "attempt", "question", "options", "expects_reply", "hold_state", "ack", "acks", "ruling", "opened_at", "closed_at", "cancel_cause", "worker_alive", "deadline_at", "expired", "reminders", "next_reminder_at", "owed_by", "key", "runner_unreachable", "last_seen", "runner_forgot")
    ESCALATION_ID_FIELD_NUMBER: _ClassVar[int]
    RUNNER_ID_FIELD_NUMBER: _ClassVar[int]
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    TASK_NAME_FIELD_NUMBER: _ClassVar[int]
    LANE_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    QUESTION_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    EXPECTS_REPLY_FIELD_NUMBER: _ClassVar[int]
    HOLD_STATE_FIELD_NUMBER: _ClassVar[int]
    ACK_FIELD_NUMBER: _ClassVar[int]
    ACKS_FIELD_NUMBER: _ClassVar[int]
    RULING_FIELD_NUMBER: _ClassVar[int]
    OPENED_AT_FIELD_NUMBER: _ClassVar[int]
    CLOSED_AT_FIELD_NUMBER: _ClassVar[int]
    CANCEL_CAUSE_FIELD_NUMBER: _ClassVar[int]
    WORKER_ALIVE_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_AT_FIELD_NUMBER: _ClassVar[int]
    EXPIRED_FIELD_NUMBER: _ClassVar[int]
    REMINDERS_FIELD_NUMBER: _ClassVar[int]
    NEXT_REMINDER_AT_FIELD_NUMBER: _ClassVar[int]
    OWED_BY_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    RUNNER_UNREACHABLE_FIELD_NUMBER: _ClassVar[int]
    LAST_SEEN_FIELD_NUMBER: _ClassVar[int]
    RUNNER_FORGOT_FIELD_NUMBER: _ClassVar[int]
    escalation_id: str
    runner_id: str
    task_id: str
    task_name: str
    lane: str
    epoch: int
    attempt: int
    question: str
    options: _containers.RepeatedCompositeFieldContainer[Option]
    expects_reply: bool
    hold_state: HoldState
    ack: Ack
    acks: int
    ruling: RulingRecord
    opened_at: _timestamp_pb2.Timestamp
    closed_at: _timestamp_pb2.Timestamp
    cancel_cause: str
    worker_alive: bool
    deadline_at: _timestamp_pb2.Timestamp
    expired: bool
    reminders: int
    next_reminder_at: _timestamp_pb2.Timestamp
    owed_by: str
    key: str
    runner_unreachable: bool
    last_seen: _timestamp_pb2.Timestamp
    runner_forgot: bool
    def __init__(self, escalation_id: _Optional[str] = ..., runner_id: _Optional[str] = ..., task_id: _Optional[str] = ..., task_name: _Optional[str] = ..., lane: _Optional[str] = ..., epoch: _Optional[int] = ..., attempt: _Optional[int] = ..., question: _Optional[str] = ..., options: _Optional[_Iterable[_Union[Option, _Mapping]]] = ..., expects_reply: _Optional[bool] = ..., hold_state: _Optional[_Union[HoldState, str]] = ..., ack: _Optional[_Union[Ack, _Mapping]] = ..., acks: _Optional[int] = ..., ruling: _Optional[_Union[RulingRecord, _Mapping]] = ..., opened_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., closed_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., cancel_cause: _Optional[str] = ..., worker_alive: _Optional[bool] = ..., deadline_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., expired: _Optional[bool] = ..., reminders: _Optional[int] = ..., next_reminder_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., owed_by: _Optional[str] = ..., key: _Optional[str] = ..., runner_unreachable: _Optional[bool] = ..., last_seen: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., runner_forgot: _Optional[bool] = ...) -> None: ...
