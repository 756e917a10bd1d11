"""Both services and the command line over TLS."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from lanewarden.auth import Role
from lanewarden.cli import main
from lanewarden.cli.state import Endpoints
from lanewarden.client_sync import connect
from lanewarden.errors import Reason, Refusal
from lanewarden.tls import Tls
from lanewarden.v1 import operator_service_pb2
from tests import certificates
from tests.integration.pair import OPERATOR, Pair, Service

SERVICES = ("supervisor_svc", "lane_runner_svc")
WAIT_SECONDS = 30
VERB = f"exec {sys.executable} -m lanewarden worker"
WORKER = f"test $LANEWARDEN_ATTEMPT = 1 && {VERB} escalate --expects-reply 'May I?'; {VERB} await"


def test_a_hold_and_its_ruling_over_tls(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Runner to supervisor, supervisor to runner and both clients; who trusts another CA, or calls in the clear, is out."""
    files = certificates.make(tmp_path / "tls")
    state = tmp_path / "state"
    with Pair(state, tls=files) as pair:
        task_id = pair.submit("sh", "-c", WORKER)
        pair.wait_for_state(task_id, "HELD")
        target = f"127.0.0.1:{pair.supervisor_port}"
        other = certificates.make(tmp_path / "other")
        for credentials in (None, Tls.load(ca=other.ca).channel_credentials()):
            with connect(target, token=pair.credentials.tokens[Role.OPERATOR], credentials=credentials) as connection:
                stub = connection.stub(OPERATOR)
                with pytest.raises(Refusal) as refused:
                    stub.ListRunners(operator_service_pb2.ListRunnersRequest(), timeout_seconds=WAIT_SECONDS)
                assert refused.value.reason is Reason.SUPERVISOR_UNREACHABLE
        Endpoints(supervisor=target, runner=f"127.0.0.1:{pair.runner_port}").save(state / "endpoints.json")
        escalation_id = pair.open_escalation(task_id).escalation_id
        words = ["rule", escalation_id, "approve", "-m", "go on", "--state-dir", str(state)]
        assert main(words) == 3, "in the clear"
        assert main(["--tls-ca", str(files.key), *words]) == 3
        assert "holds no valid PEM certificate" in capfd.readouterr().err
        assert main([*words, "--tls-ca", str(files.ca)]) == 0
        pair.wait_for_state(task_id, "SUCCEEDED", "FAILED")
        ruling = next(e.ruling.ruling for e in pair.inbox(task_id))
        assert ruling.instructions == "go on"


@pytest.mark.parametrize("module", SERVICES)
def test_tls_files_that_cannot_be_used_stop_a_service_before_it_touches_anything(tmp_path: Path, module: str) -> None:
    """One line, exit 2, no state directory."""
    files, other = certificates.make(tmp_path / "tls"), certificates.make(tmp_path / "other")
    state = tmp_path / "state"
    for flags in (
        ("--tls-cert", str(files.cert)),
        ("--tls-cert", str(files.cert), "--tls-key", str(other.key)),
        ("--tls-ca", str(tmp_path / "none.pem")),
    ):
        command = [sys.executable, "-m", module, "--state-dir", str(state), "--listen-port", "0", *flags]
        done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_SECONDS, check=False)
        assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
        assert "tls_" in done.stderr
    assert not state.exists()


@pytest.mark.parametrize("module", SERVICES)
def test_beyond_loopback_takes_a_certificate(tmp_path: Path, module: str) -> None:
    """Without one a service says so and exits 1; with one it listens there."""
    files = certificates.make(tmp_path / "tls")
    arguments = ("--state-dir", str(tmp_path / "state"), "--listen-port", "0", "--listen-host", "0.0.0.0")  # noqa: S104
    command = [sys.executable, "-m", module, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_SECONDS, check=False)
    assert done.returncode == 1
    assert "without TLS" in done.stderr
    service = Service(module, *arguments, "--tls-cert", str(files.cert), "--tls-key", str(files.key))
    service.start()
    assert service.stop() == 0
