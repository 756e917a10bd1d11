"""A gRPC server of handlers, with health, reflection and channelz."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

import grpc
from google.protobuf.descriptor import ServiceDescriptor
from grpc_channelz.v1 import channelz, channelz_pb2
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection

from lanewarden import wire
from lanewarden.auth import METHOD_ROLES, Authenticator, Identity, Role
from lanewarden.server.calls import Limits, Method
from lanewarden.server.health import Health
from lanewarden.server.listen import AddressInUse, ListenRefused, check_tcp, check_unix, private_files
from lanewarden.server.streams import Streams
from lanewarden.telemetry import OFF, Telemetry

NOTICE_SECONDS = 0.05
"""How long those who watch health have, to hear that a server stops serving, before its streams end."""

_HEALTH = health_pb2.DESCRIPTOR.services_by_name["Health"]
_NOBODY = Identity(name="", role=Role.VIEWER)


class Server:
    """One gRPC server. Add services, bind, start; at the end drain.

    ``roles`` says who may call what; a method that is not in it answers ``ROLE_NOT_ALLOWED`` to everybody.
    """

    def __init__(
        self,
        *,
        name: str,
        authenticator: Authenticator,
        limits: Limits = Limits(),  # noqa: B008 - frozen
        roles: Mapping[str, frozenset[Role]] = METHOD_ROLES,
        telemetry: Telemetry = OFF,
        options: tuple[tuple[str, int], ...] = wire.SERVER_OPTIONS,
    ) -> None:
        self.name = name
        self._authenticator = authenticator
        self._limits = limits
        self._roles = roles
        self._telemetry = telemetry
        self._streams = Streams(limits.streams_max)
        self._health_streams = Streams(limits.streams_max)
        self._health = Health()
        self._names: list[str] = []
        calls_max = limits.calls_max + 2 * limits.streams_max
        self._server = grpc.aio.server(options=options, maximum_concurrent_rpcs=calls_max)

    def add(self, service: ServiceDescriptor, handlers: object) -> None:
        """Serve ``service`` by ``handlers``; methods that they lack answer ``NOT_BUILT``. It starts as not serving."""
        nobody: frozenset[Role] = frozenset()
        methods = {
            each.name: Method(
                each,
                handlers,
                authenticator=self._authenticator,
                roles=self._roles.get(f"{service.full_name}/{each.name}", nobody),
                limits=self._limits,
                streams=self._streams,
                telemetry=self._telemetry,
            )
            for each in service.methods
        }
        self._register(service, methods)
        self._health.set(service.full_name, False)

    async def bind_tcp(self, host: str, port: int, *, credentials: grpc.ServerCredentials | None = None) -> int:
        """Listen on ``host``; port 0 means any. Return the port, or raise a :class:`ListenError`.

        An address beyond loopback needs ``credentials`` (TLS), because callers send their tokens.
        """
        address = check_tcp(host, port, secured=credentials is not None)
        try:
            if credentials is None:
                return self._server.add_insecure_port(address)
            return self._server.add_secure_port(address, credentials)
        except RuntimeError as error:  # somebody took it since the check, or the credentials are unusable
            raise AddressInUse(f"cannot listen at {host}:{port}; it may have been taken this moment") from error

    async def bind_unix(self, path: Path) -> None:
        """Listen on a Unix socket of mode 0600; a stale socket is removed, one that answers is not."""
        address = check_unix(path)
        try:
            with private_files():
                self._server.add_insecure_port(address)
        except RuntimeError as error:
            raise ListenRefused(f"cannot listen at {path}; does its directory exist?") from error

    async def start(self) -> None:
        """Begin to answer. Services answer health checks NOT_SERVING until :meth:`set_serving`."""
        self._register(_HEALTH, self._open_methods(_HEALTH, self._health))
        channelz.add_channelz_servicer(self._server)
        channelz_name = channelz_pb2.DESCRIPTOR.services_by_name["Channelz"].full_name
        reflection.enable_server_reflection([*self._names, channelz_name, reflection.SERVICE_NAME], self._server)
        await self._server.start()

    def set_serving(self, service_name: str, serving: bool) -> None:
        """Say on the health service whether ``service_name`` serves."""
        self._health.set(service_name, serving)

    async def drain(self, grace_seconds: float) -> None:
        """Stop: health says NOT_SERVING, then streams end with ``SHUTTING_DOWN``, then unary calls may
        finish.

        Returns when nothing runs any more, at the latest after ``grace_seconds``, when what is left is
        cancelled.
        """
        self._health.shut_down()
        notice_seconds = min(NOTICE_SECONDS, grace_seconds)
        await asyncio.sleep(notice_seconds)
        self._streams.end()
        self._health_streams.end()
        await self._server.stop(grace_seconds - notice_seconds)

    async def wait_closed(self) -> None:
        """Return when the server has stopped."""
        await self._server.wait_for_termination()

    def _register(self, service: ServiceDescriptor, methods: Mapping[str, Method]) -> None:
        self._names.append(service.full_name)
        rpc_handlers = {name: method.rpc_handler() for name, method in methods.items()}
        generic = grpc.method_handlers_generic_handler(service.full_name, rpc_handlers)
        self._server.add_generic_rpc_handlers((generic,))

    def _open_methods(self, service: ServiceDescriptor, handlers: object) -> dict[str, Method]:
        """Methods that need no credential."""
        return {
            each.name: Method(
                each,
                handlers,
                authenticator=_Anybody(),
                roles=frozenset({Role.VIEWER}),
                limits=self._limits,
                streams=self._health_streams,
                telemetry=OFF,
            )
            for each in service.methods
        }


class _Anybody:
    def authenticate(self, metadata: Mapping[str, str]) -> Identity:
        del metadata
        return _NOBODY
