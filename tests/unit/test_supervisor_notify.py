"""What people are told: the table of news, the names of notifications, the delays, and how sinks are named."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from google.protobuf.json_format import MessageToDict

from lanewarden.config import ConfigInvalid, load
from lanewarden.v1 import escalation_pb2
from supervisor_svc.config import SupervisorConfig
from supervisor_svc.core.notify import (
    BACKOFF_MAX_SECONDS,
    BACKOFF_MIN_SECONDS,
    EscalationFacts,
    Kind,
    backoff_seconds,
    key,
    news,
)
from supervisor_svc.sinks import SinkUnusable
from supervisor_svc.sinks.lines import TEXT_MAX, line
from supervisor_svc.sinks.specs import SINKS_MAX, make_sinks

OPEN = EscalationFacts(hold_state="OPEN", owed_by="ada")
LATE = replace(OPEN, expired=True, deadline_ms=5)
NOTICE = EscalationFacts(hold_state="NONE")
RELEASED, ACKNOWLEDGED, CANCELED = (replace(OPEN, hold_state=name) for name in ("RELEASED", "ACKNOWLEDGED", "CANCELED"))

TABLE: list[tuple[EscalationFacts | None, EscalationFacts, tuple[Kind, ...]]] = [
    (None, OPEN, (Kind.OPENED,)),
    (None, replace(OPEN, reminders=3), (Kind.OPENED,)),
    (None, LATE, (Kind.OPENED, Kind.EXPIRED)),
    (None, NOTICE, (Kind.NOTICE,)),
    (None, RELEASED, ()),
    (None, ACKNOWLEDGED, ()),
    (None, CANCELED, ()),
    (OPEN, OPEN, ()),
    (OPEN, replace(OPEN, reminders=1), (Kind.REMINDER,)),
    (OPEN, replace(OPEN, reminders=4), (Kind.REMINDER,)),
    (replace(OPEN, reminders=4), replace(OPEN, reminders=3), ()),
    (OPEN, replace(OPEN, owed_by="bob"), (Kind.APPROVER,)),
    (OPEN, replace(OPEN, owed_by=""), ()),
    (OPEN, replace(OPEN, owed_by="bob", reminders=1), (Kind.APPROVER, Kind.REMINDER)),
    (replace(OPEN, deadline_ms=5), LATE, (Kind.EXPIRED,)),
    (LATE, LATE, ()),
    (LATE, replace(LATE, reminders=1), (Kind.REMINDER,)),
    (LATE, replace(LATE, expired=False, deadline_ms=9), ()),
    (replace(LATE, expired=False, deadline_ms=9), replace(LATE, deadline_ms=9), (Kind.EXPIRED,)),
    (LATE, replace(LATE, deadline_ms=9), (Kind.EXPIRED,)),
    (OPEN, RELEASED, (Kind.RULED,)),
    (OPEN, ACKNOWLEDGED, (Kind.RULED,)),
    (OPEN, replace(RELEASED, reminders=9, expired=True, owed_by="bob"), (Kind.RULED,)),
    (RELEASED, ACKNOWLEDGED, ()),
    (RELEASED, RELEASED, ()),
    (OPEN, CANCELED, (Kind.CANCELED,)),
    (RELEASED, CANCELED, (Kind.CANCELED,)),
    (CANCELED, CANCELED, ()),
    (NOTICE, NOTICE, ()),
]


@pytest.mark.parametrize(("before", "after", "kinds"), TABLE)
def test_news(before: EscalationFacts | None, after: EscalationFacts, kinds: tuple[Kind, ...]) -> None:
    """What is new between two reports, and nothing when the second comes again."""
    assert news(before, after) == kinds
    assert news(after, after) == ()


@pytest.mark.parametrize(("before", "after", "kinds"), TABLE)
def test_retold_escalations_are_news_only_while_they_are_open(
    before: EscalationFacts | None, after: EscalationFacts, kinds: tuple[Kind, ...]
) -> None:
    """A supervisor without a past tells people of open holds, not of closed ones nor of old notices."""
    expected = kinds if before is not None or after.hold_state == "OPEN" else ()
    assert news(before, after, retold=True) == expected


def test_keys_are_made_of_what_they_are_about() -> None:
    """The same news has the same key whoever finds it; other news of the same kind has another."""
    assert key("t1.1.1.1", Kind.OPENED, OPEN) == "t1.1.1.1/opened/1"
    assert key("e", Kind.REMINDER, replace(OPEN, reminders=3)) == "e/reminder/3"
    assert key("e", Kind.EXPIRED, LATE) == "e/expired/5"
    assert key("e", Kind.EXPIRED, replace(LATE, deadline_ms=9)) == "e/expired/9"
    assert key("e", Kind.APPROVER, replace(OPEN, owed_by="bob")) == "e/approver/bob"


def test_keys_fit_into_a_header() -> None:
    """Whatever a name contains, its key is visible ASCII, and different names stay different."""
    names = ["zoë", "a b", "a%20b", "a\r\nX: y", "a\0"]
    keys = {key("e", Kind.APPROVER, replace(OPEN, owed_by=name)) for name in names}
    assert len(keys) == len(names)
    assert all("!" <= each <= "~" for one in keys for each in one)


def test_delays_double_from_a_second_to_five_minutes() -> None:
    """Full jitter below a bound that doubles, and a floor that keeps a loop from spinning."""
    bounds = [round(backoff_seconds(failures, 0.999_999)) for failures in range(1, 12)]
    assert bounds == [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]
    assert backoff_seconds(50, 0.5) == BACKOFF_MAX_SECONDS / 2
    assert backoff_seconds(1_000_000, 0.0) == BACKOFF_MIN_SECONDS


def payload(kind: str, **fields: object) -> str:
    values = {"escalation_id": "e1", "task_name": "migrate", "question": "left\nor\x1b[31m right?", "owed_by": "ada"}
    escalation = escalation_pb2.Escalation(**{**values, **fields})
    escalation.opened_at.FromSeconds(1_700_000_000)
    told = MessageToDict(escalation, preserving_proto_field_name=True)
    return json.dumps({"key": "k", "kind": kind, "at": "T", "to": escalation.owed_by, "escalation": told})


def test_h03_h04_a_line_names_the_hold_and_who_owes_the_answer_since_when() -> None:
    """A reminder says which escalation, who owes it, who acked it, and since when it is open; on one harmless line."""
    ack = escalation_pb2.Ack()
    ack.acked_by.identity = "bob"
    ack.expected_by.FromSeconds(1_700_003_600)
    text = line(payload("reminder", reminders=2, ack=ack))
    assert text == (
        "T reminder e1 (migrate), owed by ada, reminder 2, open since 2023-11-14T22:13:20.000Z, acked by bob,"
        r" expected by 2023-11-14T23:13:20.000Z: left\nor\x1b[31m right?"
    )


def test_lines_of_closed_holds_say_what_closed_them() -> None:
    """Who ruled what, or why it was canceled; long texts are cut."""
    ruling = escalation_pb2.RulingRecord()
    ruling.ruled_by.identity = "grace"
    ruling.ruling.decision = escalation_pb2.DECISION_REVISE
    ruling.ruling.instructions = "x" * 1000
    text = line(payload("ruled", ruling=ruling))
    assert text.startswith("T ruled e1 (migrate): REVISE by grace: xxx")
    assert len(text) < TEXT_MAX + 60
    assert line(payload("canceled", cancel_cause="enough")) == "T canceled e1 (migrate): enough"


@pytest.mark.parametrize(
    ("specs", "said"),
    [
        (["smoke:signal"], "'smoke' is not a sink"),
        ([""], "'' is not a sink"),
        (["stdout:x"], "stdout takes nothing"),
        (["stdout", "stdout"], "given twice"),
        (["jsonl"], "jsonl needs the path"),
        (["jsonl: "], "jsonl needs the path"),
        (["webhook:ftp://h/s3cret"], "webhook needs an http"),
        (["webhook:https://user:s3cret@h/"], "without user"),
        (["webhook:http://h:99999/s3cret"], "webhook needs"),
        (["webhook:http:///s3cret"], "with a host"),
        (["webhook:http://h/s3cret\r\nX: y"], "webhook needs"),
        (["command:"], "command needs a program"),
        (["command:'s3cret"], "quotation mark"),
        (["command:no-such-program-here --token s3cret"], "no program 'no-such-program-here'"),
        ([f"jsonl:{number}" for number in range(SINKS_MAX + 1)], "too many"),
    ],
)
def test_r08_sinks_that_cannot_work_are_refused_at_start(specs: list[str], said: str) -> None:
    """One line that says what would work, without repeating a target that may be a secret."""
    flags = [each for spec in specs for each in ("--notify", spec)]
    with pytest.raises(ConfigInvalid) as caught:
        load(SupervisorConfig, service="supervisor", argv=flags, environ={})
    text = str(caught.value)
    assert said in text
    assert text.startswith("notify: ")
    assert "\n" not in text
    assert "s3cret" not in text


def test_sinks_are_called_by_their_kind(tmp_path: Path) -> None:
    """The first of a kind by its kind, others with a number; the settings take them in order."""
    specs = [
        f"jsonl:{tmp_path}/a",
        "stdout",
        f"jsonl:{tmp_path}/b",
        "webhook:https://h/x",
        f"command:{sys.executable} -V",
    ]
    flags = [each for spec in specs for each in ("--notify", spec)]
    settings = load(SupervisorConfig, service="supervisor", argv=flags, environ={})
    names = [sink.name for sink in make_sinks(settings.notify, {})]
    assert names == ["jsonl", "stdout", "jsonl-2", "webhook", "command"]
    assert SupervisorConfig().notify == ()


def test_a_file_that_cannot_be_written_is_said_at_start(tmp_path: Path) -> None:
    """One line with the path and the system's word for it."""
    with pytest.raises(SinkUnusable, match=r"notify: .*/none/x: No such file or directory$"):
        make_sinks([f"jsonl:{tmp_path}/none/x"], {})
