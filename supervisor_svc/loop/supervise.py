"""Looks at tasks when something about them has changed or is due, and does what the decision says.

A look costs one task. Which are looked at: those that were reported, those of a runner that can or cannot be reached by now,
and those whose time has come, from a heap. Nothing here is a state: whoever restarts looks at everything once, and finds the
same.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
from collections.abc import Coroutine, Iterable
from functools import partial
from typing import Any, Final

from lanewarden.errors import Reason, Refusal
from lanewarden.hub import Topic
from lanewarden.store import Entity
from lanewarden.v1 import task_pb2
from lanewarden.waiting import first_of
from supervisor_svc import emitters
from supervisor_svc.core.arms import Action, choose
from supervisor_svc.core.deadline import look_again_ms
from supervisor_svc.core.delivery import backoff_seconds
from supervisor_svc.core.diagnosis import diagnose, settle
from supervisor_svc.core.filing import Filing, cause_of
from supervisor_svc.core.verdict import Judgement, judge
from supervisor_svc.core.view import View
from supervisor_svc.store import filings, views
from supervisor_svc.supervisor import Supervisor
from supervisor_svc.work import filing, judging
from supervisor_svc.work.actions import RunnerActions
from supervisor_svc.work.session import SETTINGS

log = logging.getLogger(__name__)

ACTIONS_MAX: Final = 16
"""Actions under way at once; what is due beyond that waits its turn."""
TASKS: Final = Topic("task")
RUNNERS: Final = Topic("runner")
_ANOTHERS: Final = frozenset({Reason.SUPERVISION_FENCED, Reason.CLAIM_LOST})
"""Another supervisor's affair, until the runner says something else."""


class Supervise:
    """The loop. ``gather_seconds`` is how long an incident waits for others with its cause."""

    def __init__(self, supervisor: Supervisor, actions: RunnerActions, *, gather_seconds: float) -> None:
        self._supervisor = supervisor
        self._actions = actions
        self._gather_ms = round(gather_seconds * 1000)
        self._due: dict[str, int] = {}
        self._heap: list[tuple[int, str]] = []
        self._busy: dict[str, asyncio.Task[None]] = {}
        self._again: set[str] = set()
        self._failures: dict[str, int] = {}
        self._turns = asyncio.Semaphore(ACTIONS_MAX)
        self._moved = asyncio.Event()

    async def run(self) -> None:
        """Look and act; never returns."""
        async with asyncio.TaskGroup() as group:
            for topic in (TASKS, RUNNERS, SETTINGS):
                group.create_task(self._follow(topic))
            self._due_now(self._supervisor.read(views.supervised_ids))
            while True:
                for task_id in self._pop_due():
                    self._look(task_id, group)
                await self._until_due()

    async def _follow(self, topic: Topic) -> None:
        with self._supervisor.hub.subscribe(topic) as news:
            while True:
                changed = await news.take()
                for each in changed if topic is RUNNERS else ():  # their unfinished tasks are told of by themselves
                    self._due_now(self._supervisor.read(partial(views.unfiled_ids, runner_id=each)))
                self._due_now(changed if topic is TASKS else ())
                if topic is SETTINGS:
                    self._due_now(self._supervisor.read(views.supervised_ids))

    def _look(self, task_id: str, group: asyncio.TaskGroup) -> None:
        """Judge a task and have done what follows; while something is done about it, it is looked at afterwards."""
        if task_id in self._busy:
            self._again.add(task_id)
            return
        found = self._supervisor.read(lambda reader: views.task(reader, task_id))
        if found is None or found.observed is None:
            return
        task = task_pb2.Task.FromString(found.payload)
        view = judging.view(task, found.observed, self._supervisor.presence)
        config, now_ms = self._supervisor.supervision, self._supervisor.clock.steady_ms()
        judgement = judge(view, now_ms, config)
        if job := self._job(task, view, judgement):
            self._busy[task_id] = group.create_task(self._carry_out(task_id, job))
            return
        self._failures.pop(task_id, None)
        if (again_ms := look_again_ms(view, now_ms, config)) is not None:
            self._due_at(task_id, again_ms)

    def _job(self, task: task_pb2.Task, view: View, judgement: Judgement) -> Coroutine[Any, Any, None] | None:
        config = self._supervisor.supervision
        match choose(view, judgement.verdict, config):
            case Action.WAKE:
                return self._actions.wake(task)
            case Action.RELAUNCH:
                return self._actions.relaunch(task, cause=judgement.because, relaunches_max=config.relaunches_max)
            case Action.SETTLE:
                return self._actions.settle(task, settle(diagnose(view)))
            case _ if self._owes_filing(task):
                return self._claim(task)
        return None

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

    async def _carry_out(self, task_id: str, job: Coroutine[Any, Any, None]) -> None:
        """Do it; what fails is looked at again, later each time, and at once when something is reported."""
        failures = self._failures.get(task_id, 0)
        try:
            async with self._turns:
                await job
            self._failures.pop(task_id, None)
        except Refusal as refusal:
            log.warning("an action came to nothing", extra={"task": task_id, "reason": refusal.reason.name})
            if refusal.reason not in _ANOTHERS:
                self._failures[task_id] = failures + 1
                seconds = backoff_seconds(failures + 1, self._supervisor.random.random())
                self._due_at(task_id, self._supervisor.clock.steady_ms() + round(seconds * 1000))
        finally:
            del self._busy[task_id]
            if task_id in self._again:
                self._again.discard(task_id)
                self._due_now([task_id])

    def _due_now(self, task_ids: Iterable[str]) -> None:
        now_ms = self._supervisor.clock.steady_ms()
        for task_id in task_ids:
            self._due_at(task_id, now_ms)

    def _due_at(self, task_id: str, due_ms: int) -> None:
        if self._due.get(task_id, due_ms + 1) > due_ms:
            self._due[task_id] = due_ms
            heapq.heappush(self._heap, (due_ms, task_id))
            self._moved.set()

    def _pop_due(self) -> list[str]:
        now_ms, due = self._supervisor.clock.steady_ms(), []
        while self._heap and self._heap[0][0] <= now_ms:
            due_ms, task_id = heapq.heappop(self._heap)
            if self._due.get(task_id) == due_ms:  # otherwise it has been put forward meanwhile
                del self._due[task_id]
                due.append(task_id)
        return due

    async def _until_due(self) -> None:
        """Return when the first of the heap is due, or something has been put before it."""
        self._moved.clear()
        if not self._heap:
            await self._moved.wait()
            return
        seconds = (self._heap[0][0] - self._supervisor.clock.steady_ms()) / 1000
        await first_of(self._moved.wait(), self._supervisor.clock.sleep(max(0.0, seconds)))
