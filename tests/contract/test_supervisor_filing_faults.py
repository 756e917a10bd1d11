"""Filing goes on: past errors of the database and of single incidents, and at once when this supervisor may act again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from lanewarden.errors import Reason, refuse
from supervisor_svc.core.filing import Filing, Stage
from supervisor_svc.core.leases import Lease, Right
from supervisor_svc.sinks.tracker import Filed
from supervisor_svc.store import filings
from supervisor_svc.supervisor import Supervisor
from supervisor_svc.work import filing as work
from tests.contract.test_supervisor_filing import GATHER_MS, Bench, FakeTracker, bench

SOON_MS = 1_000
DAY_MS = 86_400_000
TURNS = 200


def fails(times: int, error: Callable[[], BaseException], real: Callable[..., Any]) -> Callable[..., Any]:
    """The function, after it has failed so many times."""
    left = [times]

    def mutant(*args: Any, **named: Any) -> Any:
        if left[0]:
            left[0] -= 1
            raise error()
        return real(*args, **named)

    return mutant


@pytest.mark.parametrize("name", ["due", "next_due_ms", "put"])
@pytest.mark.parametrize(
    "error",
    [
        lambda: refuse(Reason.STORE_FAILED, "another process keeps the database locked"),
        lambda: refuse(Reason.STORE_FULL, "the disk is full"),
        lambda: RuntimeError("nobody foresaw this"),
    ],
    ids=["locked", "full", "unforeseen"],
)
async def test_an_error_of_the_database_ends_no_filing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, error: Callable[[], BaseException]
) -> None:
    """Locked, full or worse, for some tries, when it is read and when it is written: the loop goes on, and files once."""
    async with bench(tmp_path) as b:
        await b.claim("t1")
        monkeypatch.setattr(filings, name, fails(3, error, getattr(filings, name)))
        async with b.filing():
            await b.until_recorded("t1")
        assert len(b.tracker.items) == 1


class Unforeseen(FakeTracker):
    """Meets an error that is none of a tracker's with one task."""

    async def find(self, key: str) -> Filed | None:
        if key.startswith("t1/"):
            raise RuntimeError("nobody foresaw this")
        return await super().find(key)


async def test_one_bad_incident_stops_no_other(tmp_path: Path) -> None:
    """What cannot be filed waits, with growing delays and a word about it, and the next one is filed on time."""
    async with bench(tmp_path) as b:
        b.tracker.__class__ = Unforeseen
        await b.claim("t1", diagnosis="one")
        await b.claim("t2", diagnosis="another")
        began_ms = b.clock.now_ms
        async with b.filing():
            await b.until_recorded("t2")
            assert b.clock.now_ms - began_ms < GATHER_MS + SOON_MS
            await b.clock.until(lambda: b.clock.now_ms - began_ms > DAY_MS)
            waits = waiting(b)
            assert (waits.stage, waits.failure) == (Stage.OPEN, "an error; the supervisor's log tells it")
            assert 10 <= waits.tries <= 60
            b.tracker.__class__ = FakeTracker
            await b.until_recorded("t1")


async def test_an_error_after_the_create_makes_no_second_item(tmp_path: Path) -> None:
    """That there may be an item is not forgotten when nobody foresaw how the create ends."""
    async with bench(tmp_path) as b, b.filing():
        b.tracker.after_create = fails(1, lambda: RuntimeError("nobody foresaw this"), lambda: None)
        await b.claim("t1")
        await b.until_recorded("t1")
        assert len(b.tracker.items) == 1


# The runner lets us again


def may_act(supervisor: Supervisor, generation: int) -> None:
    """The runner has told that this supervisor may act there, under this generation."""
    now_ms = supervisor.clock.steady_ms()
    supervisor.presence.put(Lease(runner_id="r1", incarnation="i1", generation=1, seen_ms=now_ms))
    supervisor.presence.registered("r1")
    supervisor.presence.hear_right("r1", Right(generation=generation, heard_ms=now_ms))
    supervisor.announce("r1")


async def settle() -> None:
    """Let everybody run, while the clock stands."""
    for _ in range(TURNS):
        await asyncio.sleep(0)


@asynccontextmanager
async def refused_for_long(path: Path, reason: Reason, *, following: bool = True) -> AsyncIterator[Bench]:
    """An incident that its runner has refused so often that its next try is far away."""
    async with bench(path) as b, b.filing():
        follower = asyncio.ensure_future(b.filer.follow_runners() if following else asyncio.Event().wait())
        b.claims.refusal = refuse(reason, "not you")
        await b.claim("t1")
        await b.clock.until(lambda: waiting(b).tries >= 12)
        await settle()
        assert waiting(b).due_ms - b.clock.now_ms > 600_000
        yield b
        follower.cancel()
        await asyncio.gather(follower, return_exceptions=True)


def waiting(b: Bench) -> Filing:
    found = b.supervisor.read(lambda reader: filings.find(reader, "t1/1/stale"))
    assert found is not None
    return found


async def comes_at_once(b: Bench, stage: Stage) -> bool:
    """Whether the incident comes to its end as soon as this supervisor may act, and not when its time has come."""
    b.claims.refusal = None
    may_act(b.supervisor, 7)
    await settle()
    return b.stage("t1") is stage


@pytest.mark.parametrize("reason", [Reason.SUPERVISION_FENCED, Reason.RUNNER_UNREACHABLE, Reason.DEADLINE_PASSED])
async def test_what_was_refused_is_filed_as_soon_as_the_supervisor_may_act(tmp_path: Path, reason: Reason) -> None:
    """Its next try was far away: the news that the runner lets this supervisor act brings it at once."""
    async with refused_for_long(tmp_path, reason) as b:
        assert await comes_at_once(b, Stage.RECORDED)
        assert len(b.tracker.items) == 1


async def test_without_the_news_it_waits_for_its_time(tmp_path: Path) -> None:
    """The check above can fail: it does where nobody follows the runners."""
    async with refused_for_long(tmp_path, Reason.SUPERVISION_FENCED, following=False) as b:
        assert not await comes_at_once(b, Stage.RECORDED)


async def test_what_another_has_filed_meanwhile_is_dropped_at_once(tmp_path: Path) -> None:
    """The runner says whose it is, as soon as it is asked: nothing is created, and nothing waits."""
    async with refused_for_long(tmp_path, Reason.SUPERVISION_FENCED) as b:
        b.claims.generations["t1/1/stale"] = 2
        assert await comes_at_once(b, Stage.LOST)
        assert b.tracker.items == []


async def test_a_right_that_comes_while_the_runner_refuses_is_not_missed(tmp_path: Path) -> None:
    """The refusal of the old generation is stored after the news of the new one: it is tried again at once all the same."""
    async with refused_for_long(tmp_path, Reason.SUPERVISION_FENCED) as b:
        confirm = b.claims.confirm

        async def overtaken(filing: Filing) -> None:
            b.claims.confirm = confirm  # type: ignore[method-assign]
            b.claims.refusal = None
            may_act(b.supervisor, 8)
            await asyncio.sleep(0)
            raise refuse(Reason.SUPERVISION_FENCED, "not under that generation")

        b.claims.confirm = overtaken  # type: ignore[method-assign]
        may_act(b.supervisor, 7)
        await settle()
        assert b.stage("t1") is Stage.RECORDED


# A claim that is replaced while a step is taken for the old one


async def claimed_anew_at(path: Path, step: str) -> tuple[Stage, int, int]:
    """This supervisor was started again, and claims anew while the runner or the tracker is asked about the old claim: how
    that claim ends, its generation, and how many items there are.
    """
    async with bench(path) as b, b.filing():
        asked: Any = b.tracker if step in ("find", "create") else b.claims
        real = getattr(asked, step)

        async def overtaken(*args: Any, **named: Any) -> Any:
            setattr(asked, step, real)
            b.claims.generations["t1/1/stale"] = 2
            await b.claim("t1", generation=2)
            return await real(*args, **named)

        setattr(asked, step, overtaken)
        await b.claim("t1")
        await b.clock.until(lambda: b.stage("t1") in (Stage.RECORDED, Stage.LOST))
        return b.stage("t1"), waiting(b).claim_generation, len(b.tracker.items)


@pytest.mark.parametrize("step", ["confirm", "find", "create", "record"])
async def test_a_step_for_a_claim_that_was_replaced_does_not_touch_the_new_one(tmp_path: Path, step: str) -> None:
    """Whatever is answered about the old claim, the new one is filed, once."""
    assert await claimed_anew_at(tmp_path, step) == (Stage.RECORDED, 2, 1)


@pytest.mark.parametrize("step", ["confirm", "find", "record"])
async def test_steps_that_do_not_look_whose_claim_it_is_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """Stored without a look at the claim, what was answered about the old one ends the new one."""
    monkeypatch.setattr(work, "_change", lambda session, changed: filings.put(session.uow, changed) or changed)
    assert await claimed_anew_at(tmp_path, step) != (Stage.RECORDED, 2, 1)
