"""The generated code is what the protos beside it say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from lanewarden.v1 import (
    lane_runner_service_pb2,
    operator_service_pb2,
    supervisor_service_pb2,
    worker_service_pb2,
    write_trace_service_pb2,
)

ROOT = Path(__file__).parents[2]
FIVE = (
    supervisor_service_pb2,
    operator_service_pb2,
    lane_runner_service_pb2,
    worker_service_pb2,
    write_trace_service_pb2,
)


def test_generated_code_is_fresh() -> None:
    """Whoever changes a proto commits what it generates."""
    pytest.importorskip("grpc_tools", reason="grpcio-tools generates the code; `pip install -e .[dev]`")
    ran = subprocess.run(
        [sys.executable, "protos/generate.py", "--check"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr


def test_every_mutating_request_has_a_request_id() -> None:
    """Sent twice, a request has one effect; only what writes nothing, or is not shaped yet, has no id."""
    reads = ("Get", "List", "Watch", "Check", "Explain", "Tail", "Await", "Receive")
    without = {
        method.name
        for module in FIVE
        for service in module.DESCRIPTOR.services_by_name.values()
        for method in service.methods
        if not method.name.startswith(reads)
        and method.input_type.fields
        and "request_id" not in method.input_type.fields_by_name
    }
    assert without == {"KeepAlive", "Reconcile"}
