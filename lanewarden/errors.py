"""Every refusal that crosses the wire, in one table.

Domain code raises :class:`Refusal` with a :class:`Reason`; the server kit turns it into a ``google.rpc.Status``
with ``ErrorInfo{reason, domain, metadata}``; the client kit turns that back into a :class:`Refusal`. So a caller in
the same process, over gRPC and in the simulator sees the same exception.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

DOMAIN = "lanewarden"


class Code(enum.IntEnum):
    """The gRPC status codes that the table uses (values are gRPC's own)."""

    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    UNAUTHENTICATED = 16


class Reason(enum.Enum):
    """The machine-readable reason of a refusal; the value is the status code it travels under."""

    def __new__(cls, code: Code) -> Reason:
        member = object.__new__(cls)
        member._value_ = len(cls.__members__) + 1
        return member

    def __init__(self, code: Code) -> None:
        self.code = code

    WORKER_DEAD = Code.FAILED_PRECONDITION
    ATTEMPT_STALE = Code.FAILED_PRECONDITION
    SUPERVISION_FENCED = Code.FAILED_PRECONDITION
    LEASE_UNKNOWN = Code.NOT_FOUND
    LEASE_EXPIRED = Code.FAILED_PRECONDITION
    RUNNER_DUPLICATE = Code.ALREADY_EXISTS
    ESCALATION_UNKNOWN = Code.NOT_FOUND
    HOLD_NOT_OPEN = Code.FAILED_PRECONDITION
    ALREADY_RULED = Code.ALREADY_EXISTS
    RULING_INVALID = Code.INVALID_ARGUMENT
    ROLE_NOT_ALLOWED = Code.PERMISSION_DENIED
    CREDENTIAL_INVALID = Code.UNAUTHENTICATED
    TASK_UNKNOWN = Code.NOT_FOUND
    LANE_UNKNOWN = Code.NOT_FOUND
    RUNNER_UNKNOWN = Code.NOT_FOUND
    MESSAGE_UNKNOWN = Code.NOT_FOUND
    GATE_UNKNOWN = Code.NOT_FOUND
    INCIDENT_UNKNOWN = Code.NOT_FOUND
    DIRECTIVE_UNKNOWN = Code.NOT_FOUND
    CHECKPOINT_UNKNOWN = Code.NOT_FOUND
    TASK_SETTLED = Code.FAILED_PRECONDITION
    TASK_TERMINAL = Code.FAILED_PRECONDITION
    ILLEGAL_TRANSITION = Code.FAILED_PRECONDITION
    COMPLETION_BLOCKED = Code.FAILED_PRECONDITION
    CLAIM_LOST = Code.ABORTED
    REQUEST_ID_REUSED = Code.INVALID_ARGUMENT
    REQUEST_INVALID = Code.INVALID_ARGUMENT
    RUNNER_UNREACHABLE = Code.UNAVAILABLE
    SUPERVISOR_UNREACHABLE = Code.UNAVAILABLE
    SHUTTING_DOWN = Code.UNAVAILABLE
    WRITE_THROTTLED = Code.RESOURCE_EXHAUSTED
    LIMIT_REACHED = Code.RESOURCE_EXHAUSTED
    STORE_FULL = Code.RESOURCE_EXHAUSTED
    STORE_FAILED = Code.UNAVAILABLE
    TOO_LARGE = Code.INVALID_ARGUMENT
    DEADLINE_PASSED = Code.DEADLINE_EXCEEDED
    NOT_BUILT = Code.UNIMPLEMENTED
    SERVICE_UNKNOWN = Code.NOT_FOUND
    UNEXPECTED = Code.INTERNAL


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldViolation:
    """One field of a request that cannot be accepted, and what would be."""

    field: str
    description: str


@dataclass(slots=True, eq=False)
class Refusal(Exception):  # noqa: N818 - a refusal is a result the caller is told, not a crash
    """A typed "no": the reason, a sentence that says what to do next, and facts for machines.

    ``message`` and ``metadata`` are sent to the caller as they are: never put a token, an environment value or the
    text of a foreign exception into them.
    """

    reason: Reason
    message: str
    metadata: Mapping[str, str] = field(default_factory=dict)
    violations: tuple[FieldViolation, ...] = ()

    def __str__(self) -> str:
        return f"{self.reason.name}: {self.message}"


def refuse(reason: Reason, message: str, /, **metadata: object) -> Refusal:
    """Build a :class:`Refusal`; metadata values become strings, ``None`` values are left out."""
    facts = {key: str(value) for key, value in metadata.items() if value is not None}
    return Refusal(reason, message, facts)


def invalid(*violations: tuple[str, str]) -> Refusal:
    """Build the refusal of a request whose fields cannot be accepted, from ``(field, description)`` pairs."""
    found = tuple(FieldViolation(field=name, description=text) for name, text in violations)
    first = found[0]
    return Refusal(Reason.REQUEST_INVALID, f"{first.field}: {first.description}", {"field": first.field}, found)
