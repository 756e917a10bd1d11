"""The one judge of completion: Complete, exit 0 and CheckCompletion all ask here (DESIGN section 5)."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from lane_runner_svc.core.holds import Hold, HoldState


class GateDecision(enum.Enum):
    """What a review came to; the names are those of ``lanewarden.v1.GateDecision``."""

    UNSPECIFIED = "UNSPECIFIED"
    APPROVED = "APPROVED"
    REVISE = "REVISE"
    REJECTED = "REJECTED"
    WAIVED = "WAIVED"


PASSED = frozenset({GateDecision.APPROVED, GateDecision.WAIVED})


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocker:
    """One thing that keeps a task from completing."""

    kind: str
    name: str
    detail: str


def completion_blockers(
    holds: Iterable[Hold], gates: Sequence[str], decisions: Mapping[str, GateDecision]
) -> tuple[Blocker, ...]:
    """Everything that blocks completion, holds first; empty when nothing does.

    ``decisions`` has the latest decision of each reviewed gate. A gate without one blocks: silence is not consent (I13).
    """
    blocked_by_holds = [
        Blocker(
            kind="hold",
            name=hold.escalation_id,
            detail="a ruling is owed" if hold.state is HoldState.OPEN else "its ruling is not acknowledged",
        )
        for hold in holds
        if hold.blocks
    ]
    blocked_by_gates = []
    for gate in gates:
        decision = decisions.get(gate, GateDecision.UNSPECIFIED)
        if decision not in PASSED:
            detail = "never reviewed" if decision is GateDecision.UNSPECIFIED else f"latest decision is {decision.name}"
            blocked_by_gates.append(Blocker(kind="gate", name=gate, detail=detail))
    return (*blocked_by_holds, *blocked_by_gates)


def named(blockers: Sequence[Blocker]) -> str:
    """The blockers in one line, for messages."""
    return "; ".join(f"{blocker.kind} {blocker.name}: {blocker.detail}" for blocker in blockers)
