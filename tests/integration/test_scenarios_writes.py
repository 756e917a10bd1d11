"""Storms of writes in a running pair: found, named, held against the task, throttled; and what matters goes on."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from lanewarden.auth import Role
from lanewarden.client_sync import SyncConnection, connect
from lanewarden.errors import Reason, Refusal
from lanewarden.v1 import escalation_pb2, task_pb2
from lanewarden.v1 import operator_service_pb2 as operator_pb
from lanewarden.v1 import worker_service_pb2 as worker_pb
from lanewarden.v1 import write_trace_service_pb2 as trace_pb
from tests.integration.pair import DEADLINE_SECONDS, OPERATOR, Pair, eventually
from tests.integration.puppet import WORKER, Attempt, Puppet, fresh

TRACE = trace_pb.DESCRIPTOR.services_by_name["WriteTraceService"]
FOUND_SECONDS_MAX = 10.0
CEILING = 30
USAGE = worker_pb.ContextUsage(tokens=1_000, window=200_000)
PLANTED = "tests.planted.storm"
EMITTER = "lane_runner.worker.directive"


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    ceiling = {"LANEWARDEN_LANE_RUNNER_WRITE_CEILING_ROWS_PER_SECOND": str(CEILING)}
    directory = tmp_path_factory.mktemp("pair")
    with Pair(directory, runner_env=ceiling, supervisor_flags=("--lease-renew-seconds", "1")) as running:
        yield running


def ledgers(pair: Pair) -> tuple[Any, Any]:
    """WriteTraceService of the supervisor and of the runner."""
    return (
        pair.client(pair.supervisor_port, TRACE, Role.VIEWER, Reason.SUPERVISOR_UNREACHABLE),
        pair.client(pair.runner_port, TRACE, Role.VIEWER, Reason.RUNNER_UNREACHABLE),
    )


class Storm:
    """A planted component that does the same again and again, without a pause, until it is over."""

    def __init__(self) -> None:
        self._over = threading.Event()
        self.throttled: Refusal | None = None
        self.began = time.monotonic()

    @contextmanager
    def raging(self) -> Iterator[None]:
        thread = threading.Thread(target=self._rage)
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join(DEADLINE_SECONDS)

    def _rage(self) -> None:
        with self._connect() as connection:
            while not self._over.is_set():
                try:
                    self._once(connection)
                except Refusal as refusal:
                    self.throttled = refusal

    def _connect(self) -> SyncConnection:
        raise NotImplementedError

    def _once(self, connection: SyncConnection) -> None:
        raise NotImplementedError


class WorkerStorm(Storm):
    """Of a worker, that asks what to do and never does it."""

    def __init__(self, attempt: Attempt) -> None:
        super().__init__()
        self._attempt = attempt

    def _connect(self) -> SyncConnection:
        target, token = f"unix:{self._attempt.socket}", self._attempt.token
        return connect(target, token=token, unreachable=Reason.RUNNER_UNREACHABLE, emitter=PLANTED)

    def _once(self, connection: SyncConnection) -> None:
        connection.stub(WORKER).NextDirective(worker_pb.NextDirectiveRequest(request_id=fresh(), usage=USAGE))


class BotStorm(Storm):
    """Of a bot, that sends a task the same input."""

    def __init__(self, pair: Pair, task_id: str) -> None:
        super().__init__()
        self._pair, self._task_id = pair, task_id

    def _connect(self) -> SyncConnection:
        target, token = f"127.0.0.1:{self._pair.supervisor_port}", self._pair.credentials.tokens[Role.OPERATOR]
        return connect(target, token=token, unreachable=Reason.SUPERVISOR_UNREACHABLE, emitter=PLANTED)

    def _once(self, connection: SyncConnection) -> None:
        request = operator_pb.OperatorServiceSendInputRequest(request_id=fresh(), task_id=self._task_id, text="again")
        connection.stub(OPERATOR).SendInput(request)


def test_w01_s09_w04_a_storm_is_found_held_against_its_task_and_throttled(pair: Pair, tmp_path: Path) -> None:
    """Within ten seconds a finding names task, emitter, origin, rate and share, and the verdict is CHURNING and says who;
    beyond the ceiling the emitter is refused, and a question, its ack and its ruling are not held up by any of it.
    """
    supervisor, runner = ledgers(pair)
    with Puppet(pair, tmp_path / "worker") as puppet:
        attempt = puppet.attempt(1)
        # While a person has paused it, nobody relaunches it: the verdict can be read at leisure.
        pair.operator.PauseTask(operator_pb.OperatorServicePauseTaskRequest(request_id=fresh(), task_id=puppet.task_id))
        assert attempt.worker.progress(1) == 1
        storm = WorkerStorm(attempt)
        with storm.raging():
            found = eventually(lambda: findings(runner, puppet.task_id), "the storm is found", FOUND_SECONDS_MAX)
            assert time.monotonic() - storm.began <= FOUND_SECONDS_MAX
            assert (found.kind, found.entity_kind) == (trace_pb.FINDING_KIND_ENTITY_RATE, "task")
            assert (found.emitters[0].emitter, found.emitters[0].origin) == (EMITTER, PLANTED)
            assert found.emitters[0].share > 0.5
            assert found.rows_per_second >= 20

            explained = eventually(lambda: churning(pair, puppet.task_id), "it is CHURNING", FOUND_SECONDS_MAX)
            assert time.monotonic() - storm.began <= FOUND_SECONDS_MAX
            assert f"{EMITTER} (for {PLANTED}) writes" in explained.because
            assert any(fact.name == "writes" and EMITTER in fact.value for fact in explained.facts)

            refusal = eventually(lambda: storm.throttled, "the emitter is throttled")
            assert (refusal.reason, refusal.metadata["emitter"]) == (Reason.WRITE_THROTTLED, EMITTER)
            assert refusal.metadata["ceiling_rows_per_second"] == str(CEILING)
            asked_at = time.monotonic()
            asked = attempt.worker.escalate("go on?", expects_reply=True)
            pair.open_escalation(puppet.task_id)
            pair.ack(asked.escalation_id)
            pair.rule(asked.escalation_id)
            ruled = attempt.worker.await_ruling(asked.escalation_id, timeout_seconds=DEADLINE_SECONDS)
            attempt.worker.acknowledge(ruled)
            assert time.monotonic() - asked_at < DEADLINE_SECONDS
            [shown] = pair.operator.ListRunners(operator_pb.ListRunnersRequest()).runners
            assert shown.state == operator_pb.RUNNER_STATE_LIVE
        eventually(
            lambda: pair.inbox(puppet.task_id)[0].hold_state == escalation_pb2.HOLD_STATE_ACKNOWLEDGED, "acknowledged"
        )
        assert findings(supervisor, puppet.task_id) is None, "its own writes are none"
    for ledger in (supervisor, runner):
        assert ledger.GetWriteRates(trace_pb.GetWriteRatesRequest()).unattributed_rows == 0


def test_w01_s09_a_bot_in_a_loop_is_found_at_both_services_and_blames_no_worker(pair: Pair, tmp_path: Path) -> None:
    """Each names the task, its own emitter and for whom it wrote; the runner refuses beyond its ceiling. The worker, which
    has a sensor and makes no progress, is not held to be churning for what it is sent.
    """
    found: list[trace_pb.Finding | None] = [None, None]
    with Puppet(pair, tmp_path / "worker") as puppet:
        assert puppet.attempt(1).worker.progress(1) == 1
        storm = BotStorm(pair, puppet.task_id)
        with storm.raging():
            for n, ledger in enumerate(ledgers(pair)):
                found[n] = eventually(
                    lambda ledger=ledger: findings(ledger, puppet.task_id), "the storm is found", FOUND_SECONDS_MAX
                )
            assert time.monotonic() - storm.began <= FOUND_SECONDS_MAX
            assert [(each.emitters[0].emitter, each.emitters[0].origin) for each in found if each] == [
                ("supervisor.command.forward", PLANTED),
                ("lane_runner.message.input", "supervisor.command.forward"),
            ]
            refusal = eventually(lambda: storm.throttled, "the bot is throttled")
            assert (refusal.reason, refusal.metadata["emitter"]) == (
                Reason.WRITE_THROTTLED,
                "lane_runner.message.input",
            )
            renewed = pair.operator.ListRunners(operator_pb.ListRunnersRequest()).runners[0].last_seen
            eventually(
                lambda: pair.operator.ListRunners(operator_pb.ListRunnersRequest()).runners[0].last_seen != renewed,
                "the runner has told what it finds",
            )
            assert churning(pair, puppet.task_id) is None


def findings(ledger: Any, task_id: str) -> trace_pb.Finding | None:
    """What a service finds about a task."""
    found = ledger.ListFindings(trace_pb.ListFindingsRequest(entity_id=task_id)).findings
    return next((each for each in found if not each.HasField("ended_at")), None)


def churning(pair: Pair, task_id: str) -> operator_pb.ExplainTaskResponse | None:
    """The supervisor's word on a task, once it is that it churns."""
    explained: operator_pb.ExplainTaskResponse = pair.operator.ExplainTask(
        operator_pb.ExplainTaskRequest(task_id=task_id)
    )
    return explained if explained.verdict == task_pb2.VERDICT_CHURNING else None


def test_rates_say_who_asked_and_are_watched(pair: Pair, tmp_path: Path) -> None:
    """A row that the runner wrote because a supervisor forwarded it says so, and one that the supervisor wrote because a
    runner reported it; watched, the rates come again by themselves; minutes are asked for as windows are.
    """
    supervisor, runner = ledgers(pair)
    with Puppet(pair, tmp_path / "worker") as puppet:
        puppet.attempt(1)

        def origins(ledger: Any, emitter: str, seconds: int = 300) -> set[str]:
            request = trace_pb.GetWriteRatesRequest(entity_id=puppet.task_id, window={"seconds": seconds})
            return {rate.origin for rate in ledger.GetWriteRates(request).rates if rate.emitter == emitter}

        assert origins(runner, "lane_runner.task.submit") == {"supervisor.command.forward"}
        eventually(lambda: origins(runner, "lane_runner.attempt.launch") == {""}, "the launch counts")
        eventually(
            lambda: origins(supervisor, "supervisor.intake.report") == {"lane_runner.outbox.report"},
            "the report counts",
        )
        assert origins(runner, "lane_runner.task.submit", seconds=3_600) == {"supervisor.command.forward"}
        watched = runner.WatchWriteRates(
            trace_pb.WatchWriteRatesRequest(window={"seconds": 300}, interval={"nanos": 100_000_000})
        )
        for _ in range(3):
            assert next(watched).window.ToSeconds() == 300
        watched.close()


@pytest.mark.parametrize("window", [{"seconds": 0}, {"seconds": -1}, {"seconds": 86_401}])
def test_a_window_that_is_none_is_refused(pair: Pair, window: dict[str, int]) -> None:
    """By its field, for one answer and for many; so is an interval that is too short."""
    _, runner = ledgers(pair)
    for call in (
        lambda: runner.GetWriteRates(trace_pb.GetWriteRatesRequest(window=window)),
        lambda: next(runner.WatchWriteRates(trace_pb.WatchWriteRatesRequest(window=window))),
    ):
        with pytest.raises(Refusal) as found:
            call()
        assert (found.value.reason, found.value.metadata["field"]) == (Reason.REQUEST_INVALID, "window")
    with pytest.raises(Refusal) as found:
        next(runner.WatchWriteRates(trace_pb.WatchWriteRatesRequest(interval={"nanos": 1_000_000})))
    assert found.value.metadata["field"] == "interval"


def test_what_was_written_just_before_a_stop_is_kept(tmp_path: Path) -> None:
    """Both services, stopped within a minute of the first write, have stored who wrote; started again they tell."""
    with Pair(tmp_path) as running:
        task_id = running.submit("true")
        running.wait_for_state(task_id, "SUCCEEDED")
        eventually(lambda: seen(running, task_id), "the supervisor knows")
        assert (running.runner.stop(), running.supervisor.stop()) == (0, 0)
        running.supervisor.start()
        running.runner.start()
        wrote = ("supervisor.intake.report", "lane_runner.task.submit")
        for ledger, emitter in zip(ledgers(running), wrote, strict=True):
            request = trace_pb.GetWriteRatesRequest(entity_id=task_id, window={"seconds": 3_600})
            found = eventually(lambda ledger=ledger, request=request: ledger.GetWriteRates(request), "it is up")
            assert emitter in {rate.emitter for rate in found.rates}


def seen(pair: Pair, task_id: str) -> bool:
    """Whether the supervisor knows that the task has succeeded."""
    asked = operator_pb.OperatorServiceGetTaskRequest(task_id=task_id)
    return bool(pair.operator.GetTask(asked).task.state == task_pb2.TASK_STATE_SUCCEEDED)
