"""The unit of work that joins the outbox to a supervisor."""

from __future__ import annotations

from lane_runner_svc.store import messages, meta
from lane_runner_svc.work.session import Session


def resume(session: Session, taken: int, *, told: str) -> bool:
    """Go on from what the supervisor ``told`` has taken; whether that was possible.

    If its number fits nothing that is kept here, or the marks were numbered for another supervisor, they share no past:
    number anew from there and mark everything.
    """
    before = meta.told(session.uow)
    goes_on = before in ("", told) and messages.follows(session.uow, taken)
    (messages.forget if goes_on else messages.restart)(session.uow, taken)
    if before != told:
        meta.set_told(session.uow, told)
    return goes_on
