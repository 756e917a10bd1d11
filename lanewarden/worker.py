"""The worker's side: ask, wait for the ruling, report, complete.

::

    worker = Worker.from_environment()
    asked = worker.escalate("Drop the column?", options={"keep": "leave it", "drop": "drop it"})
    ruling = worker.await_ruling(asked.escalation_id)
    ...                           # act on it
    worker.acknowledge(ruling)    # from here on it is not delivered again
    worker.complete("dropped")

Every call goes on trying while the runner restarts, with the request id of its first try, so it has one effect. Delivery
is at least once: a worker that dies between acting and acknowledging gets the ruling again, with the same
``ruling_id``.
"""

from __future__ import annotations

import os
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, Self

from lanewarden.client_sync import SyncConnection, connect
from lanewarden.errors import Code, Reason, Refusal
from lanewarden.v1 import escalation_pb2
from lanewarden.v1 import worker_service_pb2 as pb
from lanewarden.worker_messages import (
    Assignment,
    Directive,
    Escalation,
    Message,
    Ruling,
    directive_of,
    enum_word,
    escalation_of,
    message_of,
    ruling_of,
)

if TYPE_CHECKING:
    from datetime import datetime

__all__ = ["Assignment", "Directive", "Escalation", "Message", "NotAWorker", "Ruling", "Worker", "new_request_id"]

RETRY_SECONDS: Final = 30.0
RETRY_DELAY_SECONDS_MIN: Final = 0.05
RETRY_DELAY_SECONDS_MAX: Final = 1.0
SEEN_MAX: Final = 4096
"""How many message ids :meth:`Worker.messages` remembers; a task's inbox holds a quarter of that."""

EMITTER: Final = "worker"
"""Who asks, where a row that the runner writes says so."""
_SERVICE: Final = pb.DESCRIPTOR.services_by_name["WorkerService"]
_AGAIN: Final = frozenset({Code.UNAVAILABLE, Code.DEADLINE_EXCEEDED})


class NotAWorker(Exception):  # noqa: N818 - a finding about where the program runs
    """The program was not started by a lane runner; the message is one line and says what is missing."""


class Worker:
    """A connection to the runner that started this process. Use it in a ``with`` block, or close it."""

    def __init__(self, connection: SyncConnection, *, retry_seconds: float = RETRY_SECONDS) -> None:
        self._connection = connection
        self._stub = connection.stub(_SERVICE)
        self._retry_seconds = retry_seconds

    @classmethod
    def from_environment(
        cls, environ: Mapping[str, str] | None = None, *, retry_seconds: float = RETRY_SECONDS
    ) -> Self:
        """The connection that LANEWARDEN_SOCKET and LANEWARDEN_TOKEN name.

        Raises:
            NotAWorker: one of them is not set.
        """
        variables = os.environ if environ is None else environ
        for name in ("LANEWARDEN_SOCKET", "LANEWARDEN_TOKEN"):
            if not variables.get(name):
                raise NotAWorker(f"not inside a worker: {name} is not set; a lane runner sets it for what it starts")
        socket = variables["LANEWARDEN_SOCKET"]
        target = socket if socket.startswith("unix:") else f"unix:{socket}"
        connection = connect(
            target,
            token=variables["LANEWARDEN_TOKEN"],
            unreachable=Reason.RUNNER_UNREACHABLE,
            emitter=EMITTER,
        )
        return cls(connection, retry_seconds=retry_seconds)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def assignment(self) -> Assignment:
        """What this worker is to do, as stored now."""
        response: pb.GetAssignmentResponse = self._unary("GetAssignment", pb.GetAssignmentRequest())
        task, spec = response.task, response.task.spec
        return Assignment(
            task_id=task.task_id,
            name=spec.name,
            lane=spec.lane,
            epoch=task.epoch,
            attempt=task.attempt,
            reason=enum_word(pb.StartReason, response.reason),
            argv=tuple(spec.argv),
            cwd=spec.cwd,
            progress=task.progress if task.HasField("progress") else None,
            holds=tuple(escalation_of(hold) for hold in response.holds),
        )

    def escalate(
        self,
        question: str,
        *,
        options: Mapping[str, str] | None = None,
        expects_reply: bool | None = None,
        key: str = "",
    ) -> Escalation:
        """Ask, or give notice. ``options`` maps the key of an answer to what it means; with options a reply is expected
        unless said otherwise. After the return the question is stored, and the worker may wait or exit.

        ``key`` is the worker's own name for the question: people see it, and a later attempt finds it in the
        assignment's holds. It makes nothing one: two questions with the same key are two.

        Raises:
            Refusal: TOO_LARGE, REQUEST_INVALID, LIMIT_REACHED, ATTEMPT_STALE, or what :mod:`lanewarden.errors` lists.
        """
        reply = bool(options) if expects_reply is None else expects_reply
        request = pb.WorkerServiceEscalateRequest(
            request_id=new_request_id(),
            question=question,
            options=[escalation_pb2.Option(key=key, text=text) for key, text in (options or {}).items()],
            expects_reply=reply,
            key=key,
        )
        return escalation_of(self._unary("Escalate", request).escalation)

    def await_ruling(self, escalation_id: str | None = None, *, timeout_seconds: float | None = None) -> Ruling:
        """Wait for the ruling on an escalation; without an id, on the oldest one of this task that is not acknowledged.

        Waits for ever by default, over restarts of the runner. :meth:`acknowledge` it once it has been acted on.

        Raises:
            TimeoutError: no ruling came within ``timeout_seconds``; the hold stays open.
            Refusal: HOLD_NOT_OPEN, ESCALATION_UNKNOWN, ATTEMPT_STALE.
        """
        wanted = escalation_id or ""
        deadline = None if timeout_seconds is None else time.monotonic() + timeout_seconds
        delays = _Delays()
        ruling: Ruling | None = None
        while True:
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                raise TimeoutError(f"no ruling within {timeout_seconds:g} s; the hold stays open")
            try:
                for event in self._stub.AwaitRuling(pb.AwaitRulingRequest(escalation_id=wanted), timeout_seconds=left):
                    delays.reset()
                    if event.HasField("message"):
                        ruling = ruling_of(event.message)  # the runner ends the stream, once it has noted the delivery
                    else:
                        wanted = event.waiting.escalation_id
            except Refusal as refusal:
                if ruling is None and refusal.reason.code not in _AGAIN:
                    raise
            if ruling is not None:
                return ruling
            delays.wait(at_most_seconds=left)

    def acknowledge(self, message: Ruling | Message) -> bool:
        """Say that a message has been taken; it is not sent again. Returns whether this call was the first to say so."""
        request = pb.AcknowledgeMessageRequest(request_id=new_request_id(), message_id=message.message_id)
        response: pb.AcknowledgeMessageResponse = self._unary("AcknowledgeMessage", request)
        return response.acknowledged_now

    def messages(self, *, follow: bool = False) -> Iterator[Message]:
        """The messages that are not acknowledged, oldest first; with ``follow`` then new ones as they come, for ever.

        A message that is not acknowledged comes again to the next attempt, not again here.
        """
        seen: OrderedDict[str, None] = OrderedDict()
        delays = _Delays(bound_seconds=None if follow else self._retry_seconds)
        while True:
            try:
                for response in self._stub.ReceiveMessages(pb.ReceiveMessagesRequest(stored_only=not follow)):
                    delays.reset()
                    if response.message.message_id not in seen:
                        seen[response.message.message_id] = None
                        if len(seen) > SEEN_MAX:
                            seen.popitem(last=False)
                        yield message_of(response.message)
                if not follow:
                    return
            except Refusal as refusal:
                if refusal.reason.code not in _AGAIN or delays.spent:
                    raise
            delays.wait()

    def progress(self, sequence: int | None = None, *, note: str = "", retry_at: datetime | None = None) -> int:
        """Report progress: ``sequence``, or one more than before. Returns the stored sequence, which never goes down.

        ``retry_at`` is for a worker that has met a limit of use: if it then exits with code 75, it is not started again
        before that time, which has a time zone and is at most 30 days away. Without a sequence that is no progress.

        Raises:
            ValueError: ``retry_at`` has no time zone.
            Refusal: REQUEST_INVALID for a time beyond its bound, ATTEMPT_STALE.
        """
        request = pb.ReportProgressRequest(request_id=new_request_id(), sequence=sequence or 0, note=note)
        if retry_at is not None:
            if retry_at.tzinfo is None:
                raise ValueError("retry_at needs a time zone")
            request.retry_at.FromDatetime(retry_at)
        response: pb.ReportProgressResponse = self._unary("ReportProgress", request)
        return response.sequence

    def next_directive(self, tokens: int, window: int = 0, *, measurement_id: str = "", turn: int = 0) -> Directive:
        """What to do about the context before the next turn; call it between turns with the tokens in use.

        ``window`` may be left out if the task names it. ``measurement_id`` tells measurements apart: one never counts twice;
        by default each call is a new one. ``turn`` is that of the measurement, by default one more than the last. Returns
        when a checkpoint that a reduction waits for is there, has failed, or has been waited for long enough.

        Raises:
            Refusal: REQUEST_INVALID, with the arithmetic, for a window too small for a reduction to help; ATTEMPT_STALE.
        """
        usage = pb.ContextUsage(tokens=tokens, window=window, measurement_id=measurement_id or new_request_id())
        while True:
            request = pb.NextDirectiveRequest(request_id=new_request_id(), usage=usage, turn=turn)
            response: pb.NextDirectiveResponse = self._unary("NextDirective", request)
            if response.directive != pb.DIRECTIVE_WAIT:
                return directive_of(response)

    def report_directive(
        self,
        directive_id: str,
        *,
        done: bool = True,
        content: str = "",
        failure: str = "unknown",
        inserted_tokens: int = 0,
        detail: str = "",
    ) -> bool:
        """Say how a directive went: a checkpoint that is done has a ``content``, a rebuild the tokens that it put in.
        ``failure`` is how a checkpoint failed: ``transient``, ``auth``, ``bad_request`` or ``unknown``. Returns whether this
        was the first report of it, which stands.

        Raises:
            Refusal: DIRECTIVE_UNKNOWN, REQUEST_INVALID, TOO_LARGE, ATTEMPT_STALE.
        """
        request = pb.ReportDirectiveRequest(
            request_id=new_request_id(),
            directive_id=directive_id,
            outcome=pb.DIRECTIVE_OUTCOME_DONE if done else pb.DIRECTIVE_OUTCOME_FAILED,
            content=content,
            failure=f"CHECKPOINT_FAILURE_{failure.upper()}",
            inserted_tokens=inserted_tokens,
            detail=detail,
        )
        response: pb.ReportDirectiveResponse = self._unary("ReportDirective", request)
        return response.reported_now

    def complete(self, summary: str = "", *, failed: bool = False) -> None:
        """State the outcome of the task; it becomes terminal when this process has exited.

        Raises:
            Refusal: COMPLETION_BLOCKED, naming every blocker, while a hold or a required gate is open.
        """
        outcome = pb.OUTCOME_FAILED if failed else pb.OUTCOME_SUCCEEDED
        self._unary("Complete", pb.CompleteRequest(request_id=new_request_id(), outcome=outcome, summary=summary))

    def _unary(self, method: str, request: Any) -> Any:
        call: Callable[[Any], Any] = getattr(self._stub, method)
        delays = _Delays(bound_seconds=self._retry_seconds)
        while True:
            try:
                return call(request)
            except Refusal as refusal:
                if refusal.reason.code not in _AGAIN or delays.spent:
                    raise
            delays.wait()


class _Delays:
    """Growing waits between tries, within a bound on their sum (None: no bound)."""

    def __init__(self, *, bound_seconds: float | None = None) -> None:
        self._bound_seconds = bound_seconds
        self.reset()

    def reset(self) -> None:
        """A try has worked: begin anew."""
        self._next_seconds = RETRY_DELAY_SECONDS_MIN
        self._until = None if self._bound_seconds is None else time.monotonic() + self._bound_seconds

    @property
    def spent(self) -> bool:
        """Whether the bound has passed."""
        return self._until is not None and time.monotonic() >= self._until

    def wait(self, *, at_most_seconds: float | None = None) -> None:
        """Sleep for the next delay."""
        seconds = self._next_seconds if at_most_seconds is None else min(self._next_seconds, at_most_seconds)
        time.sleep(seconds)
        self._next_seconds = min(self._next_seconds * 2, RETRY_DELAY_SECONDS_MAX)


def new_request_id() -> str:
    """A random UUID (version 4); made here because importing ``uuid`` costs a tenth of a worker verb's start."""
    digits = os.urandom(16).hex()
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-a{digits[17:20]}-{digits[20:]}"
