"""Units of work about incidents that this supervisor files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from supervisor_svc.core import filing as core
from supervisor_svc.core.filing import Filing, Stage
from supervisor_svc.sinks.tracker import Filed
from supervisor_svc.store import filings
from supervisor_svc.work.session import FILINGS, Session


def claimed(session: Session, claim: Filing, *, gather_ms: int) -> Filing:
    """Take over the filing of an incident that this supervisor has claimed, alone or with others of its cause.

    The same claim twice changes nothing. A claim that was somebody else's before is not filed before the tracker has been
    asked.
    """
    known = filings.find(session.uow, claim.key)
    if known is not None and known.claim_generation == claim.claim_generation:
        return known
    if known is not None or claim.claim_generation > 1:
        claim = core.claimed_again(known or claim, claim_generation=claim.claim_generation, now_ms=session.steady_ms)
        claim = replace(claim, stage=Stage.OPEN, due_ms=session.steady_ms, leader_key=claim.key)
    else:
        leader = filings.gathering(session.uow, claim.cause, session.steady_ms)
        if leader is not None and len(filings.group(session.uow, leader.key)) < core.MEMBERS_MAX:
            claim = replace(claim, leader_key=leader.key, due_ms=leader.due_ms)
        else:
            claim = replace(claim, leader_key=claim.key, due_ms=session.steady_ms + gather_ms)
    filings.put(session.uow, claim)
    session.touch(FILINGS)
    return claim


def creating(session: Session, leader: Filing) -> Filing:
    """Remember, before the tracker is asked to make an item, that it may have one from now on."""
    unsure = replace(leader, unsure_since_ms=session.steady_ms)
    filings.put(session.uow, unsure)
    return unsure


def lead(session: Session, group: Sequence[Filing]) -> list[Filing]:
    """The group, led by its first: its leader has lost its claim, or waits for its runner."""
    led = [replace(each, leader_key=group[0].key) for each in group]
    for each in led:
        filings.put(session.uow, each)
    return led


def filed(session: Session, leader: Filing, item: Filed) -> None:
    """The tracker has the item: each task of the group is to be told."""
    for each in filings.group(session.uow, leader.key):
        filings.put(
            session.uow,
            replace(
                each,
                stage=Stage.FILED,
                external_id=item.external_id,
                url=item.url,
                failure="",
                tries=0,
                due_ms=session.steady_ms,
            ),
        )
    session.touch(FILINGS)


def failed(session: Session, filing: Filing, cause: str, *, delay_ms: int) -> Filing:
    """A try came to nothing, and is repeated after a delay."""
    tried = replace(filing, tries=filing.tries + 1, failure=cause, due_ms=session.steady_ms + delay_ms)
    filings.put(session.uow, tried)
    return tried


def waits(session: Session, filing: Filing, until_ms: int) -> None:
    """The tracker cannot be believed before then; no try is spent."""
    filings.put(session.uow, replace(filing, due_ms=until_ms))


def recorded(session: Session, filing: Filing, *, lost: bool) -> None:
    """The runner has it; or it has told that the claim is somebody else's by now."""
    filings.put(session.uow, replace(filing, stage=Stage.LOST if lost else Stage.RECORDED, failure=""))
