"""The runner's recovery when something is wrong with one attempt, on a real store (S15)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from lane_runner_svc.core.states import State
from lane_runner_svc.loop import launcher as loop
from lane_runner_svc.loop.launcher import Launcher
from lane_runner_svc.loop.sensors import Sensors
from lane_runner_svc.process import AttemptKey, ExitKind, ExitRecord, LaunchSpec, WorkerIdentity
from lane_runner_svc.work import attempts
from lane_runner_svc.work.session import AttemptRef
from tests.runner_kit import RunnerKit, make_runner

Patch = pytest.MonkeyPatch


@pytest.fixture
def kit(tmp_path: Path) -> Iterator[RunnerKit]:
    """A runner; when it is closed, every row that it wrote had an author (I11)."""
    made = make_runner(tmp_path)
    yield made
    made.close()


class Ended:
    """Workers of an earlier start, which have all ended well; none that could be launched now."""

    async def launch(self, spec: LaunchSpec) -> WorkerIdentity:
        raise RuntimeError("a defect")

    async def stop(self, key: AttemptKey, *, grace_seconds: float) -> None:
        raise NotImplementedError

    async def adopt(self, keys: Iterable[AttemptKey]) -> Mapping[AttemptKey, WorkerIdentity | ExitRecord]:
        return {key: self._record(key) for key in keys}

    def _record(self, key: AttemptKey) -> ExitRecord:
        return ExitRecord(
            key=key,
            kind=ExitKind.EXITED,
            code=0,
            signal=None,
            stop_requested=False,
            ended_wall_ms=0,
            leftovers_killed=0,
            log_bytes=0,
        )


async def look_at_files(directory: str, pattern: str) -> int:
    raise NotImplementedError


def launcher_of(kit: RunnerKit) -> Launcher:
    return Launcher(kit.runner, Ended(), Sensors(kit.runner, look=look_at_files), environment={}, socket="")


async def step() -> None:
    """Let everybody run."""
    for _ in range(20):
        await asyncio.sleep(0)


async def check_one_error_stops_no_other(kit: RunnerKit, patch: Patch) -> None:
    """An error of the database at the first of two attempts: the second is recovered at once, the first soon after."""
    refs = [kit.running(lane=lane) for lane in ("a", "b")]
    exited, failures = attempts.exited, [OSError("disk I/O error")] * 2

    def fails_twice(session: Any, ref: AttemptRef, *args: Any, **named: Any) -> Any:
        if ref == refs[0] and failures:
            raise failures.pop()
        return exited(session, ref, *args, **named)

    patch.setattr(attempts, "exited", fails_twice)
    launcher = launcher_of(kit)
    await launcher.recover()
    assert [kit.task(ref.task_id).state for ref in refs] == [State.RUNNING, State.SUCCEEDED]
    for _ in range(2):
        await step()
        kit.clock.advance(loop.AGAIN_SECONDS)
    await step()
    assert kit.task(refs[0].task_id).state is State.SUCCEEDED
    await launcher.close()


async def check_a_launch_that_went_wrong_is_accounted_for(kit: RunnerKit, patch: Patch) -> None:
    """An error that nobody foresaw, as a worker is launched: what the attempt's directory knows is stored, and the lane is
    not blocked for ever by a task that is STARTING.
    """
    task = kit.submit()
    launcher = launcher_of(kit)
    running = asyncio.ensure_future(launcher.run())
    await step()
    assert kit.task(task.task_id).state is State.SUCCEEDED
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await launcher.close()


async def test_s15_an_error_at_one_attempt_stops_no_other(kit: RunnerKit, monkeypatch: Patch) -> None:
    """See the check."""
    await check_one_error_stops_no_other(kit, monkeypatch)


async def test_s12_a_launch_that_went_wrong_is_accounted_for(kit: RunnerKit, monkeypatch: Patch) -> None:
    """See the check."""
    await check_a_launch_that_went_wrong_is_accounted_for(kit, monkeypatch)


async def test_s15_recovery_without_its_guard_is_found_out(kit: RunnerKit, monkeypatch: Patch) -> None:
    """The mutant accounts for one attempt after the other, and catches nothing."""

    async def mutant(self: Any, pending: Any) -> None:
        for key, news in (await self._workers.adopt(pending)).items():
            await self._take_in(pending[key], news)

    monkeypatch.setattr(Launcher, "_account_for", mutant)
    with pytest.raises(OSError, match="disk I/O error"):
        await check_one_error_stops_no_other(kit, monkeypatch)
