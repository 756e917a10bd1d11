import datetime

from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from lanewarden.v1 import context_pb2 as _context_pb2
from lanewarden.v1 import incident_pb2 as _incident_pb2
from lanewarden.v1 import rules_pb2 as _rules_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class TaskKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TASK_KIND_UNSPECIFIED: _ClassVar[TaskKind]
    TASK_KIND_ONE_SHOT: _ClassVar[TaskKind]
    TASK_KIND_SESSION: _ClassVar[TaskKind]

class TaskState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TASK_STATE_UNSPECIFIED: _ClassVar[TaskState]
    TASK_STATE_QUEUED: _ClassVar[TaskState]
    TASK_STATE_STARTING: _ClassVar[TaskState]
    TASK_STATE_RUNNING: _ClassVar[TaskState]
    TASK_STATE_HELD: _ClassVar[TaskState]
    TASK_STATE_IDLE: _ClassVar[TaskState]
    TASK_STATE_SUCCEEDED: _ClassVar[TaskState]
    TASK_STATE_FAILED: _ClassVar[TaskState]
    TASK_STATE_CANCELED: _ClassVar[TaskState]
    TASK_STATE_SETTLED: _ClassVar[TaskState]

class PauseCause(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PAUSE_CAUSE_UNSPECIFIED: _ClassVar[PauseCause]
    PAUSE_CAUSE_OPERATOR: _ClassVar[PauseCause]
    PAUSE_CAUSE_HOLD_DEADLINE: _ClassVar[PauseCause]
    PAUSE_CAUSE_TAKEOVER: _ClassVar[PauseCause]
    PAUSE_CAUSE_USAGE_LIMIT: _ClassVar[PauseCause]
    PAUSE_CAUSE_SUPERVISOR_LOSS: _ClassVar[PauseCause]

class SupervisorLoss(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SUPERVISOR_LOSS_UNSPECIFIED: _ClassVar[SupervisorLoss]
    SUPERVISOR_LOSS_CONTINUE: _ClassVar[SupervisorLoss]
    SUPERVISOR_LOSS_HOLD: _ClassVar[SupervisorLoss]

class Verdict(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    VERDICT_UNSPECIFIED: _ClassVar[Verdict]
    VERDICT_HEALTHY: _ClassVar[Verdict]
    VERDICT_QUEUED: _ClassVar[Verdict]
    VERDICT_HELD: _ClassVar[Verdict]
    VERDICT_PARKED: _ClassVar[Verdict]
    VERDICT_STALE: _ClassVar[Verdict]
    VERDICT_CHURNING: _ClassVar[Verdict]
    VERDICT_EXITED: _ClassVar[Verdict]
    VERDICT_UNREACHABLE: _ClassVar[Verdict]
    VERDICT_UNKNOWN: _ClassVar[Verdict]

class Author(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    AUTHOR_UNSPECIFIED: _ClassVar[Author]
    AUTHOR_WORKER: _ClassVar[Author]
    AUTHOR_RUNNER: _ClassVar[Author]
    AUTHOR_SUPERVISOR: _ClassVar[Author]
    AUTHOR_OPERATOR: _ClassVar[Author]

class HookState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    HOOK_STATE_UNSPECIFIED: _ClassVar[HookState]
    HOOK_STATE_PENDING: _ClassVar[HookState]
    HOOK_STATE_DONE: _ClassVar[HookState]
    HOOK_STATE_FAILED: _ClassVar[HookState]

class GateDecision(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    GATE_DECISION_UNSPECIFIED: _ClassVar[GateDecision]
    GATE_DECISION_APPROVED: _ClassVar[GateDecision]
    GATE_DECISION_REVISE: _ClassVar[GateDecision]
    GATE_DECISION_REJECTED: _ClassVar[GateDecision]
    GATE_DECISION_WAIVED: _ClassVar[GateDecision]
TASK_KIND_UNSPECIFIED: TaskKind
TASK_KIND_ONE_SHOT: TaskKind
TASK_KIND_SESSION: TaskKind
TASK_STATE_UNSPECIFIED: TaskState
TASK_STATE_QUEUED: TaskState
TASK_STATE_STARTING: TaskState
TASK_STATE_RUNNING: TaskState
TASK_STATE_HELD: TaskState
TASK_STATE_IDLE: TaskState
TASK_STATE_SUCCEEDED: TaskState
TASK_STATE_FAILED: TaskState
TASK_STATE_CANCELED: TaskState
TASK_STATE_SETTLED: TaskState
PAUSE_CAUSE_UNSPECIFIED: PauseCause
PAUSE_CAUSE_OPERATOR: PauseCause
PAUSE_CAUSE_HOLD_DEADLINE: PauseCause
PAUSE_CAUSE_TAKEOVER: PauseCause
PAUSE_CAUSE_USAGE_LIMIT: PauseCause
PAUSE_CAUSE_SUPERVISOR_LOSS: PauseCause
SUPERVISOR_LOSS_UNSPECIFIED: SupervisorLoss
SUPERVISOR_LOSS_CONTINUE: SupervisorLoss
SUPERVISOR_LOSS_HOLD: SupervisorLoss
VERDICT_UNSPECIFIED: Verdict
VERDICT_HEALTHY: Verdict
VERDICT_QUEUED: Verdict
VERDICT_HELD: Verdict
VERDICT_PARKED: Verdict
VERDICT_STALE: Verdict
VERDICT_CHURNING: Verdict
VERDICT_EXITED: Verdict
VERDICT_UNREACHABLE: Verdict
VERDICT_UNKNOWN: Verdict
AUTHOR_UNSPECIFIED: Author
AUTHOR_WORKER: Author
AUTHOR_RUNNER: Author
AUTHOR_SUPERVISOR: Author
AUTHOR_OPERATOR: Author
HOOK_STATE_UNSPECIFIED: HookState
HOOK_STATE_PENDING: HookState
HOOK_STATE_DONE: HookState
HOOK_STATE_FAILED: HookState
GATE_DECISION_UNSPECIFIED: GateDecision
GATE_DECISION_APPROVED: GateDecision
GATE_DECISION_REVISE: GateDecision
GATE_DECISION_REJECTED: GateDecision
GATE_DECISION_WAIVED: GateDecision

class TaskSpec(_message.Message):
    __slots__ = ("name", "lane", "kind", "argv", "cwd", "env", "gates", "stop_grace", "premature_exits_max", "launch_failures_max", "log_bytes_max", "hold_deadline", "approvers", "reminder", "on_success", "on_supervisor_loss", "runner_loss_stop_after", "heartbeat", "progress_from", "parent_task_id", "context")
    class EnvEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    LANE_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    ARGV_FIELD_NUMBER: _ClassVar[int]
    CWD_FIELD_NUMBER: _ClassVar[int]
    ENV_FIELD_NUMBER: _ClassVar[int]
    GATES_FIELD_NUMBER: _ClassVar[int]
    STOP_GRACE_FIELD_NUMBER: _ClassVar[int]
    PREMATURE_EXITS_MAX_FIELD_NUMBER: _ClassVar[int]
    LAUNCH_FAILURES_MAX_FIELD_NUMBER: _ClassVar[int]
    LOG_BYTES_MAX_FIELD_NUMBER: _ClassVar[int]
    HOLD_DEADLINE_FIELD_NUMBER: _ClassVar[int]
    APPROVERS_FIELD_NUMBER: _ClassVar[int]
    REMINDER_FIELD_NUMBER: _ClassVar[int]
    ON_SUCCESS_FIELD_NUMBER: _ClassVar[int]
    ON_SUPERVISOR_LOSS_FIELD_NUMBER: _ClassVar[int]
    RUNNER_LOSS_STOP_AFTER_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FROM_FIELD_NUMBER: _ClassVar[int]
    PARENT_TASK_ID_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_FIELD_NUMBER: _ClassVar[int]
    name: str
    lane: str
    kind: TaskKind
    argv: _containers.RepeatedScalarFieldContainer[str]
    cwd: str
    env: _containers.ScalarMap[str, str]
    gates: _containers.RepeatedScalarFieldContainer[str]
    stop_grace: _duration_pb2.Duration
    premature_exits_max: int
    launch_failures_max: int
    log_bytes_max: int
    hold_deadline: _duration_pb2.Duration
    approvers: _containers.RepeatedCompositeFieldContainer[Approver]
    reminder: _duration_pb2.Duration
    on_success: _containers.RepeatedScalarFieldContainer[str]
    on_supervisor_loss: SupervisorLoss
    runner_loss_stop_after: _duration_pb2.Duration
    heartbeat: _duration_pb2.Duration
    progress_from: ProgressSource
    parent_task_id: str
    context: _context_pb2.ContextSpec
    def __init__(self, name: _Optional[str] = ..., lane: _Optional[str] = ..., kind: _Optional[_Union[TaskKind, str]] = ..., argv: _Optional[_Iterable[str]] = ..., cwd: _Optional[str] = ..., env: _Optional[_Mapping[str, str]] = ..., gates: _Optional[_Iterable[str]] = ..., stop_grace: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., premature_exits_max: _Optional[int] = ..., launch_failures_max: _Optional[int] = ..., log_bytes_max: _Optional[int] = ..., hold_deadline: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., approvers: _Optional[_Iterable[_Union[Approver, _Mapping]]] = ..., reminder: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., on_success: _Optional[_Iterable[str]] = ..., on_supervisor_loss: _Optional[_Union[SupervisorLoss, str]] = ..., runner_loss_stop_after: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., heartbeat: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., progress_from: _Optional[_Union[ProgressSource, _Mapping]] = ..., parent_task_id: _Optional[str] = ..., context: _Optional[_Union[_context_pb2.ContextSpec, _Mapping]] = ...) -> None: ...

class ProgressSource(_message.Message):
    __slots__ = ("output_lines", "files")
    OUTPUT_LINES_FIELD_NUMBER: _ClassVar[int]
    FILES_FIELD_NUMBER: _ClassVar[int]
    output_lines: bool
    files: str
    def __init__(self, output_lines: _Optional[bool] = ..., files: _Optional[str] = ...) -> None: ...

class Approver(_message.Message):
    __slots__ = ("identity", "after")
    IDENTITY_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    identity: str
    after: _duration_pb2.Duration
    def __init__(self, identity: _Optional[str] = ..., after: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class Hook(_message.Message):
    __slots__ = ("state", "tries", "summary", "idempotency_key")
    STATE_FIELD_NUMBER: _ClassVar[int]
    TRIES_FIELD_NUMBER: _ClassVar[int]
    SUMMARY_FIELD_NUMBER: _ClassVar[int]
    IDEMPOTENCY_KEY_FIELD_NUMBER: _ClassVar[int]
    state: HookState
    tries: int
    summary: str
    idempotency_key: str
    def __init__(self, state: _Optional[_Union[HookState, str]] = ..., tries: _Optional[int] = ..., summary: _Optional[str] = ..., idempotency_key: _Optional[str] = ...) -> None: ...

class GateState(_message.Message):
    __slots__ = ("gate", "decision", "decided_by", "decided_at", "note")
    GATE_FIELD_NUMBER: _ClassVar[int]
    DECISION_FIELD_NUMBER: _ClassVar[int]
    DECIDED_BY_FIELD_NUMBER: _ClassVar[int]
    DECIDED_AT_FIELD_NUMBER: _ClassVar[int]
    NOTE_FIELD_NUMBER: _ClassVar[int]
    gate: str
    decision: GateDecision
    decided_by: Actor
    decided_at: _timestamp_pb2.Timestamp
    note: str
    def __init__(self, gate: _Optional[str] = ..., decision: _Optional[_Union[GateDecision, str]] = ..., decided_by: _Optional[_Union[Actor, _Mapping]] = ..., decided_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., note: _Optional[str] = ...) -> None: ...

class Actor(_message.Message):
    __slots__ = ("identity", "role")
    IDENTITY_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    identity: str
    role: str
    def __init__(self, identity: _Optional[str] = ..., role: _Optional[str] = ...) -> None: ...

class Blocker(_message.Message):
    __slots__ = ("kind", "name", "detail")
    KIND_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    kind: str
    name: str
    detail: str
    def __init__(self, kind: _Optional[str] = ..., name: _Optional[str] = ..., detail: _Optional[str] = ...) -> None: ...

class Task(_message.Message):
    __slots__ = ("task_id", "runner_id", "spec", "state", "epoch", "attempt", "pauses", "worker_alive", "worker_pid", "progress", "progress_note", "premature_exits", "launch_failures", "not_before", "summary", "summary_author", "exit_code", "exit_signal", "open_holds", "gates", "submitted_at", "finished_at", "version", "runner_unreachable", "last_seen", "owner", "on_success", "verdict", "diagnosis", "relaunches", "woken", "incidents", "runner_forgot", "oldest_input_at", "children_open", "input_of_round", "signals")
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    RUNNER_ID_FIELD_NUMBER: _ClassVar[int]
    SPEC_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    PAUSES_FIELD_NUMBER: _ClassVar[int]
    WORKER_ALIVE_FIELD_NUMBER: _ClassVar[int]
    WORKER_PID_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_NOTE_FIELD_NUMBER: _ClassVar[int]
    PREMATURE_EXITS_FIELD_NUMBER: _ClassVar[int]
    LAUNCH_FAILURES_FIELD_NUMBER: _ClassVar[int]
    NOT_BEFORE_FIELD_NUMBER: _ClassVar[int]
    SUMMARY_FIELD_NUMBER: _ClassVar[int]
    SUMMARY_AUTHOR_FIELD_NUMBER: _ClassVar[int]
    EXIT_CODE_FIELD_NUMBER: _ClassVar[int]
    EXIT_SIGNAL_FIELD_NUMBER: _ClassVar[int]
    OPEN_HOLDS_FIELD_NUMBER: _ClassVar[int]
    GATES_FIELD_NUMBER: _ClassVar[int]
    SUBMITTED_AT_FIELD_NUMBER: _ClassVar[int]
    FINISHED_AT_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    RUNNER_UNREACHABLE_FIELD_NUMBER: _ClassVar[int]
    LAST_SEEN_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    ON_SUCCESS_FIELD_NUMBER: _ClassVar[int]
    VERDICT_FIELD_NUMBER: _ClassVar[int]
    DIAGNOSIS_FIELD_NUMBER: _ClassVar[int]
    RELAUNCHES_FIELD_NUMBER: _ClassVar[int]
    WOKEN_FIELD_NUMBER: _ClassVar[int]
    INCIDENTS_FIELD_NUMBER: _ClassVar[int]
    RUNNER_FORGOT_FIELD_NUMBER: _ClassVar[int]
    OLDEST_INPUT_AT_FIELD_NUMBER: _ClassVar[int]
    CHILDREN_OPEN_FIELD_NUMBER: _ClassVar[int]
    INPUT_OF_ROUND_FIELD_NUMBER: _ClassVar[int]
    SIGNALS_FIELD_NUMBER: _ClassVar[int]
    task_id: str
    runner_id: str
    spec: TaskSpec
    state: TaskState
    epoch: int
    attempt: int
    pauses: _containers.RepeatedScalarFieldContainer[PauseCause]
    worker_alive: bool
    worker_pid: int
    progress: int
    progress_note: str
    premature_exits: int
    launch_failures: int
    not_before: _timestamp_pb2.Timestamp
    summary: str
    summary_author: Author
    exit_code: int
    exit_signal: int
    open_holds: _containers.RepeatedScalarFieldContainer[str]
    gates: _containers.RepeatedCompositeFieldContainer[GateState]
    submitted_at: _timestamp_pb2.Timestamp
    finished_at: _timestamp_pb2.Timestamp
    version: int
    runner_unreachable: bool
    last_seen: _timestamp_pb2.Timestamp
    owner: Actor
    on_success: Hook
    verdict: Verdict
    diagnosis: str
    relaunches: int
    woken: bool
    incidents: _containers.RepeatedCompositeFieldContainer[_incident_pb2.Incident]
    runner_forgot: bool
    oldest_input_at: _timestamp_pb2.Timestamp
    children_open: int
    input_of_round: bool
    signals: _containers.RepeatedCompositeFieldContainer[_context_pb2.Signal]
    def __init__(self, task_id: _Optional[str] = ..., runner_id: _Optional[str] = ..., spec: _Optional[_Union[TaskSpec, _Mapping]] = ..., state: _Optional[_Union[TaskState, str]] = ..., epoch: _Optional[int] = ..., attempt: _Optional[int] = ..., pauses: _Optional[_Iterable[_Union[PauseCause, str]]] = ..., worker_alive: _Optional[bool] = ..., worker_pid: _Optional[int] = ..., progress: _Optional[int] = ..., progress_note: _Optional[str] = ..., premature_exits: _Optional[int] = ..., launch_failures: _Optional[int] = ..., not_before: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., summary: _Optional[str] = ..., summary_author: _Optional[_Union[Author, str]] = ..., exit_code: _Optional[int] = ..., exit_signal: _Optional[int] = ..., open_holds: _Optional[_Iterable[str]] = ..., gates: _Optional[_Iterable[_Union[GateState, _Mapping]]] = ..., submitted_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., finished_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., version: _Optional[int] = ..., runner_unreachable: _Optional[bool] = ..., last_seen: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., owner: _Optional[_Union[Actor, _Mapping]] = ..., on_success: _Optional[_Union[Hook, _Mapping]] = ..., verdict: _Optional[_Union[Verdict, str]] = ..., diagnosis: _Optional[str] = ..., relaunches: _Optional[int] = ..., woken: _Optional[bool] = ..., incidents: _Optional[_Iterable[_Union[_incident_pb2.Incident, _Mapping]]] = ..., runner_forgot: _Optional[bool] = ..., oldest_input_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., children_open: _Optional[int] = ..., input_of_round: _Optional[bool] = ..., signals: _Optional[_Iterable[_Union[_context_pb2.Signal, _Mapping]]] = ...) -> None: ...
