"""``choose(view, verdict, config) -> Action``: what a supervisor does about a task; pure, total, and data.

Rules about this file: the first arm of :data:`ARMS` that matches decides, and their order is the point (DESIGN section 8).
What is over stays over; what is well, queued or out of reach is only shown; whoever waits for a person is left alone; what
is filed is not touched again, whatever the budgets say now. Only then is a task woken, once, relaunched, within its budget,
and at last settled. Each of these spends something of its epoch, so an epoch sees finitely many.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from supervisor_svc.core.supervision import SupervisionConfig
from supervisor_svc.core.verdict import UNHEALTHY, Verdict
from supervisor_svc.core.view import View


class Action(enum.Enum):
    """What follows, in one sentence for people."""

    NOTHING = "do nothing"
    SHOW = "show it and touch nothing"
    REMIND = "remind whoever owes the answer, when that is due; never relaunch it"
    WAKE = "wake it, once in this epoch"
    RELAUNCH = "relaunch it"
    SETTLE = "settle it and file an incident"


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """One row of the decision. ``otherwise`` says why it does not match, where it does not."""

    name: str
    matches: Callable[[View, Verdict, SupervisionConfig], bool]
    action: Action
    otherwise: Callable[[View, Verdict, SupervisionConfig], str]


SHOWN: Final = frozenset({Verdict.HEALTHY, Verdict.UNKNOWN, Verdict.QUEUED, Verdict.UNREACHABLE})

ARMS: Final[Sequence[Arm]] = (
    Arm(
        name="terminal",
        matches=lambda view, verdict, config: view.terminal,
        action=Action.NOTHING,
        otherwise=lambda view, verdict, config: f"it has not ended: {view.state.value}",
    ),
    Arm(
        name="report",
        matches=lambda view, verdict, config: verdict in SHOWN,
        action=Action.SHOW,
        otherwise=lambda view, verdict, config: f"it is {verdict.value}",
    ),
    Arm(
        name="held",
        # A pause waits for whoever has paused it, as a hold does: until then nothing is launched, stopped or given up.
        matches=lambda view, verdict, config: verdict is Verdict.HELD or view.held or view.pauses != (),
        action=Action.REMIND,
        otherwise=lambda view, verdict, config: "no hold is open, and nobody has paused it",
    ),
    Arm(
        name="filed",
        matches=lambda view, verdict, config: view.incident != "",
        action=Action.NOTHING,
        otherwise=lambda view, verdict, config: f"no incident is claimed for epoch {view.epoch}",
    ),
    Arm(
        name="wake",
        matches=lambda view, verdict, config: verdict is Verdict.PARKED and not view.woken,
        action=Action.WAKE,
        otherwise=lambda view, verdict, config: (
            f"it was woken in epoch {view.epoch} before" if verdict is Verdict.PARKED else f"it is {verdict.value}"
        ),
    ),
    Arm(
        name="relaunch",
        matches=lambda view, verdict, config: verdict in UNHEALTHY and view.relaunches < config.relaunches_max,
        action=Action.RELAUNCH,
        otherwise=lambda view, verdict, config: (
            f"{view.relaunches} of {config.relaunches_max} relaunches of epoch {view.epoch} are spent"
        ),
    ),
    Arm(
        name="settle",
        matches=lambda view, verdict, config: True,
        action=Action.SETTLE,
        otherwise=lambda view, verdict, config: "",
    ),
)


def matching(view: View, verdict: Verdict, config: SupervisionConfig, arms: Sequence[Arm] = ARMS) -> int:
    """The place of the first arm that matches."""
    return next(place for place, arm in enumerate(arms) if arm.matches(view, verdict, config))


def choose(view: View, verdict: Verdict, config: SupervisionConfig, arms: Sequence[Arm] = ARMS) -> Action:
    """What is done about a task with this verdict."""
    return arms[matching(view, verdict, config, arms)].action
