"""Files what this supervisor has claimed: looks the incident up, creates it if it is not there, and tells the runner.

Every state in between is stored before it matters, so that whoever dies in it is repeated from there: see
:mod:`supervisor_svc.core.filing`.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final, Protocol, TypeVar

from lanewarden.errors import Reason, Refusal
from lanewarden.hub import Subscription, Topic
from lanewarden.records import replace
from lanewarden.store import Entity
from lanewarden.telemetry import Value, span_names
from lanewarden.waiting import take_within
from lanewarden.walltime import rfc3339
from supervisor_svc import emitters
from supervisor_svc.core.filing import Filing, Stage, may_create_at_ms, retry_seconds
from supervisor_svc.sinks import SinkFailed
from supervisor_svc.sinks.tracker import Filed, FilingFailed, Report, Subject, Tracker
from supervisor_svc.store import filings
from supervisor_svc.supervisor import Supervisor
from supervisor_svc.work import filing as work
from supervisor_svc.work.session import FILINGS, Session

log = logging.getLogger(__name__)

BATCH_MAX: Final = 100
RUNNERS: Final = Topic("runner")
T = TypeVar("T")


class Claims(Protocol):
    """What the filer asks of the runner that owns the task. Each raises the runner's own refusal."""

    async def confirm(self, filing: Filing) -> None:
        """Return if the claim is still ours."""
        ...

    async def record(self, filing: Filing, *, also_task_ids: Sequence[str]) -> None:
        """Tell what came of it: its name at the tracker, or its failure."""
        ...


class Filer:
    """Serves one tracker, one incident at a time."""

    def __init__(self, supervisor: Supervisor, tracker: Tracker, claims: Claims) -> None:
        self._supervisor = supervisor
        self._tracker = tracker
        self._claims = claims
        self._outcomes: Counter[str] = Counter()

    def outcomes(self) -> list[tuple[int, tuple[str, str]]]:
        """What the tries since the start came to, each with the tracker's name and the outcome; on any thread."""
        return [(tries, (self._tracker.name, outcome)) for outcome, tries in self._outcomes.copy().items()]

    async def run(self) -> None:
        """File whatever is due; never returns. What goes wrong, with one incident or with the database at this moment, is
        logged and tried later; a database that fails for good ends the supervisor by itself.
        """
        with self._supervisor.hub.subscribe(FILINGS) as news:
            while True:
                try:
                    await self.file_due()
                    await self._wait(news)
                except Exception:
                    log.exception("it cannot be read now what is to be filed")
                    await self._pause()

    async def follow_runners(self) -> None:
        """Have what waits for a runner tried as soon as this supervisor may act there again; never returns."""
        with self._supervisor.hub.subscribe(RUNNERS) as news:
            while True:
                for runner_id in await news.take():
                    if self._right(runner_id):
                        await self._try_now(runner_id)

    async def _try_now(self, runner_id: str) -> None:
        try:
            waiting = self._supervisor.read(lambda reader: filings.waiting_for(reader, runner_id))
            if waiting:
                entity = Entity("runner", runner_id)
                await self._supervisor.do(
                    lambda session: work.try_now(session, runner_id), emitter=emitters.FILE, entity=entity
                )
        except Exception:  # each of them has a time of its own as well
            log.exception("what waits for a runner waits longer", extra={"runner": runner_id})

    async def file_due(self) -> None:
        """Take each incident that is due one step further."""
        now_ms = self._supervisor.clock.steady_ms()
        for filing in self._supervisor.read(lambda reader: filings.due(reader, now_ms, BATCH_MAX)):
            about: dict[str, Value] = {"incident.id": filing.key, "task.id": filing.task_id, "epoch": filing.epoch}
            try:
                with self._supervisor.telemetry.span(
                    span_names.FILE, about | {"tries": filing.tries}, continues=filing.traceparent
                ):
                    await (self._tell(filing) if filing.stage is Stage.FILED else self._file(filing))
            except Refusal as refusal:  # of our own store: nothing is lost, it is due again
                log.error("cannot store how filing went", extra={"incident": filing.key, "reason": refusal.reason.name})
                await self._pause()
            except Exception:  # whatever is wrong with one incident, the others are filed
                log.exception("an incident cannot be filed now", extra={"incident": filing.key})
                await self._put_off(filing)

    async def _put_off(self, filing: Filing) -> None:
        try:
            await self._do(lambda session: work.stumbled(session, filing.key, jitter=self._jitter()), filing)
        except Exception:
            log.exception("cannot store that filing has to wait", extra={"incident": filing.key})
            await self._pause()

    async def _pause(self) -> None:
        await self._supervisor.clock.sleep(retry_seconds(1, self._jitter()))

    def _jitter(self) -> float:
        return self._supervisor.random.random()

    def _right(self, runner_id: str) -> int:
        """Under which generation this supervisor may act at a runner now; 0 while it may not."""
        return self._supervisor.presence.supervision_generation(runner_id)

    async def _file(self, leader: Filing) -> None:
        group = [each for each in self._group(leader) if await self._still_ours(each)]
        if not group:
            return
        if group[0].key != leader.key:
            led = await self._do(lambda session: work.lead(session, group), leader)
            if not led or led[0].key != group[0].key:
                return  # claimed anew meanwhile: it leads the others under that claim
            leader, group = led[0], led
        try:
            item = await self._tracker.find(leader.key)
        except SinkFailed as failed:
            await self._failed(group, failed)
            return
        if item is None:
            may_ms = may_create_at_ms(leader, round(self._tracker.lag_seconds * 1000))
            if self._supervisor.clock.steady_ms() < may_ms:
                await self._do(lambda session: work.waits(session, leader, may_ms), leader)
                return
            item = await self._create(leader, group)
        if item is not None:
            found = item
            await self._do(lambda session: work.filed(session, leader, found), leader)
            self._outcomes["filed"] += 1
            log.info("incident filed", extra={"incident": leader.key, "item": item.external_id, "tasks": len(group)})

    async def _create(self, leader: Filing, group: Sequence[Filing]) -> Filed | None:
        unsure = await self._do(lambda session: work.creating(session, leader), leader)
        if unsure is None:
            return None
        try:
            return await self._tracker.create(_report(group))
        except FilingFailed as failed:  # surely: nothing was made, so there is nothing to wait for
            await self._failed([replace(leader, unsure_since_ms=None), *group[1:]], failed)
        except SinkFailed as failed:
            await self._failed([unsure, *group[1:]], failed)
        return None

    async def _failed(self, group: Sequence[Filing], failed: SinkFailed) -> None:
        """Try again later, and let the runner show why: settled, filing failed."""
        self._outcomes["failed"] += 1
        seconds = retry_seconds(group[0].tries + 1, self._jitter())
        if isinstance(failed, FilingFailed):
            seconds = max(seconds, failed.retry_after_seconds)
        tried = await self._do(
            lambda session: [
                tried
                for each in group
                if (tried := work.failed(session, each, failed.cause, delay_ms=round(seconds * 1000)))
            ],
            group[0],
        )
        facts = {
            "incident": group[0].key,
            "tracker": self._tracker.name,
            "tries": group[0].tries + 1,
            "cause": failed.cause,
        }
        log.warning("an incident has to wait", extra=facts)
        for each in tried:
            try:
                await self._claims.record(each, also_task_ids=())
            except Refusal as refusal:
                log.info("a runner was not told", extra={"incident": each.key, "reason": refusal.reason.name})

    async def _tell(self, filing: Filing) -> None:
        """The runner learns the item's name; until it has, it is told again."""
        also = [each.task_id for each in self._members(filing) if each.key != filing.key]
        right = self._right(filing.runner_id)
        try:
            await self._claims.record(filing, also_task_ids=also)
        except Refusal as refusal:
            if refusal.reason is not Reason.CLAIM_LOST:
                await self._later(filing, refusal, right)
                return
            log.warning("an incident is somebody else's by now", extra={"incident": filing.key})
            await self._lost(filing)
        else:
            await self._do(lambda session: work.recorded(session, filing, lost=False), filing)

    async def _still_ours(self, filing: Filing) -> bool:
        """Whether the claim holds at this moment: no supervisor that was replaced may create anything."""
        right = self._right(filing.runner_id)
        try:
            await self._claims.confirm(filing)
        except Refusal as refusal:
            if refusal.reason is Reason.CLAIM_LOST:
                await self._lost(filing)
            else:
                await self._later(filing, refusal, right)
            return False
        return True

    async def _lost(self, filing: Filing) -> None:
        self._outcomes["lost"] += 1
        await self._do(lambda session: work.recorded(session, filing, lost=True), filing)

    async def _later(self, filing: Filing, refusal: Refusal, right: int) -> None:
        """The runner could not be asked, or did not let us under the ``right`` that we had: the same again later, and by
        itself; at once when it has told us another meanwhile.
        """
        delay_ms = round(1000 * retry_seconds(filing.tries + 1, self._jitter()))
        if self._right(filing.runner_id) not in (0, right):
            delay_ms = 0
        alone = filing if filing.stage is Stage.FILED else replace(filing, leader_key=filing.key)
        await self._do(lambda session: work.failed(session, alone, refusal.reason.name, delay_ms=delay_ms), filing)

    def _group(self, leader: Filing) -> list[Filing]:
        return self._supervisor.read(lambda reader: filings.group(reader, leader.key))

    def _members(self, filing: Filing) -> list[Filing]:
        return self._supervisor.read(lambda reader: filings.members(reader, filing))

    async def _do(self, unit: Callable[[Session], T], filing: Filing) -> T:
        return await self._supervisor.do(unit, emitter=emitters.FILE, entity=Entity("incident", filing.key))

    async def _wait(self, news: Subscription) -> None:
        next_ms = self._supervisor.read(filings.next_due_ms)
        if next_ms is None:
            await news.take()
        else:
            await take_within(news, self._supervisor.clock, (next_ms - self._supervisor.clock.steady_ms()) / 1000)


def _report(group: Sequence[Filing]) -> Report:
    leader = group[0]
    return Report(
        key=leader.key,
        kind=leader.kind,
        at=rfc3339(leader.claimed_wall_ms),
        subjects=tuple(
            Subject(
                key=each.key,
                task_id=each.task_id,
                runner_id=each.runner_id,
                epoch=each.epoch,
                summary=each.summary,
                diagnosis=each.diagnosis,
            )
            for each in group
        ),
    )
