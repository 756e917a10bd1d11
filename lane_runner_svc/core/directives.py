"""The gate: what a worker with a context window is to do before its next turn; ``judge(...) -> Decision``; pure.

Rules about this file: acting on the signal discharges it, whatever the act; only a rebuild that was inserted begins a new
cycle (:func:`rebuilt`); a rung is consumed by a start and by nothing else; and reductions have a budget, so that their
number depends on it and not on how long the worker runs (I10).
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final

from lane_runner_svc.core.checkpoints import Checkpoint, CheckpointState
from lane_runner_svc.core.ladder import Ladder, Wish
from lanewarden.records import replace


class Directive(enum.Enum):
    """The names are those of ``lanewarden.v1.Directive``."""

    CONTINUE = "CONTINUE"
    WAIT = "WAIT"
    CHECKPOINT = "CHECKPOINT"
    REBUILD = "REBUILD"
    COMPACT = "COMPACT"
    WRAP_UP = "WRAP_UP"


EARLIER_IDS_MAX: Final = 16
"""How many ids of measurements are remembered beside the latest; more than a worker measures at the same time."""
ACTS: Final = frozenset({Directive.REBUILD, Directive.COMPACT, Directive.WRAP_UP})
"""What discharges the signal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """One measurement, by the worker of ``attempt`` in its turn ``turn``."""

    attempt: int
    turn: int
    measurement_id: str
    tokens: int


@dataclass(frozen=True, kw_only=True)
class Context:
    """The context window of a task in one epoch, as stored.

    ``attempt`` to ``tokens`` are the latest measurement, ``earlier_ids`` are those before it of the same attempt. Of the
    ``cycle``: ``consumed`` is the highest rung that is, ``raised`` whether the last one has asked for its reduction,
    ``tried_tokens`` the fewest tokens since the writer's last start, ``injected`` what the rebuild that began it put in, as
    far as that can still be there. ``failures`` counts the writer's since the last reduction, and ``boundary_*`` is the turn
    of that.
    """

    task_id: str
    epoch: int
    attempt: int = 0
    turn: int = 0
    measurement_id: str = ""
    tokens: int = 0
    cycle: int = 1
    consumed: int = 0
    raised: bool = False
    tried_tokens: int = 0
    injected: int = 0
    failures: int = 0
    reductions: int = 0
    wrapped_up: bool = False
    boundary_attempt: int = 0
    boundary_turn: int = 0
    earlier_ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What else is stored: whether the signal is outstanding, the writer's latest start, and the latest checkpoint that was
    committed in this cycle.
    """

    signal: bool
    writer: Checkpoint | None
    usable: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """``raised`` is why the signal is raised now, or empty; ``start``: the writer is started, with ``consumed_before`` as
    the highest rung that was consumed; ``timed_out``: the one in flight has been waited for long enough. ``directive`` is
    given with ``cause``.
    """

    context: Context
    directive: Directive
    cause: str
    raised: str = ""
    start: bool = False
    consumed_before: int = 0
    timed_out: bool = False


def judge(context: Context, usage: Usage, seen: Seen, ladder: Ladder, wish: Wish, now_ms: int) -> Decision:
    """What to do about a measurement and about what is outstanding. ``now_ms`` is steady time."""
    raised, start, consumed_before = "", False, context.consumed
    if _counts(context, usage):
        context = _noted(context, usage)
        raised = "" if seen.signal else _due(context, ladder, wish)
        start = _starts(context, seen.writer, ladder, wish)
        if raised and _pressed(context, ladder):
            context = replace(context, raised=True)
        if start:
            consumed = max(context.consumed, _reached(context, ladder))
            context = replace(context, consumed=consumed, tried_tokens=usage.tokens)
    asked = seen.signal or bool(raised)
    if start and not wish.command:
        directive, cause = Directive.CHECKPOINT, f"{usage.tokens} tokens are in use"
    elif not asked:
        directive, cause = Directive.CONTINUE, "a checkpoint is being written" if start else "nothing is due"
    elif start or now_ms < waited_until_ms(seen.writer, wish):
        directive, cause = Directive.WAIT, "a checkpoint is being written"
    else:
        return _act(context, usage, seen, wish, raised)
    return Decision(
        context=context,
        directive=directive,
        cause=cause,
        raised=raised,
        start=start,
        consumed_before=consumed_before,
    )


def waited_until_ms(writer: Checkpoint | None, wish: Wish) -> int:
    """Until when a reduction waits for the writer; 0 when there is none to wait for, or no longer. Steady time."""
    if writer is None or writer.state is not CheckpointState.WRITING:
        return 0
    return writer.started_ms + wish.writer_wait_ms


def next_turn(context: Context, attempt: int) -> int:
    """The turn of a worker that does not count its turns: one more than the last that was heard of."""
    heard = ((context.attempt, context.turn), (context.boundary_attempt, context.boundary_turn))
    return max((turn for each, turn in heard if each == attempt), default=0) + 1


def rebuilt(context: Context, inserted_tokens: int) -> Context:
    """A rebuild was inserted: the ladder is armed again, above what that put in."""
    return replace(
        context,
        cycle=context.cycle + 1,
        consumed=0,
        raised=False,
        tried_tokens=0,
        failures=0,
        injected=inserted_tokens,
    )


def withdrawn(context: Context) -> Context:
    """The task has ended before anybody acted on the signal: a retry's worker that is over the last rung asks anew."""
    return replace(context, raised=False)


def written(context: Context, checkpoint: Checkpoint, state: CheckpointState) -> Context:
    """The writer has ended. A start that came to nothing for no fault of its own gives its rung back; one that could not be
    made counts as a try, or it would be made at every turn.
    """
    if checkpoint.cycle != context.cycle:
        return context
    if state in (CheckpointState.NOT_STARTED, CheckpointState.SUPERSEDED):
        context = replace(context, consumed=min(context.consumed, checkpoint.consumed_before))
    if state in (CheckpointState.NOT_STARTED, CheckpointState.FAILED):
        context = replace(context, failures=context.failures + 1)
    return context


def _counts(context: Context, usage: Usage) -> bool:
    """A measurement counts once; each worker has ids of its own. One of an earlier turn than the last is an old one, and one
    that is not of a later turn than the last reduction is about the context before it.
    """
    same_worker = usage.attempt == context.attempt
    if same_worker and usage.measurement_id in (context.measurement_id, *context.earlier_ids):
        return False
    in_order = not same_worker or usage.turn >= context.turn
    return in_order and (usage.attempt != context.boundary_attempt or usage.turn > context.boundary_turn)


def _noted(context: Context, usage: Usage) -> Context:
    earlier_ids = (*context.earlier_ids, context.measurement_id) if usage.attempt == context.attempt else ()
    return replace(
        context,
        earlier_ids=earlier_ids[-EARLIER_IDS_MAX:],
        attempt=usage.attempt,
        turn=usage.turn,
        measurement_id=usage.measurement_id,
        tokens=usage.tokens,
        tried_tokens=min(context.tried_tokens, usage.tokens),
        injected=min(context.injected, usage.tokens),
    )


def _due(context: Context, ladder: Ladder, wish: Wish) -> str:
    """Why a reduction is due by this measurement; empty if none is, or the worker has been told that there are no more."""
    if context.reductions >= wish.reductions_max and context.wrapped_up:
        return ""
    if _pressed(context, ladder) and not context.raised:
        return f"{context.tokens} tokens are in use, and the last rung is at {ladder.rungs[-1]}"
    if context.tokens >= ladder.limit:
        return f"{context.tokens} tokens are in use, and the window has overflowed from {ladder.limit} on"
    return ""


def _pressed(context: Context, ladder: Ladder) -> bool:
    """The last rung is crossed."""
    return bool(ladder.rungs) and _reached(context, ladder) == ladder.rungs[-1]


def _reached(context: Context, ladder: Ladder) -> int:
    """The highest rung that is crossed. What a rebuild has put in does not push the ladder."""
    pressure = context.tokens - context.injected
    return max((rung for rung in ladder.rungs if rung <= pressure), default=0)


def _starts(context: Context, writer: Checkpoint | None, ladder: Ladder, wish: Wish) -> bool:
    """Whether the writer is started: for a rung that was not consumed, or once more after a failure that may pass."""
    if context.reductions >= wish.reductions_max or (writer is not None and writer.in_flight):
        return False
    crossing = _reached(context, ladder) > context.consumed
    if writer is None or writer.cycle != context.cycle:
        return crossing
    again = context.tokens > context.tried_tokens and context.failures < wish.writer_failures_max
    if writer.state is CheckpointState.NOT_STARTED:
        next_rung = _reached(context, ladder) > _reached(replace(context, tokens=writer.tokens), ladder)
        return crossing and (again or next_rung)
    if writer.failure is None or crossing:
        return crossing
    return again and writer.failure.retryable and context.tokens < ladder.limit


def _act(context: Context, usage: Usage, seen: Seen, wish: Wish, raised: str) -> Decision:
    timed_out = seen.writer is not None and seen.writer.state is CheckpointState.WRITING
    if context.reductions >= wish.reductions_max:
        return Decision(
            context=replace(context, wrapped_up=True),
            directive=Directive.WRAP_UP,
            cause=f"the budget of {wish.reductions_max} reductions is spent",
            raised=raised,
            timed_out=timed_out,
        )
    acted = replace(
        context,
        reductions=context.reductions + 1,
        failures=0,
        boundary_attempt=usage.attempt,
        boundary_turn=usage.turn,
    )
    return Decision(
        context=acted,
        directive=Directive.REBUILD if seen.usable else Directive.COMPACT,
        cause=f"from checkpoint {seen.usable}" if seen.usable else "no checkpoint was committed since the last rebuild",
        raised=raised,
        timed_out=timed_out,
    )
