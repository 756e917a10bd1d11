"""Who may call what: every method of every service, over a real server with the real handlers of both services, by every
kind of credential there is. What a credential may not do is refused before anything is read or changed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pytest
from google.protobuf import message_factory
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor

from lane_runner_svc.bootstrap import LANE_RUNNER, WORKER, WRITE_TRACE
from lane_runner_svc.rpc.worker import WorkerAuthenticator
from lane_runner_svc.work.attempts import Launch
from lanewarden import client
from lanewarden.auth import METHOD_ROLES, Credentials, Identity, Role, TokenAuthenticator
from lanewarden.clock import SystemClock
from lanewarden.errors import Reason, Refusal
from lanewarden.ledger import WriteLedger
from lanewarden.server import Server
from lanewarden.store import Store
from lanewarden.v1 import worker_service_pb2 as wpb
from lanewarden.write_trace import WriteTraceHandlers
from supervisor_svc.bootstrap import OPERATOR, SUPERVISOR
from supervisor_svc.bootstrap import build as build_supervisor
from supervisor_svc.config import SupervisorConfig
from supervisor_svc.store.schema import MIGRATIONS
from tests.databases import empty_database
from tests.runner_kit import KILLED, RunnerKit, make_runner

SERVICES = (LANE_RUNNER, WORKER, WRITE_TRACE, OPERATOR, SUPERVISOR)
METHODS: dict[str, MethodDescriptor] = {
    f"{service.full_name}/{method.name}": method for service in SERVICES for method in service.methods
}
ANSWER_SECONDS = 0.5


class EverybodysTokens:
    """Knows the tokens of files and those of attempts, so that a worker's reaches the table of roles on every service."""

    def __init__(self, files: TokenAuthenticator, workers: WorkerAuthenticator) -> None:
        self._files = files
        self._workers = workers

    def authenticate(self, metadata: Mapping[str, str]) -> Identity:
        try:
            return self._files.authenticate(metadata)
        except Refusal:
            return self._workers.authenticate(metadata)


@dataclass(frozen=True, slots=True, kw_only=True)
class Desk:
    """A server with everything on it, the tokens by their holders, and the runner behind it."""

    target: str
    tokens: Mapping[str, str]
    kit: RunnerKit
    current: Launch | None

    async def call(self, path: str, holder: str, request: Any = None) -> Any:
        """The answer, or the first one of a stream; None where a stream has nothing to say yet."""
        method = METHODS[path]
        service: ServiceDescriptor = method.containing_service
        sent = request if request is not None else message_factory.GetMessageClass(method.input_type)()
        async with client.connect(self.target, token=self.tokens[holder]) as connection:
            rpc = getattr(connection.stub(service), method.name)
            if not method.server_streaming:
                return await rpc(sent)
            try:
                async with asyncio.timeout(ANSWER_SECONDS):
                    return await anext(rpc(sent), None)
            except TimeoutError:
                return None

    async def reason(self, path: str, holder: str, request: Any = None) -> Reason | None:
        """Why a call is refused; None when it is not."""
        try:
            await self.call(path, holder, request)
        except Refusal as refusal:
            return refusal.reason
        return None


def launch(kit: RunnerKit) -> Launch:
    """The next attempt in lane a, with its token."""
    kit.clock.advance(60)
    claimed = kit.claim()
    assert claimed is not None
    kit.launched(claimed.ref)
    return claimed


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    """Attempt 1 of epoch 1 was killed; attempt 2 has ended well; the task was reopened, and attempt 1 of epoch 2 runs."""
    kit = make_runner(tmp_path)
    kit.submit()
    killed = launch(kit)
    kit.exited(killed.ref, KILLED)
    ended = launch(kit)
    kit.exited(ended.ref)
    kit.on_task("ReopenTask", ended.ref.task_id)
    current = launch(kit)
    assert (killed.ref.attempt, current.ref.attempt) == (1, 1)
    credentials = Credentials.ensure(tmp_path / "credentials")
    ledger = WriteLedger(SystemClock())
    store = Store.open(
        empty_database(tmp_path / "supervisor.sqlite3", MIGRATIONS),
        migrations=MIGRATIONS,
        ledger=ledger,
        threaded=False,
    )
    supervisor = await build_supervisor(
        SupervisorConfig(supervisor_id="supervisor"),
        store=store,
        ledger=ledger,
        clock=SystemClock(),
        random=Random(0),
        incarnation="incarnation-1",
        connect_runner=lambda address: pytest.fail(f"nobody may get as far as calling {address}"),
    )
    server = Server(
        name="desk", authenticator=EverybodysTokens(credentials.authenticator(), WorkerAuthenticator(kit.runner))
    )
    server.add(LANE_RUNNER, kit.handlers)
    server.add(WORKER, kit.worker_handlers)
    server.add(WRITE_TRACE, WriteTraceHandlers(kit.runner.store, kit.ledger))
    server.add(OPERATOR, supervisor.handlers[OPERATOR])
    server.add(SUPERVISOR, supervisor.handlers[SUPERVISOR])
    port = await server.bind_tcp("127.0.0.1", 0)
    await server.start()
    tokens = {role.value: token for role, token in credentials.tokens.items()}
    workers = {"worker": current, "worker of an older attempt": killed, "worker of an older epoch": ended}
    tokens |= {holder: attempt.token for holder, attempt in workers.items()}
    yield Desk(target=f"127.0.0.1:{port}", tokens=tokens, kit=kit, current=current)
    await server.drain(0)
    store.close()
    kit.close()


HOLDERS = {
    **{role.value: role for role in (Role.OPERATOR, Role.VIEWER, Role.RUNNER, Role.SUPERVISOR, Role.WORKER)},
    "worker of an older attempt": Role.WORKER,
    "worker of an older epoch": Role.WORKER,
}


def test_the_table_is_about_exactly_these_methods() -> None:
    """No method is served without a row, and no row is for a method that is not served."""
    assert set(METHODS) == set(METHOD_ROLES)


@pytest.mark.parametrize("holder", HOLDERS)
async def test_a_credential_is_refused_wherever_its_role_may_not(desk: Desk, holder: str) -> None:
    """ROLE_NOT_ALLOWED on every other method, before the request is even looked at; and nothing changes."""
    role, before = HOLDERS[holder], desk.kit.dump()
    forbidden = [path for path, roles in METHOD_ROLES.items() if role not in roles]
    found = {path: await desk.reason(path, holder) for path in forbidden}
    assert len(found) >= 10
    wrong = {path: reason for path, reason in found.items() if reason is not Reason.ROLE_NOT_ALLOWED}
    assert not wrong, f"not refused to the {holder} for its role: {wrong}"
    assert desk.kit.dump() == before


@pytest.mark.parametrize("holder", ["operator", "viewer", "runner", "supervisor", "worker"])
async def test_a_credential_gets_as_far_as_the_handler_where_its_role_may(desk: Desk, holder: str) -> None:
    """The control: the same empty requests are not refused for the role where the table allows it."""
    allowed = [path for path, roles in METHOD_ROLES.items() if HOLDERS[holder] in roles]
    assert allowed
    for path in allowed:
        assert await desk.reason(path, holder) not in (Reason.ROLE_NOT_ALLOWED, Reason.CREDENTIAL_INVALID), path


@pytest.mark.parametrize("path", METHODS)
async def test_an_unknown_token_gets_nowhere(desk: Desk, path: str) -> None:
    """CREDENTIAL_INVALID, and the same for no token at all."""
    tokens = {**desk.tokens, "stranger": "lw_operator_" + "a" * 43, "nobody": ""}
    stranger = Desk(target=desk.target, tokens=tokens, kit=desk.kit, current=desk.current)
    for holder in ("stranger", "nobody"):
        assert await stranger.reason(path, holder) is Reason.CREDENTIAL_INVALID


@pytest.mark.parametrize("holder", ["worker of an older attempt", "worker of an older epoch"])
async def test_p11_an_old_token_is_stale_on_every_method_of_a_worker(desk: Desk, holder: str) -> None:
    """ATTEMPT_STALE whatever it says, streams included, though the token is well known; and nothing changes (I6)."""
    kit, ref = desk.kit, desk.current.ref
    escalation_id = kit.escalate(ref)
    message_id = kit.rule(escalation_id).message.message_id
    requests = {
        "GetAssignment": wpb.GetAssignmentRequest(),
        "Escalate": wpb.WorkerServiceEscalateRequest(request_id=kit.fresh_id(), question="may I?", expects_reply=True),
        "AwaitRuling": wpb.AwaitRulingRequest(escalation_id=escalation_id),
        "ReceiveMessages": wpb.ReceiveMessagesRequest(),
        "AcknowledgeMessage": wpb.AcknowledgeMessageRequest(request_id=kit.fresh_id(), message_id=message_id),
        "ReportProgress": wpb.ReportProgressRequest(request_id=kit.fresh_id(), sequence=9),
        "NextDirective": wpb.NextDirectiveRequest(request_id=kit.fresh_id(), usage={"tokens": 9, "window": 200_000}),
        "ReportDirective": wpb.ReportDirectiveRequest(request_id=kit.fresh_id(), directive_id="d", outcome=1),
        "Complete": wpb.CompleteRequest(request_id=kit.fresh_id(), summary="done"),
    }
    assert set(requests) == {method.name for method in WORKER.methods}
    before = kit.dump()
    for name, request in requests.items():
        path = f"{WORKER.full_name}/{name}"
        assert await desk.reason(path, holder, request) is Reason.ATTEMPT_STALE, name
        assert kit.dump() == before, f"{name} of an old attempt has changed something"
    for name, request in requests.items():
        if name != "Complete":
            known = Reason.DIRECTIVE_UNKNOWN if name == "ReportDirective" else None
            assert await desk.reason(f"{WORKER.full_name}/{name}", "worker", request) is known, name


async def test_a_workers_token_is_unknown_where_people_call(tmp_path: Path) -> None:
    """As deployed: the server that people and supervisors call knows no tokens of attempts at all."""
    kit = make_runner(tmp_path)
    kit.submit()
    token = launch(kit).token
    server = Server(name="runner", authenticator=Credentials.ensure(tmp_path / "credentials").authenticator())
    server.add(LANE_RUNNER, kit.handlers)
    port = await server.bind_tcp("127.0.0.1", 0)
    await server.start()
    desk = Desk(target=f"127.0.0.1:{port}", tokens={"worker": token}, kit=kit, current=None)
    for method in LANE_RUNNER.methods:
        assert await desk.reason(f"{LANE_RUNNER.full_name}/{method.name}", "worker") is Reason.CREDENTIAL_INVALID
    await server.drain(0)
    kit.close()
