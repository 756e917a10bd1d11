"""The state directory of the pair: where everything is, and where the services listen."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import grpc

    from lanewarden.auth import Role

ENDPOINTS_BYTES_MAX = 4096


class NotUp(Exception):  # noqa: N818 - a finding about the services
    """The services are not up, or cannot be started; the message is one line and says what to do."""


@dataclass(frozen=True, slots=True)
class StateDir:
    """A state directory; it need not exist."""

    path: Path
    tls_ca: Path | None = None
    """What to trust when calling the services; None calls them in the clear."""

    @property
    def supervisor(self) -> Path:
        """The supervisor's own state directory."""
        return self.path / "supervisor"

    @property
    def runner(self) -> Path:
        """The runner's own state directory."""
        return self.path / "runner"

    @property
    def credentials(self) -> Path:
        """The credential files that both services and the command line share."""
        return self.path / "credentials"

    @property
    def logs(self) -> Path:
        """The log files of both services."""
        return self.path / "logs"

    @property
    def endpoints_file(self) -> Path:
        """Where `up` says where the services listen."""
        return self.path / "endpoints.json"

    @property
    def lock_file(self) -> Path:
        """Locked by `up` for as long as it runs."""
        return self.path / "up.lock"

    def endpoints(self) -> Endpoints:
        """Where the services listen.

        Raises:
            NotUp: no `up` has said so.
        """
        try:
            with self.endpoints_file.open(encoding="utf-8") as file:
                found = json.loads(file.read(ENDPOINTS_BYTES_MAX))
            return Endpoints(supervisor=str(found["supervisor"]), runner=str(found["runner"]))
        except FileNotFoundError:
            raise NotUp(f"not up: run `lanewarden up` (state directory {self.path})") from None
        except OSError as error:
            raise NotUp(f"{self.endpoints_file}: {error.strerror}") from None
        except (ValueError, KeyError, TypeError):
            raise NotUp(f"{self.endpoints_file} is not what `lanewarden up` writes; delete it and run that") from None

    def token(self, role: Role) -> str:
        """The credential of ``role``.

        Raises:
            NotUp: there is none, or its file cannot be used.
        """
        from lanewarden.auth import Credentials, CredentialsInvalid

        try:
            token = Credentials.load(self.credentials).tokens.get(role)
        except CredentialsInvalid as problem:
            raise NotUp(str(problem)) from None
        if token is None:
            raise NotUp(f"no {role.value}.token in {self.credentials}; `lanewarden up` makes it")
        return token

    def channel_credentials(self) -> grpc.ChannelCredentials | None:
        """What to call the services with, or None to call them in the clear.

        Raises:
            NotUp: the file of ``tls_ca`` cannot be used.
        """
        if self.tls_ca is None:
            return None
        from lanewarden.tls import Tls, TlsInvalid

        try:
            return Tls.load(ca=self.tls_ca).channel_credentials()
        except TlsInvalid as problem:
            raise NotUp(str(problem)) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoints:
    """``host:port`` of both services."""

    supervisor: str
    runner: str

    def save(self, path: Path) -> None:
        """Write them so that a reader sees all or nothing."""
        draft = path.with_name(f".{path.name}.{os.getpid()}")
        draft.write_text(json.dumps(asdict(self)) + "\n", encoding="utf-8")
        draft.replace(path)
