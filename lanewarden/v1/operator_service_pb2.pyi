import datetime

from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from lanewarden.v1 import audit_pb2 as _audit_pb2
from lanewarden.v1 import context_pb2 as _context_pb2
from lanewarden.v1 import escalation_pb2 as _escalation_pb2
from lanewarden.v1 import incident_pb2 as _incident_pb2
from lanewarden.v1 import lane_runner_service_pb2 as _lane_runner_service_pb2
from lanewarden.v1 import message_pb2 as _message_pb2
from lanewarden.v1 import rules_pb2 as _rules_pb2
from lanewarden.v1 import supervisor_service_pb2 as _supervisor_service_pb2
from lanewarden.v1 import task_pb2 as _task_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class RunnerState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    RUNNER_STATE_UNSPECIFIED: _ClassVar[RunnerState]
    RUNNER_STATE_LIVE: _ClassVar[RunnerState]
    RUNNER_STATE_SUSPECT: _ClassVar[RunnerState]
    RUNNER_STATE_UNREACHABLE: _ClassVar[RunnerState]
RUNNER_STATE_UNSPECIFIED: RunnerState
RUNNER_STATE_LIVE: RunnerState
RUNNER_STATE_SUSPECT: RunnerState
RUNNER_STATE_UNREACHABLE: RunnerState

class ListEscalationsRequest(_message.Message):
    __slots__ = ("states", "task_id", "notices", "page_size", "page_token")
    STATES_FIELD_NUMBER: _ClassVar[int]
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    NOTICES_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    states: _containers.RepeatedScalarFieldContainer[_escalation_pb2.HoldState]
    task_id: str
    notices: bool
    page_size: int
    page_token: str
    def __init__(self, states: _Optional[_Iterable[_Union[_escalation_pb2.HoldState, str]]] = ..., task_id: _Optional[str] = ..., notices: _Optional[bool] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListEscalationsResponse(_message.Message):
    __slots__ = ("escalations", "next_page_token")
    ESCALATIONS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    escalations: _containers.RepeatedCompositeFieldContainer[_escalation_pb2.Escalation]
    next_page_token: str
    def __init__(self, escalations: _Optional[_Iterable[_Union[_escalation_pb2.Escalation, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class GetEscalationRequest(_message.Message):
    __slots__ = ("escalation_id",)
    ESCALATION_ID_FIELD_NUMBER: _ClassVar[int]
    escalation_id: str
    def __init__(self, escalation_id: _Optional[str] = ...) -> None: ...

class GetEscalationResponse(_message.Message):
    __slots__ = ("escalation",)
    ESCALATION_FIELD_NUMBER: _ClassVar[int]
    escalation: _escalation_pb2.Escalation
    def __init__(self, escalation: _Optional[_Union[_escalation_pb2.Escalation, _Mapping]] = ...) -> None: ...

class WatchInboxRequest(_message.Message):
    __slots__ = ("task_id",)
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    task_id: str
    def __init__(self, task_id: _Optional[str] = ...) -> None: ...

class WatchInboxResponse(_message.Message):
    __slots__ = ("escalation",)
    ESCALATION_FIELD_NUMBER: _ClassVar[int]
    escalation: _escalation_pb2.Escalation
    def __init__(self, escalation: _Optional[_Union[_escalation_pb2.Escalation, _Mapping]] = ...) -> None: ...

class OperatorServiceAcknowledgeRequest(_message.Message):
    __slots__ = ("request_id", "escalation_id", "expected_by", "note")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    ESCALATION_ID_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_BY_FIELD_NUMBER: _ClassVar[int]
    NOTE_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    escalation_id: str
    expected_by: _timestamp_pb2.Timestamp
    note: str
    def __init__(self, request_id: _Optional[str] = ..., escalation_id: _Optional[str] = ..., expected_by: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., note: _Optional[str] = ...) -> None: ...

class OperatorServiceAcknowledgeResponse(_message.Message):
    __slots__ = ("escalation", "delivery")
    ESCALATION_FIELD_NUMBER: _ClassVar[int]
    DELIVERY_FIELD_NUMBER: _ClassVar[int]
    escalation: _escalation_pb2.Escalation
    delivery: _escalation_pb2.DeliveryState
    def __init__(self, escalation: _Optional[_Union[_escalation_pb2.Escalation, _Mapping]] = ..., delivery: _Optional[_Union[_escalation_pb2.DeliveryState, str]] = ...) -> None: ...

class OperatorServiceSteerRequest(_message.Message):
    __slots__ = ("request_id", "task_id", "ruling", "instruction")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    RULING_FIELD_NUMBER: _ClassVar[int]
    INSTRUCTION_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    task_id: str
    ruling: _escalation_pb2.Ruling
    instruction: _escalation_pb2.Instruction
    def __init__(self, request_id: _Optional[str] = ..., task_id: _Optional[str] = ..., ruling: _Optional[_Union[_escalation_pb2.Ruling, _Mapping]] = ..., instruction: _Optional[_Union[_escalation_pb2.Instruction, _Mapping]] = ...) -> None: ...

class OperatorServiceSteerResponse(_message.Message):
    __slots__ = ("message_id", "delivery", "task")
    MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    DELIVERY_FIELD_NUMBER: _ClassVar[int]
    TASK_FIELD_NUMBER: _ClassVar[int]
    message_id: str
    delivery: _escalation_pb2.DeliveryState
    task: _task_pb2.Task
    def __init__(self, message_id: _Optional[str] = ..., delivery: _Optional[_Union[_escalation_pb2.DeliveryState, str]] = ..., task: _Optional[_Union[_task_pb2.Task, _Mapping]] = ...) -> None: ...

class ListRunnersRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListRunnersResponse(_message.Message):
    __slots__ = ("runners", "supervisor")
    RUNNERS_FIELD_NUMBER: _ClassVar[int]
    SUPERVISOR_FIELD_NUMBER: _ClassVar[int]
    runners: _containers.RepeatedCompositeFieldContainer[Runner]
    supervisor: SupervisorInfo
    def __init__(self, runners: _Optional[_Iterable[_Union[Runner, _Mapping]]] = ..., supervisor: _Optional[_Union[SupervisorInfo, _Mapping]] = ...) -> None: ...

class SupervisorInfo(_message.Message):
    __slots__ = ("supervisor_id", "incarnation", "version", "build", "sweeps", "loop_lag")
    SUPERVISOR_ID_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    BUILD_FIELD_NUMBER: _ClassVar[int]
    SWEEPS_FIELD_NUMBER: _ClassVar[int]
    LOOP_LAG_FIELD_NUMBER: _ClassVar[int]
    supervisor_id: str
    incarnation: str
    version: str
    build: str
    sweeps: int
    loop_lag: _duration_pb2.Duration
    def __init__(self, supervisor_id: _Optional[str] = ..., incarnation: _Optional[str] = ..., version: _Optional[str] = ..., build: _Optional[str] = ..., sweeps: _Optional[int] = ..., loop_lag: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class Runner(_message.Message):
    __slots__ = ("runner_id", "incarnation", "generation", "state", "address", "lanes", "last_seen", "lease_remaining", "taken_sequence", "version", "build", "loop_lag", "clock_lead", "supervision_generation", "degraded_since", "commands_waiting", "occupants")
    RUNNER_ID_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    LANES_FIELD_NUMBER: _ClassVar[int]
    LAST_SEEN_FIELD_NUMBER: _ClassVar[int]
    LEASE_REMAINING_FIELD_NUMBER: _ClassVar[int]
    TAKEN_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    BUILD_FIELD_NUMBER: _ClassVar[int]
    LOOP_LAG_FIELD_NUMBER: _ClassVar[int]
    CLOCK_LEAD_FIELD_NUMBER: _ClassVar[int]
    SUPERVISION_GENERATION_FIELD_NUMBER: _ClassVar[int]
    DEGRADED_SINCE_FIELD_NUMBER: _ClassVar[int]
    COMMANDS_WAITING_FIELD_NUMBER: _ClassVar[int]
    OCCUPANTS_FIELD_NUMBER: _ClassVar[int]
    runner_id: str
    incarnation: str
    generation: int
    state: RunnerState
    address: str
    lanes: _containers.RepeatedScalarFieldContainer[str]
    last_seen: _timestamp_pb2.Timestamp
    lease_remaining: _duration_pb2.Duration
    taken_sequence: int
    version: str
    build: str
    loop_lag: _duration_pb2.Duration
    clock_lead: _duration_pb2.Duration
    supervision_generation: int
    degraded_since: _timestamp_pb2.Timestamp
    commands_waiting: int
    occupants: _containers.RepeatedCompositeFieldContainer[_supervisor_service_pb2.LaneOccupant]
    def __init__(self, runner_id: _Optional[str] = ..., incarnation: _Optional[str] = ..., generation: _Optional[int] = ..., state: _Optional[_Union[RunnerState, str]] = ..., address: _Optional[str] = ..., lanes: _Optional[_Iterable[str]] = ..., last_seen: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., lease_remaining: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., taken_sequence: _Optional[int] = ..., version: _Optional[str] = ..., build: _Optional[str] = ..., loop_lag: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., clock_lead: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., supervision_generation: _Optional[int] = ..., degraded_since: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., commands_waiting: _Optional[int] = ..., occupants: _Optional[_Iterable[_Union[_supervisor_service_pb2.LaneOccupant, _Mapping]]] = ...) -> None: ...

class OperatorServiceListTasksRequest(_message.Message):
    __slots__ = ("states", "runner_id", "page_size", "page_token")
    STATES_FIELD_NUMBER: _ClassVar[int]
    RUNNER_ID_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    states: _containers.RepeatedScalarFieldContainer[_task_pb2.TaskState]
    runner_id: str
    page_size: int
    page_token: str
    def __init__(self, states: _Optional[_Iterable[_Union[_task_pb2.TaskState, str]]] = ..., runner_id: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class OperatorServiceListTasksResponse(_message.Message):
    __slots__ = ("tasks", "next_page_token")
    TASKS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    tasks: _containers.RepeatedCompositeFieldContainer[_task_pb2.Task]
    next_page_token: str
    def __init__(self, tasks: _Optional[_Iterable[_Union[_task_pb2.Task, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class OperatorServiceGetTaskRequest(_message.Message):
    __slots__ = ("task_id",)
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    task_id: str
    def __init__(self, task_id: _Optional[str] = ...) -> None: ...

class OperatorServiceGetTaskResponse(_message.Message):
    __slots__ = ("task", "messages")
    TASK_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    task: _task_pb2.Task
    messages: _containers.RepeatedCompositeFieldContainer[_message_pb2.Message]
    def __init__(self, task: _Optional[_Union[_task_pb2.Task, _Mapping]] = ..., messages: _Optional[_Iterable[_Union[_message_pb2.Message, _Mapping]]] = ...) -> None: ...

class OperatorServiceWatchTasksRequest(_message.Message):
    __slots__ = ("task_id",)
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    task_id: str
    def __init__(self, task_id: _Optional[str] = ...) -> None: ...

class OperatorServiceWatchTasksResponse(_message.Message):
    __slots__ = ("task",)
    TASK_FIELD_NUMBER: _ClassVar[int]
    task: _task_pb2.Task
    def __init__(self, task: _Optional[_Union[_task_pb2.Task, _Mapping]] = ...) -> None: ...

class OperatorServiceTailLogRequest(_message.Message):
    __slots__ = ("task_id", "attempt", "follow")
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    FOLLOW_FIELD_NUMBER: _ClassVar[int]
    task_id: str
    attempt: int
    follow: bool
    def __init__(self, task_id: _Optional[str] = ..., attempt: _Optional[int] = ..., follow: _Optional[bool] = ...) -> None: ...

class OperatorServiceTailLogResponse(_message.Message):
    __slots__ = ("piece",)
    PIECE_FIELD_NUMBER: _ClassVar[int]
    piece: _lane_runner_service_pb2.TailLogResponse
    def __init__(self, piece: _Optional[_Union[_lane_runner_service_pb2.TailLogResponse, _Mapping]] = ...) -> None: ...

class OperatorServiceSubmitTaskRequest(_message.Message):
    __slots__ = ("request_id", "spec", "runner_id")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    SPEC_FIELD_NUMBER: _ClassVar[int]
    RUNNER_ID_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    spec: _task_pb2.TaskSpec
    runner_id: str
    def __init__(self, request_id: _Optional[str] = ..., spec: _Optional[_Union[_task_pb2.TaskSpec, _Mapping]] = ..., runner_id: _Optional[str] = ...) -> None: ...

class OperatorServiceSubmitTaskResponse(_message.Message):
    __slots__ = ("task",)
    TASK_FIELD_NUMBER: _ClassVar[int]
    task: _task_pb2.Task
    def __init__(self, task: _Optional[_Union[_task_pb2.Task, _Mapping]] = ...) -> None: ...

class OperatorServiceSendInputRequest(_message.Message):
    __slots__ = ("request_id", "task_id", "text")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    task_id: str
    text: str
    def __init__(self, request_id: _Optional[str] = ..., task_id: _Optional[str] = ..., text: _Optional[str] = ...) -> None: ...

class OperatorServiceSendInputResponse(_message.Message):
    __slots__ = ("message",)
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    message: _message_pb2.Message
    def __init__(self, message: _Optional[_Union[_message_pb2.Message, _Mapping]] = ...) -> None: ...

class OperatorServiceCancelTaskRequest(_message.Message):
    __slots__ = ("request_id", "task_id", "cause")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    CAUSE_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    task_id: str
    cause: str
    def __init__(self, request_id: _Optional[str] = ..., task_id: _Optional[str] = ..., cause: _Optional[str] = ...) -> None: ...

class OperatorServiceCancelTaskResponse(_message.Message):
    __slots__ = ("task",)
    TASK_FIELD_NUMBER: _ClassVar[int]
    task: _task_pb2.Task
    def __init__(self, task: _Optional[_Union[_task_pb2.Task, _Mapping]] = ...) -> None: ...

class OperatorServicePauseTaskRequest(_message.Message):
    __slots__ = ("request_id", "task_id")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    task_id: str
    def __init__(self, request_id: _Optional[str] = ..., task_id: _Optional[str] = ...) -> None: ...

class OperatorServicePauseTaskResponse(_message.Message):
    __slots__ = ("task",)
    TASK_FIELD_NUMBER: _ClassVar[int]
    task: _task_pb2.Task
    def __init__(self, task: _Optional[_Union[_task_pb2.Task, _Mapping]] = ...) -> None: ...

class OperatorServiceResumeTaskRequest(_message.Message):
    __slots__ = ("request_id", "task_id", "cause")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    CAUSE_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    task_id: str
    cause: _task_pb2.PauseCause
    def __init__(self, request_id: _Optional[str] = ..., task_id: _Optional[str] = ..., cause: _Optional[_Union[_task_pb2.PauseCause, str]] = ...) -> None: ...

class OperatorServiceResumeTaskResponse(_message.Message):
    __slots__ = ("task",)
    TASK_FIELD_NUMBER: _ClassVar[int]
    task: _task_pb2.Task
    def __init__(self, task: _Optional[_Union[_task_pb2.Task, _Mapping]] = ...) -> None: ...

class OperatorServiceRetryTaskRequest(_message.Message):
    __slots__ = ("request_id", "task_id")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    task_id: str
    def __init__(self, request_id: _Optional[str] = ..., task_id: _Optional[str] = ...) -> None: ...

class OperatorServiceRetryTaskResponse(_message.Message):
    __slots__ = ("task",)
    TASK_FIELD_NUMBER: _ClassVar[int]
    task: _task_pb2.Task
    def __init__(self, task: _Optional[_Union[_task_pb2.Task, _Mapping]] = ...) -> None: ...

class OperatorServiceReopenTaskRequest(_message.Message):
    __slots__ = ("request_id", "task_id")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    task_id: str
    def __init__(self, request_id: _Optional[str] = ..., task_id: _Optional[str] = ...) -> None: ...

class OperatorServiceReopenTaskResponse(_message.Message):
    __slots__ = ("task",)
    TASK_FIELD_NUMBER: _ClassVar[int]
    task: _task_pb2.Task
    def __init__(self, task: _Optional[_Union[_task_pb2.Task, _Mapping]] = ...) -> None: ...

class TakeOverRequest(_message.Message):
    __slots__ = ("request_id", "task_id", "cause")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    CAUSE_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    task_id: str
    cause: str
    def __init__(self, request_id: _Optional[str] = ..., task_id: _Optional[str] = ..., cause: _Optional[str] = ...) -> None: ...

class TakeOverResponse(_message.Message):
    __slots__ = ("task", "previous_owner")
    TASK_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_OWNER_FIELD_NUMBER: _ClassVar[int]
    task: _task_pb2.Task
    previous_owner: _task_pb2.Actor
    def __init__(self, task: _Optional[_Union[_task_pb2.Task, _Mapping]] = ..., previous_owner: _Optional[_Union[_task_pb2.Actor, _Mapping]] = ...) -> None: ...

class OperatorServiceExtendHoldRequest(_message.Message):
    __slots__ = ("request_id", "escalation_id", "deadline")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    ESCALATION_ID_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    escalation_id: str
    deadline: _duration_pb2.Duration
    def __init__(self, request_id: _Optional[str] = ..., escalation_id: _Optional[str] = ..., deadline: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class OperatorServiceExtendHoldResponse(_message.Message):
    __slots__ = ("escalation",)
    ESCALATION_FIELD_NUMBER: _ClassVar[int]
    escalation: _escalation_pb2.Escalation
    def __init__(self, escalation: _Optional[_Union[_escalation_pb2.Escalation, _Mapping]] = ...) -> None: ...

class OperatorServiceRecordGateRequest(_message.Message):
    __slots__ = ("request_id", "task_id", "gate", "decision", "note")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    GATE_FIELD_NUMBER: _ClassVar[int]
    DECISION_FIELD_NUMBER: _ClassVar[int]
    NOTE_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    task_id: str
    gate: str
    decision: _task_pb2.GateDecision
    note: str
    def __init__(self, request_id: _Optional[str] = ..., task_id: _Optional[str] = ..., gate: _Optional[str] = ..., decision: _Optional[_Union[_task_pb2.GateDecision, str]] = ..., note: _Optional[str] = ...) -> None: ...

class OperatorServiceRecordGateResponse(_message.Message):
    __slots__ = ("task",)
    TASK_FIELD_NUMBER: _ClassVar[int]
    task: _task_pb2.Task
    def __init__(self, task: _Optional[_Union[_task_pb2.Task, _Mapping]] = ...) -> None: ...

class OperatorServiceCheckCompletionRequest(_message.Message):
    __slots__ = ("task_id",)
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    task_id: str
    def __init__(self, task_id: _Optional[str] = ...) -> None: ...

class OperatorServiceCheckCompletionResponse(_message.Message):
    __slots__ = ("blockers", "state")
    BLOCKERS_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    blockers: _containers.RepeatedCompositeFieldContainer[_task_pb2.Blocker]
    state: _task_pb2.TaskState
    def __init__(self, blockers: _Optional[_Iterable[_Union[_task_pb2.Blocker, _Mapping]]] = ..., state: _Optional[_Union[_task_pb2.TaskState, str]] = ...) -> None: ...

class ListIncidentsRequest(_message.Message):
    __slots__ = ("task_id", "resolved", "page_size", "page_token")
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    RESOLVED_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    task_id: str
    resolved: bool
    page_size: int
    page_token: str
    def __init__(self, task_id: _Optional[str] = ..., resolved: _Optional[bool] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListIncidentsResponse(_message.Message):
    __slots__ = ("incidents", "next_page_token")
    INCIDENTS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    incidents: _containers.RepeatedCompositeFieldContainer[_incident_pb2.Incident]
    next_page_token: str
    def __init__(self, incidents: _Optional[_Iterable[_Union[_incident_pb2.Incident, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class OperatorServiceResolveIncidentRequest(_message.Message):
    __slots__ = ("request_id", "key")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    key: str
    def __init__(self, request_id: _Optional[str] = ..., key: _Optional[str] = ...) -> None: ...

class OperatorServiceResolveIncidentResponse(_message.Message):
    __slots__ = ("incident",)
    INCIDENT_FIELD_NUMBER: _ClassVar[int]
    incident: _incident_pb2.Incident
    def __init__(self, incident: _Optional[_Union[_incident_pb2.Incident, _Mapping]] = ...) -> None: ...

class ExplainTaskRequest(_message.Message):
    __slots__ = ("task_id",)
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    task_id: str
    def __init__(self, task_id: _Optional[str] = ...) -> None: ...

class ExplainTaskResponse(_message.Message):
    __slots__ = ("verdict", "because", "arm", "action", "passed", "facts", "config_version", "task")
    VERDICT_FIELD_NUMBER: _ClassVar[int]
    BECAUSE_FIELD_NUMBER: _ClassVar[int]
    ARM_FIELD_NUMBER: _ClassVar[int]
    ACTION_FIELD_NUMBER: _ClassVar[int]
    PASSED_FIELD_NUMBER: _ClassVar[int]
    FACTS_FIELD_NUMBER: _ClassVar[int]
    CONFIG_VERSION_FIELD_NUMBER: _ClassVar[int]
    TASK_FIELD_NUMBER: _ClassVar[int]
    verdict: _task_pb2.Verdict
    because: str
    arm: str
    action: str
    passed: _containers.RepeatedCompositeFieldContainer[ArmPassed]
    facts: _containers.RepeatedCompositeFieldContainer[Fact]
    config_version: int
    task: _task_pb2.Task
    def __init__(self, verdict: _Optional[_Union[_task_pb2.Verdict, str]] = ..., because: _Optional[str] = ..., arm: _Optional[str] = ..., action: _Optional[str] = ..., passed: _Optional[_Iterable[_Union[ArmPassed, _Mapping]]] = ..., facts: _Optional[_Iterable[_Union[Fact, _Mapping]]] = ..., config_version: _Optional[int] = ..., task: _Optional[_Union[_task_pb2.Task, _Mapping]] = ...) -> None: ...

class ArmPassed(_message.Message):
    __slots__ = ("arm", "because")
    ARM_FIELD_NUMBER: _ClassVar[int]
    BECAUSE_FIELD_NUMBER: _ClassVar[int]
    arm: str
    because: str
    def __init__(self, arm: _Optional[str] = ..., because: _Optional[str] = ...) -> None: ...

class Fact(_message.Message):
    __slots__ = ("name", "value", "author")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    AUTHOR_FIELD_NUMBER: _ClassVar[int]
    name: str
    value: str
    author: _task_pb2.Author
    def __init__(self, name: _Optional[str] = ..., value: _Optional[str] = ..., author: _Optional[_Union[_task_pb2.Author, str]] = ...) -> None: ...

class OperatorServiceListEvidenceRequest(_message.Message):
    __slots__ = ("task_id", "page_size", "page_token")
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    task_id: str
    page_size: int
    page_token: str
    def __init__(self, task_id: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class OperatorServiceListEvidenceResponse(_message.Message):
    __slots__ = ("entries", "next_page_token")
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    entries: _containers.RepeatedCompositeFieldContainer[_lane_runner_service_pb2.Evidence]
    next_page_token: str
    def __init__(self, entries: _Optional[_Iterable[_Union[_lane_runner_service_pb2.Evidence, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class ListAuditRequest(_message.Message):
    __slots__ = ("task_id", "page_size", "page_token")
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    task_id: str
    page_size: int
    page_token: str
    def __init__(self, task_id: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListAuditResponse(_message.Message):
    __slots__ = ("entries", "next_page_token")
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    entries: _containers.RepeatedCompositeFieldContainer[_audit_pb2.AuditEntry]
    next_page_token: str
    def __init__(self, entries: _Optional[_Iterable[_Union[_audit_pb2.AuditEntry, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class ListNotificationsRequest(_message.Message):
    __slots__ = ("escalation_id", "page_size", "page_token")
    ESCALATION_ID_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    escalation_id: str
    page_size: int
    page_token: str
    def __init__(self, escalation_id: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListNotificationsResponse(_message.Message):
    __slots__ = ("notifications", "next_page_token")
    NOTIFICATIONS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    notifications: _containers.RepeatedCompositeFieldContainer[Notification]
    next_page_token: str
    def __init__(self, notifications: _Optional[_Iterable[_Union[Notification, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class Notification(_message.Message):
    __slots__ = ("key", "sink", "escalation_id", "kind", "to", "tries", "delivered_at", "failure")
    KEY_FIELD_NUMBER: _ClassVar[int]
    SINK_FIELD_NUMBER: _ClassVar[int]
    ESCALATION_ID_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    TO_FIELD_NUMBER: _ClassVar[int]
    TRIES_FIELD_NUMBER: _ClassVar[int]
    DELIVERED_AT_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    key: str
    sink: str
    escalation_id: str
    kind: str
    to: str
    tries: int
    delivered_at: _timestamp_pb2.Timestamp
    failure: str
    def __init__(self, key: _Optional[str] = ..., sink: _Optional[str] = ..., escalation_id: _Optional[str] = ..., kind: _Optional[str] = ..., to: _Optional[str] = ..., tries: _Optional[int] = ..., delivered_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., failure: _Optional[str] = ...) -> None: ...

class OperatorServiceListCheckpointsRequest(_message.Message):
    __slots__ = ("task_id", "page_size", "page_token")
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    task_id: str
    page_size: int
    page_token: str
    def __init__(self, task_id: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class OperatorServiceListCheckpointsResponse(_message.Message):
    __slots__ = ("checkpoints", "next_page_token")
    CHECKPOINTS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    checkpoints: _containers.RepeatedCompositeFieldContainer[_context_pb2.Checkpoint]
    next_page_token: str
    def __init__(self, checkpoints: _Optional[_Iterable[_Union[_context_pb2.Checkpoint, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class OperatorServiceGetCheckpointRequest(_message.Message):
    __slots__ = ("checkpoint_id",)
    CHECKPOINT_ID_FIELD_NUMBER: _ClassVar[int]
    checkpoint_id: str
    def __init__(self, checkpoint_id: _Optional[str] = ...) -> None: ...

class OperatorServiceGetCheckpointResponse(_message.Message):
    __slots__ = ("checkpoint",)
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    checkpoint: _context_pb2.Checkpoint
    def __init__(self, checkpoint: _Optional[_Union[_context_pb2.Checkpoint, _Mapping]] = ...) -> None: ...
