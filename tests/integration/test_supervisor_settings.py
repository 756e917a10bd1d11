"""Settings that a running supervisor reads again."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

from tests.integration.pair import Service, eventually


def said(service: Service, message: str) -> list[dict[str, Any]]:
    """Every line of its log with this message."""
    return [event for event in service.log if event["message"] == message]


def test_a_hangup_has_the_budgets_of_supervision_read_again(tmp_path: Path) -> None:
    """SIGHUP: what has changed in the file holds from then on, under the next version; what is the same is no change; what
    cannot be used is said, and the old settings hold. The process goes on.
    """
    file = tmp_path / "supervisor.toml"
    file.write_text("relaunches_max = 2\n")
    service = Service("supervisor_svc", "--config", str(file), "--state-dir", str(tmp_path / "s"), "--listen-port", "0")
    service.start()
    try:
        told: list[tuple[bool, int]] = []
        for text in ("relaunches_max = 3\n", "relaunches_max = 3\n"):
            file.write_text(text)
            os.kill(service.pid, signal.SIGHUP)
            count = len(told) + 1
            eventually(lambda count=count: len(said(service, "settings read again")) == count, "read again")
            line = said(service, "settings read again")[-1]
            told.append((line["changed"], line["version"]))
        assert told == [(True, 2), (False, 2)]
        file.write_text("relaunches_max = 101\n")
        os.kill(service.pid, signal.SIGHUP)
        eventually(lambda: said(service, "the settings cannot be used; the old ones hold"), "refused")
        assert len(said(service, "settings read again")) == 2
        assert service.stop() == 0
    finally:
        service.kill()
