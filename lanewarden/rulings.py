"""What makes a ruling a ruling, judged in the same words by a supervisor, which stores it, and by the runner, which
acts on it. Pure.

The decision travels as its name in ``lanewarden.v1.Decision`` without the prefix.
"""

from __future__ import annotations

from collections.abc import Sequence

from lanewarden.errors import Reason, Refusal, refuse
from lanewarden.walltime import rfc3339

DECISIONS = ("APPROVE", "REJECT", "REVISE", "CHOOSE")


def check_shape(
    *,
    escalation_id: str,
    decision: str,
    instructions: str,
    option_key: str,
    options: Sequence[str],
    ratifies: Sequence[str],
    gates: Sequence[str] | None,
    task_id: str,
    named_task_id: str,
) -> None:
    """Refuse a ruling that is not one. ``gates`` is None where the task's gates are not known.

    Raises:
        Refusal: RULING_INVALID, with the broken rule in ``metadata["rule"]``.
    """

    def broken(rule: str, message: str) -> Refusal:
        return refuse(Reason.RULING_INVALID, message, rule=rule, escalation_id=escalation_id)

    if decision not in DECISIONS:
        raise broken("no_decision", "a ruling needs a decision: approve, reject, revise or choose")
    if not instructions.strip():
        raise broken("empty_instructions", "a ruling needs instructions: say in words what the worker is to do")
    if named_task_id and named_task_id != task_id:
        raise broken("wrong_task", f"escalation {escalation_id} belongs to task {task_id}, not {named_task_id}")
    offered = ", ".join(options) or "none"
    if decision == "CHOOSE" and not option_key:
        raise broken("no_option", f"choose needs an option; offered: {offered}")
    if option_key and option_key not in options:
        raise broken("option_not_offered", f"option {option_key!r} was not offered; offered: {offered}")
    unknown = [] if gates is None else [gate for gate in ratifies if gate not in gates]
    if unknown:
        raise broken("gate_unknown", f"the task has no gate {unknown[0]!r}; it has: {', '.join(gates or ()) or 'none'}")


def already_ruled(escalation_id: str, *, ruling_id: str, ruled_by: str, ruled_wall_ms: int, decision: str) -> Refusal:
    """The answer to a second ruling: who ruled what, when."""
    return refuse(
        Reason.ALREADY_RULED,
        f"{ruled_by} has already ruled {decision} on {escalation_id}",
        escalation_id=escalation_id,
        ruling_id=ruling_id,
        ruled_by=ruled_by,
        ruled_at=rfc3339(ruled_wall_ms),
        decision=decision,
    )


def not_open(escalation_id: str, *, state: str, cause: str = "") -> Refusal:
    """The answer about a hold that waits for nobody; ``state`` NONE is a notice."""
    what = "is a notice and owes no ruling" if state == "NONE" else f"is {state}: nobody waits for a ruling"
    return refuse(
        Reason.HOLD_NOT_OPEN,
        f"escalation {escalation_id} {what}",
        escalation_id=escalation_id,
        state=state,
        cause=cause or None,
    )
