"""The claim on an incident: who files it, and how far that has come; pure.

An epoch has at most one incident that is not resolved (I8), named by the task, the epoch and the kind it was first claimed
for; after it has been resolved, the next one is another occurrence, with a number of its own.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from lane_runner_svc.core.task import clipped
from lanewarden.errors import Reason, refuse
from lanewarden.records import replace


class IncidentState(enum.Enum):
    """How far the filing has come; the names are those of ``lanewarden.v1.IncidentState``."""

    CLAIMED = "CLAIMED"
    FILED = "FILED"
    FILING_FAILED = "FILING_FAILED"
    RESOLVED = "RESOLVED"


@dataclass(frozen=True, slots=True, kw_only=True)
class Incident:
    """A problem that is filed once. ``key`` is also its idempotency key at the tracker."""

    key: str
    task_id: str
    epoch: int
    kind: str
    holder: str
    claimed_wall_ms: int
    state: IncidentState = IncidentState.CLAIMED
    claim_generation: int = 1
    external_id: str = ""
    url: str = ""
    tries: int = 0
    failure: str = ""
    follows: str = ""
    also_task_ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Filing:
    """What came of a try to file: an id at the tracker, or a failure. ``also_task_ids`` empty: nothing new is known."""

    external_id: str
    url: str
    failure: str
    also_task_ids: tuple[str, ...]


def key_of(task_id: str, epoch: int, kind: str, occurrence: int) -> str:
    """The name of an occurrence, counted from 1."""
    key = f"{task_id}/{epoch}/{kind}"
    return key if occurrence == 1 else f"{key}#{occurrence}"


def claim(incident: Incident, holder: str) -> Incident:
    """The unresolved incident, its claim ``holder``'s: the one who supervises, so whoever else had it does no longer.

    Raises:
        Refusal: CLAIM_LOST when another has filed it.
    """
    if incident.holder == holder:
        return incident
    if incident.state is IncidentState.FILED:
        raise lost(incident)
    return replace(incident, holder=holder, claim_generation=incident.claim_generation + 1, state=IncidentState.CLAIMED)


def record(incident: Incident, filing: Filing, *, holder: str, claim_generation: int) -> Incident:
    """The incident after a try to file it. What is filed stays filed, and what was resolved meanwhile stays resolved.

    Raises:
        Refusal: CLAIM_LOST when the claim is not the caller's any more; ILLEGAL_TRANSITION when it is filed as another.
    """
    if (incident.holder, incident.claim_generation) != (holder, claim_generation):
        raise lost(incident)
    also = replace(incident, also_task_ids=filing.also_task_ids or incident.also_task_ids)
    if incident.external_id:
        if filing.external_id not in ("", incident.external_id):
            raise refuse(
                Reason.ILLEGAL_TRANSITION,
                f"incident {incident.key} is filed already as {incident.external_id}",
                key=incident.key,
                state=incident.state.name,
                external_id=incident.external_id,
            )
        return also
    tried = replace(
        also,
        tries=incident.tries + 1,
        external_id=filing.external_id,
        url=filing.url if filing.external_id else "",
        failure="" if filing.external_id else clipped(filing.failure),
    )
    if incident.state is IncidentState.RESOLVED:
        return tried
    return replace(tried, state=IncidentState.FILED if filing.external_id else IncidentState.FILING_FAILED)


def resolve(incident: Incident) -> Incident:
    """The incident, done with; a second time changes nothing."""
    return replace(incident, state=IncidentState.RESOLVED)


def lost(incident: Incident) -> Exception:
    """The refusal of whoever has no claim on the incident."""
    filed = f" and has filed it as {incident.external_id}" if incident.external_id else ""
    return refuse(
        Reason.CLAIM_LOST,
        f"the claim on incident {incident.key} is {incident.holder}'s{filed}; file nothing",
        key=incident.key,
        holder=incident.holder,
        generation=incident.claim_generation,
        state=incident.state.name,
        external_id=incident.external_id or None,
    )
