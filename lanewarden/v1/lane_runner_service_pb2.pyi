import datetime

from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from lanewarden.v1 import audit_pb2 as _audit_pb2
from lanewarden.v1 import context_pb2 as _context_pb2
from lanewarden.v1 import escalation_pb2 as _escalation_pb2
from lanewarden.v1 import incident_pb2 as _incident_pb2
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

class SupervisionState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SUPERVISION_STATE_UNSPECIFIED: _ClassVar[SupervisionState]
    SUPERVISION_STATE_NONE: _ClassVar[SupervisionState]
    SUPERVISION_STATE_LIVE: _ClassVar[SupervisionState]
    SUPERVISION_STATE_LAPSED: _ClassVar[SupervisionState]
SUPERVISION_STATE_UNSPECIFIED: SupervisionState
SUPERVISION_STATE_NONE: SupervisionState
SUPERVISION_STATE_LIVE: SupervisionState
SUPERVISION_STATE_LAPSED: SupervisionState

class SubmitTaskRequest(_message.Message):
    __slots__ = ("request_id", "spec", "on_behalf_of")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    SPEC_FIELD_NUMBER: _ClassVar[int]
    ON_BEHALF_OF_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    spec: _task_pb2.TaskSpec
    on_behalf_of: _task_pb2.Actor
    def __init__(self, request_id: _Optional[str] = ..., spec: _Optional[_Union[_task_pb2.TaskSpec, _Mapping]] = ..., on_behalf_of: _Optional[_Union[_task_pb2.Actor, _Mapping]] = ...) -> None: ...

class SubmitTaskResponse(_message.Message):
    __slots__ = ("task",)
    TASK_FIELD_NUMBER: _ClassVar[int]
    task: _task_pb2.Task
    def __init__(self, task: _Optional[_Union[_task_pb2.Task, _Mapping]] = ...) -> None: ...

class SendInputRequest(_message.Message):
    __slots__ = ("request_id", "task_id", "text", "on_behalf_of")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    ON_BEHALF_OF_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    task_id: str
    text: str
    on_behalf_of: _task_pb2.Actor
    def __init__(self, request_id: _Optional[str] = ..., task_id: _Optional[str] = ..., text: _Optional[str] = ..., on_behalf_of: _Optional[_Union[_task_pb2.Actor, _Mapping]] = ...) -> None: ...

class SendInputResponse(_message.Message):
    __slots__ = ("message",)
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    message: _message_pb2.Message
    def __init__(self, message: _Optional[_Union[_message_pb2.Message, _Mapping]] = ...) -> None: ...

class GetTaskRequest(_message.Message):
    __slots__ = ("task_id",)
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    task_id: str
    def __init__(self, task_id: _Optional[str] = ...) -> None: ...

class GetTaskResponse(_message.Message):
    __slots__ = ("task", "messages")
    TASK_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    task: _task_pb2.Task
    messages: _containers.RepeatedCompositeFieldContainer[_message_pb2.Message]
    def __init__(self, task: _Optional[_Union[_task_pb2.Task, _Mapping]] = ..., messages: _Optional[_Iterable[_Union[_message_pb2.Message, _Mapping]]] = ...) -> None: ...

class ListTasksRequest(_message.Message):
    __slots__ = ("states", "lane", "page_size", "page_token")
    STATES_FIELD_NUMBER: _ClassVar[int]
    LANE_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    states: _containers.RepeatedScalarFieldContainer[_task_pb2.TaskState]
    lane: str
    page_size: int
    page_token: str
    def __init__(self, states: _Optional[_Iterable[_Union[_task_pb2.TaskState, str]]] = ..., lane: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListTasksResponse(_message.Message):
    __slots__ = ("tasks", "next_page_token")
    TASKS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    tasks: _containers.RepeatedCompositeFieldContainer[_task_pb2.Task]
    next_page_token: str
    def __init__(self, tasks: _Optional[_Iterable[_Union[_task_pb2.Task, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class ListLanesRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListLanesResponse(_message.Message):
    __slots__ = ("lanes",)
    LANES_FIELD_NUMBER: _ClassVar[int]
    lanes: _containers.RepeatedCompositeFieldContainer[Lane]
    def __init__(self, lanes: _Optional[_Iterable[_Union[Lane, _Mapping]]] = ...) -> None: ...

class Lane(_message.Message):
    __slots__ = ("lane", "task_id", "queued", "held")
    LANE_FIELD_NUMBER: _ClassVar[int]
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    QUEUED_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    lane: str
    task_id: str
    queued: int
    held: int
    def __init__(self, lane: _Optional[str] = ..., task_id: _Optional[str] = ..., queued: _Optional[int] = ..., held: _Optional[int] = ...) -> None: ...

class WatchTasksRequest(_message.Message):
    __slots__ = ("task_id",)
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    task_id: str
    def __init__(self, task_id: _Optional[str] = ...) -> None: ...

class WatchTasksResponse(_message.Message):
    __slots__ = ("task",)
    TASK_FIELD_NUMBER: _ClassVar[int]
    task: _task_pb2.Task
    def __init__(self, task: _Optional[_Union[_task_pb2.Task, _Mapping]] = ...) -> None: ...

class TailLogRequest(_message.Message):
    __slots__ = ("task_id", "attempt", "follow")
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    FOLLOW_FIELD_NUMBER: _ClassVar[int]
    task_id: str
    attempt: int
    follow: bool
    def __init__(self, task_id: _Optional[str] = ..., attempt: _Optional[int] = ..., follow: _Optional[bool] = ...) -> None: ...

class TailLogResponse(_message.Message):
    __slots__ = ("attempt", "data")
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    attempt: int
    data: bytes
    def __init__(self, attempt: _Optional[int] = ..., data: _Optional[bytes] = ...) -> None: ...

class ListHoldsRequest(_message.Message):
    __slots__ = ("states", "task_id", "page_size", "page_token")
    STATES_FIELD_NUMBER: _ClassVar[int]
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    states: _containers.RepeatedScalarFieldContainer[_escalation_pb2.HoldState]
    task_id: str
    page_size: int
    page_token: str
    def __init__(self, states: _Optional[_Iterable[_Union[_escalation_pb2.HoldState, str]]] = ..., task_id: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListHoldsResponse(_message.Message):
    __slots__ = ("holds", "next_page_token")
    HOLDS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    holds: _containers.RepeatedCompositeFieldContainer[_escalation_pb2.Escalation]
    next_page_token: str
    def __init__(self, holds: _Optional[_Iterable[_Union[_escalation_pb2.Escalation, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class AcknowledgeRequest(_message.Message):
    __slots__ = ("request_id", "escalation_id", "expected_by", "note", "on_behalf_of")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    ESCALATION_ID_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_BY_FIELD_NUMBER: _ClassVar[int]
    NOTE_FIELD_NUMBER: _ClassVar[int]
    ON_BEHALF_OF_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    escalation_id: str
    expected_by: _timestamp_pb2.Timestamp
    note: str
    on_behalf_of: _task_pb2.Actor
    def __init__(self, request_id: _Optional[str] = ..., escalation_id: _Optional[str] = ..., expected_by: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., note: _Optional[str] = ..., on_behalf_of: _Optional[_Union[_task_pb2.Actor, _Mapping]] = ...) -> None: ...

class AcknowledgeResponse(_message.Message):
    __slots__ = ("escalation",)
    ESCALATION_FIELD_NUMBER: _ClassVar[int]
    escalation: _escalation_pb2.Escalation
    def __init__(self, escalation: _Optional[_Union[_escalation_pb2.Escalation, _Mapping]] = ...) -> None: ...

class SteerRequest(_message.Message):
    __slots__ = ("request_id", "task_id", "ruling", "instruction", "on_behalf_of")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    RULING_FIELD_NUMBER: _ClassVar[int]
    INSTRUCTION_FIELD_NUMBER: _ClassVar[int]
    ON_BEHALF_OF_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    task_id: str
    ruling: _escalation_pb2.Ruling
    instruction: _escalation_pb2.Instruction
    on_behalf_of: _task_pb2.Actor
    def __init__(self, request_id: _Optional[str] = ..., task_id: _Optional[str] = ..., ruling: _Optional[_Union[_escalation_pb2.Ruling, _Mapping]] = ..., instruction: _Optional[_Union[_escalation_pb2.Instruction, _Mapping]] = ..., on_behalf_of: _Optional[_Union[_task_pb2.Actor, _Mapping]] = ...) -> None: ...

class SteerResponse(_message.Message):
    __slots__ = ("message", "task")
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    TASK_FIELD_NUMBER: _ClassVar[int]
    message: _message_pb2.Message
    task: _task_pb2.Task
    def __init__(self, message: _Optional[_Union[_message_pb2.Message, _Mapping]] = ..., task: _Optional[_Union[_task_pb2.Task, _Mapping]] = ...) -> None: ...

class CancelTaskRequest(_message.Message):
    __slots__ = ("request_id", "task_id", "cause", "on_behalf_of")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    CAUSE_FIELD_NUMBER: _ClassVar[int]
    ON_BEHALF_OF_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    task_id: str
    cause: str
    on_behalf_of: _task_pb2.Actor
    def __init__(self, request_id: _Optional[str] = ..., task_id: _Optional[str] = ..., cause: _Optional[str] = ..., on_behalf_of: _Optional[_Union[_task_pb2.Actor, _Mapping]] = ...) -> None: ...

class CancelTaskResponse(_message.Message):
    __slots__ = ("task",)
    TASK_FIELD_NUMBER: _ClassVar[int]
    task: _task_pb2.Task
    def __init__(self, task: _Optional[_Union[_task_pb2.Task, _Mapping]] = ...) -> None: ...

class PauseTaskRequest(_message.Message):
    __slots__ = ("request_id", "task_id", "on_behalf_of")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    ON_BEHALF_OF_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    task_id: str
    on_behalf_of: _task_pb2.Actor
    def __init__(self, request_id: _Optional[str] = ..., task_id: _Optional[str] = ..., on_behalf_of: _Optional[_Union[_task_pb2.Actor, _Mapping]] = ...) -> None: ...

class PauseTaskResponse(_message.Message):
    __slots__ = ("task",)
    TASK_FIELD_NUMBER: _ClassVar[int]
    task: _task_pb2.Task
    def __init__(self, task: _Optional[_Union[_task_pb2.Task, _Mapping]] = ...) -> None: ...

class ResumeTaskRequest(_message.Message):
    __slots__ = ("request_id", "task_id", "on_behalf_of", "cause")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    ON_BEHALF_OF_FIELD_NUMBER: _ClassVar[int]
    CAUSE_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    task_id: str
    on_behalf_of: _task_pb2.Actor
    cause: _task_pb2.PauseCause
    def __init__(self, request_id: _Optional[str] = ..., task_id: _Optional[str] = ..., on_behalf_of: _Optional[_Union[_task_pb2.Actor, _Mapping]] = ..., cause: _Optional[_Union[_task_pb2.PauseCause, str]] = ...) -> None: ...

class ResumeTaskResponse(_message.Message):
    __slots__ = ("task",)
    TASK_FIELD_NUMBER: _ClassVar[int]
    task: _task_pb2.Task
    def __init__(self, task: _Optional[_Union[_task_pb2.Task, _Mapping]] = ...) -> None: ...

class RetryTaskRequest(_message.Message):
    __slots__ = ("request_id", "task_id", "on_behalf_of")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    ON_BEHALF_OF_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    task_id: str
    on_behalf_of: _task_pb2.Actor
    def __init__(self, request_id: _Optional[str] = ..., task_id: _Optional[str] = ..., on_behalf_of: _Optional[_Union[_task_pb2.Actor, _Mapping]] = ...) -> None: ...

class RetryTaskResponse(_message.Message):
    __slots__ = ("task",)
    TASK_FIELD_NUMBER: _ClassVar[int]
    task: _task_pb2.Task
    def __init__(self, task: _Optional[_Union[_task_pb2.Task, _Mapping]] = ...) -> None: ...

class ReopenTaskRequest(_message.Message):
    __slots__ = ("request_id", "task_id", "on_behalf_of")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    ON_BEHALF_OF_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    task_id: str
    on_behalf_of: _task_pb2.Actor
    def __init__(self, request_id: _Optional[str] = ..., task_id: _Optional[str] = ..., on_behalf_of: _Optional[_Union[_task_pb2.Actor, _Mapping]] = ...) -> None: ...

class ReopenTaskResponse(_message.Message):
    __slots__ = ("task",)
    TASK_FIELD_NUMBER: _ClassVar[int]
    task: _task_pb2.Task
    def __init__(self, task: _Optional[_Union[_task_pb2.Task, _Mapping]] = ...) -> None: ...

class LaneRunnerServiceTakeOverRequest(_message.Message):
    __slots__ = ("request_id", "task_id", "cause", "on_behalf_of")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    CAUSE_FIELD_NUMBER: _ClassVar[int]
    ON_BEHALF_OF_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    task_id: str
    cause: str
    on_behalf_of: _task_pb2.Actor
    def __init__(self, request_id: _Optional[str] = ..., task_id: _Optional[str] = ..., cause: _Optional[str] = ..., on_behalf_of: _Optional[_Union[_task_pb2.Actor, _Mapping]] = ...) -> None: ...

class LaneRunnerServiceTakeOverResponse(_message.Message):
    __slots__ = ("task", "previous_owner")
    TASK_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_OWNER_FIELD_NUMBER: _ClassVar[int]
    task: _task_pb2.Task
    previous_owner: _task_pb2.Actor
    def __init__(self, task: _Optional[_Union[_task_pb2.Task, _Mapping]] = ..., previous_owner: _Optional[_Union[_task_pb2.Actor, _Mapping]] = ...) -> None: ...

class ExtendHoldRequest(_message.Message):
    __slots__ = ("request_id", "escalation_id", "deadline", "on_behalf_of")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    ESCALATION_ID_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_FIELD_NUMBER: _ClassVar[int]
    ON_BEHALF_OF_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    escalation_id: str
    deadline: _duration_pb2.Duration
    on_behalf_of: _task_pb2.Actor
    def __init__(self, request_id: _Optional[str] = ..., escalation_id: _Optional[str] = ..., deadline: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., on_behalf_of: _Optional[_Union[_task_pb2.Actor, _Mapping]] = ...) -> None: ...

class ExtendHoldResponse(_message.Message):
    __slots__ = ("escalation",)
    ESCALATION_FIELD_NUMBER: _ClassVar[int]
    escalation: _escalation_pb2.Escalation
    def __init__(self, escalation: _Optional[_Union[_escalation_pb2.Escalation, _Mapping]] = ...) -> None: ...

class RecordGateRequest(_message.Message):
    __slots__ = ("request_id", "task_id", "gate", "decision", "note", "on_behalf_of")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    GATE_FIELD_NUMBER: _ClassVar[int]
    DECISION_FIELD_NUMBER: _ClassVar[int]
    NOTE_FIELD_NUMBER: _ClassVar[int]
    ON_BEHALF_OF_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    task_id: str
    gate: str
    decision: _task_pb2.GateDecision
    note: str
    on_behalf_of: _task_pb2.Actor
    def __init__(self, request_id: _Optional[str] = ..., task_id: _Optional[str] = ..., gate: _Optional[str] = ..., decision: _Optional[_Union[_task_pb2.GateDecision, str]] = ..., note: _Optional[str] = ..., on_behalf_of: _Optional[_Union[_task_pb2.Actor, _Mapping]] = ...) -> None: ...

class RecordGateResponse(_message.Message):
    __slots__ = ("task",)
    TASK_FIELD_NUMBER: _ClassVar[int]
    task: _task_pb2.Task
    def __init__(self, task: _Optional[_Union[_task_pb2.Task, _Mapping]] = ...) -> None: ...

class CheckCompletionRequest(_message.Message):
    __slots__ = ("task_id",)
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    task_id: str
    def __init__(self, task_id: _Optional[str] = ...) -> None: ...

class CheckCompletionResponse(_message.Message):
    __slots__ = ("blockers", "state")
    BLOCKERS_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    blockers: _containers.RepeatedCompositeFieldContainer[_task_pb2.Blocker]
    state: _task_pb2.TaskState
    def __init__(self, blockers: _Optional[_Iterable[_Union[_task_pb2.Blocker, _Mapping]]] = ..., state: _Optional[_Union[_task_pb2.TaskState, str]] = ...) -> None: ...

class WakeTaskRequest(_message.Message):
    __slots__ = ("request_id", "task_id", "supervision_generation", "epoch")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    SUPERVISION_GENERATION_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    task_id: str
    supervision_generation: int
    epoch: int
    def __init__(self, request_id: _Optional[str] = ..., task_id: _Optional[str] = ..., supervision_generation: _Optional[int] = ..., epoch: _Optional[int] = ...) -> None: ...

class WakeTaskResponse(_message.Message):
    __slots__ = ("task",)
    TASK_FIELD_NUMBER: _ClassVar[int]
    task: _task_pb2.Task
    def __init__(self, task: _Optional[_Union[_task_pb2.Task, _Mapping]] = ...) -> None: ...

class RelaunchTaskRequest(_message.Message):
    __slots__ = ("request_id", "task_id", "supervision_generation", "epoch", "attempt", "cause", "relaunches_max")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    SUPERVISION_GENERATION_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    CAUSE_FIELD_NUMBER: _ClassVar[int]
    RELAUNCHES_MAX_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    task_id: str
    supervision_generation: int
    epoch: int
    attempt: int
    cause: str
    relaunches_max: int
    def __init__(self, request_id: _Optional[str] = ..., task_id: _Optional[str] = ..., supervision_generation: _Optional[int] = ..., epoch: _Optional[int] = ..., attempt: _Optional[int] = ..., cause: _Optional[str] = ..., relaunches_max: _Optional[int] = ...) -> None: ...

class RelaunchTaskResponse(_message.Message):
    __slots__ = ("task",)
    TASK_FIELD_NUMBER: _ClassVar[int]
    task: _task_pb2.Task
    def __init__(self, task: _Optional[_Union[_task_pb2.Task, _Mapping]] = ...) -> None: ...

class SettleTaskRequest(_message.Message):
    __slots__ = ("request_id", "task_id", "supervision_generation", "epoch", "summary", "diagnosis")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    SUPERVISION_GENERATION_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    SUMMARY_FIELD_NUMBER: _ClassVar[int]
    DIAGNOSIS_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    task_id: str
    supervision_generation: int
    epoch: int
    summary: str
    diagnosis: str
    def __init__(self, request_id: _Optional[str] = ..., task_id: _Optional[str] = ..., supervision_generation: _Optional[int] = ..., epoch: _Optional[int] = ..., summary: _Optional[str] = ..., diagnosis: _Optional[str] = ...) -> None: ...

class SettleTaskResponse(_message.Message):
    __slots__ = ("task",)
    TASK_FIELD_NUMBER: _ClassVar[int]
    task: _task_pb2.Task
    def __init__(self, task: _Optional[_Union[_task_pb2.Task, _Mapping]] = ...) -> None: ...

class ClaimIncidentRequest(_message.Message):
    __slots__ = ("request_id", "task_id", "supervision_generation", "epoch", "kind")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    SUPERVISION_GENERATION_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    task_id: str
    supervision_generation: int
    epoch: int
    kind: str
    def __init__(self, request_id: _Optional[str] = ..., task_id: _Optional[str] = ..., supervision_generation: _Optional[int] = ..., epoch: _Optional[int] = ..., kind: _Optional[str] = ...) -> None: ...

class ClaimIncidentResponse(_message.Message):
    __slots__ = ("incident",)
    INCIDENT_FIELD_NUMBER: _ClassVar[int]
    incident: _incident_pb2.Incident
    def __init__(self, incident: _Optional[_Union[_incident_pb2.Incident, _Mapping]] = ...) -> None: ...

class RecordIncidentRequest(_message.Message):
    __slots__ = ("request_id", "task_id", "supervision_generation", "epoch", "key", "claim_generation", "external_id", "url", "failure", "also_task_ids")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    SUPERVISION_GENERATION_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    CLAIM_GENERATION_FIELD_NUMBER: _ClassVar[int]
    EXTERNAL_ID_FIELD_NUMBER: _ClassVar[int]
    URL_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    ALSO_TASK_IDS_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    task_id: str
    supervision_generation: int
    epoch: int
    key: str
    claim_generation: int
    external_id: str
    url: str
    failure: str
    also_task_ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, request_id: _Optional[str] = ..., task_id: _Optional[str] = ..., supervision_generation: _Optional[int] = ..., epoch: _Optional[int] = ..., key: _Optional[str] = ..., claim_generation: _Optional[int] = ..., external_id: _Optional[str] = ..., url: _Optional[str] = ..., failure: _Optional[str] = ..., also_task_ids: _Optional[_Iterable[str]] = ...) -> None: ...

class RecordIncidentResponse(_message.Message):
    __slots__ = ("incident",)
    INCIDENT_FIELD_NUMBER: _ClassVar[int]
    incident: _incident_pb2.Incident
    def __init__(self, incident: _Optional[_Union[_incident_pb2.Incident, _Mapping]] = ...) -> None: ...

class ResolveIncidentRequest(_message.Message):
    __slots__ = ("request_id", "task_id", "key", "on_behalf_of")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    ON_BEHALF_OF_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    task_id: str
    key: str
    on_behalf_of: _task_pb2.Actor
    def __init__(self, request_id: _Optional[str] = ..., task_id: _Optional[str] = ..., key: _Optional[str] = ..., on_behalf_of: _Optional[_Union[_task_pb2.Actor, _Mapping]] = ...) -> None: ...

class ResolveIncidentResponse(_message.Message):
    __slots__ = ("incident",)
    INCIDENT_FIELD_NUMBER: _ClassVar[int]
    incident: _incident_pb2.Incident
    def __init__(self, incident: _Optional[_Union[_incident_pb2.Incident, _Mapping]] = ...) -> None: ...

class GetSupervisionRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetSupervisionResponse(_message.Message):
    __slots__ = ("runner_id", "incarnation", "version", "build", "loop_lag", "supervision", "supervisors")
    RUNNER_ID_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    BUILD_FIELD_NUMBER: _ClassVar[int]
    LOOP_LAG_FIELD_NUMBER: _ClassVar[int]
    SUPERVISION_FIELD_NUMBER: _ClassVar[int]
    SUPERVISORS_FIELD_NUMBER: _ClassVar[int]
    runner_id: str
    incarnation: str
    version: str
    build: str
    loop_lag: _duration_pb2.Duration
    supervision: Supervision
    supervisors: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, runner_id: _Optional[str] = ..., incarnation: _Optional[str] = ..., version: _Optional[str] = ..., build: _Optional[str] = ..., loop_lag: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., supervision: _Optional[_Union[Supervision, _Mapping]] = ..., supervisors: _Optional[_Iterable[str]] = ...) -> None: ...

class Supervision(_message.Message):
    __slots__ = ("state", "generation", "supervisor_id", "supervisor_incarnation", "address", "lease_remaining", "renewed_at")
    STATE_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    SUPERVISOR_ID_FIELD_NUMBER: _ClassVar[int]
    SUPERVISOR_INCARNATION_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    LEASE_REMAINING_FIELD_NUMBER: _ClassVar[int]
    RENEWED_AT_FIELD_NUMBER: _ClassVar[int]
    state: SupervisionState
    generation: int
    supervisor_id: str
    supervisor_incarnation: str
    address: str
    lease_remaining: _duration_pb2.Duration
    renewed_at: _timestamp_pb2.Timestamp
    def __init__(self, state: _Optional[_Union[SupervisionState, str]] = ..., generation: _Optional[int] = ..., supervisor_id: _Optional[str] = ..., supervisor_incarnation: _Optional[str] = ..., address: _Optional[str] = ..., lease_remaining: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., renewed_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class ListEvidenceRequest(_message.Message):
    __slots__ = ("task_id", "page_size", "page_token")
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    task_id: str
    page_size: int
    page_token: str
    def __init__(self, task_id: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListEvidenceResponse(_message.Message):
    __slots__ = ("entries", "next_page_token")
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    entries: _containers.RepeatedCompositeFieldContainer[Evidence]
    next_page_token: str
    def __init__(self, entries: _Optional[_Iterable[_Union[Evidence, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class Evidence(_message.Message):
    __slots__ = ("sequence", "at", "task_id", "epoch", "attempt", "method", "content", "reason")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    METHOD_FIELD_NUMBER: _ClassVar[int]
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    at: _timestamp_pb2.Timestamp
    task_id: str
    epoch: int
    attempt: int
    method: str
    content: str
    reason: str
    def __init__(self, sequence: _Optional[int] = ..., at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., task_id: _Optional[str] = ..., epoch: _Optional[int] = ..., attempt: _Optional[int] = ..., method: _Optional[str] = ..., content: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class LaneRunnerServiceListAuditRequest(_message.Message):
    __slots__ = ("task_id", "page_size", "page_token")
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    task_id: str
    page_size: int
    page_token: str
    def __init__(self, task_id: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class LaneRunnerServiceListAuditResponse(_message.Message):
    __slots__ = ("entries", "next_page_token")
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    entries: _containers.RepeatedCompositeFieldContainer[_audit_pb2.AuditEntry]
    next_page_token: str
    def __init__(self, entries: _Optional[_Iterable[_Union[_audit_pb2.AuditEntry, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class ListCheckpointsRequest(_message.Message):
    __slots__ = ("task_id", "page_size", "page_token")
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    task_id: str
    page_size: int
    page_token: str
    def __init__(self, task_id: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListCheckpointsResponse(_message.Message):
    __slots__ = ("checkpoints", "next_page_token")
    CHECKPOINTS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    checkpoints: _containers.RepeatedCompositeFieldContainer[_context_pb2.Checkpoint]
    next_page_token: str
    def __init__(self, checkpoints: _Optional[_Iterable[_Union[_context_pb2.Checkpoint, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class GetCheckpointRequest(_message.Message):
    __slots__ = ("checkpoint_id",)
    CHECKPOINT_ID_FIELD_NUMBER: _ClassVar[int]
    checkpoint_id: str
    def __init__(self, checkpoint_id: _Optional[str] = ...) -> None: ...

class GetCheckpointResponse(_message.Message):
    __slots__ = ("checkpoint",)
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    checkpoint: _context_pb2.Checkpoint
    def __init__(self, checkpoint: _Optional[_Union[_context_pb2.Checkpoint, _Mapping]] = ...) -> None: ...
