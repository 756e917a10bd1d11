"""What a worker gets: plain values, made of the contract's messages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lanewarden.v1 import context_pb2, escalation_pb2, message_pb2, task_pb2, worker_service_pb2


@dataclass(frozen=True, slots=True, kw_only=True)
class Escalation:
    """A stored question or notice; ``question`` and ``key`` are as they were given."""

    escalation_id: str
    question: str
    expects_reply: bool
    hold_state: str
    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Ruling:
    """What was decided. ``decision`` is ``approve``, ``reject``, ``revise`` or ``choose``."""

    message_id: str
    ruling_id: str
    escalation_id: str
    decision: str
    option_key: str
    instructions: str
    ratifies: tuple[str, ...]
    ruled_by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """A message of the task's inbox. ``kind`` is ``ruling``, ``instruction`` or ``input``; the latter two have a text."""

    message_id: str
    sequence: int
    kind: str
    text: str
    sent_by: str
    ruling: Ruling | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Directive:
    """What to do about the context before the next turn: ``kind`` is ``continue``, ``checkpoint``, ``rebuild``, ``compact``
    or ``wrap_up``.

    ``directive_id`` names it in the report, and is empty for ``continue``. ``checkpoint_id`` is what to write, or what to
    rebuild from; ``content`` is the checkpoint of a rebuild. ``signals`` are what else is asked of the task.
    """

    kind: str
    directive_id: str
    cause: str
    checkpoint_id: str
    content: str
    reductions: int
    reductions_max: int
    signals: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """What the worker is to do, and ``reason``, why it was started: first, retry, ruling, input or relaunch."""

    task_id: str
    name: str
    lane: str
    epoch: int
    attempt: int
    reason: str
    argv: tuple[str, ...]
    cwd: str
    progress: int | None
    holds: tuple[Escalation, ...]


def enum_word(kind: Any, value: int) -> str:
    """The word of an enum number: ``DECISION_APPROVE`` as ``approve``; a number of a newer runner as itself."""
    if value not in kind.values():
        return str(value)
    prefix = str(kind.Name(0)).removesuffix("UNSPECIFIED")
    return str(kind.Name(value)).removeprefix(prefix).lower()


def escalation_of(stored: escalation_pb2.Escalation) -> Escalation:
    """An escalation of the contract as a worker sees it."""
    return Escalation(
        escalation_id=stored.escalation_id,
        question=stored.question,
        expects_reply=stored.expects_reply,
        hold_state=enum_word(escalation_pb2.HoldState, stored.hold_state),
        key=stored.key,
    )


def ruling_of(message: message_pb2.Message) -> Ruling:
    """The ruling that a message carries."""
    record = message.ruling
    return Ruling(
        message_id=message.message_id,
        ruling_id=record.ruling_id,
        escalation_id=record.ruling.escalation_id,
        decision=enum_word(escalation_pb2.Decision, record.ruling.decision),
        option_key=record.ruling.option_key,
        instructions=record.ruling.instructions,
        ratifies=tuple(record.ruling.ratifies),
        ruled_by=_person(record.ruled_by),
    )


def message_of(message: message_pb2.Message) -> Message:
    """A message of the contract as a worker sees it."""
    kind = message.WhichOneof("body") or "unknown"
    texts = {"instruction": message.instruction.text, "input": message.input.text}
    return Message(
        message_id=message.message_id,
        sequence=message.sequence,
        kind=kind,
        text=texts.get(kind, ""),
        sent_by=_person(message.sent_by),
        ruling=ruling_of(message) if kind == "ruling" else None,
    )


def directive_of(response: worker_service_pb2.NextDirectiveResponse) -> Directive:
    """A directive of the contract as a worker sees it."""
    return Directive(
        kind=enum_word(worker_service_pb2.Directive, response.directive),
        directive_id=response.directive_id,
        cause=response.cause,
        checkpoint_id=response.checkpoint.checkpoint_id,
        content=response.checkpoint.content,
        reductions=response.reductions,
        reductions_max=response.reductions_max,
        signals=tuple(enum_word(context_pb2.SignalKind, each.kind) for each in response.signals),
    )


def _person(actor: task_pb2.Actor) -> str:
    return f"{actor.identity} ({actor.role})"
