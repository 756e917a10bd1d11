"""Every span that the services send: its name, what it is, its kind and the attributes that it may have.

Calls are named by their method, ``package.Service/Method``; everything else has a name of its own. No attribute holds a text
that a person or a worker wrote, an argument, an environment or a token.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanName:
    """One row of the table. ``attributes`` that begin with a dot are ``lanewarden.`` and the rest. A CONSUMER goes on with a
    trace that was stored, where one was.
    """

    name: str
    meaning: str
    kind: str = "INTERNAL"
    attributes: tuple[str, ...] = ()
    counted: bool = False
    """Also a metric of the same name."""


CALL: Final = "package.Service/Method"
UNIT: Final = "lanewarden.store.unit"
COMMIT: Final = "lanewarden.store.commit"
TASK_TRANSITION: Final = "lanewarden.task.transition"
HOLD_TRANSITION: Final = "lanewarden.hold.transition"
MESSAGE_SENT: Final = "lanewarden.message.sent"
MESSAGE_ACKNOWLEDGED: Final = "lanewarden.message.acknowledged"
COMMAND_TRANSITION: Final = "lanewarden.command.transition"
LEASE_TRANSITION: Final = "lanewarden.lease.transition"
FILING_TRANSITION: Final = "lanewarden.filing.transition"
SIGNAL_RAISED: Final = "lanewarden.signal.raised"
SIGNAL_DISCHARGED: Final = "lanewarden.signal.discharged"
DIRECTIVE_GIVEN: Final = "lanewarden.directive.given"
DIRECTIVE_REPORTED: Final = "lanewarden.directive.reported"
CHECKPOINT_STARTED: Final = "lanewarden.checkpoint.started"
CHECKPOINT_TIMED_OUT: Final = "lanewarden.checkpoint.timed_out"
CHECKPOINT_ENDED: Final = "lanewarden.checkpoint.ended"
LAUNCH: Final = "lanewarden.effect.launch"
STOP: Final = "lanewarden.effect.stop"
ON_SUCCESS: Final = "lanewarden.effect.on_success"
CHECKPOINT_WRITER: Final = "lanewarden.effect.checkpoint_writer"
REPORT: Final = "lanewarden.effect.report"
CARRIED: Final = "lanewarden.effect.carried"
DELIVER: Final = "lanewarden.effect.deliver"
ANSWERED: Final = "lanewarden.effect.answered"
ACT: Final = "lanewarden.effect.act"
NOTIFY: Final = "lanewarden.effect.notify"
FILE: Final = "lanewarden.effect.file"

_WRITES: Final = (".emitter", ".origin")
_ATTEMPT: Final = (".task.id", ".epoch", ".attempt")
_TASK: Final = (*_ATTEMPT, ".lane", ".generation")
_FAILS: Final = (".reason", "error.type")


def _told(name: str, meaning: str, *attributes: str, kind: str = "INTERNAL", counted: bool = False) -> SpanName:
    return SpanName(name=name, meaning=meaning, kind=kind, attributes=(*_WRITES, *attributes), counted=counted)


def _effect(name: str, meaning: str, *attributes: str, kind: str = "INTERNAL") -> SpanName:
    return SpanName(name=name, meaning=meaning, kind=kind, attributes=(*attributes, *_FAILS))


SPANS: Final = (
    SpanName(
        name=CALL,
        meaning="one RPC, at the end that serves it or at the end that makes it; a stream until it ends",
        kind="SERVER or CLIENT",
        attributes=(
            *("rpc.system.name", "rpc.method", "rpc.response.status_code", "server.address"),
            *(".origin", *_FAILS),
        ),
    ),
    SpanName(
        name=UNIT,
        meaning="one unit of work, from when it was asked for until it was durable or failed; `waited_for` is the emitter"
        " that had the store for most of a long wait, and its unit is linked",
        attributes=(
            *(*_WRITES, ".entity.kind", ".task.id", ".escalation.id", ".runner.id", ".incident.id", ".rows"),
            *(".waited_seconds", ".held_seconds", ".waited_for", ".finding.kind", *_FAILS),
        ),
    ),
    SpanName(
        name=COMMIT,
        meaning="one transaction with its sync, below the first of its units and linked with the others",
        attributes=(".units", ".rows", "error.type"),
    ),
    _told(
        TASK_TRANSITION,
        "a task moved from one state to another, or was made; `cause` is what happened",
        *(*_TASK, ".from", ".to", ".cause"),
    ),
    _told(
        HOLD_TRANSITION,
        "a hold was opened, released, acknowledged or canceled",
        ".task.id",
        ".escalation.id",
        ".from",
        ".to",
    ),
    _told(
        MESSAGE_SENT,
        "a message went out to a worker, in the trace of whoever sent it",
        *(*_ATTEMPT, ".message.kind"),
        kind="CONSUMER",
    ),
    _told(
        MESSAGE_ACKNOWLEDGED,
        "a worker took a message, in the trace of whoever sent it and linked with the worker's call",
        *(*_ATTEMPT, ".message.kind"),
        kind="CONSUMER",
    ),
    _told(
        COMMAND_TRANSITION,
        "an operator's command was stored for its runner, is had by it, or was refused",
        *(".task.id", ".escalation.id", ".runner.id", ".from", ".to", ".reason"),
    ),
    _told(LEASE_TRANSITION, "the lease of a runner was granted or has ended", ".runner.id", ".generation", ".to"),
    _told(
        FILING_TRANSITION, "an incident moved towards its tracker", ".task.id", ".epoch", ".incident.id", ".from", ".to"
    ),
    _told(SIGNAL_RAISED, "a one-shot request was recorded", ".task.id", ".kind", counted=True),
    _told(SIGNAL_DISCHARGED, "a one-shot request was acted on", ".task.id", ".kind", counted=True),
    _told(DIRECTIVE_GIVEN, "a worker was told what to do about its context", ".task.id", ".directive", counted=True),
    _told(DIRECTIVE_REPORTED, "a worker said what came of it", ".task.id", ".directive", ".outcome", counted=True),
    _told(CHECKPOINT_STARTED, "a checkpoint is to be written", ".task.id", counted=True),
    _told(CHECKPOINT_TIMED_OUT, "a checkpoint is waited for no longer", ".task.id", counted=True),
    _told(CHECKPOINT_ENDED, "the writing of a checkpoint has ended", ".task.id", ".state", counted=True),
    _effect(LAUNCH, "a worker is started; continues the claim of its task", *_ATTEMPT, ".lane", kind="CONSUMER"),
    _effect(STOP, "the stop ladder of a worker is begun", *_ATTEMPT),
    _effect(ON_SUCCESS, "an on_success command is started", *_ATTEMPT),
    _effect(CHECKPOINT_WRITER, "a command that writes a checkpoint is started", *_ATTEMPT),
    _effect(
        REPORT,
        "changes are told to the supervisor, in the trace that made them or linked with each of several",
        ".marks",
        kind="CONSUMER or INTERNAL",
    ),
    _effect(
        CARRIED,
        "a command that came with a renewal is carried out, in the trace of the operator's call",
        *(".task.id", ".escalation.id"),
        kind="CONSUMER",
    ),
    _effect(
        DELIVER,
        "a stored command is brought to its runner, in the trace of the operator's call",
        *(".runner.id", ".task.id", ".escalation.id", ".outcome"),
        kind="CONSUMER",
    ),
    _effect(
        ANSWERED,
        "what a runner made of a command that it had with a renewal is stored, in the trace of the operator's call",
        *(".runner.id", ".task.id", ".escalation.id"),
        kind="CONSUMER",
    ),
    _effect(
        ACT, "supervision wakes, relaunches or settles a task, or claims its incident", *_TASK, ".runner.id", ".action"
    ),
    _effect(
        NOTIFY,
        "people are told of an escalation at a sink",
        *(".sink", ".escalation.id", ".notification.kind", ".tries"),
        kind="CONSUMER",
    ),
    _effect(
        FILE,
        "an incident is brought a step further: looked up at its tracker, created, told to its runner",
        *(".incident.id", ".task.id", ".epoch", ".tries"),
        kind="CONSUMER",
    ),
)
"""The catalogue."""
