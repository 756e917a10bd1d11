"""How the contract's messages look: as rows and fields for people, as documents for programs."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import click
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

from lanewarden.cli.durations import rough
from lanewarden.cli.terminal import lines, one_line, write_json
from lanewarden.v1 import audit_pb2, escalation_pb2, task_pb2
from lanewarden.worker_messages import enum_word

CELL_WIDTH: Final = 60


def document(message: Message) -> dict[str, Any]:
    """The JSON form of a message: protobuf's own mapping, with the contract's field names and every plain field."""
    return dict(MessageToDict(message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True))


def print_documents(messages: Iterable[Message]) -> None:
    """One JSON array."""
    write_json([document(message) for message in messages])


def print_table(headers: Sequence[str], rows: Sequence[Sequence[str]], *, empty: str, whole: str = "") -> None:
    """A table with one line per row, or the line ``empty``. Cells are cut, but for those of column ``whole``."""
    if not rows:
        click.echo(empty)
        return
    from tabulate import tabulate

    widths = [None if header == whole else CELL_WIDTH for header in headers]
    cells = [[_cell(cell, width) for cell, width in zip(row, widths, strict=True)] for row in rows]
    click.echo(tabulate(cells, headers, tablefmt="plain", disable_numparse=True))


def print_fields(fields: Iterable[tuple[str, str]]) -> None:
    """``name  value`` lines; a value of several lines is indented, an empty one is left out."""
    shown = [(name, value) for name, value in fields if value]
    width = max(len(name) for name, _ in shown)
    for name, value in shown:
        first, *rest = lines(value)
        click.echo(f"{name:<{width}}  {first}")
        for line in rest:
            click.echo(f"{'':<{width}}  {line}")


def _cell(text: str, width: int | None) -> str:
    line = one_line(text.splitlines()[0] if text else "")
    return line if width is None or len(line) <= width else line[: width - 1] + "…"


def age(stamp: Timestamp) -> str:
    """How long ago, in one unit."""
    return rough(int(time.time()) - stamp.seconds)


def ahead(stamp: Timestamp) -> str:
    """How long until then: ``in 59m``, or ``now`` for what is due."""
    seconds = stamp.seconds - int(time.time())
    return f"in {rough(seconds)}" if seconds > 0 else "now"


def moment(stamp: Timestamp) -> str:
    """Local date and time, to the second; empty when it is unset."""
    if not stamp.seconds:
        return ""
    return datetime.fromtimestamp(stamp.seconds).astimezone().isoformat(sep=" ", timespec="seconds")


def minute(stamp: Timestamp) -> str:
    """Local date and time, short enough for a cell."""
    return f"{datetime.fromtimestamp(stamp.seconds).astimezone():%Y-%m-%d %H:%M}"


def person(actor: task_pb2.Actor) -> str:
    """``ada (operator)``."""
    return f"{actor.identity} ({actor.role})" if actor.identity else ""


_PAUSES: Final[Mapping[int, str]] = {
    task_pb2.PAUSE_CAUSE_OPERATOR: "paused by an operator",
    task_pb2.PAUSE_CAUSE_HOLD_DEADLINE: "parked by a hold's deadline",
    task_pb2.PAUSE_CAUSE_TAKEOVER: "taken over",
    task_pb2.PAUSE_CAUSE_SUPERVISOR_LOSS: "waiting for a supervisor",
}


def pauses(task: task_pb2.Task) -> list[str]:
    """Why it is not launched, cause by cause."""
    return [_pause(task, cause) for cause in task.pauses]


def _pause(task: task_pb2.Task, cause: task_pb2.PauseCause) -> str:
    if cause == task_pb2.PAUSE_CAUSE_USAGE_LIMIT:
        return f"waits for its usage limit until {minute(task.not_before)}"
    return _PAUSES.get(cause) or f"paused by {enum_word(task_pb2.PauseCause, cause)}"


_SAID_OTHERWISE: Final = frozenset(
    {
        *(task_pb2.VERDICT_UNSPECIFIED, task_pb2.VERDICT_HEALTHY),
        *(task_pb2.VERDICT_QUEUED, task_pb2.VERDICT_HELD),  # as the state says
        task_pb2.VERDICT_UNKNOWN,  # as the progress says
    }
)


def verdict(task: task_pb2.Task) -> str:
    """What the supervisor makes of it, where that says more than the rest; `lanewarden why` says all."""
    return "" if task.verdict in _SAID_OTHERWISE else enum_word(task_pb2.Verdict, task.verdict)


def state(task: task_pb2.Task) -> str:
    """The state with what modifies it. A task that nobody can ask about is not said to be in any: only what it was."""
    known = _known_state(task)
    if task.runner_forgot:
        return f"forgotten by its runner, was {known}"
    if not task.runner_unreachable:
        return known
    # An end stays an end, whoever can be reached.
    return f"{known}, as last seen" if task.HasField("finished_at") else f"unreachable, was {known}"


def _known_state(task: task_pb2.Task) -> str:
    words = [enum_word(task_pb2.TaskState, task.state), *pauses(task)]
    words += [verdict(task)] if verdict(task) else []
    if task.on_success.state in (task_pb2.HOOK_STATE_PENDING, task_pb2.HOOK_STATE_FAILED):
        words.append(f"on_success {enum_word(task_pb2.HookState, task.on_success.state)}")
    return ", ".join(words)


def on_success(task: task_pb2.Task) -> str:
    """How far its on_success command has come, and what the last try came to."""
    hook = task.on_success
    word = enum_word(task_pb2.HookState, hook.state) if hook.state else "waits for success"
    return f"{word}: {hook.summary}" if hook.summary else word


def progress(task: task_pb2.Task) -> str:
    """The progress, or that there is none yet, or no sensor."""
    if not task.HasField("progress"):
        return "none yet" if task.spec.HasField("progress_from") else "unknown"
    return f"{task.progress} {task.progress_note}".strip()


def task_rows(tasks: Iterable[task_pb2.Task]) -> list[list[str]]:
    """Rows under TASK NAME LANE STATE ATTEMPT PROGRESS AGE SUMMARY."""
    return [
        [
            task.task_id,
            task.spec.name,
            task.spec.lane,
            state(task),
            str(task.attempt),
            progress(task),
            age(task.submitted_at),
            task.summary,
        ]
        for task in tasks
    ]


TASK_HEADERS: Final = ("TASK", "NAME", "LANE", "STATE", "ATTEMPT", "PROGRESS", "AGE", "SUMMARY")


UNCLOSED: Final = (escalation_pb2.HOLD_STATE_OPEN, escalation_pb2.HOLD_STATE_RELEASED)


def escalation_state(each: escalation_pb2.Escalation) -> str:
    """Where the hold stands, and what a person has said about it."""
    if not each.expects_reply:
        return "notice"
    words = [enum_word(escalation_pb2.HoldState, each.hold_state)]
    if each.HasField("ruling"):
        words.append(ruling_word(each.ruling.ruling))
    elif each.HasField("ack"):
        expected = moment(each.ack.expected_by)
        words.append(f"acked by {each.ack.acked_by.identity}" + (f", expected by {expected}" if expected else ""))
    if each.runner_forgot:
        words.append("forgotten by its runner")
    elif each.runner_unreachable and each.hold_state in UNCLOSED:
        words.append("runner unreachable")
    return ", ".join(words)


def ruling_word(ruling: escalation_pb2.Ruling) -> str:
    """``approve``, or ``choose archive``."""
    return f"{enum_word(escalation_pb2.Decision, ruling.decision)} {ruling.option_key}".strip()


def due(each: escalation_pb2.Escalation) -> str:
    """How long until an open hold passes its deadline; empty without one."""
    if each.hold_state != escalation_pb2.HOLD_STATE_OPEN or not each.HasField("deadline_at"):
        return ""
    return "passed" if each.expired else ahead(each.deadline_at)


def deadline(each: escalation_pb2.Escalation) -> str:
    """The deadline in full; empty without one."""
    left = due(each)
    return moment(each.deadline_at) + (f" ({left})" if left else "")


def reminders(each: escalation_pb2.Escalation) -> str:
    """How many went out, and when the next one does; empty when there is neither."""
    coming = each.next_reminder_at
    words = [f"{each.reminders} sent"] if each.reminders else []
    words += [f"next {moment(coming)} ({ahead(coming)})"] if coming.seconds else []
    return ", ".join(words)


def escalation_rows(escalations: Iterable[escalation_pb2.Escalation]) -> list[list[str]]:
    """Rows under ESCALATION TASK LANE AGE DUE OWED BY STATE QUESTION."""
    return [
        [
            each.escalation_id,
            each.task_name,
            each.lane,
            age(each.opened_at),
            due(each),
            each.owed_by,
            escalation_state(each),
            each.question,
        ]
        for each in escalations
    ]


ESCALATION_HEADERS: Final = ("ESCALATION", "TASK", "LANE", "AGE", "DUE", "OWED BY", "STATE", "QUESTION")


def escalation_fields(each: escalation_pb2.Escalation) -> list[tuple[str, str]]:
    """Everything about one escalation."""
    ack, record = each.ack, each.ruling
    delivery = enum_word(escalation_pb2.DeliveryState, record.delivery)
    worker = "alive, may be waiting" if each.worker_alive else "gone; the ruling starts the next attempt"
    if each.runner_unreachable or each.runner_forgot:
        worker = "unknown: its runner does not say"
    return [
        ("escalation", each.escalation_id),
        ("task", f"{each.task_id} ({each.task_name}), attempt {each.attempt}, lane {each.lane}"),
        ("state", escalation_state(each)),
        ("opened", f"{moment(each.opened_at)} ({age(each.opened_at)} ago)"),
        ("deadline", deadline(each)),
        ("owed by", each.owed_by),
        ("reminders", reminders(each)),
        ("worker", worker if each.hold_state == escalation_pb2.HOLD_STATE_OPEN else ""),
        ("last seen", moment(each.last_seen)),
        ("key", each.key),
        ("question", each.question),
        *((f"option {option.key}", option.text or "-") for option in each.options),
        ("acked", f"{moment(ack.acked_at)} by {person(ack.acked_by)} {ack.note}".strip() if each.acks else ""),
        ("ruling", ruling_word(record.ruling) if record.ruling_id else ""),
        ("instructions", record.ruling.instructions),
        ("ratifies", ", ".join(record.ruling.ratifies)),
        ("ruled", f"{moment(record.ruled_at)} by {person(record.ruled_by)}" if record.ruling_id else ""),
        ("delivery", f"{delivery} {record.refusal}".strip() if record.ruling_id else ""),
        ("closed", moment(each.closed_at)),
        ("canceled", each.cancel_cause),
    ]


def how_to_rule(each: escalation_pb2.Escalation, prefix: str = "lanewarden") -> list[str]:
    """The commands that would rule on it, one per line."""
    if each.options:
        return [
            f"{prefix} rule {each.escalation_id} choose --option {option.key} -m '...'   # {one_line(option.text)}"
            for option in each.options
        ]
    return [f"{prefix} rule {each.escalation_id} approve|reject|revise -m '...'"]


def audit_rows(entries: Iterable[tuple[str, audit_pb2.AuditEntry]]) -> list[list[str]]:
    """Rows under AT SERVICE WHO ACTION ON OUTCOME, of entries with the service that has them."""
    return [
        [moment(each.at), service, person(each.actor), each.action, each.escalation_id or each.task_id, each.outcome]
        for service, each in entries
    ]


AUDIT_HEADERS: Final = ("AT", "SERVICE", "WHO", "ACTION", "ON", "OUTCOME")
