"""Runs the commands that write checkpoints, under shims as workers are, but in no lane and without a token.

A command writes the checkpoint into one file and then its id into another, the marker: that commits it. What it commits is
read when its process is gone, and kept in the store from then on; what lies in a file without its marker is nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from lane_runner_svc import emitters
from lane_runner_svc.core.checkpoints import CONTENT_BYTES_MAX, Checkpoint, CheckpointState, Written, of_exit
from lane_runner_svc.loop.launcher import Workers, exit_of, span_of
from lane_runner_svc.process import AttemptKey, ExitRecord, LaunchFailed, LaunchSpec
from lane_runner_svc.runner import Runner
from lane_runner_svc.store import contexts, tasks
from lane_runner_svc.work import checkpoints
from lane_runner_svc.work.session import WRITERS, AttemptRef
from lanewarden.errors import Refusal
from lanewarden.store import Connection
from lanewarden.telemetry import span_names
from lanewarden.v1.task_pb2 import TaskSpec
from lanewarden.waiting import take_within

log = logging.getLogger(__name__)

SUFFIX: Final = ".checkpoint"
"""Marks the attempt directories of writers; no task id has a dot."""
WRITE_SECONDS_MAX: Final = 3600.0
"""A writer that takes longer is stopped: nothing else of its task can be written meanwhile."""
RUNNER_LOSS_SECONDS: Final = 600.0
"""How long a writer goes on when its runner does not come back."""
RETRY_SECONDS: Final = 1.0
STOP_LOOK_SECONDS: Final = 0.05


def is_writer(key: AttemptKey) -> bool:
    """Whether a process writes a checkpoint and is not a worker."""
    return key.task_id.endswith(SUFFIX)


class Writers:
    """``environment`` is what every command is given; ``directory`` is where each finds one of its own."""

    def __init__(self, runner: Runner, workers: Workers, *, environment: Mapping[str, str], directory: Path) -> None:
        self._runner = runner
        self._workers = workers
        self._environment = environment
        self._directory = directory
        self._running: dict[str, AttemptKey] = {}
        self._ends: set[asyncio.Task[None]] = set()
        self._going_down = False

    async def recover(self) -> None:
        """Find out what became of writers of the last start. One that never began has consumed no rung."""
        pending = {_key(each): each.checkpoint_id for each in self._commands()}
        for key, news in (await self._workers.adopt(pending)).items():
            self._running[pending[key]] = key
            if isinstance(news, ExitRecord):
                await self._ended(news)

    async def run(self) -> None:
        """Start what is to be written, and stop what nobody needs, whenever that changes; never returns."""
        with self._runner.hub.subscribe(WRITERS) as news:
            while True:
                await take_within(news, self._runner.clock, await self._look())

    async def _look(self) -> float:
        """Make what runs what is stored; how many seconds until a writer has taken too long."""
        stored = {each.checkpoint_id: each for each in self._commands()}
        now_ms = self._runner.clock.steady_ms()
        late = {name for name, each in stored.items() if each.started_ms + WRITE_SECONDS_MAX * 1000 <= now_ms}
        for name, key in list(self._running.items()):
            if name not in stored or name in late:
                await self._workers.stop(key, grace_seconds=self._grace_seconds(key))
        for name in stored.keys() - self._running.keys() if not self._going_down else ():
            await self._launch(stored[name])
        starts = [each.started_ms for name, each in stored.items() if name not in late]
        return WRITE_SECONDS_MAX if not starts else (min(starts) - now_ms) / 1000 + WRITE_SECONDS_MAX

    def _commands(self) -> list[Checkpoint]:
        return [each for each in self._runner.read(contexts.in_flight) if each.command]

    async def _launch(self, checkpoint: Checkpoint) -> None:
        task = self._runner.read(lambda reader: tasks.load(reader, checkpoint.task_id))
        spec = TaskSpec.FromString(task.spec)
        files = self._directory / checkpoint.checkpoint_id
        launch = LaunchSpec(
            key=_key(checkpoint),
            argv=tuple(spec.context.writer),
            cwd=spec.cwd,
            env={
                **self._environment,
                **spec.env,
                "LANEWARDEN_TASK": checkpoint.task_id,
                "LANEWARDEN_EPOCH": str(checkpoint.epoch),
                "LANEWARDEN_TOKENS": str(checkpoint.tokens),
                "LANEWARDEN_CHECKPOINT": checkpoint.checkpoint_id,
                "LANEWARDEN_CHECKPOINT_FILE": str(_content(files)),
                "LANEWARDEN_CHECKPOINT_MARKER": str(_marker(files)),
            },
            log_bytes_max=spec.log_bytes_max,
            stop_grace_seconds=task.stop_grace_ms / 1000,
            runner_loss_stop_after_seconds=RUNNER_LOSS_SECONDS,
        )
        self._running[checkpoint.checkpoint_id] = launch.key
        ref = AttemptRef(task_id=checkpoint.task_id, epoch=checkpoint.epoch, attempt=checkpoint.attempt)
        with self._runner.telemetry.span(span_names.CHECKPOINT_WRITER, span_of(ref)):
            try:
                files.mkdir(parents=True, exist_ok=True)
                await self._workers.launch(launch)
            except LaunchFailed as failed:
                await self._not_started(launch.key, failed.cause, failed.errno)
            except OSError as error:
                await self._not_started(launch.key, f"{files}: {error.strerror}", str(error.strerror))

    async def _not_started(self, key: AttemptKey, cause: str, end: str) -> None:
        written = Written(state=CheckpointState.NOT_STARTED, detail=f"the writer was not started: {cause}")
        await self._store_end(key, written, end)

    def on_exit(self, record: ExitRecord) -> None:
        """Called by the process host when no process of a writer is left."""
        end = asyncio.ensure_future(self._ended(record))
        self._ends.add(end)
        end.add_done_callback(self._ends.discard)

    async def _ended(self, record: ExitRecord) -> None:
        files = self._directory / checkpoint_id(record.key)
        written = of_exit(
            exit_of(record),
            marked=_read(_marker(files)).strip() == checkpoint_id(record.key),
            content=_read(_content(files)) or None,
            stopped=record.stop_requested,
            going_down=self._going_down,
        )
        await self._store_end(record.key, written, str(exit_of(record)))
        shutil.rmtree(files, ignore_errors=True)

    async def _store_end(self, key: AttemptKey, written: Written, end: str) -> None:
        """``end`` is what the log is told: the detail may name what the command is started with."""
        name = checkpoint_id(key)
        while True:
            try:
                await self._runner.do(
                    lambda session: checkpoints.ended(session, name, written),
                    emitter=emitters.CHECKPOINT,
                    task_id=key.task_id.removesuffix(SUFFIX),
                )
            except Refusal as refusal:  # a full disk: what has happened to a process has happened
                log.error("cannot store the end of a writer; trying again", extra={"reason": refusal.reason.name})
                await self._runner.clock.sleep(RETRY_SECONDS)
            else:
                self._running.pop(name, None)
                log.info("writer ended", extra={"checkpoint": name, "state": written.state.name, "end": end})
                return

    async def stop_all(self, patience_seconds: float) -> None:
        """Stop every writer because the runner goes down: that is no failure of theirs."""
        self._going_down = True
        while self._running:
            for key in list(self._running.values()):
                await self._workers.stop(key, grace_seconds=self._grace_seconds(key))
            if patience_seconds <= 0:
                log.error("some writers could not be stopped in time; their shims stop them")
                return
            await self._runner.clock.sleep(STOP_LOOK_SECONDS)
            patience_seconds -= STOP_LOOK_SECONDS

    async def close(self) -> None:
        """Let go of what is under way; the next start finds it again."""
        for end in self._ends:
            end.cancel()
        await asyncio.gather(*self._ends, return_exceptions=True)

    def _grace_seconds(self, key: AttemptKey) -> float:
        def look(reader: Connection) -> int:
            return tasks.load(reader, key.task_id.removesuffix(SUFFIX)).stop_grace_ms

        return self._runner.read(look) / 1000


def checkpoint_id(key: AttemptKey) -> str:
    """The id that a writer's process belongs to."""
    return f"{key.task_id.removesuffix(SUFFIX)}.{key.epoch}.c{key.attempt}"


def _key(checkpoint: Checkpoint) -> AttemptKey:
    return AttemptKey(task_id=checkpoint.task_id + SUFFIX, epoch=checkpoint.epoch, attempt=checkpoint.number)


def _content(files: Path) -> Path:
    return files / "checkpoint"


def _marker(files: Path) -> Path:
    return files / "committed"


def _read(path: Path) -> str:
    """The text of a small file; nothing for one that is not there, too large, or no text that the store could keep."""
    with contextlib.suppress(OSError, UnicodeDecodeError), path.open("rb") as file:
        data = file.read(CONTENT_BYTES_MAX + 1)
        text = data.decode()
        if len(data) <= CONTENT_BYTES_MAX and "\0" not in text:
            return text
    return ""
