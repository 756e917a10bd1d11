"""The process host: launches workers under shims, stops them, finds them again after a restart."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from .directory import AttemptDirectory
from .follower import Follower
from .model import (
    AttemptKey,
    ExitKind,
    ExitRecord,
    LaunchFailed,
    LaunchSpec,
    OutputTotals,
    WorkerIdentity,
    check_launchable,
)
from .spawner import Spawner, SpawnerDied
from .survivors import ATTEMPT_MARK, LAUNCH_MARK

ADOPT_SECONDS = 10.0
"""How long :meth:`ProcessHost.adopt` waits for the first word of a shim that is alive."""
_SPAWNS_MAX = 2
"""Times a launch is tried when the spawner dies under it: once, and once with a fresh one."""


class ProcessHost:
    """The worker processes of one runner. Linux only; belongs to one event loop.

    ``on_exit`` is called on the loop, once for every attempt that was launched, or adopted running, when no
    process of it is left. It may come before the coroutine that awaits :meth:`launch` has resumed.
    ``on_output`` is called with running totals at most ten times a second per attempt. Neither may raise.
    ``cgroup_parent`` is where workers may get cgroups of their own; None where the host has no such place.
    """

    def __init__(
        self,
        attempts_dir: Path,
        *,
        on_exit: Callable[[ExitRecord], None],
        spawner: Spawner,
        on_output: Callable[[AttemptKey, OutputTotals], None] = lambda _key, _totals: None,
        cgroup_parent: Path | None = None,
    ) -> None:
        self._attempts_dir = attempts_dir
        self._cgroup_parent = str(cgroup_parent or "")
        self._on_exit, self._on_output = on_exit, on_output
        self._spawner = spawner
        self._followers: dict[AttemptKey, Follower] = {}
        self._launches: dict[AttemptKey, asyncio.Task[WorkerIdentity]] = {}

    async def launch(self, spec: LaunchSpec) -> WorkerIdentity:
        """Start the worker, or find it started: the attempt's key makes this idempotent.

        When the attempt was launched before and has ended, this returns as the first call did and ``on_exit``
        is called again. Raises :class:`LaunchFailed` when the worker was not started and never will be.
        Cancelling the caller does not cancel the launch.
        """
        task = self._launches.get(spec.key)
        if task is None:
            task = self._launches[spec.key] = asyncio.create_task(self._launch(spec), name=f"launch {spec.key}")
            task.add_done_callback(lambda _: self._launches.pop(spec.key))
        return await asyncio.shield(task)

    async def stop(self, key: AttemptKey, *, grace_seconds: float) -> None:
        """Ask for the stop ladder; the end comes by ``on_exit``. Asked again, it may only end sooner.

        For an attempt that does not run there is nothing to do.
        """
        if key in self._launches:
            await asyncio.wait([self._launches[key]])
        if key in self._followers:
            await self._followers[key].stop(grace_seconds)

    async def adopt(self, keys: Iterable[AttemptKey]) -> Mapping[AttemptKey, WorkerIdentity | ExitRecord]:
        """Find out what became of attempts that an earlier runner launched, or meant to.

        A running one is followed from here on. One that was never launched is sealed, and one that lost its
        shim is swept, before its record is returned; ``on_exit`` is not called for records returned here. A
        key is left out when its shim is alive but says nothing for ``ADOPT_SECONDS``: unknown is not dead; it
        is followed, and its end comes by ``on_exit``.
        """
        found: dict[AttemptKey, WorkerIdentity | ExitRecord] = {}
        followers = {key: self._follow(key, AttemptDirectory(self._attempts_dir, key), None) for key in set(keys)}
        if followers:
            await asyncio.wait([one.known for one in followers.values()], timeout=ADOPT_SECONDS)
        for key, follower in followers.items():
            if not follower.known.done():
                follower.known.cancel()  # nobody waits for the first news any more
            elif not follower.known.cancelled():
                found[key] = follower.known.result()
        return found

    def log_path(self, key: AttemptKey) -> Path:
        """The worker's output; what was rotated out stands beside it with ``.1`` at the end."""
        return AttemptDirectory(self._attempts_dir, key).log

    def is_alive(self, key: AttemptKey) -> bool:
        """Whether a process of the attempt may be alive, as far as this host follows it."""
        return key in self._followers

    def identity(self, key: AttemptKey) -> WorkerIdentity | None:
        """Who the worker is, while :meth:`is_alive` and once known."""
        follower = self._followers.get(key)
        return follower.identity if follower else None

    async def close(self) -> None:
        """Let go of everything; shims and workers go on. The spawner is closed by who started it."""
        launches = list(self._launches.values())
        for task in launches:
            task.cancel()
        await asyncio.gather(*launches, return_exceptions=True)
        await asyncio.gather(*(one.close() for one in self._followers.values()))
        self._followers.clear()

    async def _launch(self, spec: LaunchSpec) -> WorkerIdentity:
        directory = AttemptDirectory(self._attempts_dir, spec.key)
        follower, cause = self._followers.get(spec.key), "the attempt was given up before its launch"
        if follower is None:
            check_launchable(spec)
            report = await self._spawn(directory, spec)
            if report["outcome"] == "failed":
                raise LaunchFailed(report["cause"], report["errno"])
            identity = None
            if report["outcome"] == "ready":
                identity = WorkerIdentity(**{name: report[name] for name in WorkerIdentity.__slots__})
            # Otherwise the attempt has a shim, or had one, or lost it on the way: its directory knows.
            cause = report.get("cause", cause)
            follower = self._follow(spec.key, directory, identity)
        news = await asyncio.shield(follower.known)
        if isinstance(news, WorkerIdentity):
            return news
        started = directory.identity()
        if news.kind is ExitKind.NEVER_STARTED or started is None:
            raise LaunchFailed(news.cause or cause, "ECANCELED")
        self._on_exit(news)
        return started

    async def _spawn(self, directory: AttemptDirectory, spec: LaunchSpec) -> Mapping[str, Any]:
        """The report of the attempt's shim. A second shim does no harm: one at a time has the lock, and none starts a worker
        where there has been one.
        """
        launch_id = secrets.token_hex(16)
        marks = {ATTEMPT_MARK: str(spec.key), LAUNCH_MARK: launch_id}
        message = {
            "key": {"task_id": spec.key.task_id, "epoch": spec.key.epoch, "attempt": spec.key.attempt},
            "stop_grace_seconds": spec.stop_grace_seconds,
            "log_bytes_max": spec.log_bytes_max,
            "runner_loss_stop_after_seconds": spec.runner_loss_stop_after_seconds,
            "run": {
                "argv": spec.argv,
                "cwd": spec.cwd,
                "env": {**spec.env, **marks},
                "launch_id": launch_id,
                "cgroup_parent": self._cgroup_parent,
            },
        }
        for _ in range(_SPAWNS_MAX):
            try:
                directory.create()
                self._spawner.start()
                return await self._spawner.launch(str(directory.path.absolute()), str(spec.key), message)
            except SpawnerDied:
                continue
            except ValueError:
                raise LaunchFailed("arguments and environment are too long for the kernel", "E2BIG") from None
            except OSError as error:
                return {"outcome": "lost", "cause": f"no shim could be started: {error.strerror}"}
        return {"outcome": "lost", "cause": "the process that starts workers died, twice"}

    def _follow(self, key: AttemptKey, directory: AttemptDirectory, identity: WorkerIdentity | None) -> Follower:
        def on_end(record: ExitRecord, told: bool) -> None:
            del self._followers[key]
            if not told:
                self._on_exit(record)

        if key not in self._followers:
            self._followers[key] = Follower(
                directory,
                identity=identity,
                on_end=on_end,
                on_output=lambda totals: self._on_output(key, totals),
            )
        return self._followers[key]
