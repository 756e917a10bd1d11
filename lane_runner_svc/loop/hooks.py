"""Runs the on_success commands of tasks that have succeeded, under shims as workers are, but in no lane."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Final

from lane_runner_svc import emitters
from lane_runner_svc.loop.launcher import Workers, exit_of, span_of
from lane_runner_svc.process import AttemptKey, ExitRecord, LaunchFailed, LaunchSpec
from lane_runner_svc.runner import Runner
from lane_runner_svc.store import tasks
from lane_runner_svc.work import hooks
from lane_runner_svc.work.hooks import HookRun
from lane_runner_svc.work.session import HOOKS, AttemptRef
from lanewarden.errors import Refusal
from lanewarden.telemetry import span_names
from lanewarden.v1.task_pb2 import TaskSpec
from lanewarden.waiting import take_within

log = logging.getLogger(__name__)

SUFFIX: Final = ".on_success"
"""Marks the attempt directories of commands that are not workers; no task id has a dot."""
RUNNING_MAX: Final = 16
"""Commands that run at once; the others wait for one of them to end."""
LOOK_SECONDS_MAX: Final = 3600.0
RETRY_SECONDS: Final = 1.0
STOP_LOOK_SECONDS: Final = 0.05


def is_hook(key: AttemptKey) -> bool:
    """Whether a process is an on_success command and not a worker."""
    return key.task_id.endswith(SUFFIX)


class Hooks:
    """``environment`` is what every command is given; it gets no token, for it has nothing to say."""

    def __init__(self, runner: Runner, workers: Workers, *, environment: Mapping[str, str]) -> None:
        self._runner = runner
        self._workers = workers
        self._environment = environment
        self._ends: set[asyncio.Task[None]] = set()
        self._going_down = False

    async def recover(self) -> None:
        """Find out what became of commands of the last start; one that never began is tried again."""
        running = {_key(task.task_id, task.epoch, task.hook_tries) for task in self._runner.read(tasks.running_hooks)}
        for news in (await self._workers.adopt(running)).values():
            if isinstance(news, ExitRecord):
                await self._ended(news)

    async def run(self) -> None:
        """Start what is due, whenever that changes or a delay is over; never returns."""
        with self._runner.hub.subscribe(HOOKS) as news:
            while True:
                await take_within(news, self._runner.clock, await self._start_due())

    async def _start_due(self) -> float:
        now_ms = self._runner.clock.steady_ms()
        due, next_ms = self._runner.read(lambda reader: tasks.due_hooks(reader, now_ms))
        room = 0 if self._going_down else RUNNING_MAX - len(self._runner.read(tasks.running_hooks))
        for task in due[: max(0, room)]:
            try:
                run = await self._start(task.task_id)
            except Refusal as refusal:  # a full disk starts nothing
                log.warning("a hook cannot be started", extra={"reason": refusal.reason.name})
                return RETRY_SECONDS
            if run is not None:
                await self._launch(run)
        return LOOK_SECONDS_MAX if next_ms is None else max(0.0, (next_ms - now_ms) / 1000)

    async def _start(self, task_id: str) -> HookRun | None:
        return await self._runner.do(
            lambda session: hooks.start(session, task_id), emitter=emitters.HOOK, task_id=task_id
        )

    async def _launch(self, run: HookRun) -> None:
        spec = TaskSpec.FromString(run.task.spec)
        env = {
            **self._environment,
            **spec.env,
            "LANEWARDEN_TASK": run.task.task_id,
            "LANEWARDEN_IDEMPOTENCY_KEY": run.idempotency_key,
        }
        launch = LaunchSpec(
            key=_key(run.task.task_id, run.task.epoch, run.number),
            argv=tuple(spec.on_success),
            cwd=spec.cwd,
            env=env,
            log_bytes_max=spec.log_bytes_max,
            stop_grace_seconds=run.task.stop_grace_ms / 1000,
        )
        with self._runner.telemetry.span(span_names.ON_SUCCESS, span_of(_ref(launch.key))):
            try:
                await self._workers.launch(launch)
            except LaunchFailed as failed:
                detail = f"was not started: {failed.cause}"
                await self._store_end(_ref(launch.key), failed.errno, done=False, detail=detail)

    def on_exit(self, record: ExitRecord) -> None:
        """Called by the process host when no process of a command is left."""
        end = asyncio.ensure_future(self._ended(record))
        self._ends.add(end)
        end.add_done_callback(self._ends.discard)

    async def _ended(self, record: ExitRecord) -> None:
        done, interrupted = record.code == 0, self._going_down and record.stop_requested
        end = str(exit_of(record))
        await self._store_end(_ref(record.key), end, done=done, interrupted=interrupted, detail=end)

    async def _store_end(
        self, ref: AttemptRef, end: str, *, done: bool, interrupted: bool = False, detail: str
    ) -> None:
        """``end`` is what the log is told: ``detail`` may name what the command is started with."""
        while True:
            try:
                task = await self._runner.do(
                    lambda session: hooks.end(session, ref, done=done, interrupted=interrupted, detail=detail),
                    emitter=emitters.HOOK,
                    task_id=ref.task_id,
                )
            except Refusal as refusal:
                log.error("cannot store the end of a hook; trying again", extra={"reason": refusal.reason.name})
                await self._runner.clock.sleep(RETRY_SECONDS)
            else:
                log.info("hook ended", extra={"task": ref.task_id, "state": task.hook_state.name, "end": end})
                return

    async def stop_all(self, patience_seconds: float) -> None:
        """Stop every command because the runner goes down; the next start tries them again."""
        self._going_down = True
        while running := self._runner.read(tasks.running_hooks):
            for task in running:
                key = _key(task.task_id, task.epoch, task.hook_tries)
                await self._workers.stop(key, grace_seconds=task.stop_grace_ms / 1000)
            if patience_seconds <= 0:
                log.error("some hooks could not be stopped in time; the next start looks after them")
                return
            await self._runner.clock.sleep(STOP_LOOK_SECONDS)
            patience_seconds -= STOP_LOOK_SECONDS

    async def close(self) -> None:
        """Let go of what is under way; the next start finds it again."""
        for end in self._ends:
            end.cancel()
        await asyncio.gather(*self._ends, return_exceptions=True)


def _key(task_id: str, epoch: int, number: int) -> AttemptKey:
    return AttemptKey(task_id=task_id + SUFFIX, epoch=epoch, attempt=number)


def _ref(key: AttemptKey) -> AttemptRef:
    return AttemptRef(task_id=key.task_id.removesuffix(SUFFIX), epoch=key.epoch, attempt=key.attempt)
