"""Units of work about incidents that this supervisor files."""

from __future__ import annotations

from collections.abc import Sequence

from lanewarden.records import replace
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
    claim = replace(claim, traceparent=session.uow.traceparent)
    filings.put(session.uow, claim, was=known.stage if known else None)
    session.touch(FILINGS)
    return claim


def _change(session: Session, changed: Filing) -> Filing | None:
    """Store a step of the filer's; None if the claim that it was taken under has been replaced by another meanwhile. What
    was asked for the old one says nothing about the new one.
    """
    known = filings.find(session.uow, changed.key)
    if known is None or known.claim_generation != changed.claim_generation:
        return None
    filings.put(session.uow, changed, was=known.stage)
    return changed


def creating(session: Session, leader: Filing) -> Filing | None:
    """Remember, before the tracker is asked to make an item, that it may have one from now on; None: make none now."""
    return _change(session, replace(leader, unsure_since_ms=session.steady_ms))


def lead(session: Session, group: Sequence[Filing]) -> list[Filing]:
    """The group, led by its first: its leader has lost its claim, or waits for its runner."""
    return [led for each in group if (led := _change(session, replace(each, leader_key=group[0].key)))]


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
            was=each.stage,
        )
    session.touch(FILINGS)


def failed(session: Session, filing: Filing, cause: str, *, delay_ms: int) -> Filing | None:
    """A try came to nothing, and is repeated after a delay."""
    return _change(session, replace(filing, tries=filing.tries + 1, failure=cause, due_ms=session.steady_ms + delay_ms))


def stumbled(session: Session, key: str, *, jitter: float) -> None:
    """A step met an error that nobody foresaw: it is repeated after a delay, from what is stored."""
    filing = filings.find(session.uow, key)
    if filing is not None:
        delay_ms = round(1000 * core.retry_seconds(filing.tries + 1, jitter))
        failed(session, filing, "an error; the supervisor's log tells it", delay_ms=delay_ms)


def try_now(session: Session, runner_id: str) -> None:
    """This supervisor may act at the runner again: what waited for that is due."""
    for filing in filings.waiting_for(session.uow, runner_id):
        filings.put(session.uow, replace(filing, due_ms=session.steady_ms), was=filing.stage)
    session.touch(FILINGS)


def waits(session: Session, filing: Filing, until_ms: int) -> None:
    """The tracker cannot be believed before then; no try is spent."""
    _change(session, replace(filing, due_ms=until_ms))


def recorded(session: Session, filing: Filing, *, lost: bool) -> None:
    """The runner has it; or it has told that the claim is somebody else's by now."""
    _change(session, replace(filing, stage=Stage.LOST if lost else Stage.RECORDED, failure=""))
