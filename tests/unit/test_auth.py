"""Credential files, tokens and roles."""

from __future__ import annotations

import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from lanewarden.auth import METHOD_ROLES, Credentials, CredentialsInvalid, Role, check_role
from lanewarden.errors import Reason, Refusal

FILES = {"operator.token", "viewer.token", "runner.token", "supervisor.token"}


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


def test_files_are_private_complete_and_kept(tmp_path: Path) -> None:
    """One file per role, 0600 in a 0700 directory, made once and the same ever after."""
    directory = tmp_path / "credentials"
    first = Credentials.ensure(directory)
    assert {path.name for path in directory.iterdir()} == FILES
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in directory.iterdir()} == {0o600}
    assert (directory / "viewer.token").read_text() == first.tokens[Role.VIEWER] + "\n"
    assert len(first.tokens[Role.VIEWER]) == len("lw_viewer_") + 43
    (directory / "viewer.token").unlink()
    second = Credentials.ensure(directory)
    assert second.tokens[Role.OPERATOR] == first.tokens[Role.OPERATOR]
    assert second.tokens[Role.VIEWER] != first.tokens[Role.VIEWER]


def test_two_services_that_start_at_once_agree(tmp_path: Path) -> None:
    """Whoever makes a file first wins; the other reads the same token."""
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda _: Credentials.ensure(tmp_path).tokens, range(16)))
    assert all(tokens == made[0] for tokens in made)
    assert {path.name for path in tmp_path.iterdir()} == FILES


def test_tokens_do_not_show(tmp_path: Path) -> None:
    """The representation of credentials holds no token."""
    credentials = Credentials.ensure(tmp_path)
    assert not any(token in repr(credentials) for token in credentials.tokens.values())


def test_directory_of_one_role_is_enough(tmp_path: Path) -> None:
    """A person who was given one file has credentials of one role."""
    given = Credentials.ensure(tmp_path / "all")
    some = tmp_path / "some"
    some.mkdir()
    (tmp_path / "all" / "viewer.token").rename(some / "viewer.token")
    assert Credentials.load(some).tokens == {Role.VIEWER: given.tokens[Role.VIEWER]}


@pytest.mark.parametrize(
    ("content", "mode", "said"),
    [
        ("lw_viewer_short\n", 0o600, "does not hold a token of role viewer"),
        ("lw_operator_" + "a" * 43, 0o600, "does not hold a token of role viewer"),
        ("lw_viewer_" + "a" * 43, 0o640, "chmod 600"),
    ],
)
def test_unusable_files_are_named(tmp_path: Path, content: str, mode: int, said: str) -> None:
    """A file that is malformed, of another role or open to others is refused by its path, without its content."""
    path = tmp_path / "viewer.token"
    path.write_text(content)
    path.chmod(mode)
    with pytest.raises(CredentialsInvalid, match=said) as caught:
        Credentials.load(tmp_path)
    assert str(path) in str(caught.value)
    assert content.strip() not in str(caught.value)


def test_token_gives_identity_and_nothing_else_does(tmp_path: Path) -> None:
    """Each token is its role's; services are named by their role; anything else says where a token is kept."""
    credentials = Credentials.ensure(tmp_path)
    authenticator = credentials.authenticator()
    for role, token in credentials.tokens.items():
        assert authenticator.authenticate(bearer(token)).role is role
    assert authenticator.authenticate(bearer(credentials.tokens[Role.RUNNER])).name == "runner"
    token = credentials.tokens[Role.OPERATOR]
    for metadata in ({}, bearer(""), bearer(token[:-1]), bearer(token + " "), {"authorization": token}):
        with pytest.raises(Refusal) as caught:
            authenticator.authenticate(metadata)
        assert caught.value.reason is Reason.CREDENTIAL_INVALID
        assert f"{tmp_path}/<role>.token" in caught.value.message


def test_roles_by_service() -> None:
    """Workers are confined to their service, automatic actions to supervisors, and viewers to reads."""
    for method, roles in METHOD_ROLES.items():
        service, name = method.removeprefix("lanewarden.v1.").split("/")
        assert (Role.WORKER in roles) == (service == "WorkerService")
        if Role.VIEWER in roles:
            assert name.startswith(("List", "Get", "Watch", "Check", "Explain", "Tail"))
    for name in ("WakeTask", "RelaunchTask", "SettleTask", "ClaimIncident", "RecordIncident"):
        assert METHOD_ROLES[f"lanewarden.v1.LaneRunnerService/{name}"] == {Role.SUPERVISOR}


def test_empty_set_of_roles_allows_nobody() -> None:
    """A method without a row is closed to every role."""
    for role in Role:
        with pytest.raises(Refusal) as caught:
            check_role("x/Y", role, frozenset())
        assert caught.value.reason is Reason.ROLE_NOT_ALLOWED
