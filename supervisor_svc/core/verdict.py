"""``classify(view, now_ms, config) -> Verdict``: what can be said of a task; pure and total.

A verdict accuses nobody: what cannot be known is UNKNOWN, a runner that cannot be heard makes its tasks UNREACHABLE, and
only silence that could have been broken counts.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final

from supervisor_svc.core.supervision import SupervisionConfig
from supervisor_svc.core.view import State, View


class Verdict(enum.Enum):
    """What ``classify`` says; the names are those of ``lanewarden.v1.Verdict``."""

    HEALTHY = "HEALTHY"
    QUEUED = "QUEUED"
    HELD = "HELD"
    PARKED = "PARKED"
    STALE = "STALE"
    CHURNING = "CHURNING"
    EXITED = "EXITED"
    UNREACHABLE = "UNREACHABLE"
    UNKNOWN = "UNKNOWN"


UNHEALTHY: Final = frozenset({Verdict.PARKED, Verdict.STALE, Verdict.CHURNING, Verdict.EXITED})
"""The verdicts that may lead to an action."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """A verdict, and why it is that, in one sentence."""

    verdict: Verdict
    because: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Silence:
    """How long nothing has come of something, and how long that may last."""

    what: str
    lasted_ms: int
    allowed_ms: int
    passed: bool

    def __str__(self) -> str:
        return f"{self.what} for {seconds(self.lasted_ms)}, allowed {seconds(self.allowed_ms)}"


def classify(view: View, now_ms: int, config: SupervisionConfig) -> Verdict:
    """The verdict on a task."""
    return judge(view, now_ms, config).verdict


def judge(view: View, now_ms: int, config: SupervisionConfig) -> Judgement:
    """The verdict on a task, and why: the first that fits, from what makes every other question idle to what nothing speaks
    against.
    """
    if view.terminal:
        return Judgement(verdict=Verdict.HEALTHY, because=f"it is over: {view.state.value}")
    if not view.reachable:
        return Judgement(
            verdict=Verdict.UNREACHABLE, because="its runner's lease has expired, so nothing is known of it"
        )
    if view.held:
        return Judgement(verdict=Verdict.HELD, because="a ruling is owed")
    if view.state in (State.QUEUED, State.STARTING):
        return Judgement(verdict=Verdict.QUEUED, because=f"it waits for its worker: {view.state.value}")
    if view.state is State.IDLE:
        return _of_resting(view, now_ms, config)
    if not view.worker_alive:
        return Judgement(verdict=Verdict.EXITED, because="its worker is gone, and it has not ended")
    return _of_live(view, now_ms, config)


def _of_resting(view: View, now_ms: int, config: SupervisionConfig) -> Judgement:
    waiting = waiting_input(view, now_ms, config)
    if waiting is None:
        return Judgement(verdict=Verdict.HEALTHY, because="it rests until there is input")
    return Judgement(verdict=Verdict.PARKED if waiting.passed else Verdict.HEALTHY, because=str(waiting))


def _of_live(view: View, now_ms: int, config: SupervisionConfig) -> Judgement:
    storm, silence = view.storm, silence_of(view, now_ms, config)
    if storm and silence and (view.progressed_ms is None or view.progressed_ms < storm.since_ms):
        writes = f"{storm.who} writes {storm.rows_per_second:g} rows/s, and there is no progress"
        return Judgement(verdict=Verdict.CHURNING, because=writes)
    if view.children_open:
        return Judgement(verdict=Verdict.HEALTHY, because=f"it waits for {view.children_open} tasks of its own")
    if silence and view.progressed_ms is not None and not silence.passed:
        return Judgement(verdict=Verdict.HEALTHY, because=str(silence))
    waiting = waiting_input(view, now_ms, config)
    if waiting and waiting.passed:
        return Judgement(verdict=Verdict.PARKED, because=str(waiting))
    if silence is None:
        return Judgement(verdict=Verdict.UNKNOWN, because="its progress is unknown: it has no sensor")
    return Judgement(verdict=Verdict.STALE if silence.passed else Verdict.HEALTHY, because=str(silence))


def silence_of(view: View, now_ms: int, config: SupervisionConfig) -> Silence | None:
    """For how long a running worker has made no progress; None without a sensor. The first progress has a bound of its own,
    and what a task promises of itself only ever adds to either.
    """
    if not view.sensor:
        return None
    if view.progressed_ms is None:
        allowed_ms = max(config.first_progress_ms, view.heartbeat_ms)
        return _silence("no first progress", view, view.running_ms, allowed_ms, now_ms, config)
    allowed_ms = max(config.stale_ms, view.heartbeat_ms)
    since_ms = max(view.progressed_ms, view.running_ms)
    return _silence("no progress", view, since_ms, allowed_ms, now_ms, config)


def waiting_input(view: View, now_ms: int, config: SupervisionConfig) -> Silence | None:
    """For how long an input has waited that should have been taken; None when there is none.

    A session at rest should take any. Its live worker should take those that it was launched for; what came later is for
    the next round. A task that runs once may leave its inbox unread, and while it is paused no task takes anything.
    """
    if view.input_ms is None or not view.session or view.pauses:
        return None
    if view.state is State.IDLE:
        return _silence("input not taken", view, view.input_ms, config.parked_ms, now_ms, config)
    if view.input_ms >= view.running_ms:
        return None
    return _silence("input not taken", view, view.running_ms, config.parked_ms, now_ms, config)


def _silence(what: str, view: View, since_ms: int, allowed_ms: int, now_ms: int, config: SupervisionConfig) -> Silence:
    """It has passed its bound only if the runner has been heard long enough to have told of anything else."""
    heard = view.heard_ms is not None and now_ms >= view.heard_ms + config.catch_up_ms
    lasted_ms = now_ms - since_ms
    return Silence(what=what, lasted_ms=lasted_ms, allowed_ms=allowed_ms, passed=heard and lasted_ms >= allowed_ms)


def seconds(ms: int) -> str:
    """A span for people: ``900 s``."""
    return f"{ms / 1000:.15g} s"
