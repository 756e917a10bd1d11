"""Claims tasks, launches and stops their workers, and tells the store how they ended."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Final, Protocol, TypeVar

from google.protobuf.message import DecodeError

from lane_runner_svc import emitters
from lane_runner_svc.core.task import Exit, Task
from lane_runner_svc.core.task import ExitKind as CoreExitKind
from lane_runner_svc.loop.sensors import Sensors
from lane_runner_svc.process import AttemptKey, ExitRecord, LaunchFailed, LaunchSpec, WorkerIdentity
from lane_runner_svc.runner import Runner
from lane_runner_svc.store import tasks
from lane_runner_svc.work import attempts
from lane_runner_svc.work.attempts import Claim, Launch
from lane_runner_svc.work.session import QUEUE, AttemptRef
from lanewarden.errors import Refusal
from lanewarden.store import Connection
from lanewarden.telemetry import Span, Value, span_names
from lanewarden.v1.task_pb2 import TaskSpec
from lanewarden.waiting import take_within

log = logging.getLogger(__name__)

STORE_RETRY_SECONDS: Final = 1.0
AGAIN_SECONDS: Final = 5.0
"""Between two tries to account for an attempt that something is wrong with."""
LOOK_SECONDS_MAX: Final = 3600.0
"""The longest time between two looks at the queue when nothing changes."""
T = TypeVar("T")


class Workers(Protocol):
    """What the launcher asks of the process host; the simulator has one of its own."""

    async def launch(self, spec: LaunchSpec) -> WorkerIdentity:
        """Start a worker, or raise LaunchFailed."""
        ...

    async def stop(self, key: AttemptKey, *, grace_seconds: float) -> None:
        """Ask for the stop ladder."""
        ...

    async def adopt(self, keys: Iterable[AttemptKey]) -> Mapping[AttemptKey, WorkerIdentity | ExitRecord]:
        """Find out what became of attempts of an earlier start."""
        ...


class Launcher:
    """The one place that launches workers. ``environment`` is what every worker is given; ``socket`` is where it finds
    its runner; ``sensors`` follow those that cannot report their progress.
    """

    def __init__(
        self, runner: Runner, workers: Workers, sensors: Sensors, *, environment: Mapping[str, str], socket: str
    ) -> None:
        self._runner = runner
        self._workers = workers
        self._sensors = sensors
        self._environment = environment
        self._socket = socket
        self._jobs: set[asyncio.Task[None]] = set()
        self._going_down = False
        self._all_ended = asyncio.Event()

    async def recover(self) -> None:
        """Find out what became of every attempt that has not been seen to end, before anything is launched.

        Nothing is relaunched here: what ended early goes back into the queue, and :meth:`run` claims it.
        """
        pending = {_key(attempt): attempt for attempt in self._runner.read(tasks.unended_attempts)}
        await self._account_for(pending)

    async def _account_for(self, pending: Mapping[AttemptKey, tasks.Attempt]) -> None:
        """Store what became of each. What is wrong with one is logged and tried again, and the others are accounted for."""
        for key, news in (await self._workers.adopt(pending)).items():
            try:
                await self._take_in(pending[key], news)
            except Exception:
                log.exception("an attempt cannot be accounted for now", extra={"task": key.task_id})
                self._spawn(self._take_in_later(pending[key], news))

    async def _take_in_later(self, attempt: tasks.Attempt, news: WorkerIdentity | ExitRecord) -> None:
        while True:
            await self._runner.clock.sleep(AGAIN_SECONDS)
            try:
                return await self._take_in(attempt, news)
            except Exception:
                log.exception("an attempt cannot be accounted for yet", extra={"task": attempt.task_id})

    async def _take_in(self, attempt: tasks.Attempt, news: WorkerIdentity | ExitRecord) -> None:
        ref = _ref(_key(attempt))
        if isinstance(news, ExitRecord):
            await self._ended(news)
            return
        await self._launched(ref, news)
        if attempt.stop_cause is not None:
            self.stop_worker(ref)
        elif self._load(ref).outcome is not None:
            self.let_finish(ref)

    async def run(self) -> None:
        """Claim what may run, whenever the queue changes or a delay is over; never returns."""
        with self._runner.hub.subscribe(QUEUE) as news:
            while True:
                look_again_ms = None if self._going_down else await self._claim_all()
                await take_within(news, self._runner.clock, self._seconds_until(look_again_ms))

    def _seconds_until(self, steady_ms: int | None) -> float:
        if steady_ms is None:
            return LOOK_SECONDS_MAX
        return min(LOOK_SECONDS_MAX, (steady_ms - self._runner.clock.steady_ms()) / 1000)

    async def _claim_all(self) -> int | None:
        """Fill every free lane; the steady time to look again, if a delay is running."""
        times = []
        for lane in self._runner.lanes:
            if not self._runner.read(partial(_worth_claiming, lane=lane)):
                continue
            claim = await self._claim(lane)
            if claim.launch is not None:
                self._spawn(self._launch(claim.launch))
            elif claim.look_again_ms is not None:
                times.append(claim.look_again_ms)
        return min(times, default=None)

    async def _claim(self, lane: str) -> Claim:
        try:
            return await self._runner.do(lambda session: attempts.claim(session, lane), emitter=emitters.CLAIM)
        except Refusal as refusal:  # a full disk launches nothing; look again when it may have passed
            log.warning("cannot claim", extra={"lane": lane, "reason": refusal.reason.name})
            return Claim(look_again_ms=self._runner.clock.steady_ms() + int(STORE_RETRY_SECONDS * 1000))

    async def _launch(self, launch: Launch) -> None:
        about = {**span_of(launch.ref), "lane": launch.task.lane}
        with self._runner.telemetry.span(span_names.LAUNCH, about, continues=launch.traceparent) as span:
            await self._start(launch, span)

    async def _start(self, launch: Launch, span: Span) -> None:
        try:
            identity = await self._workers.launch(self._spec(launch))
        except LaunchFailed as failed:
            cause = failed.cause
            span.set("reason", "LAUNCH_FAILED")
            # Its cause, which is kept with the attempt, names what the worker is started with: no matter of a log.
            log.warning("launch failed", extra={"task": launch.ref.task_id, "error": failed.errno})
            await self._until_stored(
                lambda: self._runner.do(
                    lambda session: attempts.launch_failed(session, launch.ref, cause),
                    emitter=emitters.LAUNCH,
                    task_id=launch.ref.task_id,
                )
            )
            return
        except Exception:
            # Nobody knows how far it came but the attempt's directory, and that seals what has not started.
            log.exception("a launch went wrong", extra={"task": launch.ref.task_id})
            await self._account_for({_key(launch.ref): self._attempt(launch.ref)})
            return
        await self._launched(launch.ref, identity)

    def _attempt(self, ref: AttemptRef) -> tasks.Attempt:
        found = self._runner.read(lambda reader: tasks.load_attempt(reader, ref.task_id, ref.epoch, ref.attempt))
        assert found is not None, "an attempt is stored before it is launched"
        return found

    def _spec(self, launch: Launch) -> LaunchSpec:
        spec = TaskSpec.FromString(launch.task.spec)
        env = {
            **self._environment,
            **spec.env,
            "LANEWARDEN_SOCKET": self._socket,
            "LANEWARDEN_TOKEN": launch.token,
            "LANEWARDEN_TASK": launch.ref.task_id,
            "LANEWARDEN_EPOCH": str(launch.ref.epoch),
            "LANEWARDEN_ATTEMPT": str(launch.ref.attempt),
            "LANEWARDEN_REASON": launch.reason.lower(),
        }
        return LaunchSpec(
            key=_key(launch.ref),
            argv=tuple(spec.argv),
            cwd=spec.cwd,
            env=env,
            log_bytes_max=spec.log_bytes_max,
            stop_grace_seconds=launch.task.stop_grace_ms / 1000,
            runner_loss_stop_after_seconds=_runner_loss_seconds(spec),
        )

    async def _launched(self, ref: AttemptRef, identity: WorkerIdentity) -> None:
        log.info("worker launched", extra={"task": ref.task_id, "attempt": ref.attempt, "pid": identity.pid})
        task = await self._until_stored(
            lambda: self._runner.do(
                lambda session: attempts.launched(
                    session,
                    ref,
                    pid=identity.pid,
                    start_ticks=identity.start_ticks,
                    boot_id=identity.boot_id,
                ),
                emitter=emitters.LAUNCH,
                task_id=ref.task_id,
            )
        )
        if (task.epoch, task.attempt, task.worker_alive) == (
            ref.epoch,
            ref.attempt,
            True,
        ):  # its end may be here already
            with suppress(DecodeError):  # a worker that runs is followed all the same
                self._sensors.begin(ref, TaskSpec.FromString(task.spec))

    def on_exit(self, record: ExitRecord) -> None:
        """Called by the process host when no process of an attempt is left."""
        self._spawn(self._ended(record))

    async def _ended(self, record: ExitRecord) -> None:
        ref = _ref(record.key)
        self._sensors.end(ref)
        exit_ = exit_of(record)
        interrupted = self._going_down and record.stop_requested
        task = await self._until_stored(
            lambda: self._runner.do(
                lambda session: attempts.exited(session, ref, exit_, interrupted=interrupted),
                emitter=emitters.EXIT,
                task_id=ref.task_id,
            )
        )
        wanted = record.stop_requested and not record.runner_lost
        level = logging.WARNING if exit_.early and not wanted else logging.INFO
        facts = {"task": ref.task_id, "attempt": ref.attempt, "end": str(exit_), "state": task.state.name}
        log.log(level, "worker ended", extra=facts)

    def stop_worker(self, ref: AttemptRef) -> None:
        """Run the stop ladder on a worker; the intent is stored already."""
        self._spawn(self._stop(ref))

    async def _stop(self, ref: AttemptRef) -> None:
        task = self._load(ref)
        with self._runner.telemetry.span(span_names.STOP, span_of(ref)):
            await self._workers.stop(_key(ref), grace_seconds=task.stop_grace_ms / 1000)

    def let_finish(self, ref: AttemptRef) -> None:
        """A worker that has said Complete gets its grace to leave by itself."""
        self._spawn(self._stop_after_grace(ref))

    async def _stop_after_grace(self, ref: AttemptRef) -> None:
        await self._runner.clock.sleep(self._load(ref).stop_grace_ms / 1000)
        await self._stop(ref)

    async def stop_all(self, patience_seconds: float) -> None:
        """Stop every worker because the runner goes down; their tasks go back into the queue and spend nothing."""
        self._going_down = True
        while self._runner.read(tasks.unended_attempts):
            for attempt in self._runner.read(tasks.unended_attempts):
                ref = AttemptRef(task_id=attempt.task_id, epoch=attempt.epoch, attempt=attempt.attempt)
                await self._stop(ref)
            if patience_seconds <= 0:
                log.error("some workers could not be stopped in time; the next start looks after them")
                return
            await self._runner.clock.sleep(0.05)
            patience_seconds -= 0.05

    async def close(self) -> None:
        """Let go of what is under way; the next start finds it again."""
        for job in self._jobs:
            job.cancel()
        await asyncio.gather(*self._jobs, return_exceptions=True)

    def _load(self, ref: AttemptRef) -> Task:
        return self._runner.read(lambda reader: tasks.load(reader, ref.task_id))

    async def _until_stored(self, work: Callable[[], Awaitable[T]]) -> T:
        """What has happened to a process has happened: try until the store takes it."""
        while True:
            try:
                return await work()
            except Refusal as refusal:
                log.error("cannot store what happened; trying again", extra={"reason": refusal.reason.name})
                await self._runner.clock.sleep(STORE_RETRY_SECONDS)

    def _spawn(self, job: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(job)
        self._jobs.add(task)
        task.add_done_callback(self._done)

    def _done(self, job: asyncio.Task[None]) -> None:
        self._jobs.discard(job)
        if not job.cancelled() and (error := job.exception()) is not None:
            log.error("a launcher job failed", exc_info=error)


def _worth_claiming(reader: Connection, lane: str) -> bool:
    """Whether a claim could find something; a look costs no transaction."""
    return tasks.lane_holder(reader, lane) is None and any(not task.pauses for task in tasks.queued(reader, lane))


def _key(ref: AttemptRef | tasks.Attempt) -> AttemptKey:
    return AttemptKey(task_id=ref.task_id, epoch=ref.epoch, attempt=ref.attempt)


def _ref(key: AttemptKey) -> AttemptRef:
    return AttemptRef(task_id=key.task_id, epoch=key.epoch, attempt=key.attempt)


def span_of(ref: AttemptRef) -> dict[str, Value]:
    """What a span says about an attempt."""
    return {"task.id": ref.task_id, "epoch": ref.epoch, "attempt": ref.attempt}


def _runner_loss_seconds(spec: TaskSpec) -> float | None:
    return spec.runner_loss_stop_after.ToMilliseconds() / 1000 if spec.HasField("runner_loss_stop_after") else None


def exit_of(record: ExitRecord) -> Exit:
    """The end of a process tree in the core's words."""
    name = signal.Signals(record.signal).name if record.signal in set(signal.Signals) else ""
    return Exit(
        kind=CoreExitKind[record.kind.value],
        code=record.code,
        signal=record.signal,
        signal_name=name,
        runner_lost=record.runner_lost,
    )
