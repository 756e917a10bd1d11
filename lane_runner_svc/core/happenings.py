"""What happens to a task: ``transition(task, happening, now) -> Step``; pure.

A *happening* is what the shell observed (a launch that failed, a worker that ended); the transition judges it, names the
event of :mod:`lane_runner_svc.core.states`, and says which effects follow. The caller stores the new task and carries the
effects out in the same unit of work, or, for what touches processes, after it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import singledispatch

from lane_runner_svc.core import budget, limits
from lane_runner_svc.core.completion import Blocker, named
from lane_runner_svc.core.holds import Actor
from lane_runner_svc.core.moves import move
from lane_runner_svc.core.settle import relaunched, settled
from lane_runner_svc.core.states import Event, IllegalTransitionError, State, after
from lane_runner_svc.core.task import (
    Author,
    Effect,
    Exit,
    ExitKind,
    Kind,
    Now,
    Outcome,
    Step,
    Task,
    clipped,
    ended,
    ending,
    illegal,
)
from lanewarden.errors import Reason, refuse
from lanewarden.records import replace


@dataclass(frozen=True, slots=True, kw_only=True)
class Claimed:
    """The lane took the task: the attempt is counted before the launch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Launched:
    """The worker is alive."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchFailed:
    """The worker could not be started. ``jitter`` is in [0, 1)."""

    cause: str
    jitter: float


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldOpened:
    """The worker asked and needs a ruling."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldReleased:
    """A hold was ruled on; ``open_holds`` others are still open."""

    open_holds: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Exited:
    """The process tree of the attempt is gone.

    ``interrupted`` says that the runner stopped it for a reason of its own (it is going down), which spends nothing.
    ``blockers`` is the judge's word at this moment; ``unacknowledged`` names rulings that the worker never acknowledged;
    ``retry_ms`` is when the worker said that its limit of use ends.
    For a session, ``unread`` counts the inputs that its round was started for and that the worker never acknowledged, and
    ``more`` says that others have come meanwhile.
    """

    exit: Exit
    open_holds: int
    unacknowledged: Sequence[str]
    blockers: Sequence[Blocker]
    jitter: float
    interrupted: bool = False
    retry_ms: int | None = None
    unread: int = 0
    more: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelAsked:
    """An operator wants the task to end."""

    cause: str
    by: Actor


@dataclass(frozen=True, slots=True, kw_only=True)
class InputCame:
    """An input was stored for a session that rests."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompleteAsked:
    """The worker says what its task came to."""

    outcome: Outcome
    summary: str
    blockers: Sequence[Blocker]


Happening = (
    Claimed | Launched | LaunchFailed | HoldOpened | HoldReleased | Exited | CancelAsked | InputCame | CompleteAsked
)


def transition(task: Task, happening: Happening, now: Now) -> Step:
    """Judge a happening.

    Raises:
        Refusal: TASK_TERMINAL or TASK_SETTLED, ILLEGAL_TRANSITION, COMPLETION_BLOCKED; the task is unchanged.
    """
    try:
        return _judge(happening, task, now)
    except IllegalTransitionError as error:
        raise illegal(task, error) from None


@singledispatch
def _judge(happening: object, task: Task, now: Now) -> Step:
    raise TypeError(f"not a happening: {happening!r}")


@_judge.register
def _(happening: Claimed, task: Task, now: Now) -> Step:
    assert not task.pauses, "a paused task is never claimed"
    assert not task.worker_alive, "no worker of attempt n is alive when attempt n+1 starts (I5)"
    claimed = replace(task, attempt=task.attempt + 1, exit_code=None, exit_signal=None, claimed_ms=now.steady_ms)
    forgotten = replace(claimed, outcome=None, outcome_summary="", relaunch_cause=None)
    return move(forgotten, Event.CLAIMED, now)


@_judge.register
def _(happening: Launched, task: Task, now: Now) -> Step:
    return move(replace(task, worker_alive=True, launch_failures=0, not_before_ms=0), Event.LAUNCHED, now)


@_judge.register
def _(happening: LaunchFailed, task: Task, now: Now) -> Step:
    failures = task.launch_failures + 1
    counted = replace(task, worker_alive=False, launch_failures=failures)
    if task.stopping:
        return _as_asked(counted, now)
    if failures >= task.launch_failures_max:
        summary = f"launch failed {failures} times; the last time: {happening.cause}"
        return move(counted, Event.LAUNCHES_SPENT, now, summary=summary)
    summary = f"launch {failures} of {task.launch_failures_max} failed: {happening.cause}"
    delay_ms = budget.backoff_ms(failures, happening.jitter)
    return _relaunch(counted, Event.LAUNCH_FAILED, now, summary=summary, delay_ms=delay_ms)


def _relaunch(task: Task, event: Event, now: Now, *, summary: str, delay_ms: int) -> Step:
    """Back into the queue: the launch came to nothing, and the next one waits for the delay and for the rate of such
    launches.
    """
    fruitless_ms = budget.spent(task.fruitless_ms, task.claimed_ms)
    opens_ms, due_ms = budget.window_opens_ms(fruitless_ms), now.steady_ms + delay_ms
    if opens_ms > due_ms:
        minutes = budget.WINDOW_MS // 60_000
        summary += f"; it waits, for {budget.LAUNCHES_MAX} launches within {minutes} minutes came to nothing"
    queued = replace(task, fruitless_ms=fruitless_ms, not_before_ms=max(opens_ms, due_ms))
    return move(queued, event, now, summary=summary)


@_judge.register
def _(happening: HoldOpened, task: Task, now: Now) -> Step:
    return move(task, Event.HOLD_OPENED, now)


@_judge.register
def _(happening: HoldReleased, task: Task, now: Now) -> Step:
    if happening.open_holds:
        return Step(task=task)
    event = Event.RELEASED_ALIVE if task.worker_alive else Event.RELEASED_AWAY
    return move(replace(task, not_before_ms=0), event, now)


@_judge.register
def _(happening: Exited, task: Task, now: Now) -> Step:
    exit_ = happening.exit
    gone = replace(task, worker_alive=False, exit_code=exit_.code, exit_signal=exit_.signal)
    if gone.stopping:
        return _as_asked(gone, now)
    if happening.retry_ms is not None and exit_.code == limits.EXIT_CODE and gone.outcome is None:
        return _limited(limits.wait(gone, happening.retry_ms), happening, now)
    if happening.open_holds:
        return move(replace(gone, relaunch_cause=None), Event.EXITED_HELD, now)
    if gone.relaunch_cause is not None and gone.outcome is None:
        return relaunched(gone, now)
    if (happening.interrupted or exit_.runner_lost) and gone.outcome is None:
        how = f": the worker {exit_}" if exit_.runner_lost else " was stopped with the runner"
        return move(gone, Event.INTERRUPTED, now, summary=f"attempt {gone.attempt}{how}")
    if exit_.kind is ExitKind.NEVER_STARTED and gone.state is State.STARTING:
        return _judge(LaunchFailed(cause="the runner ended before the worker began", jitter=0.0), gone, now)
    if happening.unacknowledged:
        unheard = ", ".join(happening.unacknowledged)
        return _early(gone, f"the worker {exit_} without acknowledging the ruling on {unheard}", happening, now)
    if gone.outcome is not None:
        return _completed(gone, happening.blockers, now)
    if happening.unread:
        return _early(gone, f"the worker {exit_} without acknowledging {happening.unread} inputs", happening, now)
    if exit_.early:
        return _early(gone, f"the worker {exit_}", happening, now)
    return _by_itself(gone, happening, now)


def _by_itself(gone: Task, happening: Exited, now: Now) -> Step:
    """The program ended with a code of its own."""
    exit_ = happening.exit
    if exit_.code != 0:
        return move(gone, Event.EXITED_WRONG, now, summary=f"the worker {exit_}")
    if gone.kind is Kind.SESSION:  # a round is over; only Complete ends the session, and only Complete asks the judge
        return move(gone, Event.ROUND_FOLLOWS if happening.more else Event.ROUND_DONE, now)
    if happening.blockers:
        return move(gone, Event.EXITED_WRONG, now, summary=_blocked("exited with code 0", happening.blockers))
    return move(gone, Event.EXITED_DONE, now, summary="the worker exited with code 0")


def _early(gone: Task, what: str, happening: Exited, now: Now) -> Step:
    """An attempt ended without the worker's own word: launch again within the budget."""
    exits = gone.premature_exits + 1
    counted = replace(gone, premature_exits=exits)
    if exits > gone.premature_exits_max:
        summary = (
            f"attempt {gone.attempt}: {what}; that was premature exit {exits} of {gone.premature_exits_max} allowed"
        )
        return move(counted, Event.EXITED_WRONG, now, summary=summary)
    summary = f"attempt {gone.attempt}: {what}; relaunch {exits} of {gone.premature_exits_max}"
    delay_ms = budget.backoff_ms(exits, happening.jitter)
    return _relaunch(counted, Event.EXITED_EARLY, now, summary=summary, delay_ms=delay_ms)


def _limited(limited: Task, happening: Exited, now: Now) -> Step:
    """The worker met a limit of use and said when it ends. That spends no budget; it counts for the rate, so that a worker
    that always names a time that has passed is not launched without end.
    """
    if happening.open_holds:
        return move(replace(limited, relaunch_cause=None), Event.EXITED_HELD, now)
    summary = f"attempt {limited.attempt} met a limit of use"
    return _relaunch(limited, Event.EXITED_LIMITED, now, summary=summary, delay_ms=0)


def _completed(gone: Task, blockers: Sequence[Blocker], now: Now) -> Step:
    """The worker had called Complete and is gone. What opened since is judged again."""
    if gone.outcome is Outcome.FAILED:
        return move(gone, Event.EXITED_WRONG, now, summary=gone.outcome_summary, author=Author.WORKER)
    if blockers:
        return move(gone, Event.EXITED_WRONG, now, summary=_blocked("called Complete", blockers))
    return move(gone, Event.EXITED_DONE, now, summary=gone.outcome_summary, author=Author.WORKER)


def _blocked(what: str, blockers: Sequence[Blocker]) -> str:
    return f"the worker {what}, but completion is blocked: {named(blockers)}"


@_judge.register
def _(happening: CancelAsked, task: Task, now: Now) -> Step:
    cause = happening.cause or f"canceled by {happening.by.identity}"
    if task.settle_summary is not None:
        raise ending(task)
    if task.stopping:
        return Step(task=task)
    after(task.state, Event.CANCELED)
    asked = replace(task, cancel_cause=cause)
    if not task.worker_alive and task.state is not State.STARTING:
        return _as_asked(asked, now)
    return Step(task=asked, effects=(Effect.CANCEL_HOLDS, Effect.STOP_WORKER))


def _as_asked(task: Task, now: Now) -> Step:
    """The end that was stored while the worker lived."""
    if task.settle_summary is not None:
        return settled(task, now)
    return move(task, Event.CANCELED, now, summary=task.cancel_cause or "", author=Author.OPERATOR)


@_judge.register
def _(happening: InputCame, task: Task, now: Now) -> Step:
    return move(task, Event.INPUT_CAME, now)


@_judge.register
def _(happening: CompleteAsked, task: Task, now: Now) -> Step:
    if happening.outcome is Outcome.SUCCEEDED and happening.blockers:
        raise refuse(
            Reason.COMPLETION_BLOCKED,
            f"task {task.task_id} cannot complete yet: {named(happening.blockers)}",
            task_id=task.task_id,
            blockers=",".join(f"{blocker.kind}:{blocker.name}" for blocker in happening.blockers),
        )
    if task.terminal:
        raise ended(task)
    if task.settle_summary is not None:
        raise ending(task)
    said = happening.summary.strip() or f"the worker said {happening.outcome.name} without a summary"
    return Step(task=replace(task, outcome=happening.outcome, outcome_summary=clipped(said)))
