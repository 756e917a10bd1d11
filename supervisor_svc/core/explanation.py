"""``explain``: what would be done about a task now, and why nothing else; pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from supervisor_svc.core.arms import ARMS, Arm, matching
from supervisor_svc.core.supervision import SupervisionConfig
from supervisor_svc.core.verdict import Judgement, judge, silence_of, waiting_input
from supervisor_svc.core.view import Author, View


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """Something that a decision looks at, and whose word it is."""

    name: str
    value: str
    author: Author


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """A verdict, the arm that matches, the arms before it, each with why it does not, and the facts."""

    judgement: Judgement
    arm: Arm
    passed: tuple[tuple[Arm, str], ...]
    facts: tuple[Fact, ...]
    config_version: int


def explain(view: View, now_ms: int, config: SupervisionConfig) -> Explanation:
    """The way to the decision about a task."""
    judgement = judge(view, now_ms, config)
    place = matching(view, judgement.verdict, config)
    return Explanation(
        judgement=judgement,
        arm=ARMS[place],
        passed=tuple((arm, arm.otherwise(view, judgement.verdict, config)) for arm in ARMS[:place]),
        facts=tuple(_facts(view, now_ms, config)),
        config_version=config.version,
    )


def _facts(view: View, now_ms: int, config: SupervisionConfig) -> Iterator[Fact]:
    """Whatever there is to look at. What a task does not have is left out, except for what an arm asks every task."""
    worker, runner, supervisor = Author.WORKER, Author.RUNNER, Author.SUPERVISOR
    yield Fact(name="state", value=view.state.value, author=runner)
    yield Fact(name="attempt", value=f"{view.attempt} of epoch {view.epoch}", author=runner)
    yield Fact(name="worker", value="alive" if view.worker_alive else "none", author=runner)
    yield Fact(name="open holds", value=", ".join(view.open_holds) or "none", author=runner)
    if view.pauses:
        yield Fact(name="pauses", value=", ".join(view.pauses), author=runner)
    if view.children_open:
        yield Fact(name="children open", value=str(view.children_open), author=runner)
    if not view.sensor:
        yield Fact(name="progress", value="UNKNOWN: no sensor", author=runner)
    elif view.progress is None:
        yield Fact(name="progress", value="none yet", author=runner)
    else:
        yield Fact(name="progress", value=f"{view.progress} {view.note}".strip(), author=worker)
    if view.worker_alive and (silence := silence_of(view, now_ms, config)):
        yield Fact(name="silence", value=str(silence), author=supervisor)
    if waiting := waiting_input(view, now_ms, config):
        yield Fact(name="input", value=str(waiting), author=supervisor)
    if view.storm:
        yield Fact(name="writes", value=f"{view.storm.rows_per_second:g} rows/s by {view.storm.who}", author=runner)
    yield Fact(name="woken", value="yes" if view.woken else "no", author=runner)
    yield Fact(name="relaunches", value=f"{view.relaunches} of {config.relaunches_max}", author=runner)
    yield Fact(name="incident", value=view.incident or "none", author=runner)
    runner_seen = "reachable" if view.reachable else "unreachable"
    yield Fact(name="runner", value=f"{runner_seen}, last seen {view.last_seen or 'never'}", author=supervisor)
    for mishap in view.mishaps:
        yield Fact(name="said", value=mishap.text, author=mishap.author)
