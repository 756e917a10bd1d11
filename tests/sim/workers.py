"""Worker programs for stories, in the words that a worker has."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from google.protobuf.message import Message

from lane_runner_svc.bootstrap import WORKER
from lane_runner_svc.process import LaunchSpec
from lanewarden.errors import Reason, Refusal
from lanewarden.server import Identity
from lanewarden.v1 import message_pb2
from lanewarden.v1 import worker_service_pb2 as pb
from tests.sim.network import Stub

if TYPE_CHECKING:
    from tests.sim.stories import Stage


class Worker:
    """One attempt's process and what it may ask. It repeats its requests while its runner is away."""

    def __init__(self, stage: Stage, spec: LaunchSpec) -> None:
        self.stage = stage
        self.task_id = spec.key.task_id
        self.epoch = spec.key.epoch
        self.attempt = spec.key.attempt
        self.reason = spec.env["LANEWARDEN_REASON"]
        self.token = spec.env["LANEWARDEN_TOKEN"]
        self.source = str(spec.key)

    async def call(self, rpc: str, request: Message) -> Any:
        """A unary call, until there is an answer."""
        if "request_id" in request.DESCRIPTOR.fields_by_name:
            request.request_id = self.stage.fresh_id()  # type: ignore[attr-defined]
        return await self.stage.insist(lambda: getattr(self._stub(), rpc)(request, timeout_seconds=60.0))

    async def escalate(self, question: str = "may I?", *, expects_reply: bool = True, **more: Any) -> str:
        """Ask; the escalation id."""
        request = pb.WorkerServiceEscalateRequest(question=question, expects_reply=expects_reply, **more)
        return str((await self.call("Escalate", request)).escalation.escalation_id)

    async def await_ruling(self, escalation_id: str = "") -> message_pb2.Message:
        """The ruling, as soon as there is one, however often the runner goes away meanwhile."""
        while True:
            try:
                async for news in self._stub().AwaitRuling(pb.AwaitRulingRequest(escalation_id=escalation_id)):
                    if news.HasField("message"):
                        message: message_pb2.Message = news.message
                        return message
            except Refusal as refusal:
                if refusal.reason is not Reason.RUNNER_UNREACHABLE:
                    raise
            await asyncio.sleep(0.1)

    async def first_message(self) -> message_pb2.Message:
        """What the stream of messages begins with."""
        while True:
            try:
                async for news in self._stub().ReceiveMessages(pb.ReceiveMessagesRequest()):
                    message: message_pb2.Message = news.message
                    return message
            except Refusal as refusal:
                if refusal.reason is not Reason.RUNNER_UNREACHABLE:
                    raise
            await asyncio.sleep(0.1)

    async def take(self, message: message_pb2.Message) -> bool:
        """Acknowledge a message; whether this call was the one that did it."""
        answer = await self.call("AcknowledgeMessage", pb.AcknowledgeMessageRequest(message_id=message.message_id))
        return bool(answer.acknowledged_now)

    async def complete(self, summary: str = "done") -> None:
        """Say that the work is done."""
        await self.call("Complete", pb.CompleteRequest(summary=summary))

    def identity(self) -> Identity:
        """Who the runner takes this worker for."""
        parts = self.stage.runner.parts
        if parts is None or "runner" not in self.stage.network.servers:
            raise Refusal(Reason.RUNNER_UNREACHABLE, "the socket is gone")
        return parts.authenticator.authenticate({"authorization": f"Bearer {self.token}"})

    def _stub(self) -> Stub:
        network = self.stage.network
        return network.stub(WORKER, source=self.source, target="runner", identity=self.identity(), local=True)


async def done(worker: Worker) -> int:
    """Has nothing to ask."""
    del worker
    await asyncio.sleep(0.2)
    return 0


async def never_ends(worker: Worker) -> int:
    """Runs until it is stopped."""
    del worker
    await asyncio.Event().wait()
    raise AssertionError("unreachable")


async def asks_and_leaves(worker: Worker) -> int:
    """Asks and exits with code 0; a later attempt takes the ruling that it was started for, and is done."""
    if worker.reason != "ruling":
        await worker.escalate()
        return 0
    message = await worker.first_message()
    assert message.HasField("ruling"), f"the first message of an attempt after a ruling is {message}"
    await worker.take(message)
    return 0


async def asks_and_waits(worker: Worker) -> int:
    """Asks, waits for the ruling, takes it, and is done."""
    message = await worker.await_ruling(await worker.escalate())
    await worker.take(message)
    return 0
