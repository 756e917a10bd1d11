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

class FindingKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    FINDING_KIND_UNSPECIFIED: _ClassVar[FindingKind]
    FINDING_KIND_ENTITY_RATE: _ClassVar[FindingKind]
    FINDING_KIND_TOTAL_RATE: _ClassVar[FindingKind]
    FINDING_KIND_NO_PROGRESS: _ClassVar[FindingKind]
    FINDING_KIND_STORE_HELD: _ClassVar[FindingKind]
FINDING_KIND_UNSPECIFIED: FindingKind
FINDING_KIND_ENTITY_RATE: FindingKind
FINDING_KIND_TOTAL_RATE: FindingKind
FINDING_KIND_NO_PROGRESS: FindingKind
FINDING_KIND_STORE_HELD: FindingKind

class GetWriteRatesRequest(_message.Message):
    __slots__ = ("window", "entity_id", "rates_max")
    WINDOW_FIELD_NUMBER: _ClassVar[int]
    ENTITY_ID_FIELD_NUMBER: _ClassVar[int]
    RATES_MAX_FIELD_NUMBER: _ClassVar[int]
    window: _duration_pb2.Duration
    entity_id: str
    rates_max: int
    def __init__(self, window: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., entity_id: _Optional[str] = ..., rates_max: _Optional[int] = ...) -> None: ...

class GetWriteRatesResponse(_message.Message):
    __slots__ = ("rates", "window", "unattributed_rows")
    RATES_FIELD_NUMBER: _ClassVar[int]
    WINDOW_FIELD_NUMBER: _ClassVar[int]
    UNATTRIBUTED_ROWS_FIELD_NUMBER: _ClassVar[int]
    rates: _containers.RepeatedCompositeFieldContainer[WriteRate]
    window: _duration_pb2.Duration
    unattributed_rows: int
    def __init__(self, rates: _Optional[_Iterable[_Union[WriteRate, _Mapping]]] = ..., window: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., unattributed_rows: _Optional[int] = ...) -> None: ...

class WriteRate(_message.Message):
    __slots__ = ("entity_kind", "entity_id", "emitter", "origin", "rows", "rows_per_second")
    ENTITY_KIND_FIELD_NUMBER: _ClassVar[int]
    ENTITY_ID_FIELD_NUMBER: _ClassVar[int]
    EMITTER_FIELD_NUMBER: _ClassVar[int]
    ORIGIN_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    ROWS_PER_SECOND_FIELD_NUMBER: _ClassVar[int]
    entity_kind: str
    entity_id: str
    emitter: str
    origin: str
    rows: int
    rows_per_second: float
    def __init__(self, entity_kind: _Optional[str] = ..., entity_id: _Optional[str] = ..., emitter: _Optional[str] = ..., origin: _Optional[str] = ..., rows: _Optional[int] = ..., rows_per_second: _Optional[float] = ...) -> None: ...

class WatchWriteRatesRequest(_message.Message):
    __slots__ = ("window", "entity_id", "rates_max", "interval")
    WINDOW_FIELD_NUMBER: _ClassVar[int]
    ENTITY_ID_FIELD_NUMBER: _ClassVar[int]
    RATES_MAX_FIELD_NUMBER: _ClassVar[int]
    INTERVAL_FIELD_NUMBER: _ClassVar[int]
    window: _duration_pb2.Duration
    entity_id: str
    rates_max: int
    interval: _duration_pb2.Duration
    def __init__(self, window: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., entity_id: _Optional[str] = ..., rates_max: _Optional[int] = ..., interval: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class WatchWriteRatesResponse(_message.Message):
    __slots__ = ("rates", "window", "unattributed_rows")
    RATES_FIELD_NUMBER: _ClassVar[int]
    WINDOW_FIELD_NUMBER: _ClassVar[int]
    UNATTRIBUTED_ROWS_FIELD_NUMBER: _ClassVar[int]
    rates: _containers.RepeatedCompositeFieldContainer[WriteRate]
    window: _duration_pb2.Duration
    unattributed_rows: int
    def __init__(self, rates: _Optional[_Iterable[_Union[WriteRate, _Mapping]]] = ..., window: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., unattributed_rows: _Optional[int] = ...) -> None: ...

class ListEmittersRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListEmittersResponse(_message.Message):
    __slots__ = ("emitters",)
    EMITTERS_FIELD_NUMBER: _ClassVar[int]
    emitters: _containers.RepeatedCompositeFieldContainer[EmitterTotal]
    def __init__(self, emitters: _Optional[_Iterable[_Union[EmitterTotal, _Mapping]]] = ...) -> None: ...

class EmitterTotal(_message.Message):
    __slots__ = ("emitter", "rows")
    EMITTER_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    emitter: str
    rows: int
    def __init__(self, emitter: _Optional[str] = ..., rows: _Optional[int] = ...) -> None: ...

class ListFindingsRequest(_message.Message):
    __slots__ = ("entity_id",)
    ENTITY_ID_FIELD_NUMBER: _ClassVar[int]
    entity_id: str
    def __init__(self, entity_id: _Optional[str] = ...) -> None: ...

class ListFindingsResponse(_message.Message):
    __slots__ = ("findings",)
    FINDINGS_FIELD_NUMBER: _ClassVar[int]
    findings: _containers.RepeatedCompositeFieldContainer[Finding]
    def __init__(self, findings: _Optional[_Iterable[_Union[Finding, _Mapping]]] = ...) -> None: ...

class Finding(_message.Message):
    __slots__ = ("kind", "entity_kind", "entity_id", "emitters", "rows_per_second", "since", "ended_at", "entities", "versions", "held")
    KIND_FIELD_NUMBER: _ClassVar[int]
    ENTITY_KIND_FIELD_NUMBER: _ClassVar[int]
    ENTITY_ID_FIELD_NUMBER: _ClassVar[int]
    EMITTERS_FIELD_NUMBER: _ClassVar[int]
    ROWS_PER_SECOND_FIELD_NUMBER: _ClassVar[int]
    SINCE_FIELD_NUMBER: _ClassVar[int]
    ENDED_AT_FIELD_NUMBER: _ClassVar[int]
    ENTITIES_FIELD_NUMBER: _ClassVar[int]
    VERSIONS_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    kind: FindingKind
    entity_kind: str
    entity_id: str
    emitters: _containers.RepeatedCompositeFieldContainer[EmitterShare]
    rows_per_second: float
    since: _timestamp_pb2.Timestamp
    ended_at: _timestamp_pb2.Timestamp
    entities: int
    versions: int
    held: _duration_pb2.Duration
    def __init__(self, kind: _Optional[_Union[FindingKind, str]] = ..., entity_kind: _Optional[str] = ..., entity_id: _Optional[str] = ..., emitters: _Optional[_Iterable[_Union[EmitterShare, _Mapping]]] = ..., rows_per_second: _Optional[float] = ..., since: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., ended_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., entities: _Optional[int] = ..., versions: _Optional[int] = ..., held: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class EmitterShare(_message.Message):
    __slots__ = ("emitter", "origin", "share")
    EMITTER_FIELD_NUMBER: _ClassVar[int]
    ORIGIN_FIELD_NUMBER: _ClassVar[int]
    SHARE_FIELD_NUMBER: _ClassVar[int]
    emitter: str
    origin: str
    share: float
    def __init__(self, emitter: _Optional[str] = ..., origin: _Optional[str] = ..., share: _Optional[float] = ...) -> None: ...
