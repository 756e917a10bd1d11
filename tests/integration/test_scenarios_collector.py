"""W07: a running pair and a collector that is not there, refuses, hangs, and comes back."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import grpc
import pytest

from tests.integration.pair import Pair, Service, eventually
from tests.integration.puppet import Puppet
from tests.ports import free_port

SECONDS_MAX = 5.0
"""For a question, its ack and its ruling, and for a stop: a fraction of what an exporter would wait."""
LOST, BACK = "no collector answers", "the collector is back"


class Collector(grpc.GenericRpcHandler):  # type: ignore[misc]
    """Takes every export. ``answer`` is OK, the name of a code, or HANG."""

    def __init__(self, port: int) -> None:
        self.answer = "OK"
        self.exports = 0
        self._over = threading.Event()
        self._server = grpc.server(ThreadPoolExecutor(32), handlers=(self,))
        assert self._server.add_insecure_port(f"127.0.0.1:{port}") == port
        self._server.start()

    def service(self, details: Any) -> grpc.RpcMethodHandler:
        """Whatever is called."""
        del details
        return grpc.unary_unary_rpc_method_handler(self._export)

    def _export(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        del request
        self.exports += 1
        if self.answer == "HANG":
            self._over.wait()
        elif self.answer != "OK":
            context.abort(grpc.StatusCode[self.answer], "not now")
        return b""

    def close(self) -> None:
        """Let go of whoever hangs."""
        self._over.set()
        self._server.stop(0).wait()


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Where both services send what they tell, without delay; nobody listens yet."""
    found = free_port()
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{found}")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "500")
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "always_on")
    return found


def said(service: Service, what: str) -> int:
    """How often a service has said something."""
    return sum(1 for event in service.log if what in event["message"])


def ask_ack_rule(pair: Pair, puppet: Puppet) -> None:
    """A question of a worker, and what people do about it, within the bound."""
    begun = time.monotonic()
    worker = puppet.attempt(1).worker
    asked = worker.escalate("May I?", expects_reply=True).escalation_id
    pair.open_escalation(puppet.task_id)
    pair.ack(asked)
    pair.rule(asked)
    worker.acknowledge(worker.await_ruling(asked, timeout_seconds=SECONDS_MAX))
    assert time.monotonic() - begun < SECONDS_MAX


def test_w07_whatever_a_collector_does_the_pair_works_and_says_one_line_each_way(tmp_path: Path, port: int) -> None:
    """No collector, then one that is unavailable, has no room, hangs, and answers: a question, its ack and its ruling pass
    in each, each service says once that there is none and once that it is back, and neither waits for it when it stops.
    """
    with Pair(tmp_path / "s") as pair:
        services = (pair.supervisor, pair.runner)
        with Puppet(pair, tmp_path / "worker") as puppet:
            ask_ack_rule(pair, puppet)
            for service in services:
                eventually(lambda service=service: said(service, LOST), "the collector is missed")
            with closing(Collector(port)) as collector:
                for answer in ("UNAVAILABLE", "RESOURCE_EXHAUSTED", "HANG"):
                    collector.answer, before = answer, collector.exports
                    ask_ack_rule(pair, puppet)
                    eventually(lambda before=before: collector.exports > before, f"it was asked, and answered {answer}")
                collector.answer = "OK"
                for service in services:
                    eventually(lambda service=service: said(service, BACK), "the collector is back")
                ask_ack_rule(pair, puppet)
                assert [(said(service, LOST), said(service, BACK)) for service in services] == [(1, 1), (1, 1)]
        for service in services:
            begun = time.monotonic()
            assert service.stop() == 0
            assert time.monotonic() - begun < SECONDS_MAX
