"""The server kit: plain classes become gRPC services that authenticate, validate and refuse in one way.

A handler class has an ``async def`` per unary RPC and an async generator per server stream, each taking
``(request, call)``; it raises :class:`lanewarden.errors.Refusal` to say no, and knows nothing of gRPC.
"""

from __future__ import annotations

from lanewarden.auth import AttemptClaim, Authenticator, Identity, Role
from lanewarden.server.calls import Call, Limits
from lanewarden.server.listen import AddressInUse, ListenError, ListenRefused, SocketPathTooLong
from lanewarden.server.serving import Server

__all__ = [
    "AddressInUse",
    "AttemptClaim",
    "Authenticator",
    "Call",
    "Identity",
    "Limits",
    "ListenError",
    "ListenRefused",
    "Role",
    "Server",
    "SocketPathTooLong",
]
