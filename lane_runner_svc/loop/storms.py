"""What of the ledger's findings a supervisor is told with each renewal: the storms over single tasks."""

from __future__ import annotations

from typing import Final

from lanewarden.ledger import FindingKind, WriteLedger
from lanewarden.stamps import duration
from lanewarden.v1 import supervisor_service_pb2 as pb

STORMS_MAX: Final = 64
_KINDS: Final = frozenset({FindingKind.ENTITY_RATE, FindingKind.NO_PROGRESS})


def storms(ledger: WriteLedger) -> list[pb.WriteStorm]:
    """Those that last, one for each task."""
    found: dict[str, pb.WriteStorm] = {}
    for each, began_ms, ended_ms in ledger.findings():
        wanted = ended_ms is None and each.kind in _KINDS and each.entity_kind == "task" and each.shares
        if wanted and each.entity_id not in found and len(found) < STORMS_MAX:
            found[each.entity_id] = pb.WriteStorm(
                task_id=each.entity_id,
                emitter=each.shares[0].emitter,
                origin=each.shares[0].origin,
                rows_per_second=round(each.rows_per_second, 1),
                lasted=duration(began_ms),
            )
    return list(found.values())
