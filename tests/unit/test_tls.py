"""TLS files: every mistake is one line that names the setting and the file, told before anything else happens."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lanewarden.tls import FILE_BYTES_MAX, OFF, Tls, TlsInvalid
from tests import certificates
from tests.certificates import Files


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    """Good files, and beside them bad ones."""
    made = certificates.make(tmp_path_factory.mktemp("good"))
    directory = made.cert.parent
    other = certificates.make(tmp_path_factory.mktemp("other"))
    (directory / "other.pem").write_bytes(other.key.read_bytes())
    (directory / "empty.pem").write_bytes(b"")
    (directory / "broken.pem").write_bytes(b"-----BEGIN CERTIFICATE-----\nnonsense\n")
    (directory / "half.pem").write_bytes(made.cert.read_bytes() + b"-----BEGIN CERTIFICATE-----\nnonsense\n")
    (directory / "large.pem").write_bytes(made.cert.read_bytes() * (FILE_BYTES_MAX // 400))
    return made


MISTAKES = [
    ("cert.pem", None, None, "tls_cert is given and tls_key is not; give both or neither"),
    (None, "key.pem", None, "tls_key is given and tls_cert is not; give both or neither"),
    ("none.pem", "key.pem", None, "tls_cert: {}/none.pem: No such file or directory"),
    ("cert.pem", "none.pem", None, "tls_key: {}/none.pem: No such file or directory"),
    (".", "key.pem", None, "tls_cert: {}: Is a directory"),
    ("broken.pem", "key.pem", None, "tls_cert: {}/broken.pem holds no valid PEM certificate"),
    ("half.pem", "key.pem", None, "tls_cert: {}/half.pem holds no valid PEM certificate"),
    ("large.pem", "key.pem", None, "tls_cert: {}/large.pem is larger than 1048576 bytes"),
    ("cert.pem", "broken.pem", None, "tls_key: {}/broken.pem holds no valid, unencrypted PEM key"),
    ("cert.pem", "cert.pem", None, "tls_key: {}/cert.pem holds no valid, unencrypted PEM key"),
    ("cert.pem", "other.pem", None, "tls_key: {0}/other.pem is not the key of the certificate in {0}/cert.pem"),
    (None, None, "empty.pem", "tls_ca: {}/empty.pem holds no valid PEM certificate"),
    (None, None, "key.pem", "tls_ca: {}/key.pem holds no valid PEM certificate"),
    (None, None, "none.pem", "tls_ca: {}/none.pem: No such file or directory"),
]


@pytest.mark.parametrize(("cert", "key", "ca", "said"), MISTAKES)
def test_a_mistake_is_one_line(files: Files, cert: str | None, key: str | None, ca: str | None, said: str) -> None:
    """It names the setting, the file, and what is wrong with it."""
    directory = files.cert.parent

    def path(name: str | None) -> Path | None:
        return directory / name if name else None

    with pytest.raises(TlsInvalid) as caught:
        Tls.load(cert=path(cert), key=path(key), ca=path(ca))
    assert str(caught.value) == said.format(directory)


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads every file")
def test_an_unreadable_key_is_said(files: Files, tmp_path: Path) -> None:
    """The operating system's word for it."""
    key = tmp_path / "key.pem"
    key.write_bytes(files.key.read_bytes())
    key.chmod(0)
    with pytest.raises(TlsInvalid, match=r"^tls_key: .*key\.pem: Permission denied$"):
        Tls.load(cert=files.cert, key=key)


def test_good_files_give_credentials_and_nothing_gives_none(files: Files) -> None:
    """Each side by what it was given; the key is in no repr."""
    tls = Tls.load(cert=files.cert, key=files.key, ca=files.ca)
    assert tls.server_credentials() is not None
    assert tls.channel_credentials() is not None
    assert "PRIVATE" not in repr(tls)
    assert Tls.load(ca=files.ca).server_credentials() is None
    assert Tls.load(cert=files.cert, key=files.key).channel_credentials() is None
    assert Tls.load() == OFF
