"""Looks at tasks when something about them has changed or is due, and does what the decision says.

A look costs one task. Looked at are those that were reported, those of a runner that can or cannot be reached by now, and
those whose time has come. Nothing here is a state: whoever restarts looks at everything once, and finds the same. What is
wrong with one task, or with the database at this moment, is logged and looked at later, and the others go on.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

from lanewarden.errors import Reason, Refusal
from lanewarden.hub import Topic
from lanewarden.store import Entity
from lanewarden.telemetry import Value, span_names
from lanewarden.v1 import task_pb2
from supervisor_svc import emitters
from supervisor_svc.core.arms import Action, choose
from supervisor_svc.core.deadline import look_again_ms
from supervisor_svc.core.diagnosis import diagnose, settle
from supervisor_svc.core.filing import Filing, cause_of, retry_seconds
from supervisor_svc.core.verdict import Verdict, classify
from supervisor_svc.core.view import View
from supervisor_svc.loop.agenda import Agenda
from supervisor_svc.store import filings, views
from supervisor_svc.supervisor import Supervisor
from supervisor_svc.work import filing, judging
from supervisor_svc.work.actions import RunnerActions
from supervisor_svc.work.session import SETTINGS

log = logging.getLogger(__name__)

ACTIONS_MAX: Final = 16
"""Actions under way at once; what is due beyond that waits its turn."""
READ_AGAIN_SECONDS: Final = 1.0
TASKS: Final = Topic("task")
RUNNERS: Final = Topic("runner")
_ANOTHERS: Final = frozenset({Reason.SUPERVISION_FENCED, Reason.CLAIM_LOST})
"""Another supervisor's affair, until the runner says something else: no time alone brings it back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What is to be done about a task, and its name, which is the same for as long as it would be the same again."""

    name: str
    do: Callable[[], Awaitable[None]]
    about: Mapping[str, Value]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """A step that was tried, and is not tried again before then, whatever is reported meanwhile."""

    step: str
    until_ms: int
    failures: int = 0


class Supervise:
    """The loop. ``gather_seconds`` is how long an incident waits for others with its cause."""

    def __init__(self, supervisor: Supervisor, actions: RunnerActions, *, gather_seconds: float) -> None:
        self._supervisor = supervisor
        self._actions = actions
        self._gather_ms = round(gather_seconds * 1000)
        self._agenda = Agenda(supervisor.clock)
        self._busy: dict[str, asyncio.Task[None]] = {}
        self._again: set[str] = set()
        self._waits: dict[str, Wait] = {}
        self._turns = asyncio.Semaphore(ACTIONS_MAX)

    async def run(self) -> None:
        """Look and act; never returns."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._follow_tasks())
            group.create_task(self._follow_runners())
            group.create_task(self._follow_settings())
            await self._look_at_all()
            while True:
                for task_id in await self._agenda.take():
                    self._look(task_id, group)

    async def _follow_tasks(self) -> None:
        with self._supervisor.hub.subscribe(TASKS) as news:
            while True:
                self._agenda.add(await news.take())

    async def _follow_runners(self) -> None:
        """What could not be done at a runner can be done once it is heard again, or has said who may act there."""
        with self._supervisor.hub.subscribe(RUNNERS) as news:
            while True:
                for runner_id in await news.take():
                    await self._look_at_all(runner_id)

    async def _follow_settings(self) -> None:
        with self._supervisor.hub.subscribe(SETTINGS) as news:
            while True:
                await news.take()
                await self._look_at_all()

    async def _look_at_all(self, runner_id: str = "") -> None:
        """Look at everything that may need it, of one runner if it is named, as soon as it can be read."""
        while True:
            try:
                task_ids = self._supervisor.read(partial(views.supervised_ids, runner_id=runner_id))
                break
            except Exception:  # an error of the database ends no supervision: it is read again
                log.exception("the tasks cannot be read now")
                await self._supervisor.clock.sleep(READ_AGAIN_SECONDS)
        for task_id in task_ids:
            self._waits.pop(task_id, None)
        self._agenda.add(task_ids)

    def _look(self, task_id: str, group: asyncio.TaskGroup) -> None:
        """Judge a task and have done what follows; while something is done about it, it is looked at afterwards."""
        if task_id in self._busy:
            self._again.add(task_id)
            return
        try:
            step, again_ms = self._judge(task_id)
        except Exception:  # whatever is wrong with one task, the others are looked at
            log.exception("a task cannot be judged", extra={"task": task_id})
            self._wait(task_id, "judge", failed=True)
            return
        if step is None:
            self._waits.pop(task_id, None)
        elif (wait := self._waits.get(task_id)) and wait.step == step.name and wait.until_ms > self._now_ms():
            again_ms = wait.until_ms
        else:
            self._busy[task_id] = group.create_task(self._carry_out(task_id, step))
            return
        if again_ms is not None:
            self._agenda.add([task_id], again_ms)

    def _judge(self, task_id: str) -> tuple[Step | None, int | None]:
        """What is to be done about a task now, if anything, and when it may be something else by itself."""
        found = self._supervisor.read(lambda reader: views.task(reader, task_id))
        if found is None or found.observed is None:
            return None, None
        task = task_pb2.Task.FromString(found.payload)
        storm = self._supervisor.storm_against(task, found.observed)
        view = judging.view(task, found.observed, self._supervisor.presence, storm)
        config, now_ms = self._supervisor.supervision, self._now_ms()
        return self._step(task, view, classify(view, now_ms, config)), look_again_ms(view, now_ms, config)

    def _step(self, task: task_pb2.Task, view: View, verdict: Verdict) -> Step | None:
        relaunches_max = self._supervisor.supervision.relaunches_max
        act = self._actions
        match action := choose(view, verdict, self._supervisor.supervision):
            case Action.WAKE:
                do = partial(act.wake, task)
            case Action.RELAUNCH:
                do = partial(act.relaunch, task, cause=verdict.value, relaunches_max=relaunches_max)
            case Action.SETTLE:
                do = partial(act.settle, task, settle(diagnose(view)))
            case _ if self._owes_filing(task):
                return Step(name=f"claim {task.epoch}", do=partial(self._claim, task), about=self._about(task, "CLAIM"))
            case _:
                return None
        return Step(name=f"{action.name} {task.epoch}.{task.attempt}", do=do, about=self._about(task, action.name))

    def _about(self, task: task_pb2.Task, action: str) -> dict[str, Value]:
        return {
            "action": action,
            "task.id": task.task_id,
            "lane": task.spec.lane,
            "epoch": task.epoch,
            "attempt": task.attempt,
            "runner.id": task.runner_id,
            "generation": self._supervisor.presence.supervision_generation(task.runner_id),
        }

    def _owes_filing(self, task: task_pb2.Task) -> bool:
        """Whether it was given up and is not being filed by this start of the supervisor."""
        if not judging.unfiled(task):
            return False
        incident = next((each for each in task.incidents if each.epoch == task.epoch), None)
        if incident is None or incident.holder != f"{self._supervisor.supervisor_id}/{self._supervisor.incarnation}":
            return True
        known = self._supervisor.read(lambda reader: filings.find(reader, incident.key))
        return known is None or known.claim_generation < incident.claim_generation

    async def _claim(self, task: task_pb2.Task) -> None:
        incident = await self._actions.claim(task)
        claim = Filing(
            key=incident.key,
            task_id=task.task_id,
            runner_id=task.runner_id,
            epoch=task.epoch,
            kind=incident.kind,
            cause=cause_of(incident.kind, task.diagnosis),
            claim_generation=incident.claim_generation,
            summary=task.summary,
            diagnosis=task.diagnosis,
            claimed_wall_ms=incident.claimed_at.ToMilliseconds(),
            due_ms=0,
            leader_key=incident.key,
        )
        await self._supervisor.do(
            lambda session: filing.claimed(session, claim, gather_ms=self._gather_ms),
            emitter=emitters.CLAIM,
            entity=Entity("incident", claim.key),
        )

    async def _carry_out(self, task_id: str, step: Step) -> None:
        """Do it; what fails is tried again, later each time, and by time alone unless it is another's affair."""
        try:
            async with self._turns:
                with self._supervisor.telemetry.span(span_names.ACT, step.about):
                    await step.do()
            self._wait(task_id, step.name)
        except Refusal as refusal:
            log.warning("an action came to nothing", extra={"task": task_id, "reason": refusal.reason.name})
            self._wait(task_id, step.name, failed=True, by_time=refusal.reason not in _ANOTHERS)
        except Exception:  # a defect in what is done about one task must not end the others' supervision
            log.exception("an action failed", extra={"task": task_id})
            self._wait(task_id, step.name, failed=True)
        finally:
            del self._busy[task_id]
            if task_id in self._again:
                self._again.discard(task_id)
                self._agenda.add([task_id])

    def _wait(self, task_id: str, step: str, *, failed: bool = False, by_time: bool = True) -> None:
        """Leave the same step for a time. What was done has as long to be told of as a runner that comes back."""
        before = self._waits.get(task_id)
        failures = (before.failures if before and before.step == step else 0) + 1 if failed else 0
        delay_ms = self._supervisor.supervision.catch_up_ms
        if failed:
            delay_ms = round(1000 * retry_seconds(failures, self._supervisor.random.random()))
        self._waits[task_id] = Wait(step=step, until_ms=self._now_ms() + delay_ms, failures=failures)
        if by_time:
            self._agenda.add([task_id], self._now_ms() + delay_ms)

    def _now_ms(self) -> int:
        return self._supervisor.clock.steady_ms()
