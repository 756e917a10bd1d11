"""Rounds in which five supervisors give up one task at the same time, and what must have come of it."""

from __future__ import annotations

import asyncio
import enum
from functools import partial
from random import Random

from lanewarden.errors import Reason
from supervisor_svc.core.filing import Stage
from supervisor_svc.store import filings
from tests.integration.gated_supervisor import NOT_ASKED
from tests.integration.replicas import NAMES, RUNNER, STALE_SECONDS, Replicas
from tests.runner_invariants import Watch

LOST, FENCED = Reason.CLAIM_LOST.name, Reason.SUPERVISION_FENCED.name
FILED_SECONDS = 240.0
"""A claim that was another's waits a minute for what that one may have made; the rest is for tries that failed, while a
runner that has lost its supervisor, or that was killed, finds the next.
"""
RELEASED_SECONDS_MAX = 0.3
WAITS = (Stage.OPEN.value, Stage.FILED.value)
POINTS = (
    "visited",
    "released",
    *(f"{side} {step}" for step in ("settle", "claim", "confirm", "record") for side in ("before", "after")),
)
DEEDS = ("whoever is there", "whoever is there", "somebody", "runner", "hand over")


class Form(enum.Enum):
    """Where the five stand when they are let go: at the settling, at the claim, or at the claim and one after the other,
    each while it supervises. The last is as the second where anything happens on the way.
    """

    SETTLE = "settle"
    CLAIM = "claim"
    IN_TURN = "claim, in turn"

    @property
    def step(self) -> str:
        """The step that they wait at."""
        return self.value.partition(",")[0]


def draw_plan(random: Random) -> dict[str, str]:
    """What happens at which point of a round: one or two things."""
    return {point: random.choice(DEEDS) for point in random.sample(POINTS, random.choice((1, 2)))}


class Settling:
    """Rounds on one set of processes. Each task is there a round before its own, so that all five know it and its silence
    lasts long enough.
    """

    def __init__(self, five: Replicas, seed: int) -> None:
        self.five = five
        self.done: list[str] = []
        self._random = Random(seed)
        self._task_id, self._form = "", Form.SETTLE

    async def begin(self, form: Form) -> None:
        """Have all five know the task of the first round."""
        await self._prepare(form)
        for name in NAMES:
            await self.five.supervise_by(name, self._task_id)
        self.five.clock.move(STALE_SECONDS + 1)

    async def _prepare(self, form: Form) -> None:
        self._task_id, self._form = await self.five.submit(), form
        self.five.gate.shut(form.step, self._task_id)

    async def play(self, plan: dict[str, str], then: Form) -> None:
        """The round that was prepared, and what happens at which of its points; ``then`` is the form of the next one."""
        five, task_id, form = self.five, self._task_id, self._form
        await five.all_up()
        lives = dict(five.lives)
        await self._prepare(then)
        five.plan, five.task_id = dict(plan), task_id
        five.happened.append(f"{task_id}: {form.value}, {plan}")
        await self._gather(task_id, form)
        if form is Form.IN_TURN and not plan:
            await self._let_go_in_turn(task_id)
        five.gate.open(form.step, task_id)
        await asyncio.sleep(self._random.random() * RELEASED_SECONDS_MAX if "released" in plan else 0)
        await five.happen("released")
        await five.until(lambda: self._over(task_id), f"{task_id} is settled and filed", FILED_SECONDS)
        five.plan.clear()
        await five.all_up()
        five.clock.move(STALE_SECONDS + 1)
        self._check(task_id, form, calm=not plan)
        if five.lives[RUNNER] == lives[RUNNER]:
            silent = {name for name in NAMES if five.lives[name] == lives[name]}
            silent -= {who for who, _ in self._told(form.step, task_id)}
            assert not silent, f"{silent} were told nothing at {form.value} of {task_id}"
        self.done.append(task_id)

    async def _gather(self, task_id: str, form: Form) -> None:
        """Let each supervise the runner once, so that it may act there as far as it knows, and comes to the step."""
        five = self.five
        for place, name in enumerate(self._random.sample(NAMES, len(NAMES))):
            five.lead_to(name)
            if place in (1, 3) and form is Form.SETTLE:
                await five.send_input(task_id)
            await five.supervise_by(name, task_id, self._task_id)
            await self._nothing_unfinished(name)
            await self._stand(name, form.step, task_id)
        if form is Form.SETTLE:
            seen = {five.version(name, task_id) for name in NAMES}
            assert len(seen) >= 3, f"three versions of the task were to be known, not {seen}"
        await five.happen("visited")

    async def _stand(self, name: str, step: str, task_id: str) -> None:
        five = self.five

        def stands() -> bool:
            five.lead_to(name)  # also when somebody else has got the runner meanwhile
            return name in {each.who for each in five.gate.waiting(step, task_id)}

        await five.until(stands, f"{name} stands at {step} of {task_id}")

    async def _let_go_in_turn(self, task_id: str) -> None:
        """Each while it supervises; the first has filed before the second is let go."""
        five = self.five
        for name in self._random.sample(NAMES, len(NAMES)):
            await five.supervise_by(name)
            await five.until(partial(self._is_told, name, task_id), f"{name} was told")
            await five.until(lambda: self._over(task_id), f"{task_id} is settled and filed", FILED_SECONDS)

    def _is_told(self, name: str, task_id: str) -> bool:
        for arrival in self.five.gate.waiting("claim", task_id):
            if arrival.who == name:
                arrival.passed.set()
        return any(who == name for who, _ in self._told("claim", task_id))

    def _told(self, step: str, task_id: str) -> list[tuple[str, str]]:
        """Who was told what by the runner."""
        return [each for each in self.five.gate.told(step, task_id) if each[1] != NOT_ASKED]

    # What must have come of it

    def _over(self, task_id: str) -> bool:
        sql = (
            "SELECT 1 FROM tasks JOIN incidents USING (task_id, epoch)"
            " WHERE task_id = ? AND tasks.state = 'SETTLED' AND incidents.state = 'FILED'"
        )
        return bool(self.five.rows(RUNNER, sql, task_id)) and not self.five.worker_alive(task_id)

    async def _nothing_unfinished(self, name: str) -> None:
        """Whoever supervises is soon through with what it had begun to file."""
        sql = "SELECT 1 FROM filings WHERE stage IN (?, ?)"
        await self.five.until(lambda: not self.five.rows(name, sql, *WAITS), f"{name} has done with what it was filing")

    def _check(self, task_id: str, form: Form, *, calm: bool) -> None:
        five, key = self.five, f"{task_id}/1/settled"
        assert five.items(key) == 1, f"{five.items(key)} items for one incident"
        told = self._told(form.step, task_id)
        if calm:
            loser = LOST if form is Form.IN_TURN else FENCED
            heard = sorted(" ".join({outcome for who, outcome in told if who == name}) for name in NAMES)
            assert heard == sorted(["OK", *[loser] * (len(NAMES) - 1)]), f"at {form.value} they were told {told}"
        self._check_audit(task_id, told, form.step)

    def _check_audit(self, task_id: str, told: list[tuple[str, str]], step: str) -> None:
        """The runner has told it, each of them; and nobody was told OK about a claim once it was filed."""
        audit = self.five.rows(
            RUNNER, "SELECT identity, action, outcome FROM audit WHERE task_id = ? ORDER BY sequence", task_id
        )
        rpc = {"settle": "SettleTask", "claim": "ClaimIncident"}[step]
        for who, outcome in told:
            if outcome in (LOST, FENCED):
                assert any((each[0], each[2]) == (who, outcome) and each[1].startswith(rpc) for each in audit), (
                    f"{who} was told {outcome} at {step}, and not by the runner: {audit}"
                )
        filed = next(
            place for place, each in enumerate(audit) if each[1].startswith("RecordIncident") and each[2] == "OK"
        )
        late = [each for each in audit[filed:] if each[1].startswith("ClaimIncident") and each[2] == "OK"]
        assert {each[0] for each in late} <= {audit[filed][0]}, f"claimed after it was filed: {late}"

    async def end(self) -> None:
        """Nothing is left open anywhere, once each supervisor has been told about everything it held."""
        five = self.five
        for name in NAMES:
            await five.supervise_by(name, *self.done)
            await self._nothing_unfinished(name)
        for task_id in self.done:
            key = f"{task_id}/1/settled"
            found = [five.files[name].read(partial(filings.find, key=key)) for name in NAMES]
            recorded = [each for each in found if each is not None and each.stage is Stage.RECORDED]
            assert len(recorded) <= 1, f"two have filed {key}: {found}"
            assert five.items(key) == 1, f"{five.items(key)} items for {key}"
            assert not five.worker_alive(task_id), f"a worker of {task_id} is left"
        assert not five.rows(RUNNER, "SELECT key FROM incidents WHERE state <> 'FILED'"), "a claim is open"
        assert len(five.tracker.issues) == len(self.done)
        five.files[RUNNER].read(Watch().look_at_rows)

    def state(self) -> list[str]:
        """What there is to see of the last rounds, for people."""
        five = self.five
        now = f"{five.current} has the runner, at {five.clock.steady_ms()} ms: "
        return [
            *five.happened[-12:],
            *(f"{each.who} {each.step} {each.task_id}: {each.outcome}" for each in five.gate.arrivals[-20:]),
            now + str(five.rows(RUNNER, "SELECT generation, supervisor_id, live FROM supervision")),
            str(five.rows(RUNNER, "SELECT key, state, holder, claim_generation FROM incidents WHERE state <> 'FILED'")),
            *(f"{name} {five.rows(name, 'SELECT * FROM filings WHERE stage IN (?, ?)', *WAITS)}" for name in NAMES),
            *(f"{name}: {event}" for name in five.services for event in five.services[name].log[-5:]),
        ]
