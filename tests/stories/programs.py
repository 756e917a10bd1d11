"""Worker programs for stories, in the words that a worker has."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from google.protobuf.message import Message

from lane_runner_svc.process import AttemptKey
from lanewarden.client import Stub
from lanewarden.errors import Reason, Refusal
from lanewarden.v1 import message_pb2
from lanewarden.v1 import worker_service_pb2 as pb

if TYPE_CHECKING:
    from tests.stories.stage import Stage


class Worker:
    """One attempt's process and what it may ask. It repeats its requests while its runner is away.

    ``stub`` gives its runner's WorkerService as this worker calls it, or raises RUNNER_UNREACHABLE.
    """

    def __init__(self, stage: Stage, key: AttemptKey, *, reason: str, stub: Callable[[], Stub]) -> None:
        self.stage = stage
        self.task_id = key.task_id
        self.epoch = key.epoch
        self.attempt = key.attempt
        self.reason = reason
        self._stub = stub

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
        return await self._first("AwaitRuling", pb.AwaitRulingRequest(escalation_id=escalation_id))

    async def first_message(self) -> message_pb2.Message:
        """What the stream of messages begins with."""
        return await self._first("ReceiveMessages", pb.ReceiveMessagesRequest())

    async def _first(self, rpc: str, request: Message) -> message_pb2.Message:
        while True:
            try:
                async with aclosing(getattr(self._stub(), rpc)(request)) as stream:
                    async for news in stream:
                        if news.HasField("message"):
                            message: message_pb2.Message = news.message
                            return message
            except Refusal as refusal:
                if refusal.reason is not Reason.RUNNER_UNREACHABLE:
                    raise
            await self.stage.pause()

    async def stored_messages(self) -> list[message_pb2.Message]:
        """Everything that waits now."""
        while True:
            try:
                stream = self._stub().ReceiveMessages(pb.ReceiveMessagesRequest(stored_only=True))
                return [news.message async for news in stream]
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

    async def rest(self) -> None:
        """Wait a little before asking again for something that was refused."""
        await asyncio.sleep(self.stage.rest_seconds)


Program = Callable[[Worker], Awaitable[int]]


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
