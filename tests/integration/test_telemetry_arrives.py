"""A real pair that sends to a real OTLP receiver: every metric of the catalogue arrives as it is declared, and nothing that
is secret is in any of it or in the logs.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from lanewarden.auth import Role
from lanewarden.errors import Reason, Refusal
from lanewarden.telemetry import metric_names as names
from lanewarden.telemetry.metric_names import BY_NAME, METRICS, On
from lanewarden.v1 import lane_runner_service_pb2 as runner_pb
from lanewarden.v1 import operator_service_pb2 as pb
from lanewarden.v1 import worker_service_pb2 as worker_pb
from lanewarden.v1 import write_trace_service_pb2
from tests.integration.context_kit import K, Scene
from tests.integration.moved_clock import ClockFile
from tests.integration.pair import DEADLINE_SECONDS, Pair, eventually
from tests.integration.puppet import Puppet, fresh, state_of
from tests.otlp import Point, Receiver

SUPERVISOR, RUNNER = "supervisor", "lane_runner"
SERVICES: Final = {On.BOTH: (SUPERVISOR, RUNNER), On.SUPERVISOR: (SUPERVISOR,), On.RUNNER: (RUNNER,)}
SECRET: Final = "S3NT1NEL"
"""In everything that a person or a worker says, and in what a worker is started with."""
LIMITS: Final = {
    "LANEWARDEN_LANE_RUNNER_STORM_ROWS_PER_SECOND": "3",
    "LANEWARDEN_LANE_RUNNER_WRITE_CEILING_ROWS_PER_SECOND": "3",
}
"""A storm is soon one, and too much."""
# Nothing that the supervisor writes for a caller comes near a ceiling in this story.
NOT_IN_THE_STORY: Final = {(SUPERVISOR, names.STORE_THROTTLED.name)}
TRACE: Final = write_trace_service_pb2.DESCRIPTOR.services_by_name["WriteTraceService"]


class Played:
    """The story, and what was heard and said while it was played."""

    def __init__(self, pair: Pair, receiver: Receiver, tokens: list[str]) -> None:
        self.pair = pair
        self.receiver = receiver
        self.tokens = tokens

    @property
    def logs(self) -> str:
        """Every line of both services."""
        return json.dumps([self.pair.supervisor.log, self.pair.runner.log])

    def last(self, metric: str, **attributes: str) -> float:
        """The latest value of a metric of the runner."""
        wanted = {key.replace("_", "."): value for key, value in attributes.items()}
        points = [each for each in self.receiver.points if (each.service, each.metric) == (RUNNER, metric)]
        return next(each.value for each in reversed(points) if wanted.items() <= each.attributes.items())


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Played]:
    """Submit, escalate, rule, complete; a worker that fails; a storm; a context that fills up; a task that is given up."""
    directory = tmp_path_factory.mktemp("pair")
    clock = ClockFile.create(directory / "clock")
    with Receiver() as receiver, pytest.MonkeyPatch.context() as patch:
        for name, value in receiver.environment().items():
            patch.setenv(name, value)
        patch.setenv("OTEL_EXPORTER_OTLP_HEADERS", f"x-key={SECRET}")
        patch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test")
        pair = Pair(
            directory,
            lanes=4,
            through=("tests.integration.moved_service", str(directory / "clock")),
            runner_env=LIMITS,
            supervisor_flags=(
                *("--relaunches-max", "0", "--incident-gather-seconds", "0"),
                *("--stale-seconds", "16", "--first-progress-seconds", "16", "--parked-seconds", "3600"),
            ),
        )
        with pair:
            story = Played(pair, receiver, [*pair.credentials.tokens.values()])
            _answered(story, directory / "asks")
            _fails(pair)
            _is_gone(pair, directory)
            _storms(pair, directory / "storms")
            _fills_up(pair, directory / "context")
            _given_up(pair, clock, directory / "stale")
            _until_sent(receiver)
            yield story


def _answered(story: Played, directory: Path) -> None:
    """A worker asks, is told that it is heard, gets a ruling, and completes; everybody uses the secret word."""
    pair = story.pair
    with Puppet(pair, directory, env={"PASSWORD": SECRET}) as puppet:
        attempt = puppet.attempt(1)
        story.tokens.append(attempt.token)
        attempt.worker.progress(1, note=SECRET)
        asked = attempt.worker.escalate(f"may I use {SECRET}?", expects_reply=True)
        story.receiver.wait_for_point(_is(names.HOLDS_OPEN, 1, SUPERVISOR), "the supervisor counts the open hold")
        story.receiver.wait_for_point(_is(names.HOLDS_OPEN, 1, RUNNER), "the runner counts it")
        pair.ack(asked.escalation_id)
        pair.rule(asked.escalation_id, instructions=f"use {SECRET}")
        ruled = attempt.worker.await_ruling(asked.escalation_id, timeout_seconds=DEADLINE_SECONDS)
        attempt.worker.acknowledge(ruled)
        attempt.worker.complete(f"used {SECRET}")
        attempt.end()
        pair.wait_for_state(puppet.task_id, "SUCCEEDED")


def _fails(pair: Pair) -> None:
    """A worker that says the word on both outputs and exits with a code; and requests that are refused."""
    script = f"env | grep ^OTEL_; echo {SECRET}; echo {SECRET} >&2; exit 3"
    failed = pair.submit("/bin/sh", "-c", script, SECRET, env={"TOKEN": SECRET}, premature_exits_max=0)
    pair.wait_for_state(failed, "FAILED")
    lines = list(pair.lane_runner.TailLog(runner_pb.TailLogRequest(task_id=failed)))
    assert SECRET in str(lines)
    assert "OTEL_" not in str(lines), "a worker gets nothing of the services' own settings"
    with pytest.raises(Refusal):
        pair.submit(f"/nowhere/{SECRET}")
    late = pb.OperatorServiceSendInputRequest(request_id=fresh(), task_id=failed, text=SECRET)
    with pytest.raises(Refusal):
        pair.operator.SendInput(late)


def _is_gone(pair: Pair, directory: Path) -> None:
    """A program that is there when its task is submitted, and not when it is to be started."""
    program = directory / f"{SECRET}.sh"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    with Puppet(pair, directory / "before", lane="lane-1") as puppet:
        attempt = puppet.attempt(1)
        gone = pair.submit(str(program), lane="lane-1", launch_failures_max=0)
        program.unlink()
        attempt.end()
        assert SECRET in pair.wait_for_state(gone, "FAILED").summary, "the task says what is missing"


def _storms(pair: Pair, directory: Path) -> None:
    """A worker asks the same again and again until it is throttled."""

    def throttled() -> bool:
        usage = worker_pb.ContextUsage(tokens=1_000, window=200_000)
        try:
            attempt.stub.NextDirective(worker_pb.NextDirectiveRequest(request_id=fresh(), usage=usage))
        except Refusal as refusal:
            return refusal.reason is Reason.WRITE_THROTTLED
        return False

    with Puppet(pair, directory) as puppet:
        attempt = puppet.attempt(1)
        eventually(throttled, "the worker is throttled")


def _fills_up(pair: Pair, directory: Path) -> None:
    """A reduction waits for no writer, which ends later."""
    with Scene(pair, directory, writer_wait={}) as scene:
        assert scene.told(20 * K) == "continue"
        scene.until_writing(1)
        reduced = scene.ask(30 * K)
        assert worker_pb.Directive.Name(reduced.directive) == "DIRECTIVE_COMPACT"
        done = worker_pb.ReportDirectiveRequest(request_id=fresh(), directive_id=reduced.directive_id)
        done.outcome = worker_pb.DIRECTIVE_OUTCOME_DONE
        scene.attempt.stub.ReportDirective(done)
        scene.tell(1, "commit")


def _given_up(pair: Pair, clock: ClockFile, directory: Path) -> None:
    """A worker makes no progress any more: its task is settled, and an incident filed."""
    puppet = Puppet(pair, directory)
    puppet.attempt(1).worker.progress(1, note=SECRET)

    def filed() -> bool:
        clock.move(1)
        incidents = pair.operator.ListIncidents(pb.ListIncidentsRequest()).incidents
        return state_of(puppet.task()) == "SETTLED" and any(each.url for each in incidents)

    eventually(filed, "the task is given up and filed", seconds=60)
    puppet.attempt(1).close()


def _is(metric: names.Metric, value: float, service: str) -> Any:
    return lambda point: (point.metric, point.value, point.service) == (metric.name, value, service)


def _until_sent(receiver: Receiver) -> None:
    """Until the incident has been counted, and both services have sent everything once more."""
    receiver.wait_for_point(_is(names.INCIDENT_FILINGS, 1, SUPERVISOR), "the incident is counted")
    for service in (SUPERVISOR, RUNNER):
        seen = len(receiver.points)

        def sent(service: str = service, seen: int = seen) -> bool:
            after = [each for each in receiver.points[seen:] if each.service == service]
            return sum(each.metric == names.LOOP_LAG.name for each in after) >= 2

        eventually(sent, f"{service} sends")


def test_every_metric_of_the_catalogue_arrives(played: Played) -> None:
    """From every service that the reference names, with its unit and kind; and none that it does not name."""
    arrived = {(each.service, each.metric) for each in played.receiver.points}
    declared = {(service, metric.name) for metric in METRICS for service in SERVICES[metric.on]}
    assert arrived == declared - NOT_IN_THE_STORY
    kinds = {names.Kind.COUNTER: "sum", names.Kind.GAUGE: "gauge", names.Kind.HISTOGRAM: "histogram"}
    for point in played.receiver.points:
        metric = BY_NAME[point.metric]
        assert (point.kind, point.unit) == (kinds[metric.kind], metric.unit)
        assert point.bounds == metric.buckets


def test_a_metric_has_the_attributes_that_it_declares(played: Played) -> None:
    """All of them and no others, and only the values that are listed, where they are; never the id of a task or a runner."""
    for point in played.receiver.points:
        declared = {attribute.name: attribute for attribute in BY_NAME[point.metric].attributes}
        assert point.attributes.keys() == declared.keys(), point
        for key, value in point.attributes.items():
            assert value in (declared[key].values or (value,)), point


def test_what_a_service_says_of_itself(played: Played) -> None:
    """Its name, namespace, version and instance; and what OTEL_RESOURCE_ATTRIBUTES adds."""
    for service, instance in ((SUPERVISOR, "supervisor"), (RUNNER, "runner")):
        told = played.receiver.resources[service]
        assert told["service.namespace"] == "lanewarden"
        assert told["service.instance.id"] == instance
        assert told["service.version"]
        assert told["deployment.environment.name"] == "test"


def test_i11_the_rows_that_are_sent_are_all_that_were_written(played: Played) -> None:
    """The sum over emitters is what the ledger has, none is unattributed, and rows say who asked for them."""
    trace = played.pair.client(played.pair.runner_port, TRACE, Role.VIEWER, Reason.RUNNER_UNREACHABLE)

    def equal() -> bool:
        before = played.receiver.exports
        written = {
            each.emitter: each.rows
            for each in trace.ListEmitters(write_trace_service_pb2.ListEmittersRequest()).emitters
        }
        eventually(lambda: played.receiver.exports > before + 4, "sent again")
        latest: dict[tuple[str, ...], Point] = {
            tuple(each.attributes.values()): each
            for each in played.receiver.points
            if (each.service, each.metric) == (RUNNER, names.STORE_ROWS.name)
        }
        sent: dict[str, int] = {}
        for each in latest.values():
            emitter = each.attributes["lanewarden.emitter"]
            sent[emitter] = sent.get(emitter, 0) + int(each.value)
        return sent == written

    eventually(equal, "what is sent is what was written")
    assert played.last(names.STORE_ROWS_UNATTRIBUTED.name) == 0
    asked = {
        (each.attributes["lanewarden.emitter"], each.attributes["lanewarden.origin"])
        for each in played.receiver.points
        if (each.service, each.metric) == (RUNNER, names.STORE_ROWS.name)
    }
    assert ("lane_runner.hold.rule", "supervisor.command.deliver") in asked


def test_no_secret_is_in_a_log_line_a_metric_or_a_span(played: Played) -> None:
    """Neither what people and workers say, nor argv, environment and output, nor a token, nor a header for the collector:
    the services have them all.
    """
    said = [played.logs, repr(played.receiver.points), repr(played.receiver.spans), repr(played.receiver.resources)]
    stored = b"".join(path.read_bytes() for path in played.pair.directory.rglob("*.sqlite3*"))
    assert SECRET.encode() in stored
    assert all(len(token) > 10 for token in played.tokens)
    for text in said:
        assert SECRET not in text
        assert not [token for token in played.tokens if token in text]
    assert '"trace_id"' in played.logs


def test_every_metric_can_be_read_whenever_it_is_sent(played: Played) -> None:
    """One that cannot be is a line of the log."""
    assert "a metric cannot be read" not in played.logs
