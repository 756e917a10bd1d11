"""Units of work about runners: grant, end, take over after a restart."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from lanewarden.errors import Reason, invalid, refuse
from lanewarden.hub import Topic
from lanewarden.records import replace
from lanewarden.telemetry import Value, span_names
from supervisor_svc.core import leases
from supervisor_svc.core.leases import GENERATION_MAX, Timing, Verdict
from supervisor_svc.store import runners
from supervisor_svc.store.runners import RunnerRow
from supervisor_svc.work.session import GRANTS, Session

LANES_MAX: Final = 1_000
_ADDRESS = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):([0-9]{1,5})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """One start of a runner that announces itself."""

    runner_id: str
    incarnation: str
    address: str
    lanes: tuple[str, ...]
    version: str
    store_id: str
    generation_seen: int
    build: str = ""


def check_address(address: str) -> None:
    """Refuse what is not host:port, before anybody connects to it.

    Raises:
        Refusal: REQUEST_INVALID.
    """
    match = _ADDRESS.fullmatch(address)
    if match is None or not 0 < int(match[2]) < 65_536:
        raise invalid(("address", "must be host:port, such as 127.0.0.1:7812"))


def check_generation(field: str, generation: int) -> None:
    """Refuse a generation after which there would be none.

    Raises:
        Refusal: REQUEST_INVALID.
    """
    if generation > GENERATION_MAX:
        raise invalid((field, f"at most {GENERATION_MAX}"))


def register(session: Session, asked: Registration, *, heard_generation: int | None, heard_alive: bool) -> RunnerRow:
    """Grant a lease, or keep the one that this start has.

    ``heard_generation`` and ``heard_alive`` are what the leases in memory say. A stored grant that memory does not know yet
    was made a moment ago.

    Raises:
        Refusal: RUNNER_DUPLICATE.
    """
    held = runners.find(session.uow, asked.runner_id)
    alive = held is not None and not held.lease_ended and (held.generation != heard_generation or heard_alive)
    verdict = leases.judge(
        alive=alive,
        held_incarnation=held.incarnation if held else "",
        held_address=held.address if held else "",
        incarnation=asked.incarnation,
        address=asked.address,
    )
    if verdict is Verdict.DUPLICATE:
        raise refuse(
            Reason.RUNNER_DUPLICATE,
            f"runner {asked.runner_id} is live at another address; stop that one, or give this one an id of its own",
            runner=asked.runner_id,
        )
    stored = held.generation if held else 0
    granted = verdict is Verdict.GRANT or asked.generation_seen > stored
    same_store = held is not None and held.store_id == asked.store_id
    new = RunnerRow(
        runner_id=asked.runner_id,
        incarnation=asked.incarnation,
        # A generation that only the runner knows of was granted before this store was restored, or by another supervisor.
        generation=max(stored, asked.generation_seen) + 1 if granted else stored,
        address=asked.address,
        lanes=asked.lanes,
        version=asked.version,
        build=asked.build,
        store_id=asked.store_id,
        taken_sequence=held.taken_sequence if held and same_store else 0,
        registered_wall_ms=session.wall_ms if granted or held is None else held.registered_wall_ms,
        supervision_generation_seen=held.supervision_generation_seen if held else 0,
    )
    if new != held:
        runners.put(session.uow, new)
    if granted:
        about: dict[str, Value] = {"runner.id": new.runner_id, "generation": new.generation}
        session.uow.tell(span_names.LEASE_TRANSITION, {"to": "GRANTED"}, about=about)
    session.touch(Topic("runner", asked.runner_id), GRANTS)
    return new


def restore(session: Session, timing: Timing) -> list[RunnerRow]:
    """Every runner after a restart, its grant extended once."""
    runners.extend(session.uow, session.steady_ms + timing.ttl_ms + timing.grace_ms)
    return runners.everyone(session.uow)


def lease_of(row: RunnerRow, timing: Timing) -> leases.Lease:
    """The lease that a stored runner has after a restart."""
    return leases.restored(
        runner_id=row.runner_id,
        incarnation=row.incarnation,
        generation=row.generation,
        ended=row.lease_ended,
        extended_until_ms=row.extended_until_ms or 0,
        timing=timing,
    )


def granted(row: RunnerRow, *, now_ms: int, wall_ms: int) -> leases.Lease:
    """The lease of a runner that has just registered."""
    return replace(
        leases.Lease(runner_id=row.runner_id, incarnation=row.incarnation, generation=row.generation, seen_ms=now_ms),
        seen_wall_ms=wall_ms,
    )
