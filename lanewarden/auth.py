"""Who calls, and what that role may do.

A credential is a file that holds a token; the services keep only its hash in memory. Which role may call
which method is one table, and a method that is not in it is refused.
"""

from __future__ import annotations

import enum
import hashlib
import hmac
import os
import pwd
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from lanewarden.errors import Reason, Refusal, refuse


class Role(enum.Enum):
    """What a caller is to the service; the value is the word that files and messages use."""

    WORKER = "worker"
    RUNNER = "runner"
    SUPERVISOR = "supervisor"
    OPERATOR = "operator"
    VIEWER = "viewer"


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptClaim:
    """The attempt that a worker's token was made for; whether it is still the current one is the runner's to say."""

    task_id: str
    epoch: int
    attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """An authenticated caller. ``attempt`` is set for workers only."""

    name: str
    role: Role
    attempt: AttemptClaim | None = None


class Authenticator(Protocol):
    """Turns the metadata of a call into an identity."""

    def authenticate(self, metadata: Mapping[str, str]) -> Identity:
        """Return the caller, or raise a :class:`Refusal` with ``CREDENTIAL_INVALID``. Must not block."""
        ...


class CredentialsInvalid(Exception):  # noqa: N818 - a finding about a file
    """A credential file cannot be used; the message is one line, names the file and says what to do."""


FILE_ROLES = (Role.OPERATOR, Role.VIEWER, Role.RUNNER, Role.SUPERVISOR)
TOKEN_BYTES = 32
_TOKEN = re.compile(r"lw_([a-z]+)_[A-Za-z0-9_-]{43}")
_BEARER = "Bearer "


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """The tokens of a directory of credential files, one ``<role>.token`` per role (0600, directory 0700)."""

    directory: Path
    tokens: Mapping[Role, str] = field(repr=False)

    @classmethod
    def ensure(cls, directory: Path) -> Credentials:
        """Create the missing files and load all; safe when two processes start at once."""
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        for role in FILE_ROLES:
            path = _path(directory, role)
            if not path.exists():
                _create(path, f"lw_{role.value}_{secrets.token_urlsafe(TOKEN_BYTES)}\n")
        return cls.load(directory)

    @classmethod
    def load(cls, directory: Path) -> Credentials:
        """Read the files that are there; raise :class:`CredentialsInvalid` if one is unreadable, open or malformed."""
        paths = {role: _path(directory, role) for role in FILE_ROLES}
        return cls(
            directory=directory,
            tokens={role: _read(path, role) for role, path in paths.items() if path.exists()},
        )

    def authenticator(self) -> TokenAuthenticator:
        """The authenticator that accepts exactly these tokens."""
        person = _user_name()
        people = (Role.OPERATOR, Role.VIEWER)
        return TokenAuthenticator(
            {
                token: Identity(name=person if role in people else role.value, role=role)
                for role, token in self.tokens.items()
            },
            directory=self.directory,
        )


class TokenAuthenticator:
    """Knows callers by the ``authorization: Bearer <token>`` metadata of a call."""

    def __init__(self, tokens: Mapping[str, Identity], *, directory: Path) -> None:
        self._identities = {_digest(token): (_digest(token), identity) for token, identity in tokens.items()}
        self._hint = f"the command line reads it from {directory}/<role>.token"

    def authenticate(self, metadata: Mapping[str, str]) -> Identity:
        """Return the identity of the token, or raise ``CREDENTIAL_INVALID`` saying where a valid one is kept."""
        header = metadata.get("authorization", "")
        if not header.startswith(_BEARER):
            raise self._refusal("the call carries no 'authorization: Bearer <token>' metadata")
        digest = _digest(header[len(_BEARER) :])
        # The look-up is by hash, so its timing says nothing about a token that is nearly right.
        stored, identity = self._identities.get(digest, (b"", None))
        if identity is None or not hmac.compare_digest(stored, digest):
            raise self._refusal("the token is not known here")
        return identity

    def _refusal(self, problem: str) -> Refusal:
        return refuse(Reason.CREDENTIAL_INVALID, f"{problem}; {self._hint}")


def _path(directory: Path, role: Role) -> Path:
    return directory / f"{role.value}.token"


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "replace")).digest()


def _create(path: Path, text: str) -> None:
    """Write the file whole or not at all; whoever comes second keeps the first one's token."""
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.link(draft, path)
    except FileExistsError:
        pass
    finally:
        draft.unlink()


def _read(path: Path, role: Role) -> str:
    try:
        mode = path.stat().st_mode & 0o777
        text = path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError as error:
        raise CredentialsInvalid(f"{path}: {error.strerror}") from error
    if mode & 0o077:
        raise CredentialsInvalid(f"{path} is open to other users (mode {mode:04o}); run: chmod 600 {path}")
    match = _TOKEN.fullmatch(text)
    if match is None or match[1] != role.value:
        raise CredentialsInvalid(f"{path} does not hold a token of role {role.value}; delete it to have one made")
    return text


def _user_name() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # containers run under ids that have no entry
        return f"uid-{os.getuid()}"


_WORKER = frozenset({Role.WORKER})
_RUNNER = frozenset({Role.RUNNER})
_SUPERVISOR = frozenset({Role.SUPERVISOR})
_OPERATOR = frozenset({Role.OPERATOR})
_PEOPLE = frozenset({Role.OPERATOR, Role.VIEWER})
_RULERS = frozenset({Role.OPERATOR, Role.SUPERVISOR})
_READERS = frozenset({Role.VIEWER, Role.OPERATOR, Role.SUPERVISOR})
_TRACERS = _READERS | _RUNNER


def _rows(service: str, roles: frozenset[Role], methods: str) -> dict[str, frozenset[Role]]:
    return {f"lanewarden.v1.{service}/{method}": roles for method in methods.split()}


METHOD_ROLES: Mapping[str, frozenset[Role]] = {
    **_rows("SupervisorService", _RUNNER, "Register Reconcile KeepAlive Escalate Report"),
    **_rows(
        "OperatorService",
        _PEOPLE,
        "ListEscalations GetEscalation WatchInbox ListRunners ListTasks GetTask WatchTasks TailLog"
        " CheckCompletion ListNotifications ListIncidents ListAudit ExplainTask ListEvidence ListCheckpoints GetCheckpoint",
    ),
    **_rows(
        "OperatorService",
        _OPERATOR,
        "Acknowledge Steer SubmitTask SendInput CancelTask PauseTask ResumeTask RetryTask"
        " ReopenTask RecordGate TakeOver ExtendHold ResolveIncident",
    ),
    **_rows(
        "LaneRunnerService",
        _READERS,
        "GetTask ListTasks ListLanes WatchTasks TailLog ListHolds CheckCompletion ListAudit GetSupervision ListEvidence"
        " ListCheckpoints GetCheckpoint",
    ),
    **_rows(
        "LaneRunnerService",
        _RULERS,
        "SubmitTask SendInput Acknowledge Steer CancelTask PauseTask ResumeTask RetryTask ReopenTask RecordGate"
        " TakeOver ExtendHold ResolveIncident",
    ),
    **_rows("LaneRunnerService", _SUPERVISOR, "WakeTask RelaunchTask SettleTask ClaimIncident RecordIncident"),
    **_rows(
        "WorkerService",
        _WORKER,
        "GetAssignment Escalate AwaitRuling ReceiveMessages AcknowledgeMessage ReportProgress NextDirective"
        " ReportDirective Complete",
    ),
    **_rows("WriteTraceService", _TRACERS, "GetWriteRates WatchWriteRates ListEmitters ListFindings"),
}
"""Which roles may call which method; keys as in :attr:`lanewarden.server.Call.method`."""


def check_role(method: str, role: Role, allowed: frozenset[Role]) -> None:
    """Raise ``ROLE_NOT_ALLOWED`` unless ``role`` is among ``allowed``; an empty set allows nobody."""
    if role not in allowed:
        needed = ", ".join(sorted(each.value for each in allowed)) or "none"
        raise refuse(
            Reason.ROLE_NOT_ALLOWED,
            f"{method} is not for the role {role.value}; needed: {needed}",
            role=role.value,
            needed=needed,
        )
