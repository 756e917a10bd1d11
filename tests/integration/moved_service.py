"""A service's own ``main`` on a clock that the test moves, and with a caller of any name and role at its doors.

Run with the file of the clock, the service's package, and the service's own arguments. A caller's token is ``TEST``, the
role and the name, with colons between; every real token is good as well.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from unittest import mock

from lanewarden.auth import Identity, Role, TokenAuthenticator
from lanewarden.clock import SystemClock
from tests.integration.moved_clock import ClockFile, MovedClock

MARK = "TEST"


def token_of(caller: Identity) -> str:
    """What a caller sends here to be taken for who he says he is."""
    return f"{MARK}:{caller.role.value}:{caller.name}"


class _Anybody(TokenAuthenticator):
    """Believes test tokens."""

    def authenticate(self, metadata: Mapping[str, str]) -> Identity:
        mark, _, rest = metadata.get("authorization", "").removeprefix("Bearer ").partition(":")
        if mark != MARK:
            return super().authenticate(metadata)
        role, _, name = rest.partition(":")
        return Identity(name=name, role=Role(role))


def main() -> int:
    """Run the service until it is told to stop."""
    file, package, *arguments = sys.argv[1:]
    moved = MovedClock(ClockFile(Path(file)), package.removesuffix("_svc").removeprefix("lane_"))
    service = import_module(f"{package}.__main__")
    with (
        mock.patch("lanewarden.clock.boottime_ms", moved.steady_ms),
        mock.patch("lanewarden.store.anchor.boottime_ms", moved.steady_ms),
        mock.patch.object(SystemClock, "wall_ms", moved.steady_ms),
        mock.patch.object(SystemClock, "sleep", moved.sleep),
        mock.patch("lanewarden.auth.TokenAuthenticator", _Anybody),
    ):
        return int(service.main(arguments))


if __name__ == "__main__":
    sys.exit(main())
