import datetime

from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from lanewarden.v1 import escalation_pb2 as _escalation_pb2
from lanewarden.v1 import lane_runner_service_pb2 as _lane_runner_service_pb2
from lanewarden.v1 import rules_pb2 as _rules_pb2
from lanewarden.v1 import task_pb2 as _task_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class InventoryVerdict(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    INVENTORY_VERDICT_UNSPECIFIED: _ClassVar[InventoryVerdict]
    INVENTORY_VERDICT_UNKNOWN: _ClassVar[InventoryVerdict]
    INVENTORY_VERDICT_DIFFERS: _ClassVar[InventoryVerdict]
    INVENTORY_VERDICT_NOT_LISTED: _ClassVar[InventoryVerdict]
INVENTORY_VERDICT_UNSPECIFIED: InventoryVerdict
INVENTORY_VERDICT_UNKNOWN: InventoryVerdict
INVENTORY_VERDICT_DIFFERS: InventoryVerdict
INVENTORY_VERDICT_NOT_LISTED: InventoryVerdict

class RegisterRequest(_message.Message):
    __slots__ = ("request_id", "runner_id", "incarnation", "address", "lanes", "version", "store_id", "build", "generation_seen")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    RUNNER_ID_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    LANES_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    STORE_ID_FIELD_NUMBER: _ClassVar[int]
    BUILD_FIELD_NUMBER: _ClassVar[int]
    GENERATION_SEEN_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    runner_id: str
    incarnation: str
    address: str
    lanes: _containers.RepeatedScalarFieldContainer[str]
    version: str
    store_id: str
    build: str
    generation_seen: int
    def __init__(self, request_id: _Optional[str] = ..., runner_id: _Optional[str] = ..., incarnation: _Optional[str] = ..., address: _Optional[str] = ..., lanes: _Optional[_Iterable[str]] = ..., version: _Optional[str] = ..., store_id: _Optional[str] = ..., build: _Optional[str] = ..., generation_seen: _Optional[int] = ...) -> None: ...

class RegisterResponse(_message.Message):
    __slots__ = ("generation", "ttl", "renew_interval", "supervisor_id", "supervisor_incarnation", "taken_sequence", "supervision_generation_seen")
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    TTL_FIELD_NUMBER: _ClassVar[int]
    RENEW_INTERVAL_FIELD_NUMBER: _ClassVar[int]
    SUPERVISOR_ID_FIELD_NUMBER: _ClassVar[int]
    SUPERVISOR_INCARNATION_FIELD_NUMBER: _ClassVar[int]
    TAKEN_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    SUPERVISION_GENERATION_SEEN_FIELD_NUMBER: _ClassVar[int]
    generation: int
    ttl: _duration_pb2.Duration
    renew_interval: _duration_pb2.Duration
    supervisor_id: str
    supervisor_incarnation: str
    taken_sequence: int
    supervision_generation_seen: int
    def __init__(self, generation: _Optional[int] = ..., ttl: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., renew_interval: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., supervisor_id: _Optional[str] = ..., supervisor_incarnation: _Optional[str] = ..., taken_sequence: _Optional[int] = ..., supervision_generation_seen: _Optional[int] = ...) -> None: ...

class ReconcileRequest(_message.Message):
    __slots__ = ("runner_id", "incarnation", "generation", "items", "after_task_id", "through_task_id", "forgotten_task_ids", "forgotten_escalation_ids")
    RUNNER_ID_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    AFTER_TASK_ID_FIELD_NUMBER: _ClassVar[int]
    THROUGH_TASK_ID_FIELD_NUMBER: _ClassVar[int]
    FORGOTTEN_TASK_IDS_FIELD_NUMBER: _ClassVar[int]
    FORGOTTEN_ESCALATION_IDS_FIELD_NUMBER: _ClassVar[int]
    runner_id: str
    incarnation: str
    generation: int
    items: _containers.RepeatedCompositeFieldContainer[InventoryItem]
    after_task_id: str
    through_task_id: str
    forgotten_task_ids: _containers.RepeatedScalarFieldContainer[str]
    forgotten_escalation_ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, runner_id: _Optional[str] = ..., incarnation: _Optional[str] = ..., generation: _Optional[int] = ..., items: _Optional[_Iterable[_Union[InventoryItem, _Mapping]]] = ..., after_task_id: _Optional[str] = ..., through_task_id: _Optional[str] = ..., forgotten_task_ids: _Optional[_Iterable[str]] = ..., forgotten_escalation_ids: _Optional[_Iterable[str]] = ...) -> None: ...

class InventoryItem(_message.Message):
    __slots__ = ("task_id", "version", "open_holds")
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    OPEN_HOLDS_FIELD_NUMBER: _ClassVar[int]
    task_id: str
    version: int
    open_holds: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, task_id: _Optional[str] = ..., version: _Optional[int] = ..., open_holds: _Optional[_Iterable[str]] = ...) -> None: ...

class InventoryFinding(_message.Message):
    __slots__ = ("task_id", "verdict", "open_holds")
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    VERDICT_FIELD_NUMBER: _ClassVar[int]
    OPEN_HOLDS_FIELD_NUMBER: _ClassVar[int]
    task_id: str
    verdict: InventoryVerdict
    open_holds: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, task_id: _Optional[str] = ..., verdict: _Optional[_Union[InventoryVerdict, str]] = ..., open_holds: _Optional[_Iterable[str]] = ...) -> None: ...

class ReconcileResponse(_message.Message):
    __slots__ = ("findings", "through_task_id")
    FINDINGS_FIELD_NUMBER: _ClassVar[int]
    THROUGH_TASK_ID_FIELD_NUMBER: _ClassVar[int]
    findings: _containers.RepeatedCompositeFieldContainer[InventoryFinding]
    through_task_id: str
    def __init__(self, findings: _Optional[_Iterable[_Union[InventoryFinding, _Mapping]]] = ..., through_task_id: _Optional[str] = ...) -> None: ...

class KeepAliveRequest(_message.Message):
    __slots__ = ("runner_id", "incarnation", "generation", "loop_lag", "supervision_generation", "wall_time", "changed_lanes", "answers", "storms")
    RUNNER_ID_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    LOOP_LAG_FIELD_NUMBER: _ClassVar[int]
    SUPERVISION_GENERATION_FIELD_NUMBER: _ClassVar[int]
    WALL_TIME_FIELD_NUMBER: _ClassVar[int]
    CHANGED_LANES_FIELD_NUMBER: _ClassVar[int]
    ANSWERS_FIELD_NUMBER: _ClassVar[int]
    STORMS_FIELD_NUMBER: _ClassVar[int]
    runner_id: str
    incarnation: str
    generation: int
    loop_lag: _duration_pb2.Duration
    supervision_generation: int
    wall_time: _timestamp_pb2.Timestamp
    changed_lanes: _containers.RepeatedCompositeFieldContainer[LaneOccupant]
    answers: _containers.RepeatedCompositeFieldContainer[CommandAnswer]
    storms: _containers.RepeatedCompositeFieldContainer[WriteStorm]
    def __init__(self, runner_id: _Optional[str] = ..., incarnation: _Optional[str] = ..., generation: _Optional[int] = ..., loop_lag: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., supervision_generation: _Optional[int] = ..., wall_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., changed_lanes: _Optional[_Iterable[_Union[LaneOccupant, _Mapping]]] = ..., answers: _Optional[_Iterable[_Union[CommandAnswer, _Mapping]]] = ..., storms: _Optional[_Iterable[_Union[WriteStorm, _Mapping]]] = ...) -> None: ...

class WriteStorm(_message.Message):
    __slots__ = ("task_id", "emitter", "origin", "rows_per_second", "lasted")
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    EMITTER_FIELD_NUMBER: _ClassVar[int]
    ORIGIN_FIELD_NUMBER: _ClassVar[int]
    ROWS_PER_SECOND_FIELD_NUMBER: _ClassVar[int]
    LASTED_FIELD_NUMBER: _ClassVar[int]
    task_id: str
    emitter: str
    origin: str
    rows_per_second: float
    lasted: _duration_pb2.Duration
    def __init__(self, task_id: _Optional[str] = ..., emitter: _Optional[str] = ..., origin: _Optional[str] = ..., rows_per_second: _Optional[float] = ..., lasted: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class LaneOccupant(_message.Message):
    __slots__ = ("lane", "task_id")
    LANE_FIELD_NUMBER: _ClassVar[int]
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    lane: str
    task_id: str
    def __init__(self, lane: _Optional[str] = ..., task_id: _Optional[str] = ...) -> None: ...

class Command(_message.Message):
    __slots__ = ("command_id", "steer", "acknowledge", "traceparent")
    COMMAND_ID_FIELD_NUMBER: _ClassVar[int]
    STEER_FIELD_NUMBER: _ClassVar[int]
    ACKNOWLEDGE_FIELD_NUMBER: _ClassVar[int]
    TRACEPARENT_FIELD_NUMBER: _ClassVar[int]
    command_id: str
    steer: _lane_runner_service_pb2.SteerRequest
    acknowledge: _lane_runner_service_pb2.AcknowledgeRequest
    traceparent: str
    def __init__(self, command_id: _Optional[str] = ..., steer: _Optional[_Union[_lane_runner_service_pb2.SteerRequest, _Mapping]] = ..., acknowledge: _Optional[_Union[_lane_runner_service_pb2.AcknowledgeRequest, _Mapping]] = ..., traceparent: _Optional[str] = ...) -> None: ...

class CommandAnswer(_message.Message):
    __slots__ = ("command_id", "steered", "acknowledged", "refused")
    COMMAND_ID_FIELD_NUMBER: _ClassVar[int]
    STEERED_FIELD_NUMBER: _ClassVar[int]
    ACKNOWLEDGED_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    command_id: str
    steered: _lane_runner_service_pb2.SteerResponse
    acknowledged: _lane_runner_service_pb2.AcknowledgeResponse
    refused: CommandRefusal
    def __init__(self, command_id: _Optional[str] = ..., steered: _Optional[_Union[_lane_runner_service_pb2.SteerResponse, _Mapping]] = ..., acknowledged: _Optional[_Union[_lane_runner_service_pb2.AcknowledgeResponse, _Mapping]] = ..., refused: _Optional[_Union[CommandRefusal, _Mapping]] = ...) -> None: ...

class CommandRefusal(_message.Message):
    __slots__ = ("reason", "message", "metadata")
    class MetadataEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    REASON_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    reason: str
    message: str
    metadata: _containers.ScalarMap[str, str]
    def __init__(self, reason: _Optional[str] = ..., message: _Optional[str] = ..., metadata: _Optional[_Mapping[str, str]] = ...) -> None: ...

class KeepAliveResponse(_message.Message):
    __slots__ = ("ttl", "renew_interval", "sweep", "taken_sequence", "commands", "supervisor_incarnation")
    TTL_FIELD_NUMBER: _ClassVar[int]
    RENEW_INTERVAL_FIELD_NUMBER: _ClassVar[int]
    SWEEP_FIELD_NUMBER: _ClassVar[int]
    TAKEN_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    COMMANDS_FIELD_NUMBER: _ClassVar[int]
    SUPERVISOR_INCARNATION_FIELD_NUMBER: _ClassVar[int]
    ttl: _duration_pb2.Duration
    renew_interval: _duration_pb2.Duration
    sweep: int
    taken_sequence: int
    commands: _containers.RepeatedCompositeFieldContainer[Command]
    supervisor_incarnation: str
    def __init__(self, ttl: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., renew_interval: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., sweep: _Optional[int] = ..., taken_sequence: _Optional[int] = ..., commands: _Optional[_Iterable[_Union[Command, _Mapping]]] = ..., supervisor_incarnation: _Optional[str] = ...) -> None: ...

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
