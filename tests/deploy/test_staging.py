"""deploy/ at work: the pair of compose.yaml, its sidecars, the gateway and Prometheus, each a real process."""

from __future__ import annotations

import json
import secrets
import subprocess
import sys
import time
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lanewarden.telemetry import span_names
from lanewarden.v1 import operator_service_pb2 as pb
from tests.deploy import tools
from tests.deploy.staging import Client, Staging
from tests.deploy.test_names import QUERIES
from tests.deploy.traces import Kept, KeptFile, send, span
from tests.integration.pair import eventually
from tests.integration.puppet import Puppet
from tests.integration.test_traces import steer
from tests.ports import free_port

pytestmark = tools.needs_collector

FAST = {
    "OTEL_BSP_SCHEDULE_DELAY": "100",
    "OTEL_METRIC_EXPORT_INTERVAL": "500",
    "OTEL_EXPORTER_OTLP_TIMEOUT": "1",
}
FAST_SIDECAR = {"LANEWARDEN_SIDECAR_BATCH_TIMEOUT": "100ms", "LANEWARDEN_SIDECAR_SPAN_METRICS_INTERVAL": "500ms"}
KEEP_ONLY_BY_MERIT = {
    "LANEWARDEN_GATEWAY_SHARE_PERCENT": "0",
    "LANEWARDEN_GATEWAY_DECISION_WAIT": "1s",
    "LANEWARDEN_GATEWAY_SLOW": "10s",  # slower than anything is here on a busy machine
}
WORKER = f"{sys.executable} -m lanewarden worker"
ASKER = f"test $LANEWARDEN_ATTEMPT = 1 && exec {WORKER} escalate --expects-reply 'May I?'; {WORKER} await"
OPERATOR, RUNNER = "lanewarden.v1.OperatorService", "lanewarden.v1.LaneRunnerService"
HAS_DATA = (
    *("Unattributed writes", "Findings open", "Holds open", "Oldest hold", "Runners out of reach"),
    *("Write rate by emitter", "Write rate by origin", "Write rate by what the rows are about", "Leases by state"),
    *("What is left of a lease", "Event loop lag", "Commit duration", "RPC rate", "RPC duration, p99", "Spans by name"),
)
"""Panels that show something whenever a pair works."""


class Stage(Staging):
    """All of it running; the gateway also writes what it keeps into ``file``, with the policy that kept it."""

    pair: Client

    def __init__(self, directory: Path) -> None:
        self.file = KeptFile(directory / "kept.json")
        self.prometheus_port = free_port()
        to_file = {
            "exporters": {"file": {"path": str(self.file.path), "append": True, "flush_interval": "100ms"}},
            "service": {"pipelines": {"traces": {"exporters": ["file"]}}},
        }
        override = tools.write_yaml(directory / "to-file.yaml", to_file)
        super().__init__(
            directory,
            environment={
                "supervisor": FAST,
                "runner": FAST | {"LANEWARDEN_LANE_RUNNER_STOP_WORKERS_ON_EXIT": "true"},
                "sidecar-supervisor": FAST_SIDECAR,
                "sidecar-runner": FAST_SIDECAR,
                "gateway": KEEP_ONLY_BY_MERIT,
            },
            arguments={
                "gateway": ["--config", str(override), "--feature-gates=processor.tailsamplingprocessor.recordpolicy"],
                "prometheus": [f"--web.listen-address=127.0.0.1:{self.prometheus_port}"],
            },
        )

    def run(self, *command: str) -> str:
        """What `lanewarden run` prints of a command, as people have it run in a container of the pair."""
        words = ("-m", "lanewarden", "--state-dir", str(self.state), "run", "--", *command)
        done = subprocess.run(
            [sys.executable, *words], capture_output=True, text=True, timeout=tools.RUN_SECONDS, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def rule(self) -> str:
        """Have a task ask and exit, rule on it, and see it end; the id of the ruling's trace."""
        task_id = self.pair.submit("sh", "-c", ASKER)
        trace_id = steer(self.pair, self.pair.open_escalation(task_id).escalation_id)
        self.pair.wait_for_state(task_id, "SUCCEEDED")
        return trace_id

    def trace(self, trace_id: str) -> list[Kept]:
        """The spans of a trace that the gateway has kept."""
        return [span for span in self.file.spans() if span.trace_id == trace_id]

    def kept(self, name: str) -> list[Kept]:
        """The spans of this name that the gateway has kept."""
        return [span for span in self.file.spans() if span.name == name]

    def scrape(self, sidecar: str, number: int) -> list[str]:
        """The samples at a collector's Prometheus endpoint."""
        return [
            line
            for line in tools.fetch(self.port(sidecar, number), "/metrics").splitlines()
            if not line.startswith("#")
        ]


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """The pair, both sidecars and the gateway; Prometheus where it is installed."""
    made = Stage(tmp_path_factory.mktemp("staging"))
    try:
        made.start("pod", "gateway", "sidecar-supervisor", "sidecar-runner", "supervisor", "runner")
        if tools.PROMETHEUS:
            made.start("prometheus")
        made.pair = made.client()
        eventually(lambda: made.pair.operator.ListRunners(pb.ListRunnersRequest()).runners, "the runner is known")
        yield made
        made.pair.close()
    finally:
        made.stop()


def test_holds_and_rulings_are_kept_and_the_ordinary_is_dropped(stage: Stage) -> None:
    """Through the sidecar of each service; a ruling's trace has both services in it. What is dropped was counted."""
    stage.pair.operator.ListTasks(pb.OperatorServiceListTasksRequest())
    trace_id = stage.rule()
    wanted = {
        ("supervisor", f"{OPERATOR}/Steer"),
        ("supervisor", f"{RUNNER}/Steer"),
        ("lane_runner", f"{RUNNER}/Steer"),
    }
    eventually(lambda: wanted <= {(span.service, span.name) for span in stage.trace(trace_id)}, "the ruling's trace")
    assert {span.policy for span in stage.trace(trace_id)} <= {"holds-and-rulings", "errors"}  # a try may have failed
    assert eventually(lambda: stage.kept("lanewarden.v1.WorkerService/Escalate"), "the question is kept")
    assert not stage.kept(f"{OPERATOR}/ListTasks")
    counted = f'span_name="{OPERATOR}/ListTasks"'
    eventually(lambda: any(counted in line for line in stage.scrape("sidecar-supervisor", 9464)), "and counted")


def test_each_sidecar_shows_who_writes_in_its_own_service(stage: Stage) -> None:
    """Rows by emitter and by origin, the far end of the call; nothing of the other service."""
    assert stage.run("echo", "hello") == "hello\n"
    for service, number, emitter, origin in (
        ("supervisor", 9464, "supervisor.command.forward", "cli.run"),
        ("lane_runner", 9465, "lane_runner.task.submit", "supervisor.command.forward"),
    ):
        sidecar = f"sidecar-{service.removeprefix('lane_')}"
        told = (f'lanewarden_emitter="{emitter}"', f'lanewarden_origin="{origin}"')

        def shown(sidecar: str = sidecar, number: int = number, told: tuple[str, str] = told) -> list[str]:
            samples = [
                line for line in stage.scrape(sidecar, number) if line.startswith("lanewarden_store_rows_total{")
            ]
            return [line for line in samples if all(each in line for each in told)]

        eventually(shown, f"{service} says who writes")
        ours = [line for line in stage.scrape(sidecar, number) if line.startswith("lanewarden_")]
        assert all(f'job="lanewarden/{service}"' in line for line in ours)
        assert all(line.endswith(" 0") for line in ours if line.startswith("lanewarden_store_rows_unattributed_total"))


@tools.needs_prometheus
def test_prometheus_scrapes_all_of_it_and_answers_every_query(stage: Stage) -> None:
    """Targets are up, rules are loaded, panels have their data, and no alert is raised about a pair that is well."""
    stage.rule()

    def ask(path: str, **query: str) -> Any:
        return json.loads(tools.fetch(stage.prometheus_port, f"/api/v1/{path}?{urllib.parse.urlencode(query)}") or "{}")

    def healths() -> list[str]:
        return [target["health"] for target in ask("targets")["data"]["activeTargets"]]

    eventually(lambda: healths() == ["up"] * 5, "every target is scraped")
    for what, query in QUERIES:
        query = query.replace("$__rate_interval", "10s").replace("$job", ".*")

        def result(query: str = query) -> Any:
            answer = ask("query", query=query)
            assert answer["status"] == "success", answer
            return answer["data"]["result"]

        if what in HAS_DATA:
            eventually(result, f"data for {what}")
        else:
            result()
    rules = [rule for group in ask("rules")["data"]["groups"] for rule in group["rules"]]
    assert {rule["name"] for rule in rules} == {what for what, _ in QUERIES if " " not in what}
    assert not [rule["name"] for rule in rules if rule["state"] == "firing"]


def test_the_gateway_keeps_what_it_is_there_for(stage: Stage) -> None:
    """One trace for each reason, and some that have none; spans that come later go the way of their trace."""
    second = 1_000_000_000
    cases: dict[str, tuple[str | None, dict[str, Any]]] = {
        "ordinary": (None, {}),
        "refused": (None, {"attributes": {"lanewarden.reason": "ALREADY_RULED"}}),
        "a stream": (None, {"name": f"{OPERATOR}/WatchTasks", "ns": 60 * second}),
        "an error": ("errors", {"error": True}),
        "of a hold": ("holds-and-rulings", {"attributes": {"lanewarden.escalation.id": "t.1.1.1"}}),
        "throttled": ("storms", {"attributes": {"lanewarden.reason": "WRITE_THROTTLED"}}),
        "an intervention": ("interventions", {"name": span_names.ACT}),
        "slow": ("slow", {"ns": 20 * second}),
    }
    traces = {case: secrets.token_bytes(16) for case in cases}
    gateway = stage.port("gateway", 14317)
    for case, (_, facts) in cases.items():  # what has no reason to be kept is judged first
        send(gateway, span(traces[case], **facts))
    kept = {policy for policy, _ in cases.values() if policy}

    def found() -> dict[str, str]:
        spans = {each.trace_id: each.policy for each in stage.file.spans()}
        return {case: spans[trace.hex()] for case, trace in traces.items() if trace.hex() in spans}

    eventually(lambda: len(found()) == len(kept), "all that is to be kept")
    assert found() == {case: policy for case, (policy, _) in cases.items() if policy}
    send(gateway, span(traces["ordinary"], name="late"))
    send(gateway, span(traces["an error"], name="late"))
    late = eventually(lambda: stage.kept("late"), "the late span")
    assert [each.trace_id for each in late] == [traces["an error"].hex()]


def test_w01_a_storm_below_the_ceiling_is_kept(stage: Stage, tmp_path: Path) -> None:
    """Nobody is refused, but as soon as it is a finding its units say so, and who writes."""
    with Puppet(stage.pair, tmp_path / "worker") as puppet:
        worker = puppet.attempt(1).worker

        def stormy() -> list[Kept]:
            for _ in range(50):
                worker.progress()
            units = (span for span in stage.kept(span_names.UNIT) if span.policy == "storms")
            return [unit for unit in units if unit.attributes["lanewarden.emitter"] == "lane_runner.worker.progress"]

        found = eventually(stormy, "the storm is kept")[-1]
    assert found.attributes["lanewarden.finding.kind"] == "ENTITY_RATE"
    assert found.attributes["lanewarden.task.id"] == puppet.task_id


def test_a_storm_is_kept_and_not_all_of_it(stage: Stage) -> None:
    """Of a thousand refused units within a moment at most what the bound allows, twice a second's worth."""
    storm = [
        span(secrets.token_bytes(16), name="storm", attributes={"lanewarden.reason": "WRITE_THROTTLED"})
        for _ in range(1000)
    ]
    begun, gateway = time.monotonic(), stage.port("gateway", 14317)
    send(gateway, *storm)
    last = secrets.token_bytes(16)
    send(gateway, span(last, name="after the storm", error=True))
    eventually(lambda: stage.kept("after the storm"), "what came after it")
    assert 0 < len(stage.kept("storm")) <= 200 + 100 * (time.monotonic() - begun)


def test_w07_a_collector_that_goes_and_comes_back_costs_one_line_each_way(stage: Stage) -> None:
    """While the runner's sidecar is gone tasks run as before; when it is back, spans and metrics arrive again."""
    runner, supervisor, sidecar = (stage.programs[name] for name in ("runner", "supervisor", "sidecar-runner"))

    def said(service: Any, words: str) -> int:
        return sum(words in line for line in service.log)

    sidecar.kill()
    stage.rule()
    eventually(lambda: said(runner, "no collector answers"), "the loss is told")
    stage.rule()
    sidecar.start()
    eventually(lambda: said(runner, "the collector is back"), "the return is told")
    trace_id = stage.rule()
    eventually(
        lambda: {"supervisor", "lane_runner"} == {span.service for span in stage.trace(trace_id)}, "spans flow again"
    )
    eventually(
        lambda: any(line.startswith("lanewarden_store_rows_total{") for line in stage.scrape("sidecar-runner", 9465)),
        "metrics flow again",
    )
    assert (said(runner, "no collector answers"), said(runner, "the collector is back")) == (1, 1)
    assert said(supervisor, "collector") == 0


def test_a_gateway_that_goes_and_comes_back_has_lost_nothing(stage: Stage) -> None:
    """A sidecar keeps what it cannot pass on, and does when it can."""
    stage.programs["gateway"].stop()
    trace_id = stage.rule()
    assert not stage.trace(trace_id)
    stage.programs["gateway"].start()
    eventually(lambda: stage.trace(trace_id), "the ruling that was given meanwhile")


def test_one_trace_from_steer_to_acknowledgement_across_a_kill(stage: Stage, tmp_path: Path) -> None:
    """In the collector's file: the operator's call, what the supervisor stored, its tries to deliver it to a runner that was
    killed, the commit of the runner's next start and the worker's acknowledgement; who writes, and for whom.
    """
    with Puppet(stage.pair, tmp_path / "worker") as puppet:
        worker = puppet.attempt(1).worker
        escalation_id = worker.escalate("May I?", expects_reply=True).escalation_id
        stage.pair.open_escalation(puppet.task_id)
        stage.programs["runner"].kill()
        trace_id = steer(stage.pair, escalation_id)
        stage.programs["runner"].start()
        eventually(lambda: worker.acknowledge(worker.await_ruling(escalation_id)) or True, "the ruling is taken")

        def whole() -> list[Kept]:
            trace = stage.trace(trace_id)
            roots = [span.name for span in trace if span.parent_id not in {each.span_id for each in trace}]
            told = any(span.attributes.get("lanewarden.outcome") == "DELIVERED" for span in trace)
            taken = any(span.name == span_names.MESSAGE_ACKNOWLEDGED for span in trace)
            return trace if told and taken and roots == [f"{OPERATOR}/Steer"] else []

        trace = eventually(whole, "the whole trace is in the file, as one tree")
        (acknowledged,) = (span for span in trace if span.name == span_names.MESSAGE_ACKNOWLEDGED)
        (call_trace, unit_id), *_ = acknowledged.links

        def call() -> list[str]:
            spans = {span.span_id: span for span in stage.trace(call_trace)}
            return [spans[unit.parent_id].name for unit in (spans.get(unit_id),) if unit and unit.parent_id in spans]

        assert eventually(call, "the worker's call is kept too") == ["lanewarden.v1.WorkerService/AcknowledgeMessage"]
    wrote = {
        (span.service, span.attributes["lanewarden.emitter"], span.attributes.get("lanewarden.origin"))
        for span in trace
        if span.name == span_names.UNIT
    }
    assert {emitter for service, emitter, _ in wrote if service == "supervisor"} >= {"supervisor.command.steer"}
    assert ("lane_runner", "lane_runner.hold.rule", "supervisor.command.deliver") in wrote
    assert acknowledged.attributes["lanewarden.emitter"] == "lane_runner.worker.acknowledge"
    tries = [span.attributes["lanewarden.outcome"] for span in trace if span.name == span_names.DELIVER]
    assert len(tries) > 1
    assert "DELIVERED" in tries
