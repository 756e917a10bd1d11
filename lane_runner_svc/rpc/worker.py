"""WorkerService: requests become units of work, results become responses."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Final, TypeVar

from google.protobuf.json_format import MessageToJson
from google.protobuf.message import Message as ProtoMessage

from lane_runner_svc import emitters
from lane_runner_svc.core.holds import Hold, HoldState
from lane_runner_svc.core.ladder import Wish
from lane_runner_svc.core.task import Outcome, clipped
from lane_runner_svc.rpc import contexts
from lane_runner_svc.rpc.convert import hold_message, stored_message, task_message
from lane_runner_svc.runner import Runner
from lane_runner_svc.store import evidence, holds, messages, tasks
from lane_runner_svc.work import attempts, directives, inbox
from lane_runner_svc.work import tasks as task_work
from lane_runner_svc.work.directives import Measured
from lane_runner_svc.work.session import AttemptRef, Session
from lanewarden import rulings
from lanewarden.errors import Reason, Refusal, refuse
from lanewarden.hub import Topic
from lanewarden.server import AttemptClaim, Call, Identity, Role
from lanewarden.store import Connection, Emitter, requests
from lanewarden.v1 import escalation_pb2, message_pb2, worker_service_pb2
from lanewarden.v1.worker_service_pb2 import (
    AcknowledgeMessageRequest,
    AcknowledgeMessageResponse,
    AwaitRulingRequest,
    AwaitRulingResponse,
    CompleteRequest,
    CompleteResponse,
    GetAssignmentRequest,
    GetAssignmentResponse,
    NextDirectiveRequest,
    NextDirectiveResponse,
    ReceiveMessagesRequest,
    ReceiveMessagesResponse,
    ReportDirectiveRequest,
    ReportDirectiveResponse,
    ReportProgressRequest,
    ReportProgressResponse,
    WorkerServiceEscalateRequest,
    WorkerServiceEscalateResponse,
)
from lanewarden.waiting import take_within

_BEARER: Final = "Bearer "
_KNOWN_MAX: Final = 4096
WAIT_SECONDS_MAX: Final = 5.0
"""How long one NextDirective waits for a checkpoint; well below any deadline of a call."""
Response = TypeVar("Response", bound=ProtoMessage)


class WorkerAuthenticator:
    """Knows a worker by its attempt's token. Whether the attempt is still the current one is judged by each unit of
    work, in its transaction.
    """

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self._known: dict[bytes, Identity] = {}

    def authenticate(self, metadata: Mapping[str, str]) -> Identity:
        """The worker's identity.

        Raises:
            Refusal: CREDENTIAL_INVALID.
        """
        header = metadata.get("authorization", "")
        digest = hashlib.sha256(header.removeprefix(_BEARER).encode("utf-8", "replace")).digest()
        return self._known.get(digest) or self._look_up(digest)

    def _look_up(self, digest: bytes) -> Identity:
        attempt = self._runner.read(lambda reader: tasks.attempt_of_token(reader, digest))
        if attempt is None:
            raise refuse(
                Reason.CREDENTIAL_INVALID,
                "no attempt has this token; a worker finds its own in LANEWARDEN_TOKEN",
            )
        claim = AttemptClaim(task_id=attempt.task_id, epoch=attempt.epoch, attempt=attempt.attempt)
        identity = Identity(name=f"worker of {attempt.task_id}", role=Role.WORKER, attempt=claim)
        if len(self._known) >= _KNOWN_MAX:
            self._known.clear()
        self._known[digest] = identity
        return identity


def _ref(call: Call) -> AttemptRef:
    claim = call.identity.attempt
    if claim is None:
        raise refuse(
            Reason.ROLE_NOT_ALLOWED, "only a worker may call this", role=call.identity.role.value, needed="worker"
        )
    return AttemptRef(task_id=claim.task_id, epoch=claim.epoch, attempt=claim.attempt)


class WorkerHandlers:
    """What a worker may ask of its runner."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner

    async def GetAssignment(self, request: GetAssignmentRequest, call: Call) -> GetAssignmentResponse:
        """The worker's task, why it was started, and the holds that are not closed."""
        ref = _ref(call)

        def look(reader: Connection) -> GetAssignmentResponse:
            task = tasks.load(reader, ref.task_id)
            attempt = tasks.load_attempt(reader, ref.task_id, ref.epoch, ref.attempt)
            attempts.check_current(task, attempt, ref)
            return GetAssignmentResponse(
                task=task_message(reader, task, self._runner.runner_id),
                reason=f"START_REASON_{attempt.reason if attempt else 'UNSPECIFIED'}",
                holds=[
                    hold_message(reader, hold, self._runner.runner_id, task=task)
                    for hold in holds.blocking(reader, ref.task_id)
                ],
            )

        return self._runner.read(look)

    async def Escalate(self, request: WorkerServiceEscalateRequest, call: Call) -> WorkerServiceEscalateResponse:
        """Store the question, and the hold, before the answer."""
        ref = _ref(call)

        def work(session: Session) -> WorkerServiceEscalateResponse:
            options = [(option.key, option.text) for option in request.options]
            hold, task = inbox.escalate(
                session,
                ref,
                question=request.question,
                options=options,
                expects_reply=request.expects_reply,
                key=request.key,
            )
            escalation = hold_message(session.uow, hold, self._runner.runner_id, task=task)
            return WorkerServiceEscalateResponse(escalation=escalation)

        return await self._say(ref, request, call, WorkerServiceEscalateResponse, work, emitters.ESCALATE)

    async def AwaitRuling(self, request: AwaitRulingRequest, call: Call) -> AsyncIterator[AwaitRulingResponse]:
        """Look at the store before every wait, so that a ruling given earlier, or meanwhile, is never missed."""
        ref = _ref(call)
        escalation_id = request.escalation_id or self._oldest_hold(ref)
        shown = -1
        with self._runner.hub.subscribe(Topic("escalation", escalation_id), Topic("task", ref.task_id)) as news:
            while True:
                found = self._look_for_ruling(ref, escalation_id)
                if isinstance(found, message_pb2.Message):
                    yield AwaitRulingResponse(message=found)
                    await self._mark_sent(ref, found.message_id)
                    return
                if found.acks != shown:
                    shown = found.acks
                    yield AwaitRulingResponse(waiting=found)
                await news.take()

    def _oldest_hold(self, ref: AttemptRef) -> str:
        def look(reader: Connection) -> list[Hold]:
            _refuse_stale(reader, ref)
            return holds.blocking(reader, ref.task_id)

        found = self._runner.read(look)
        if not found:
            raise refuse(
                Reason.HOLD_NOT_OPEN,
                f"task {ref.task_id} has no hold to wait for; escalate with expects_reply first",
                task_id=ref.task_id,
            )
        return found[0].escalation_id

    def _look_for_ruling(self, ref: AttemptRef, escalation_id: str) -> escalation_pb2.Escalation | message_pb2.Message:
        """The ruling, if there is one; the hold as it stands, if not."""

        def look(reader: Connection) -> escalation_pb2.Escalation | message_pb2.Message:
            _refuse_stale(reader, ref)
            hold = holds.load(reader, escalation_id)
            if hold.task_id != ref.task_id:
                raise refuse(
                    Reason.ESCALATION_UNKNOWN,
                    f"task {ref.task_id} has no escalation {escalation_id!r}",
                    escalation_id=escalation_id,
                )
            if hold.ruling is not None:
                stored = messages.load(reader, hold.ruling.ruling_id)
                assert stored is not None, "a released hold has its ruling in the inbox"
                return stored_message(reader, stored, ruling=hold.ruling)
            if hold.state is not HoldState.OPEN:
                raise rulings.not_open(escalation_id, state=hold.state.name, cause=hold.cancel_cause)
            return hold_message(reader, hold, self._runner.runner_id)

        return self._runner.read(look)

    async def ReceiveMessages(
        self, request: ReceiveMessagesRequest, call: Call
    ) -> AsyncIterator[ReceiveMessagesResponse]:
        """Send what waits, then what comes; each once on this stream."""
        ref = _ref(call)
        sent: set[str] = set()
        with self._runner.hub.subscribe(Topic("task", ref.task_id)) as news:
            while True:
                waiting = self._look_for_messages(ref)
                for message in waiting:
                    if message.message_id not in sent:
                        yield ReceiveMessagesResponse(message=message)
                        await self._mark_sent(ref, message.message_id)
                sent = {message.message_id for message in waiting}
                if request.stored_only:
                    return
                await news.take()

    def _look_for_messages(self, ref: AttemptRef) -> list[message_pb2.Message]:
        def look(reader: Connection) -> list[message_pb2.Message]:
            _refuse_stale(reader, ref)
            return [stored_message(reader, stored) for stored in messages.waiting(reader, ref.task_id)]

        return self._runner.read(look)

    async def _mark_sent(self, ref: AttemptRef, message_id: str) -> None:
        await self._runner.do(
            lambda session: inbox.sent(session, ref, message_id), emitter=emitters.DELIVER, task_id=ref.task_id
        )

    async def AcknowledgeMessage(self, request: AcknowledgeMessageRequest, call: Call) -> AcknowledgeMessageResponse:
        """The worker has taken a message."""
        ref = _ref(call)

        def work(session: Session) -> AcknowledgeMessageResponse:
            stored, now = inbox.acknowledge_message(session, ref, request.message_id)
            return AcknowledgeMessageResponse(message=stored_message(session.uow, stored), acknowledged_now=now)

        return await self._say(ref, request, call, AcknowledgeMessageResponse, work, emitters.TAKEN)

    async def ReportProgress(self, request: ReportProgressRequest, call: Call) -> ReportProgressResponse:
        """Raise the task's progress, or note when the worker's limit of use ends. What would raise nothing writes nothing: a
        worker may say where it is as often as it likes.
        """
        ref = _ref(call)
        stored = self._runner.read(lambda reader: self._progress_told(reader, ref, request))
        if stored is not None:
            return ReportProgressResponse(sequence=stored, advanced=False)
        retry_wall_ms = request.retry_at.ToMilliseconds() if request.HasField("retry_at") else None

        def work(session: Session) -> ReportProgressResponse:
            stored, advanced = task_work.report_progress(
                session, ref, sequence=request.sequence, note=request.note, retry_wall_ms=retry_wall_ms
            )
            return ReportProgressResponse(sequence=stored, advanced=advanced)

        return await self._say(ref, request, call, ReportProgressResponse, work, emitters.PROGRESS)

    @staticmethod
    def _progress_told(reader: Connection, ref: AttemptRef, request: ReportProgressRequest) -> int | None:
        if not request.sequence or request.HasField("retry_at") or requests.known(reader, request.request_id):
            return None
        return task_work.progress_told(reader, ref, request.sequence)

    async def NextDirective(self, request: NextDirectiveRequest, call: Call) -> NextDirectiveResponse:
        """What to do about the worker's context. A reduction that waits for a checkpoint waits in here first, a while."""
        ref = _ref(call)
        wish = contexts.wish(self._runner.read(lambda reader: contexts.spec_of(tasks.load(reader, ref.task_id))))
        measured = Measured(
            tokens=request.usage.tokens,
            window_tokens=request.usage.window,
            measurement_id=request.usage.measurement_id or request.request_id,
            turn=request.turn,
        )
        await self._await_writer(ref, wish)

        def work(session: Session) -> NextDirectiveResponse:
            answer = directives.next_directive(session, ref, measured, wish)
            return contexts.directive_message(answer, wish)

        return await self._say(ref, request, call, NextDirectiveResponse, work, emitters.DIRECTIVE)

    async def _await_writer(self, ref: AttemptRef, wish: Wish) -> None:
        """Until the checkpoint that a reduction waits for is there or has failed, or it is time to say WAIT."""
        clock = self._runner.clock

        def wait_ms(reader: Connection) -> int:
            return directives.wait_ms(reader, ref, wish, clock.steady_ms())

        with self._runner.hub.subscribe(Topic("context", ref.task_id)) as news:
            if left_ms := self._runner.read(wait_ms):
                await take_within(news, clock, min(WAIT_SECONDS_MAX, left_ms / 1000))

    async def ReportDirective(self, request: ReportDirectiveRequest, call: Call) -> ReportDirectiveResponse:
        """What came of a directive."""
        ref = _ref(call)
        said = directives.Report(
            done=request.outcome == worker_service_pb2.DIRECTIVE_OUTCOME_DONE,
            content=request.content,
            failure=contexts.failure(request.failure),
            inserted_tokens=request.inserted_tokens,
            detail=request.detail,
        )

        def work(session: Session) -> ReportDirectiveResponse:
            return ReportDirectiveResponse(reported_now=directives.report(session, ref, request.directive_id, said))

        return await self._say(ref, request, call, ReportDirectiveResponse, work, emitters.DIRECTIVE)

    async def Complete(self, request: CompleteRequest, call: Call) -> CompleteResponse:
        """Store what the worker says its task came to."""
        ref = _ref(call)
        failed = request.outcome == worker_service_pb2.OUTCOME_FAILED

        def work(session: Session) -> CompleteResponse:
            outcome = Outcome.FAILED if failed else Outcome.SUCCEEDED
            task = task_work.complete(session, ref, outcome=outcome, summary=request.summary)
            return CompleteResponse(task=task_message(session.uow, task, self._runner.runner_id))

        return await self._say(ref, request, call, CompleteResponse, work, emitters.COMPLETE)

    async def _say(
        self,
        ref: AttemptRef,
        request: ProtoMessage,
        call: Call,
        response_type: type[Response],
        work: Callable[[Session], Response],
        emitter: Emitter,
    ) -> Response:
        """Carry out what a worker says; what it says too late has no effect and is kept as evidence."""
        try:
            return await self._runner.command(request, call, response_type, work, emitter=emitter, task_id=ref.task_id)
        except Refusal as refusal:
            if refusal.reason is Reason.ATTEMPT_STALE:
                await self._keep(ref, request, call, refusal)
            raise

    async def _keep(self, ref: AttemptRef, request: ProtoMessage, call: Call, refusal: Refusal) -> None:
        """In a unit of work of its own, since the refusal undid the other; beyond the bound nothing is written. The caller
        hears its refusal, whatever becomes of this.
        """
        said = evidence.Said(
            task_id=ref.task_id,
            epoch=ref.epoch,
            attempt=ref.attempt,
            method=call.method.rpartition("/")[2],
            content=clipped(MessageToJson(request, preserving_proto_field_name=True, indent=None, ensure_ascii=False)),
            reason=refusal.reason.name,
            request_id=request.request_id,  # type: ignore[attr-defined]
        )
        with contextlib.suppress(Refusal):
            if self._runner.read(lambda reader: evidence.wanted(reader, said)):
                await self._runner.do(
                    lambda session: evidence.keep(session.uow, said, session.now.wall_ms),
                    emitter=emitters.EVIDENCE,
                    task_id=ref.task_id,
                    call=call,
                )


def _refuse_stale(reader: Connection, ref: AttemptRef) -> None:
    """A reading call of an attempt that is over ends with ATTEMPT_STALE."""
    task = tasks.load(reader, ref.task_id)
    attempt = tasks.load_attempt(reader, ref.task_id, ref.epoch, ref.attempt)
    attempts.check_current(task, attempt, ref)
