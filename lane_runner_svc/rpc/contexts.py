"""Context windows between the contract's messages and the core's words."""

from __future__ import annotations

from typing import Final

from lane_runner_svc.core import ladder
from lane_runner_svc.core.checkpoints import Checkpoint, Failure
from lane_runner_svc.core.ladder import Wish
from lane_runner_svc.core.task import Task
from lane_runner_svc.rpc.convert import signal_message
from lane_runner_svc.work.directives import Answer
from lanewarden.errors import Refusal
from lanewarden.stamps import timestamp
from lanewarden.v1 import context_pb2, task_pb2
from lanewarden.v1.worker_service_pb2 import NextDirectiveResponse

TOKENS_MAX: Final = 10**9
WAIT_MS_MAX: Final = 3_600_000


def spec_of(task: Task) -> context_pb2.ContextSpec:
    """How the task wants its context window looked after, in the contract's words."""
    return task_pb2.TaskSpec.FromString(task.spec).context


def wish(spec: context_pb2.ContextSpec) -> Wish:
    """The same in the core's words, with every default filled in."""
    return Wish(
        window_tokens=spec.window_tokens,
        rungs=tuple(spec.rungs),
        reserve_tokens=spec.reserve_tokens if spec.HasField("reserve_tokens") else ladder.RESERVE_TOKENS_DEFAULT,
        reduced_tokens=spec.reduced_tokens if spec.HasField("reduced_tokens") else ladder.REDUCED_TOKENS_DEFAULT,
        reductions_max=spec.reductions_max if spec.HasField("reductions_max") else ladder.REDUCTIONS_MAX_DEFAULT,
        command=bool(spec.writer),
        writer_wait_ms=(
            spec.writer_wait.ToMilliseconds() if spec.HasField("writer_wait") else ladder.WRITER_WAIT_MS_DEFAULT
        ),
        writer_failures_max=(
            spec.writer_failures_max if spec.HasField("writer_failures_max") else ladder.WRITER_FAILURES_MAX_DEFAULT
        ),
    )


def problems(spec: task_pb2.TaskSpec) -> list[tuple[str, str]]:
    """What is wrong with how a task wants its context window looked after; the arithmetic, where its size is named."""
    found = []
    context = spec.context
    if any(not 0 < rung <= TOKENS_MAX for rung in context.rungs):
        found.append(("spec.context.rungs", f"each must be from 1 to {TOKENS_MAX}"))
    if not 0 <= context.writer_wait.ToMilliseconds() <= WAIT_MS_MAX:
        found.append(("spec.context.writer_wait", "must be from 0 to 1 hour"))
    if context.window_tokens or context.rungs:
        # Of a window that is told later, the ladder alone can be looked at: no limit is as far as any window's.
        asked = wish(context)
        try:
            ladder.ladder(context.window_tokens or asked.reserve_tokens + TOKENS_MAX + asked.reduced_tokens, asked)
        except Refusal as refusal:
            found += [(f"spec.{each.field}", each.description) for each in refusal.violations]
    return found


def failure(value: context_pb2.CheckpointFailure) -> Failure:
    """How a worker says that its checkpoint failed."""
    if value == context_pb2.CHECKPOINT_FAILURE_UNSPECIFIED:
        return Failure.UNKNOWN
    return Failure[context_pb2.CheckpointFailure.Name(value).removeprefix("CHECKPOINT_FAILURE_")]


def checkpoint_message(checkpoint: Checkpoint, *, content: bool = False) -> context_pb2.Checkpoint:
    """One start of the writer; with ``content`` also what it wrote."""
    text = checkpoint.content or ""
    return context_pb2.Checkpoint(
        checkpoint_id=checkpoint.checkpoint_id,
        task_id=checkpoint.task_id,
        epoch=checkpoint.epoch,
        attempt=checkpoint.attempt,
        cycle=checkpoint.cycle,
        state=f"CHECKPOINT_STATE_{checkpoint.state.value}",
        failure=f"CHECKPOINT_FAILURE_{checkpoint.failure.value if checkpoint.failure else 'UNSPECIFIED'}",
        retryable=checkpoint.failure is not None and checkpoint.failure.retryable,
        detail=checkpoint.detail,
        tokens=checkpoint.tokens,
        started_at=timestamp(checkpoint.started_wall_ms),
        ended_at=timestamp(checkpoint.ended_wall_ms),
        content_bytes=len(text.encode()),
        content=text if content else "",
    )


def directive_message(answer: Answer, asked: Wish) -> NextDirectiveResponse:
    """What the worker is told."""
    return NextDirectiveResponse(
        directive=f"DIRECTIVE_{answer.directive.value}",
        directive_id=answer.directive_id,
        cause=answer.cause,
        checkpoint=checkpoint_message(answer.checkpoint, content=True) if answer.checkpoint else None,
        reductions=answer.reductions,
        reductions_max=asked.reductions_max,
        signals=[signal_message(each) for each in answer.signals],
    )
