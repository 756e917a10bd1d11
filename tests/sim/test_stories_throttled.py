"""W04: everybody who can be throttled is, and a hold goes its whole way; both services on virtual time."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from lane_runner_svc.core.states import State
from lanewarden.errors import Reason, Refusal, refuse
from lanewarden.ledger import WriteLedger
from tests.sim.lease_stage import LeaseStage
from tests.sim.stories import play
from tests.stories.programs import asks_and_leaves
from tests.unit.test_ledger_mutants import nothing_is_exempt


class OneSupervisor(LeaseStage):
    """Leases with their default times, and nobody else to turn to."""

    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        self.runner.supervisors = ("supervisor",)


@contextmanager
def all_throttled() -> Iterator[None]:
    """Whoever may be throttled has written too much, to every entity of both services."""

    def check(self: WriteLedger, entity_kind: str, entity_id: str, emitter: str) -> None:
        raise refuse(Reason.WRITE_THROTTLED, f"{emitter} may not write to {entity_kind} {entity_id}")

    with mock.patch.object(WriteLedger, "check", check):
        yield


async def a_hold_while_all_are_throttled(stage: OneSupervisor) -> AsyncIterator[str]:
    task_id = await stage.submit("asker", asks_and_leaves, reminder={"seconds": 60})
    await stage.supervised("alpha")
    yield "submitted"
    with all_throttled():
        (escalation_id,) = await stage.open_holds(task_id)
        await stage.state(task_id, State.HELD)
        with pytest.raises(Refusal) as throttled:
            await stage.ask("SendInput", task_id=task_id, text="more")
        assert throttled.value.reason is Reason.WRITE_THROTTLED
        assert "lane_runner.message.input" in str(throttled.value), "it is the emitter that is refused"
        entries = (await stage.ask("ListAudit", task_id=task_id)).entries
        assert ("SendInput", "WRITE_THROTTLED") in [(each.action, each.outcome) for each in entries]
        yield "held"
        await stage.ask("Acknowledge", escalation_id=escalation_id, note="soon")
        await stage.until(lambda: stage.hold(escalation_id).acks == 1, "the hold is stamped")
        await stage.sleep(61)
        assert await stage.news(escalation_id, "reminder")
        await stage.ask("ExtendHold", escalation_id=escalation_id, deadline={"seconds": 3_600})
        stage.cut("supervisor")
        await stage.sleep(60)
        stage.heal()
        await stage.supervised("alpha")
        yield "waited"
        await stage.rule(escalation_id)
        await stage.state(task_id, State.SUCCEEDED)
        yield "ruled"


def test_w04_holds_acks_rulings_and_leases_are_never_throttled(directory: Path) -> None:
    """Asked, acked, reminded, extended, ruled on, taken and done, with a lease that ends and is granted anew in between,
    while every emitter that can be refused is. An input is, by the runner, and the supervisor has it in its audit.
    """
    play(a_hold_while_all_are_throttled, directory, make=OneSupervisor)


def test_w04_a_build_in_which_nothing_is_exempt_is_found(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There the hold does not even open."""
    nothing_is_exempt(monkeypatch)
    with pytest.raises((AssertionError, Refusal)):
        play(a_hold_while_all_are_throttled, directory, make=OneSupervisor)
