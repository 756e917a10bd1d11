import datetime

from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class IncidentState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    INCIDENT_STATE_UNSPECIFIED: _ClassVar[IncidentState]
    INCIDENT_STATE_CLAIMED: _ClassVar[IncidentState]
    INCIDENT_STATE_FILED: _ClassVar[IncidentState]
    INCIDENT_STATE_FILING_FAILED: _ClassVar[IncidentState]
    INCIDENT_STATE_RESOLVED: _ClassVar[IncidentState]
INCIDENT_STATE_UNSPECIFIED: IncidentState
INCIDENT_STATE_CLAIMED: IncidentState
INCIDENT_STATE_FILED: IncidentState
INCIDENT_STATE_FILING_FAILED: IncidentState
INCIDENT_STATE_RESOLVED: IncidentState

class Incident(_message.Message):
    __slots__ = ("key", "task_id", "epoch", "kind", "state", "holder", "claim_generation", "claimed_at", "external_id", "url", "tries", "failure", "follows", "also_task_ids")
    KEY_FIELD_NUMBER: _ClassVar[int]
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    HOLDER_FIELD_NUMBER: _ClassVar[int]
    CLAIM_GENERATION_FIELD_NUMBER: _ClassVar[int]
    CLAIMED_AT_FIELD_NUMBER: _ClassVar[int]
    EXTERNAL_ID_FIELD_NUMBER: _ClassVar[int]
    URL_FIELD_NUMBER: _ClassVar[int]
    TRIES_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    FOLLOWS_FIELD_NUMBER: _ClassVar[int]
    ALSO_TASK_IDS_FIELD_NUMBER: _ClassVar[int]
    key: str
    task_id: str
    epoch: int
    kind: str
    state: IncidentState
    holder: str
    claim_generation: int
    claimed_at: _timestamp_pb2.Timestamp
    external_id: str
    url: str
    tries: int
    failure: str
    follows: str
    also_task_ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, key: _Optional[str] = ..., task_id: _Optional[str] = ..., epoch: _Optional[int] = ..., kind: _Optional[str] = ..., state: _Optional[_Union[IncidentState, str]] = ..., holder: _Optional[str] = ..., claim_generation: _Optional[int] = ..., claimed_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., external_id: _Optional[str] = ..., url: _Optional[str] = ..., tries: _Optional[int] = ..., failure: _Optional[str] = ..., follows: _Optional[str] = ..., also_task_ids: _Optional[_Iterable[str]] = ...) -> None: ...
