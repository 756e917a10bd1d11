"""Certificates for tests, made on the spot: P-256 keys, a CA, and a server certificate for the loopback names."""

from __future__ import annotations

import base64
import hashlib
import ipaddress
import secrets
from dataclasses import dataclass
from pathlib import Path

# The curve: FIPS 186-4, D.1.2.3.
P = 2**256 - 2**224 + 2**192 + 2**96 - 1
N = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
G = (
    0x6B17D1F2E12C4247F8BCE6E563A440F277037D812DEB33A0F4A13945D898C296,
    0x4FE342E2FE1A7F9B8EE7EB4A7C0F9E162BCE33576B315ECECBB6406837BF51F5,
)
Point = tuple[int, int] | None

EC_KEY = "1.2.840.10045.2.1"
P256 = "1.2.840.10045.3.1.7"
ECDSA_SHA256 = "1.2.840.10045.4.3.2"
COMMON_NAME = "2.5.4.3"
BASIC_CONSTRAINTS = "2.5.29.19"
ALT_NAMES = "2.5.29.17"


def _add(a: Point, b: Point) -> Point:
    if a is None or b is None:
        return a or b
    if a[0] == b[0]:
        if (a[1] + b[1]) % P == 0:
            return None
        slope = (3 * a[0] * a[0] - 3) * pow(2 * a[1], -1, P) % P
    else:
        slope = (b[1] - a[1]) * pow(b[0] - a[0], -1, P) % P
    x = (slope * slope - a[0] - b[0]) % P
    return x, (slope * (a[0] - x) - a[1]) % P


def _multiply(factor: int, point: Point) -> Point:
    result: Point = None
    while factor:
        if factor & 1:
            result = _add(result, point)
        point = _add(point, point)
        factor >>= 1
    return result


def _der(tag: int, *parts: bytes) -> bytes:
    body = b"".join(parts)
    size = len(body)
    if size < 0x80:
        return bytes([tag, size]) + body
    length = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes([tag, 0x80 | len(length)]) + length + body


def _sequence(*parts: bytes) -> bytes:
    return _der(0x30, *parts)


def _integer(value: int) -> bytes:
    return _der(0x02, value.to_bytes(value.bit_length() // 8 + 1, "big"))


def _bits(data: bytes) -> bytes:
    return _der(0x03, b"\0", data)


def _oid(dotted: str) -> bytes:
    first, second, *rest = map(int, dotted.split("."))
    body = bytearray([40 * first + second])
    for number in rest:
        groups = [number & 0x7F]
        while number := number >> 7:
            groups.append(0x80 | number & 0x7F)
        body += bytes(reversed(groups))
    return _der(0x06, bytes(body))


def _name(common: str) -> bytes:
    return _sequence(_der(0x31, _sequence(_oid(COMMON_NAME), _der(0x0C, common.encode()))))


def _pem(kind: str, der: bytes) -> bytes:
    lines = base64.encodebytes(der).decode()
    return f"-----BEGIN {kind}-----\n{lines}-----END {kind}-----\n".encode()


class Key:
    """A private key."""

    def __init__(self) -> None:
        self.secret = secrets.randbelow(N - 1) + 1
        point = _multiply(self.secret, G)
        assert point is not None
        self.public = b"\4" + b"".join(part.to_bytes(32, "big") for part in point)

    def pem(self) -> bytes:
        """RFC 5915."""
        fields = _der(0xA0, _oid(P256)), _der(0xA1, _bits(self.public))
        return _pem("EC PRIVATE KEY", _sequence(_integer(1), _der(0x04, self.secret.to_bytes(32, "big")), *fields))

    def sign(self, data: bytes) -> bytes:
        """ECDSA with SHA-256."""
        digest = int.from_bytes(hashlib.sha256(data).digest(), "big")
        nonce = secrets.randbelow(N - 1) + 1
        point = _multiply(nonce, G)
        assert point is not None
        r = point[0] % N
        return _sequence(_integer(r), _integer(pow(nonce, -1, N) * (digest + r * self.secret) % N))


def certificate(subject: str, key: Key, issuer: str, issuer_key: Key, *, names: tuple[str, ...] = ()) -> bytes:
    """An X.509 certificate in PEM: of a server with these names, or of a CA when there are none."""
    algorithm = _sequence(_oid(ECDSA_SHA256))
    if names:
        extension = _sequence(_oid(ALT_NAMES), _der(0x04, _sequence(*map(_alt_name, names))))
    else:
        extension = _sequence(_oid(BASIC_CONSTRAINTS), _der(0x01, b"\xff"), _der(0x04, _sequence(_der(0x01, b"\xff"))))
    signed = _sequence(
        *(_der(0xA0, _integer(2)), _integer(secrets.randbits(64)), algorithm, _name(issuer)),
        *(_sequence(_der(0x17, b"250101000000Z"), _der(0x17, b"491231235959Z")), _name(subject)),
        _sequence(_sequence(_oid(EC_KEY), _oid(P256)), _bits(key.public)),
        _der(0xA3, _sequence(extension)),
    )
    return _pem("CERTIFICATE", _sequence(signed, algorithm, _bits(issuer_key.sign(signed))))


def _alt_name(name: str) -> bytes:
    try:
        return _der(0x87, ipaddress.ip_address(name).packed)
    except ValueError:
        return _der(0x82, name.encode())


@dataclass(frozen=True)
class Files:
    """Paths of a CA's certificate, and of a server certificate that it signed, with its key."""

    ca: Path
    cert: Path
    key: Path

    @property
    def flags(self) -> tuple[str, ...]:
        """The flags that give them to a service."""
        return ("--tls-cert", str(self.cert), "--tls-key", str(self.key), "--tls-ca", str(self.ca))


def make(directory: Path, *names: str) -> Files:
    """A new CA and a certificate for ``names``, by default the names of the loopback."""
    files = Files(ca=directory / "ca.pem", cert=directory / "cert.pem", key=directory / "key.pem")
    ca_key, key = Key(), Key()
    directory.mkdir(parents=True, exist_ok=True)
    files.ca.write_bytes(certificate("test CA", ca_key, "test CA", ca_key))
    shown = names or ("localhost", "127.0.0.1")
    files.cert.write_bytes(certificate("test server", key, "test CA", ca_key, names=shown))
    files.key.write_bytes(key.pem())
    return files
