"""TLS from files: what a service shows to its callers, and what a client trusts.

The files are read and checked when a process starts, so that a mistake is one line and not a handshake that fails
later. Today a server shows its certificate and callers show their tokens; certificates of callers and files that
change while a service runs would have their place here.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import grpc

from lanewarden.config import ConfigInvalid

FILE_BYTES_MAX: Final = 1024 * 1024


class TlsInvalid(ConfigInvalid):
    """A certificate or key cannot be used; the message is one line that names the setting and the file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """The checked contents of the files, in PEM; an empty one was not given."""

    cert: bytes = b""
    key: bytes = field(default=b"", repr=False)
    ca: bytes = b""

    @classmethod
    def load(cls, *, cert: Path | None = None, key: Path | None = None, ca: Path | None = None) -> Tls:
        """Read and check the files; ``None`` is one that was not given. Starts no thread.

        ``cert`` may hold a chain, the server's own certificate first. Raises :class:`TlsInvalid`.
        """
        found = cls(cert=_read("tls_cert", cert), key=_read("tls_key", key), ca=_read("tls_ca", ca))
        if (cert is None) != (key is None):
            given, missing = ("tls_cert", "tls_key") if key is None else ("tls_key", "tls_cert")
            raise TlsInvalid(f"{given} is given and {missing} is not; give both or neither")
        if cert is not None and key is not None:
            _check_certificates("tls_cert", cert)
            _check_pair(cert, key)
        if ca is not None:
            _check_certificates("tls_ca", ca)
        return found

    def server_credentials(self) -> grpc.ServerCredentials | None:
        """What to bind a port with, or None to serve in the clear."""
        return grpc.ssl_server_credentials([(self.key, self.cert)]) if self.cert else None

    def channel_credentials(self) -> grpc.ChannelCredentials | None:
        """What to connect with, or None to call in the clear."""
        return grpc.ssl_channel_credentials(root_certificates=self.ca) if self.ca else None


OFF: Final = Tls()
"""Neither serve with TLS nor call with it."""


def _read(setting: str, path: Path | None) -> bytes:
    if path is None:
        return b""
    try:
        with path.open("rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise TlsInvalid(f"{setting}: {path}: {error.strerror}") from error
    if len(data) > FILE_BYTES_MAX:
        raise TlsInvalid(f"{setting}: {path} is larger than {FILE_BYTES_MAX} bytes")
    return data


def _check_certificates(setting: str, path: Path) -> None:
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(path)
    except (ssl.SSLError, OSError) as error:
        raise TlsInvalid(f"{setting}: {path} holds no valid PEM certificate") from error


def _check_pair(cert: Path, key: Path) -> None:
    try:
        # Without a password to try, an encrypted key would have OpenSSL ask the terminal for one.
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(cert, key, password="")
    except ssl.SSLError as error:
        if error.reason in ("KEY_VALUES_MISMATCH", "KEY_TYPE_MISMATCH"):
            raise TlsInvalid(f"tls_key: {key} is not the key of the certificate in {cert}") from error
        raise TlsInvalid(f"tls_key: {key} holds no valid, unencrypted PEM key") from error
    except OSError as error:
        raise TlsInvalid(f"tls_key: {key}: {error.strerror}") from error
