"""S01 with real processes: five supervisors with five stores and one runner. Whatever is killed, there is one item per
incident, every loser is told, and nothing is stuck.

``REPLICAS_SEED`` and ``REPLICAS_ROUNDS`` set what the long run draws from, and how long it is.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random, SystemRandom

import pytest
import pytest_asyncio

from tests.integration.replicas import Replicas, replicas
from tests.integration.settling import Form, Settling, draw_plan

SEED = 1
ROUNDS = 200
CALM = 0.3
"""The share of the rounds in which nothing happens but the race itself."""
SHOWN_EVERY = 10

module_loop = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def settling(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Settling]:
    """Five supervisors and a runner, ready for a round."""
    async with replicas(tmp_path_factory.mktemp("replicas"), SEED) as five:
        ready = Settling(five, SEED)
        await ready.begin(Form.SETTLE)
        yield ready


@module_loop
async def test_s01_five_replicas_file_once(settling: Settling) -> None:
    """Five supervisors that know three versions of a task come to the terminal arm, and are let go together: one settles,
    claims and files; four are told SUPERVISION_FENCED. So it is where they stand at the claim; and whoever may act there,
    and comes second, is told CLAIM_LOST. One item each, no claim open, no filing waiting, no worker left.
    """
    for form in (Form.CLAIM, Form.IN_TURN, Form.SETTLE):
        await settling.play({}, form)


@module_loop
async def test_s01_a_kill_between_create_and_record(settling: Settling) -> None:
    """The item is made and not recorded when its supervisor is killed: it is found again, and is the one."""
    await settling.play({"before record": "whoever is there"}, Form.IN_TURN)
    assert "before record" in settling.five.happened[-1]
    await settling.end()


@module_loop
@pytest.mark.parametrize(("mutant", "then"), [("no compare", Form.CLAIM), ("no fence", Form.SETTLE)])
async def test_s01_does_not_hold_without_its_guards(settling: Settling, mutant: str, then: Form) -> None:
    """A runner that does not fence the claim, or does not compare whose it is, fails in a round that has held above."""
    five = settling.five
    await five.replace_runner("tests.integration.unguarded_runner", mutant)
    with pytest.raises(AssertionError, match=r"items for one incident|they were told"):
        await settling.play({}, then)


@pytest.mark.long
@pytest.mark.timeout(7_200)
async def test_s01_many_rounds_with_kills_at_random_points(tmp_path: Path) -> None:
    """Two hundred rounds, each form in its turn of chance: in most of them one or two of the processes are killed, or the
    runner changes hands, at a point of the way from the settling to the record.
    """
    seed = int(os.environ.get("REPLICAS_SEED") or SystemRandom().randrange(1_000_000))
    rounds = int(os.environ.get("REPLICAS_ROUNDS") or ROUNDS)
    random, began = Random(seed), time.monotonic()
    print(f"\nseed {seed}, {rounds} rounds")
    async with replicas(tmp_path, seed) as five:
        settling = Settling(five, seed)
        try:
            await settling.begin(random.choice(list(Form)))
            for number in range(1, rounds + 1):
                happens = {} if random.random() < CALM else draw_plan(random)
                await settling.play(happens, random.choice(list(Form)))
                if number % SHOWN_EVERY == 0 or number == rounds:
                    print(f"{time.monotonic() - began:.0f} s: {number} rounds, {shown(five)}", flush=True)
            await settling.end()
        except BaseException as error:
            error.add_note("\n".join([f"REPLICAS_SEED={seed}", *settling.state()]))
            raise


def shown(five: Replicas) -> str:
    """What has happened so far."""
    told = Counter(each.outcome or "died" for each in five.gate.arrivals if each.step in ("settle", "claim"))
    kills = sum(each.endswith("is killed") for each in five.happened)
    handed = sum(each.endswith("gets the runner") for each in five.happened)
    return f"{len(five.tracker.issues)} items, {kills} kills, {handed} handed over, told {dict(told)}"
