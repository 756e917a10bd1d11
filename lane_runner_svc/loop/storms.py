"""What of the ledger's findings a supervisor is told with each renewal: storms over a task that people do not make."""

from __future__ import annotations

from typing import Final

from lane_runner_svc import emitters
from lanewarden.ledger import Finding, FindingKind, Share, WriteLedger
from lanewarden.stamps import duration
from lanewarden.v1 import supervisor_service_pb2 as pb

STORMS_MAX: Final = 64
_KINDS: Final = frozenset({FindingKind.ENTITY_RATE, FindingKind.NO_PROGRESS})
_MESSAGES: Final = frozenset({emitters.INPUT.name, emitters.INSTRUCT.name})


def storms(ledger: WriteLedger) -> list[pb.WriteStorm]:
    """Those that last, one for each task."""
    found: dict[str, pb.WriteStorm] = {}
    for each, began_ms, ended_ms in ledger.findings():
        wanted = ended_ms is None and each.kind in _KINDS and each.entity_kind == "task"
        if wanted and each.entity_id not in found and len(found) < STORMS_MAX:
            share = _not_of_people(each, ledger.limits.rows_per_second)
            if share is not None:
                found[each.entity_id] = pb.WriteStorm(
                    task_id=each.entity_id,
                    emitter=share.emitter,
                    origin=share.origin,
                    rows_per_second=round(each.rows_per_second, 1),
                    lasted=duration(began_ms),
                )
    return list(found.values())


def _not_of_people(finding: Finding, rows_per_second: float) -> Share | None:
    """Who writes most of what is not people's, if that alone is too much: a task is not to blame for what is sent to it.

    Nor is it for taking what is sent to it, which is as often.
    """
    sent = any(each.emitter in _MESSAGES for each in finding.shares)
    outside = emitters.OF_PEOPLE | ({emitters.TAKEN.name} if sent else frozenset())
    own = next((each for each in finding.shares if each.emitter not in outside), None)
    share = 1 - sum(each.share for each in finding.shares if each.emitter in outside)
    if finding.kind is FindingKind.NO_PROGRESS:
        return own if share > 1 / 2 else None
    return own if share * finding.rows_per_second >= rows_per_second else None
