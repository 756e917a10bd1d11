"""Where a server may listen, and plain words when it may not.

gRPC reports every failure to bind as one opaque error, shares TCP ports on request, and removes a Unix socket
even if another process listens on it; so the address is tried with the standard library first.
"""

from __future__ import annotations

import errno
import ipaddress
import os
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SOCKET_PATH_BYTES_MAX = 107  # sun_path holds 108, the last is NUL


class ListenError(Exception):
    """The server cannot listen there; the message is one line and says what to do."""


class AddressInUse(ListenError):  # noqa: N818 - says what is the matter
    """Another process listens at the address."""


class ListenRefused(ListenError):  # noqa: N818 - says what is the matter
    """The address must not, or cannot, be listened at."""


class SocketPathTooLong(ListenError):  # noqa: N818 - says what is the matter
    """The path of the Unix socket does not fit into a socket address."""


def check_tcp(host: str, port: int, *, secured: bool) -> str:
    """Return gRPC's form of the address if a server may listen there; raise a :class:`ListenError` if not."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise ListenRefused(f"cannot listen at {host}:{port}: {error.strerror}") from error
    addresses = [info[4][0] for info in found]
    if not secured and not all(_is_loopback(str(address)) for address in addresses):
        raise ListenRefused(
            f"will not listen at {host}:{port} without TLS: tokens would travel in the clear;"
            " give a certificate and key (--tls-cert, --tls-key), or listen at 127.0.0.1"
        )
    for family, kind, protocol, _, address in found if port else ():
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            _try_bind(probe, address, f"{host}:{port}")
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _is_loopback(address: str) -> bool:
    return ipaddress.ip_address(address.partition("%")[0]).is_loopback


def _try_bind(probe: socket.socket, address: object, shown: str) -> None:
    try:
        probe.bind(address)  # type: ignore[arg-type]
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise AddressInUse(f"{shown} is in use by another process; stop it or choose another port") from error
        raise ListenRefused(f"cannot listen at {shown}: {error.strerror}") from error


def check_unix(path: Path) -> str:
    """Return gRPC's form of the path, free of a stale socket; raise a :class:`ListenError` if it cannot be used."""
    length = len(os.fsencode(path))
    if length > SOCKET_PATH_BYTES_MAX:
        raise SocketPathTooLong(
            f"the socket path {path} has {length} bytes, at most {SOCKET_PATH_BYTES_MAX} fit;"
            " choose a shorter --state-dir"
        )
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return f"unix:{path}"
    except OSError as error:
        raise ListenRefused(f"cannot listen at {path}: {error.strerror}") from error
    if not stat.S_ISSOCK(mode):
        raise ListenRefused(f"{path} exists and is not a socket; move it away")
    if _answers(path):
        raise AddressInUse(f"another process listens at {path}; stop it or choose another --state-dir")
    path.unlink(missing_ok=True)
    return f"unix:{path}"


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)  # a full backlog is an answer too: somebody listens
        try:
            probe.connect(str(path))
        except (ConnectionRefusedError, FileNotFoundError):
            return False
        except BlockingIOError:
            return True
    return True


@contextmanager
def private_files() -> Iterator[None]:
    """Files made in this block are for their owner alone from their first moment on."""
    before = os.umask(0o177)
    try:
        yield
    finally:
        os.umask(before)
