"""When the facts of a task last moved, by the supervisor's own clock; pure.

A runner's report says what is so, not since when, and its clock is not the supervisor's. What is remembered here comes from
the difference of two reports. Only progress that rises is progress: another version, summary, note or owner is none, and
neither is anything that a supervisor has caused, so no touch of its own keeps a task from being called stale (S10). The one
exception is what an epoch has a budget for: a wake or relaunch has the whole bound to show its effect before the next arm.
"""

from __future__ import annotations

from dataclasses import dataclass

from supervisor_svc.core.view import Author, Text


@dataclass(frozen=True, slots=True, kw_only=True)
class Reported:
    """A report as far as it can move something. ``running`` says that its attempt runs without a hold.

    ``oldest_input`` names the oldest input that no worker has taken, by whatever the runner calls it; ``of_round`` says
    whether the running round was begun with it (None: no round runs). ``pushes`` counts the wakes and relaunches of the
    epoch.
    """

    epoch: int
    attempt: int
    running: bool
    progress: int | None = None
    oldest_input: int | None = None
    of_round: bool | None = None
    summary: Text | None = None
    pushes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """Since when things are as they are, in steady milliseconds of receipt; see :class:`supervisor_svc.core.view.View`.

    ``cause`` is the first mishap of the epoch that its worker or runner has told of.
    """

    progressed_ms: int | None
    running_ms: int
    input_ms: int | None
    cause: Text | None = None


def observe(before: tuple[Reported, Observed] | None, now: Reported, now_ms: int) -> Observed:
    """What is known once another report is here; ``before`` is the last one and what was known then."""
    cause = now.summary if now.summary and now.summary.author in (Author.WORKER, Author.RUNNER) else None
    if before is None:
        input_ms = None if now.oldest_input is None else now_ms
        return Observed(
            progressed_ms=None if now.progress is None else now_ms,
            running_ms=now_ms,
            input_ms=_in_order(input_ms, now_ms, now),
            cause=cause,
        )
    last, known = before
    same_epoch = now.epoch == last.epoch
    same_attempt = same_epoch and now.attempt == last.attempt
    moved = now.progress is not None and (not same_epoch or last.progress is None or now.progress > last.progress)
    pushed = same_epoch and now.pushes > last.pushes
    began = now.running and (pushed or not (last.running and same_attempt))
    running_ms = now_ms if began else known.running_ms
    return Observed(
        progressed_ms=now_ms if moved else known.progressed_ms if same_attempt else None,
        running_ms=running_ms,
        input_ms=_in_order(_input_ms(last, known, now, now_ms, pushed=pushed), running_ms, now),
        cause=(known.cause if same_epoch else None) or cause,
    )


def _input_ms(last: Reported, known: Observed, now: Reported, now_ms: int, *, pushed: bool) -> int | None:
    if now.oldest_input is None:
        return None
    if now.oldest_input != last.oldest_input:
        return now_ms
    # Of a running attempt the input must stay older than its start, which is what is counted from.
    return now_ms if pushed and not now.running else known.input_ms


def _in_order(input_ms: int | None, running_ms: int, now: Reported) -> int | None:
    """The input before the start of the round that owes to take it, and not before that of any other. Both may have been
    heard of at once, or the start first; only the runner knows which came first.
    """
    if input_ms is None or now.of_round is None:
        return input_ms
    return min(input_ms, running_ms - 1) if now.of_round else max(input_ms, running_ms)
