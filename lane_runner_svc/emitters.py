"""Every code site of the lane runner that writes, by name. Throttled are those whose caller can be told to wait."""

from __future__ import annotations

from typing import Final

from lanewarden.store import Emitter

START: Final = Emitter("lane_runner.start", exempt=True)
SUBMIT: Final = Emitter("lane_runner.task.submit")
CANCEL: Final = Emitter("lane_runner.task.cancel", exempt=True)
PAUSE: Final = Emitter("lane_runner.task.pause", exempt=True)
RESUME: Final = Emitter("lane_runner.task.resume")
GATE: Final = Emitter("lane_runner.gate.record")
CLAIM: Final = Emitter("lane_runner.attempt.claim", exempt=True)
LAUNCH: Final = Emitter("lane_runner.attempt.launch", exempt=True)
EXIT: Final = Emitter("lane_runner.attempt.exit", exempt=True)
ESCALATE: Final = Emitter("lane_runner.worker.escalate", exempt=True)
PROGRESS: Final = Emitter("lane_runner.worker.progress")
SENSE: Final = Emitter("lane_runner.attempt.sense", exempt=True)
COMPLETE: Final = Emitter("lane_runner.worker.complete", exempt=True)
TAKEN: Final = Emitter("lane_runner.worker.acknowledge", exempt=True)
EVIDENCE: Final = Emitter("lane_runner.worker.evidence")
ACK: Final = Emitter("lane_runner.hold.acknowledge", exempt=True)
RULE: Final = Emitter("lane_runner.hold.rule", exempt=True)
INSTRUCT: Final = Emitter("lane_runner.message.instruct")
INPUT: Final = Emitter("lane_runner.message.input")
DELIVER: Final = Emitter("lane_runner.message.deliver", exempt=True)
LIMIT: Final = Emitter("lane_runner.task.limit", exempt=True)
REPORT: Final = Emitter("lane_runner.outbox.report", exempt=True)
RECONCILE: Final = Emitter("lane_runner.outbox.reconcile", exempt=True)
TIMER: Final = Emitter("lane_runner.hold.timer", exempt=True)
EXTEND: Final = Emitter("lane_runner.hold.extend", exempt=True)
RETRY: Final = Emitter("lane_runner.task.retry")
REOPEN: Final = Emitter("lane_runner.task.reopen")
TAKE_OVER: Final = Emitter("lane_runner.task.take_over")
SUPERVISION: Final = Emitter("lane_runner.supervision.change", exempt=True)
WAKE: Final = Emitter("lane_runner.task.wake", exempt=True)
RELAUNCH: Final = Emitter("lane_runner.task.relaunch", exempt=True)
SETTLE: Final = Emitter("lane_runner.task.settle", exempt=True)
CLAIM_INCIDENT: Final = Emitter("lane_runner.incident.claim", exempt=True)
RECORD_INCIDENT: Final = Emitter("lane_runner.incident.record", exempt=True)
RESOLVE_INCIDENT: Final = Emitter("lane_runner.incident.resolve")
DIRECTIVE: Final = Emitter("lane_runner.worker.directive")
CHECKPOINT: Final = Emitter("lane_runner.context.checkpoint", exempt=True)
HOOK: Final = Emitter("lane_runner.task.on_success", exempt=True)
AUDIT: Final = Emitter("lane_runner.audit.refusal")
ROLL_UP: Final = Emitter("lane_runner.ledger.roll_up", exempt=True)
PRUNE: Final = Emitter("lane_runner.request_log.prune", exempt=True)

OF_PEOPLE: Final = frozenset(
    each.name
    for each in (
        SUBMIT,
        CANCEL,
        PAUSE,
        RESUME,
        GATE,
        ACK,
        RULE,
        EXTEND,
        INSTRUCT,
        INPUT,
        DELIVER,
        RETRY,
        REOPEN,
        TAKE_OVER,
    )
)
"""What is done to a task by people and bots, from outside: however often it is, its worker does not do it."""
